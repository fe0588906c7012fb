//! The simulated card through the backend that drivers use.
#![expect(clippy::cast_possible_truncation, reason = "patterns and addresses are small")]
#![expect(clippy::expect_used, reason = "a test's preparation either works or is the failure")]

use fpga_card::{CardDescription, CardError};
use fpga_netmodel::Order;
use fpga_pci::{
    Backend, Bar, BarError, BarKind, DmaAccess, DmaMapError, HugePages, MmioError, ResetError, ResetLevel,
    SharedMemory, backend, config,
};
use fpga_protocol::time::Nanos;
use fpga_registers::{BarOffset, Iova};
use fpga_sim::{CardFailure, SimNetwork, SimNetworkError};
use std::time::Duration;

const DMA: u8 = 1;
const IOVA: Iova = Iova::new(0x10_0000);

fn memory(length: usize) -> SharedMemory {
    SharedMemory::anonymous(length, HugePages::No).expect("memory")
}

fn write(bar: &Bar, at: u64, value: u32) {
    bar.write32(BarOffset::new(at), value).expect("a register");
}

fn read(bar: &Bar, at: u64) -> u32 {
    bar.read32(BarOffset::new(at)).expect("a register")
}

/// Transfers data with one descriptor on a channel; returns the status afterwards.
fn transfer(card: &dyn Backend, host: &SharedMemory, base: u64, length: u32, from: u64, to: u64) -> u32 {
    let bar = card.open_bar(DMA).expect("the DMA BAR");
    let words = [0xAD4B_0003, length, from as u32, (from >> 32) as u32, to as u32, (to >> 32) as u32, 0, 0];
    host.store_words(0, words).expect("inside the memory");
    write(&bar, base + 0x0C, 1);
    write(&bar, base + 0x4080, IOVA.get() as u32);
    write(&bar, base + 0x4084, 0);
    write(&bar, base + 0x4088, 0);
    write(&bar, base + 0x04, 0x00F8_3E1F);
    for _ in 0..1000 {
        card.relax();
    }
    read(&bar, base + 0x40)
}

#[test]
fn dma_access_spans_mappings_and_stops_at_hole_or_permission() {
    let network = SimNetwork::builder().cards(1).build().unwrap();
    let card = network.backend(0);
    card.set_bus_master(true).unwrap();
    let pages: Vec<_> = (0..3).map(|_| memory(4096)).collect();
    for (index, page) in pages.iter().enumerate() {
        let at = IOVA.checked_add(4096 * index as u64).unwrap();
        let access = if index == 2 { DmaAccess::ReadByDevice } else { DmaAccess::Both };
        card.map_dma(at, page, access).unwrap();
        page.fill(0, 4096, index as u8 + 1).unwrap();
    }
    let from = IOVA.get() + 4000;
    assert_eq!(transfer(&*card, &pages[0], 0, 8000, from, 0), 0b110);
    let mut bytes = [0; 8000];
    network.with_card(0, |card| card.peek(fpga_registers::CardAddr::ZERO, &mut bytes)).unwrap().unwrap();
    assert_eq!((bytes[0], bytes[96], bytes[4191], bytes[4192], bytes[7999]), (1, 2, 2, 3, 3));
    assert_eq!(transfer(&*card, &pages[0], 0, 8289, from, 0), 1 << 9, "beyond the last page");
    // A write into the read-only page is lost; the engine does not notice it.
    pages[1].fill(0, 4096, 0).unwrap();
    assert_eq!(transfer(&*card, &pages[0], 0x1000, 8000, 96, from + 96), 0b110);
    assert_eq!(pages[1].load_u32(4).unwrap(), 0x0202_0202);
    assert_eq!(pages[2].load_u32(0).unwrap(), 0x0303_0303);
    card.unmap_dma(IOVA, 4096).unwrap();
    assert_eq!(transfer(&*card, &pages[0], 0, 8, from, 0), 1 << 19, "the descriptor is unmapped too");
}

#[test]
fn dma_invalid_mapping_is_refused() {
    let network = SimNetwork::builder().cards(1).build().unwrap();
    let card = network.backend(0);
    let host = memory(8192);
    card.map_dma(IOVA, &host, DmaAccess::Both).unwrap();
    for (at, length) in [(0x10_1000, 4096), (0xF_F000, 8192), (0x10_0000, 8192)] {
        let wrong = card.map_dma(Iova::new(at), &memory(length), DmaAccess::Both);
        assert!(matches!(wrong, Err(DmaMapError::Overlap { .. })), "{at:#x}");
    }
    for at in [0xFEDF_F000, 0xFEEF_F000, 1 << 48, u64::MAX - 4095] {
        let wrong = card.map_dma(Iova::new(at), &host, DmaAccess::Both);
        assert!(matches!(wrong, Err(DmaMapError::OutsideRanges { .. })), "{at:#x}");
    }
    let wrong = card.map_dma(Iova::new(0x800), &host, DmaAccess::Both);
    assert!(matches!(wrong, Err(DmaMapError::Misaligned { .. })));
    assert!(matches!(card.unmap_dma(IOVA, 4096), Err(DmaMapError::NotMapped { .. })));
    assert_eq!(network.mapped_bytes(0), 8192);
    drop(card);
    assert_eq!(network.mapped_bytes(0), 0, "closing removes the mappings");
}

#[test]
fn bar_access_is_checked_and_stale_after_reset() {
    let network = SimNetwork::builder().cards(1).build().unwrap();
    let card = network.backend(0);
    let bars = card.bars();
    assert_eq!(bars[2].map(|bar| (bar.kind, bar.prefetchable)), Some((BarKind::Memory64, true)));
    assert!(bars[3].is_none());
    assert!(matches!(card.open_bar(3), Err(BarError::Absent { index: 3 })));
    assert!(matches!(card.open_bar(6), Err(BarError::BadIndex { index: 6 })));
    let bar = card.open_bar(DMA).unwrap();
    assert!(matches!(bar.read32(BarOffset::new(0x1_0000)), Err(MmioError::OutOfRange { .. })));
    assert!(matches!(bar.read32(BarOffset::new(2)), Err(MmioError::Misaligned { .. })));
    assert!(matches!(card.reset(ResetLevel::Function), Err(ResetError::Unsupported { .. })));
    write(&bar, 0x90, 6);
    card.reset(ResetLevel::Hot).unwrap();
    assert!(matches!(bar.read32(BarOffset::new(0x90)), Err(MmioError::Stale { .. })));
    assert_eq!(read(&card.open_bar(DMA).unwrap(), 0x90), 0);
}

#[test]
fn network_unplugged_card_reports_gone() {
    let network = SimNetwork::builder().cards(1).build().unwrap();
    let card = network.backend(0);
    let bar = card.open_bar(DMA).unwrap();
    assert!(network.fail(0, CardFailure::AllOnes));
    assert_eq!(read(&bar, 0x2000), u32::MAX);
    let mut id = [0; 2];
    card.config_read(0, &mut id).unwrap();
    assert_eq!(id, [0xEE, 0x10]);
    assert!(network.fail(0, CardFailure::Gone));
    assert!(matches!(bar.read32(BarOffset::new(0x2000)), Err(MmioError::Gone { .. })));
    bar.write32(BarOffset::new(0x2004), 1).expect("writes are posted");
    card.config_read(0, &mut id).unwrap();
    assert_eq!(id, [0xFF, 0xFF]);
    assert!(matches!(card.reset(ResetLevel::Hot), Err(ResetError::NoAnswer { .. })));
    assert!(network.fail(0, CardFailure::None));
    assert_eq!(read(&bar, 0x2000) >> 16, 0x1FC2);
}

#[test]
fn network_inconsistent_description_is_refused() {
    let twice =
        SimNetwork::builder().card(CardDescription::default()).card(CardDescription::default()).build();
    assert_eq!(twice.unwrap_err(), SimNetworkError::DuplicateNode { node: 1, first: 0, second: 1 });
    let mut wrong = CardDescription::default();
    wrong.xdma.h2c_channels = 9;
    let error = SimNetwork::builder().card(wrong).build().unwrap_err();
    assert!(
        matches!(error, SimNetworkError::Card { card: 0, problem: CardError::Description(_) }),
        "{error}"
    );
    let order = Order::random(0);
    assert!(matches!(
        SimNetwork::builder().cards(1).impairments(order).build(),
        Err(SimNetworkError::Network(_))
    ));
}

#[test]
fn network_time_is_virtual() {
    let network = SimNetwork::builder().cards(2).time(Nanos::new(50), Nanos::new(700)).build().unwrap();
    let card = network.backend(1);
    let before = card.now();
    card.relax();
    assert_eq!(card.now() - before, 700, "idle time passes");
    network.advance(Nanos::from_millis(3));
    assert_eq!(card.now() - before, 3_000_700);
    assert_eq!(network.step_until_idle(), 0);
}

#[test]
fn network_endless_interrupts_do_not_stop_time() {
    let network = SimNetwork::builder().cards(1).build().unwrap();
    let card = network.backend(0);
    card.set_bus_master(true).unwrap();
    let host = memory(8192);
    card.map_dma(IOVA, &host, DmaAccess::Both).unwrap();
    let interrupts = card.enable_interrupts(1).unwrap();
    let bar = card.open_bar(DMA).unwrap();
    write(&bar, 0x2014, 1);
    write(&bar, 0x90, 0x00F8_3E1E);
    transfer(&*card, &host, 0, 64, IOVA.get(), 0);
    assert_eq!(interrupts[0].try_take(), 1);
    let began = card.now();
    for _ in 0..1000 {
        // Its source is asserted: when enabled, it sends a message at once, before the wait begins.
        write(&bar, 0x2018, 1);
        write(&bar, 0x2014, 1);
        let woken = card.wait_interrupt(&interrupts[0], Duration::from_secs(1)).unwrap();
        assert_eq!(woken, Some(1));
    }
    assert!(card.now() - began >= 1000 * 1000, "an idle poll takes a microsecond");
    let began = card.now();
    for _ in 0..1000 {
        assert_eq!(card.wait_interrupt(&interrupts[0], Duration::ZERO).unwrap(), None);
    }
    assert!(card.now() - began >= 1000 * 1000, "a poll without work also takes a microsecond");
}

/// A function in D3 does not answer at its BARs, and can be woken; event bits that were set free remain so.
#[test]
fn network_card_in_d3_is_absent_until_woken() {
    let network = SimNetwork::builder().cards(1).build().unwrap();
    let card = network.backend(0);
    let bar = card.open_bar(DMA).unwrap();
    card.config_write(0x04, &[2, 0]).unwrap();
    assert_eq!(config::answers(&*card), Ok(true));
    card.config_write(0x44, &[3, 0]).unwrap();
    assert_eq!(config::answers(&*card), Ok(false));
    let at = BarOffset::new(0x2000);
    assert_eq!(bar.read32(at), Err(MmioError::Gone { at }));
    backend::wake(&*card).unwrap();
    assert_eq!(config::answers(&*card), Ok(true));
    assert_eq!(read(&bar, 0x2000) >> 16, 0x1FC2);
    backend::wake(&*card).unwrap();
    card.config_write(0x04, &[0, 0]).unwrap();
    assert_eq!((config::answers(&*card), bar.read32(at)), (Ok(false), Err(MmioError::Gone { at })));
}
