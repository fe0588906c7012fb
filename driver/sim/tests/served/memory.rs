//! Client memory: mapped once, reachable only where it is mapped.

use crate::served::client::{Client, DMA, PAGE, Served, descriptor, file, until};
use fpga_registers::CardAddr;
use fpga_vfio_user::wire::{DmaMap, DmaUnmap, Request, dma_unmap_flags};
use std::os::fd::AsFd;

const READ: u32 = 1;
const BOTH: u32 = 3;

fn unmap(client: &mut Client, address: u64, size: u64, flags: u32) -> Result<u64, u32> {
    let body = client.ask(&Request::DmaUnmap(DmaUnmap { argsz: 24, flags, address, size }), &[])?;
    Ok(u64::from_ne_bytes(body[16..24].try_into().unwrap()))
}

/// Returns the number of descriptors and of mappings of the client's file in this process.
fn held() -> (usize, usize) {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let ours = links.filter_map(|link| std::fs::read_link(link.unwrap().path()).ok());
    let files = ours.filter(|path| path.to_string_lossy().contains("memfd:client")).count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (files, maps.lines().filter(|line| line.contains("memfd:client")).count())
}

/// More than the number of files that a process may open by default; `client_file_hundred_thousand_pages_use_one_mapping` exceeds the
/// number of mappings.
#[test]
fn memory_thirty_thousand_file_pages_use_one_descriptor() {
    const PAGES: u64 = 30_000;
    let served = Served::start();
    let mut client = served.connect();
    let memory = file(PAGES, true);
    for page in 0..PAGES {
        client.send(
            &Request::DmaMap(DmaMap {
                flags: BOTH,
                offset: page * PAGE,
                address: page * 2 * PAGE,
                size: PAGE,
            }),
            true,
            &[memory.as_fd()],
        );
    }
    // A reply implies that all earlier work is done.
    client.read32(DMA, 0);
    assert_eq!(served.network.mapped_bytes(0), PAGES * PAGE);
    // Other tests have files of that name too, a few at the same time.
    let (files, maps) = held();
    assert!(files < 30 && maps < 30, "{files} descriptors, {maps} mappings");
    assert_eq!(unmap(&mut client, 0, 1 << 40, 0), Ok(PAGES * PAGE));
    assert_eq!(served.network.mapped_bytes(0), 0);
    assert_eq!(served.stop().refused_requests, 0);
}

#[test]
fn memory_transfer_spans_separately_mapped_pages() {
    const PAGES: u64 = 16;
    let served = Served::start();
    let mut client = served.connect();
    // Two files, so that adjacent pages are in different files; pages in reverse order.
    let files = [file(PAGES + 1, true), file(PAGES, false)];
    let data: Vec<u8> = (0..PAGES * PAGE - 300).map(|n| ((n * 31) >> 3).to_le_bytes()[0]).collect();
    for page in 0..PAGES {
        let (file, offset) = (&files[usize::from(page % 3 == 0)], (PAGES - 1 - page) * PAGE);
        client.map(0x100_0000 + page * PAGE, PAGE, READ, Some((file, offset))).unwrap();
        // The transfer begins and ends in the middle of a page.
        let (from, to) = ((page * PAGE).max(100), ((page + 1) * PAGE).min(PAGES * PAGE - 200));
        let part = &data[usize::try_from(from - 100).unwrap()..usize::try_from(to - 100).unwrap()];
        assert_eq!(rustix::io::pwrite(file, part, offset + from % PAGE), Ok(part.len()));
    }
    let list = descriptor(u32::try_from(data.len()).unwrap(), 0x100_0064, 0x5000);
    rustix::io::pwrite(&files[0], &list, PAGES * PAGE).unwrap();
    client.map(0x10_0000, PAGE, BOTH, Some((&files[0], PAGES * PAGE))).unwrap();
    client.bus_master(true);
    client.start_h2c(0x10_0000);
    assert_eq!(client.h2c_idle() & 0x00FF_FFF8, 0, "no error");
    let mut back = vec![0; data.len()];
    served.network.with_card(0, |card| card.peek(CardAddr::new(0x5000), &mut back)).unwrap().unwrap();
    assert!(back == data);
    served.stop();
}

#[test]
fn memory_unmapped_or_read_only_access_is_refused_and_counted() {
    let served = Served::start();
    let mut client = served.connect();
    let memory = file(3, true);
    rustix::io::pwrite(&memory, &[0x55; 3 * 4096], 0).unwrap();
    rustix::io::pwrite(&memory, &descriptor(4096, 0x20_0000, 0), 0).unwrap();
    client.map(0x10_0000, PAGE, READ, Some((&memory, 0))).unwrap();
    client.bus_master(true);
    // The source is not mapped.
    client.start_h2c(0x10_0000);
    assert_ne!(client.h2c_idle() & 0x3E00, 0, "a read error");
    assert_eq!(served.network.refused_accesses(0).reads, 1);
    // It works when mapped, and fails again when unmapped.
    client.map(0x20_0000, PAGE, READ, Some((&memory, PAGE))).unwrap();
    client.read32(DMA, 0x0044);
    client.start_h2c(0x10_0000);
    assert_eq!(client.h2c_idle() & 0x3E00, 0);
    assert_eq!(unmap(&mut client, 0x20_0000, PAGE, 0), Ok(PAGE));
    client.start_h2c(0x10_0000);
    assert_ne!(client.h2c_idle() & 0x3E00, 0);
    assert_eq!(served.network.refused_accesses(0).reads, 2);
    // C2H channel 0 writes to read-only memory: the write is lost, and only the card notices it.
    rustix::io::pwrite(&memory, &descriptor(64, 0, 0x30_0000), 0).unwrap();
    client.map(0x30_0000, PAGE, READ, Some((&memory, 2 * PAGE))).unwrap();
    client.write(DMA, 0x5080, &0x10_0000_u64.to_le_bytes()).unwrap();
    client.write32(DMA, 0x1004, 1);
    until(|| served.network.refused_accesses(0).writes > 0);
    let mut bytes = [0; 4096];
    rustix::io::pread(&memory, &mut bytes, 2 * PAGE).unwrap();
    assert_eq!(bytes, [0x55; 4096]);
    let logged = served.network.with_card(0, |card| card.faults().len()).unwrap();
    assert!(logged >= 3);
    served.stop();
}

#[test]
fn memory_invalid_mapping_is_refused_without_trace() {
    let served = Served::start();
    let mut client = served.connect();
    let memory = file(2, true);
    let some = Some((&memory, 0));
    assert_eq!(client.map(0x1000, 0, BOTH, some), Err(22), "length 0");
    assert_eq!(client.map(0x1001, PAGE, BOTH, some), Err(22), "unaligned");
    assert_eq!(client.map(0x1000, PAGE, 0, some), Err(22), "neither read nor written");
    assert_eq!(client.map(0x1000, PAGE, 7, some), Err(22), "an unknown flag");
    assert_eq!(client.map(0x1000, 3 * PAGE, BOTH, some), Err(22), "beyond the file");
    assert_eq!(client.map(u64::MAX - 4095, PAGE, BOTH, some), Err(22), "beyond the address width");
    assert_eq!(client.map(0x1000, PAGE, BOTH, Some((&memory, u64::MAX - 4095))), Err(22), "wraps");
    client.map(0x1000, PAGE, BOTH, some).unwrap();
    assert_eq!(client.map(0x1000, PAGE, BOTH, some), Err(17), "twice");
    let (pipe, _end) = rustix::pipe::pipe().unwrap();
    assert_eq!(client.map(0x5000, PAGE, BOTH, Some((&pipe, 0))), Err(22), "not a file");
    let two = [memory.as_fd(), memory.as_fd()];
    let map = DmaMap { flags: BOTH, offset: 0, address: 0x8000, size: PAGE };
    assert_eq!(client.ask(&Request::DmaMap(map), &two).unwrap_err(), 22, "two files");
    assert_eq!(served.network.mapped_bytes(0), PAGE);
    // Without a file: access by messages.
    client.map(0x9000, PAGE, BOTH, None).unwrap();
    assert_eq!(unmap(&mut client, 0x1000, 2 * PAGE, 0), Ok(PAGE));
    assert_eq!(unmap(&mut client, 0x1000, PAGE, 0), Ok(0), "an empty range is not an error");
    assert_eq!(unmap(&mut client, 0x9000, 0, 0), Err(22));
    assert_eq!(unmap(&mut client, 0x9000, PAGE, dma_unmap_flags::GET_DIRTY_BITMAP), Err(22));
    assert_eq!(unmap(&mut client, 0x9000, PAGE, dma_unmap_flags::ALL), Err(22));
    assert_eq!(unmap(&mut client, 0, 0, dma_unmap_flags::ALL), Ok(PAGE));
    assert_eq!(served.network.mapped_bytes(0), 0);
    served.stop();
}

#[test]
fn memory_partial_unmap_is_refused() {
    let served = Served::start();
    let mut client = served.connect();
    let memory = file(4, true);
    client.map(0x4000, 4 * PAGE, BOTH, Some((&memory, 0))).unwrap();
    for (at, size) in [(0x4000, PAGE), (0x3000, 2 * PAGE), (0x5000, PAGE), (0x6000, 8 * PAGE)] {
        assert_eq!(unmap(&mut client, at, size, 0), Err(22), "{at:#x}");
    }
    assert_eq!(served.network.mapped_bytes(0), 4 * PAGE);
    served.stop();
}
