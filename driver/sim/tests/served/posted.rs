//! Register writes by a ring in shared memory, also of clients that write anything to it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fpga_pci::SharedMemory;
use fpga_pci::memory::RingWriter;
use fpga_vfio_user::wire::{Request, SmallWrite, WRITE_RING, encode_request, region};
use proptest::prelude::*;

use crate::served::client::{Client, DMA, LONG, PAGE, Served, file, until};

/// Interrupt enable mask of H2C channel 0: keeps bits 1 and 2 as written.
const MASK: u64 = 0x90;

/// A client with its ring.
struct Sharing {
    client: Client,
    ring: RingWriter,
    memory: SharedMemory,
}

impl Sharing {
    fn connect(served: &Served) -> Self {
        let (client, memory) = Client::with_ring(&served.path);
        Self { client, ring: RingWriter::new(WRITE_RING, memory.clone()), memory }
    }

    /// Puts a write into the ring; waits for space.
    fn push(&mut self, region: u32, offset: u64, data: &[u8]) {
        let write = SmallWrite::new(region, offset, data).unwrap();
        while !self.ring.push(&[&write.to_bytes()]).unwrap() {
            self.publish();
            std::thread::yield_now();
        }
    }

    /// Makes the writes visible, and wakes the server if it sleeps. Returns whether it slept.
    fn publish(&mut self) -> bool {
        let sleeps = self.ring.publish().unwrap();
        if sleeps {
            self.client.send(&Request::RegionWriteMulti(Vec::new()), true, &[]);
        }
        sleeps
    }
}

#[test]
fn posted_writes_are_executed_in_order_and_before_messages() {
    let served = Served::start();
    let mut sharing = Sharing::connect(&served);
    for round in 0..5000_u32 {
        let value = round % 4 * 2;
        sharing.push(DMA, MASK, &(value ^ 6).to_le_bytes());
        sharing.push(DMA, MASK, &value.to_le_bytes());
        sharing.publish();
        if round % 7 == 0 {
            assert_eq!(sharing.client.read32(DMA, MASK), value & 6);
        }
    }
    drop(sharing);
    assert_eq!(served.stop().broken_connections, 0);
}

#[test]
fn posted_write_wakes_sleeping_server() {
    let served = Served::start();
    let mut sharing = Sharing::connect(&served);
    for value in [2_u32, 4, 6] {
        std::thread::sleep(Duration::from_millis(20));
        sharing.push(DMA, MASK, &value.to_le_bytes());
        assert!(sharing.publish(), "an idle server sleeps");
        let mask = || {
            served.network.with_card(0, |card| {
                let mut bytes = [0; 4];
                card.bar_read(1, MASK, &mut bytes);
                u32::from_le_bytes(bytes)
            })
        };
        until(|| mask() == Some(value));
    }
    served.stop();
}

#[test]
fn posted_write_outside_regions_is_refused_alone() {
    let served = Served::start();
    let mut sharing = Sharing::connect(&served);
    for (region, offset) in [(99, 0), (DMA, u64::MAX - 3), (region::VGA, 0), (u32::MAX, 0)] {
        sharing.push(region, offset, &[1; 8]);
    }
    sharing.push(DMA, MASK, &6_u32.to_le_bytes());
    sharing.publish();
    assert_eq!(sharing.client.read32(DMA, MASK), 6);
    drop(sharing);
    let counts = served.stop();
    assert_eq!((counts.refused_requests, counts.broken_connections), (4, 0));
}

/// A file that could become shorter would end the server.
#[test]
fn posted_ring_unsealed_or_short_file_is_refused() {
    let served = Served::start();
    let pages = WRITE_RING.length() as u64 / PAGE;
    let mut sharing = Sharing::connect(&served);
    let mut refused = |files: &[OwnedFd]| {
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        sharing.client.ask(&Request::ShareWrites, &files).unwrap_err()
    };
    assert_eq!(refused(&[file(pages, false)]), 22);
    assert_eq!(refused(&[file(pages - 1, true)]), 22);
    assert_eq!(refused(&[]), 22);
    assert_eq!(refused(&[file(pages, true), file(pages, true)]), 22);
    // The ring before is still used.
    sharing.push(DMA, MASK, &6_u32.to_le_bytes());
    sharing.publish();
    assert_eq!(sharing.client.read32(DMA, MASK), 6);
    drop(sharing);
    served.stop();
}

#[test]
fn posted_writes_without_pause_do_not_delay_others() {
    let served = Served::start();
    let mut sharing = Sharing::connect(&served);
    let goes_on = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while goes_on.load(Ordering::Relaxed) {
                let write = SmallWrite::new(DMA, MASK, &[6, 0, 0, 0]).unwrap();
                let _ = sharing.ring.push(&[&write.to_bytes()]).unwrap();
                let _ = sharing.ring.publish().unwrap();
            }
        });
        // Another client is answered that the card is busy, and the server ends.
        let mut other = Client::bare(&served.path);
        assert_eq!(other.ask(&crate::served::client::version(0, 1), &[]).unwrap_err(), 16);
        served.stop();
        goes_on.store(false, Ordering::Relaxed);
        writer.join().unwrap();
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The client writes anything anywhere, between its accesses.
    #[test]
    fn posted_garbage_ends_connection_only(
        words in prop::collection::vec((prop_oneof![0..300_usize, 4096..9000_usize], prop_oneof![any::<u32>(), 0..200_u32]), 1..40),
    ) {
        let served = Served::start();
        let mut sharing = Sharing::connect(&served);
        for (at, word) in words {
            let write = SmallWrite::new(DMA, MASK, &[2, 0, 0, 0]).unwrap();
            let _ = sharing.ring.push(&[&write.to_bytes()]);
            let _ = sharing.ring.publish();
            sharing.memory.store_u32(at / 4 * 4, word).unwrap();
            let mut out = Vec::new();
            encode_request(1, true, &Request::RegionWriteMulti(Vec::new()), &mut out);
            let _ = sharing.client.connection.send(&out, &[], LONG);
        }
        drop(sharing);
        let mut other = served.connect();
        other.write32(DMA, MASK, 4);
        prop_assert_eq!(other.read32(DMA, MASK), 4);
        served.stop();
    }
}

/// Impossible values end the connection with an error, not with silence.
#[test]
fn posted_garbage_is_reported() {
    for (at, word) in [(0, 64 * 5000), (4096, 0), (4096, 25), (4096, u32::MAX), (4096 + 16 + 12, 9)] {
        let served = Served::start();
        let mut sharing = Sharing::connect(&served);
        sharing.push(DMA, MASK, &[2, 0, 0, 0]);
        sharing.memory.store_u32(at, word).unwrap();
        if at != 0 {
            sharing.publish();
        }
        let mut out = Vec::new();
        encode_request(1, true, &Request::RegionWriteMulti(Vec::new()), &mut out);
        // The server may have ended the connection before.
        let _ = sharing.client.connection.send(&out, &[], LONG);
        assert!(sharing.client.receive().is_err(), "{at} {word}");
        assert_eq!(served.stop().broken_connections, 1, "{at} {word}");
    }
}
