//! Clients of a shared card.

#![expect(clippy::unwrap_used, reason = "tests")]

mod hostile;
mod interfaces;
#[path = "../../sim/tests/served/raw.rs"]
#[allow(dead_code, clippy::panic, reason = "shared with the tests of the server")]
mod raw;
mod streams;
mod waiting;

use std::io::PipeWriter;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use fpga_driver::{Card, CardAddr};
use fpga_sim::{CardDescription, SimNetwork, ThreadOptions};
use fpgad::{Owner, OwnerError, OwnerOptions};

/// A simulated card that is shared.
struct Shared {
    network: SimNetwork,
    folder: tempfile::TempDir,
    stop: Option<PipeWriter>,
    serving: Option<JoinHandle<Result<(), OwnerError>>>,
}

impl Shared {
    fn with(description: CardDescription, options: OwnerOptions) -> Self {
        let network =
            SimNetwork::builder().card(description).threaded(ThreadOptions::default()).build().unwrap();
        let card = Card::from_backend(network.backend(0)).unwrap();
        Self::serving(network, card, options)
    }

    /// Shares another card than a simulated one.
    fn of(card: Card) -> Self {
        Self::serving(SimNetwork::builder().build().unwrap(), card, OwnerOptions::default())
    }

    fn serving(network: SimNetwork, card: Card, options: OwnerOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let owner = Owner::bind(card, &folder.path().join("card"), options).unwrap();
        let (stopped, stop) = std::io::pipe().unwrap();
        let serving = Some(std::thread::spawn(move || owner.run(&stopped).map(drop)));
        Self { network, folder, stop: Some(stop), serving }
    }

    fn new() -> Self {
        Self::with(CardDescription::default(), OwnerOptions::default())
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("card")
    }

    fn client(&self) -> Card {
        Card::open(&format!("vfio-user:{}", self.socket().display())).unwrap()
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(serving) = self.serving.take() {
            serving.join().unwrap().unwrap();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

/// Bytes that depend on a seed.
fn bytes(length: usize, seed: u32) -> Vec<u8> {
    let words = (0_u32..).map(|at| at.wrapping_mul(2_654_435_761).wrapping_add(seed).rotate_left(7));
    words.flat_map(u32::to_le_bytes).take(length).collect()
}

fn write(card: &Card, channel: u8, at: u64, data: &[u8]) {
    let mut h2c = card.h2c(channel).unwrap();
    h2c.write(card.buffer_from(data).unwrap(), CardAddr::new(at)).unwrap();
}

fn read(card: &Card, channel: u8, at: u64, length: usize) -> Vec<u8> {
    let mut c2h = card.c2h(channel).unwrap();
    let buffer = c2h.read(card.buffer(length).unwrap(), CardAddr::new(at)).unwrap();
    let mut data = vec![0; length];
    buffer.read(0, &mut data).unwrap();
    data
}

#[test]
fn clients_share_card_memory() {
    let shared = Shared::new();
    let (one, other) = (shared.client(), shared.client());
    for (channel, length) in [(0, 1), (1, 4096), (2, 100_000), (3, 3_000_001)] {
        let data = bytes(length, channel.into());
        write(&one, channel, 0x1003, &data);
        assert_eq!(read(&other, channel, 0x1003, length), data, "{length} bytes");
    }
    // The card itself has the data.
    let mut card = vec![0; 4096];
    shared.network.with_card(0, |model| model.peek(CardAddr::new(0x1003), &mut card).unwrap()).unwrap();
    assert_eq!(card, read(&one, 0, 0x1003, 4096));
}

#[test]
fn clients_have_registers_of_their_own() {
    let shared = Shared::new();
    let (one, other) = (shared.client(), shared.client());
    let at = fpga_registers::BarOffset::new(0x90);
    one.dma_bar().write32(at, 6).unwrap();
    assert_eq!((one.dma_bar().read32(at).unwrap(), other.dma_bar().read32(at).unwrap()), (6, 0));
    assert_ne!(one.info().ni.as_ref().unwrap().node, other.info().ni.as_ref().unwrap().node);
}

#[test]
fn clients_share_registers_of_design() {
    let mut description = CardDescription::default();
    description.pci.subsystem_device = 7;
    let shared = Shared::with(description, OwnerOptions::default());
    let (one, other) = (shared.client(), shared.client());
    let at = fpga_registers::BarOffset::new(0x2060);
    one.user_bar().unwrap().write32(at, 1234).unwrap();
    // Writes are posted: a read of the same client shows that it has arrived, before another client looks.
    assert_eq!(one.user_bar().unwrap().read32(at).unwrap(), 1234);
    assert_eq!(other.user_bar().unwrap().read32(at).unwrap(), 1234);
}

#[test]
fn clients_at_the_same_time_keep_their_data() {
    let shared = Shared::new();
    std::thread::scope(|scope| {
        for client in 0..6_u32 {
            let card = shared.client();
            scope.spawn(move || {
                let base = u64::from(client) << 24;
                for round in 0..20_u32 {
                    let data = bytes(1 + (round * 7919 + client * 331) as usize % 70_000, round ^ client);
                    write(&card, u8::try_from(client % 4).unwrap(), base, &data);
                    assert_eq!(read(&card, u8::try_from(round % 4).unwrap(), base, data.len()), data);
                }
            });
        }
    });
}

#[test]
fn client_that_ends_leaves_card_to_others() {
    let shared = Shared::new();
    let remaining = shared.client();
    for round in 0..20 {
        let card = shared.client();
        let mut h2c = card.h2c(0).unwrap();
        // Submitted and abandoned.
        for _ in 0..8 {
            let _ = h2c.submit(card.buffer(1 << 20).unwrap(), CardAddr::new(0x100_0000)).unwrap();
        }
        h2c.poll().unwrap();
        drop((h2c, card));
        let data = bytes(10_000, round);
        write(&remaining, 0, 0, &data);
        assert_eq!(read(&remaining, 0, 0, data.len()), data);
    }
}

#[test]
fn client_error_reaches_that_client_only() {
    let shared = Shared::new();
    let (one, other) = (shared.client(), shared.client());
    let mut h2c = one.h2c(0).unwrap();
    // Behind the end of the card's memory.
    h2c.write(one.buffer(64).unwrap(), CardAddr::new(1 << 50)).unwrap_err();
    drop(h2c);
    let data = bytes(500, 1);
    write(&other, 0, 0, &data);
    assert_eq!(read(&one, 0, 0, 500), data);
}

#[test]
fn client_interrupts_arrive_at_all_that_wait() {
    let shared = Shared::new();
    let (one, other) = (shared.client(), shared.client());
    let waits = [one.user_interrupt(5).unwrap(), other.user_interrupt(5).unwrap()];
    for _ in 0..3 {
        shared.network.pulse_user_interrupt(0, 5).unwrap();
        for line in &waits {
            assert!(line.wait(Duration::from_secs(20)).unwrap() >= 1);
        }
    }
}

#[test]
fn owner_socket_is_private_and_ends_with_last_client() {
    let options = OwnerOptions { ends_with_last: true, ..OwnerOptions::default() };
    let mut shared = Shared::with(CardDescription::default(), options);
    assert_eq!(std::fs::metadata(shared.socket()).unwrap().permissions().mode() & 0o777, 0o600);
    let (one, other) = (shared.client(), shared.client());
    drop(one);
    let data = bytes(100, 1);
    write(&other, 0, 0, &data);
    drop(other);
    shared.serving.take().unwrap().join().unwrap().unwrap();
}
