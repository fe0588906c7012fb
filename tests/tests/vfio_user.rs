//! The driver with a served card: the same driver and the same card, with a socket between them.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use fpga_diag::inspect::Inspect as _;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fpga_card::CardDescription;
use fpga_driver::{
    BarOffset, Card, CardAddr, CardRange, CdmaRingOptions, ChannelError, DescriptorPath, Direction, Error,
    OpenOptions, WaitMode, WaitOptions, recovery,
    recovery::{RecoveryLevel, RecoveryOptions},
};
use fpga_pci::Backend;
use fpga_pci::{ConnectionError, DmaAccess, HugePages, MmioError, ServerError, SharedMemory};
use fpga_rdma::{Endpoint, EndpointOptions, SendNotify, SendOptions};
use fpga_registers::xdma::{PerChannel, SGDMA_COMMON_BASE, SgdmaCommonBlock};
use fpga_sim::SimNetwork;
use fpga_sim::served::CardServer;
use fpga_tests::bytes;
use fpga_tests::cards::{assert_closed, described, peek, poke, with_channels};
use fpga_vfio_user::socket::Connection;
use fpga_vfio_user::{VfioUserBackend, VfioUserOpenError, VfioUserOptions};
use rustix::event::{PollFd, PollFlags, Timespec};

/// Timeout that no working operation reaches.
const LONG: Duration = Duration::from_secs(120);

/// A card that a thread of this process serves.
struct Served {
    network: SimNetwork,
    path: PathBuf,
    _folder: tempfile::TempDir,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn start(description: CardDescription) -> Self {
        let network = fpga_tests::cards::network(description);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("card.sock");
        let server = CardServer::bind(&path).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let served = network.clone();
        let thread = std::thread::spawn(move || {
            server.run(&served, 0, stopped).unwrap();
        });
        Self { network, path, _folder: folder, stop: Some(stop), thread: Some(thread) }
    }

    fn backend(&self) -> Arc<VfioUserBackend> {
        let options = VfioUserOptions::default().deadline(LONG);
        Arc::new(VfioUserBackend::open_with(&self.path, options).unwrap())
    }

    fn open(&self) -> Card {
        Card::from_backend(self.backend()).unwrap()
    }

    /// Ends the server, like the end of its process.
    fn end(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    /// Waits until the server has made the card idle after its client has disconnected, then ends the server.
    fn finish(mut self) {
        self.end();
        assert_closed(&self.network, 0);
    }
}

fn waits() -> [WaitOptions; 3] {
    let spin = Duration::from_micros(50);
    [WaitMode::Poll, WaitMode::Interrupt, WaitMode::Hybrid { spin }]
        .map(|mode| WaitOptions::default().mode(mode).timeout(LONG))
}

/// The card reaches memory without a file by messages, which this process answers also while it waits for answers itself.
#[test]
fn served_card_unshareable_memory_uses_messages() {
    let served = Served::start(with_channels(1, 1));
    let card = served.open();
    card.enable_interrupts().unwrap();
    let data = bytes(9, 50_000);
    let memory = || SharedMemory::anonymous(1 << 16, HugePages::No).unwrap();
    let (source, target) = (memory(), memory());
    source.write(0, &data).unwrap();
    let source = card.map_memory(source, DmaAccess::ReadByDevice).unwrap();
    let into = card.map_memory(target.clone(), DmaAccess::WriteByDevice).unwrap();
    let (mut writer, mut reader) = (card.h2c(0).unwrap(), card.c2h(0).unwrap());
    let source = writer.register_memory(source).unwrap();
    let into = reader.register_memory(into).unwrap();
    for (round, wait) in waits().into_iter().enumerate() {
        let at = CardAddr::new(0x10_0000 * round as u64);
        let ticket = writer.submit_at(source, 0, 50_000, at).unwrap();
        writer.wait_ended(ticket, wait).unwrap();
        assert!(peek(&served.network, 0, at, 50_000) == data);
        target.write(0, &[0; 1 << 16]).unwrap();
        let ticket = reader.submit_at(into, 100, 50_000, at).unwrap();
        reader.wait_ended(ticket, wait).unwrap();
        let mut seen = vec![0; 1 << 16];
        target.read(0, &mut seen).unwrap();
        assert!(
            seen[100..50_100] == data && seen[..100].iter().chain(&seen[50_100..]).all(|byte| *byte == 0)
        );
    }
    drop((writer.deregister_memory(source).unwrap(), reader.deregister_memory(into).unwrap()));
    drop((writer, reader, card));
    served.finish();
}

/// A card with `channels` in each direction, interrupt pin `pin` and no MSI or MSI-X: INTx is a level, masked when it fires and unmasked by
/// a message.
fn with_intx(channels: u8, pin: u8) -> (Served, Card) {
    let served = Served::start(described(&format!(
        "xdma: {{ h2c_channels: {channels}, c2h_channels: {channels} }}\ninterrupts: {{ msix_vectors: 0, msi_vectors: 0, pin: {pin} }}"
    )));
    let card = Card::from_backend_with(served.backend(), OpenOptions::default().dma_bar(1)).unwrap();
    let vectors = card.enable_interrupts().unwrap();
    assert_eq!((vectors.vectors, vectors.channels), (1, 2 * u32::from(channels)));
    (served, card)
}

/// Channels of both directions and the copy engine, each with its own waiter on the one INTx line: every waiter is woken for its own
/// interrupts, whatever other channels leave asserted, and with every pin.
#[test]
fn served_card_many_waiters_share_intx() {
    const ROUNDS: u64 = 30;
    let wait = WaitOptions::default().mode(WaitMode::Interrupt).timeout(LONG);
    for (channels, pin) in [(1, 1), (2, 3), (4, 2)] {
        let (served, card) = with_intx(channels, pin);
        std::thread::scope(|scope| {
            for number in 0..channels {
                let base = u64::from(number) << 24;
                let (mut writer, mut reader) = (card.h2c(number).unwrap(), card.c2h(number).unwrap());
                let card = &card;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let data = bytes(base + round, 9000);
                        let at = CardAddr::new(base + 0x4000 * round);
                        let ticket = writer.submit(card.buffer_from(&data).unwrap(), at).unwrap();
                        assert_eq!(writer.wait(ticket, wait).unwrap().outcome, Ok(9000));
                    }
                });
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let ticket = reader.submit(card.buffer(9000).unwrap(), CardAddr::new(base)).unwrap();
                        assert_eq!(reader.wait(ticket, wait).unwrap().outcome, Ok(9000));
                    }
                });
            }
            // After the first channel's memory, and inside the window of the bypass BAR.
            let options = CdmaRingOptions::new(CardAddr::new(0xF0_0000)).descriptors(16).user_interrupt(0);
            let path = DescriptorPath::bypass(CardAddr::ZERO);
            let mut ring = card.cdma().unwrap().into_ring::<u64>(path, options).unwrap();
            for round in 0..ROUNDS {
                let (from, to) = (CardAddr::new(0x900_0000), CardAddr::new(0xA00_0000 + 0x1_0000 * round));
                let ticket = ring.copy(from, to, 50_000, round).unwrap();
                assert_eq!(ring.wait(ticket, wait).unwrap().outcome, Ok(50_000));
            }
        });
        for (number, round) in (0..u64::from(channels)).flat_map(|number| [(number, 0), (number, ROUNDS - 1)])
        {
            let base = number << 24;
            assert!(
                peek(&served.network, 0, CardAddr::new(base + 0x4000 * round), 9000)
                    == bytes(base + round, 9000)
            );
        }
        drop(card);
        served.finish();
    }
}

/// A channel's interrupt is asserted and its owner does not poll. It wakes a waiter on the same line once and not repeatedly: the waiter
/// masks other channels' interrupts at the card. The owner misses nothing when it waits again.
#[test]
fn served_card_slow_owner_does_not_keep_others_awake() {
    let (served, card) = with_intx(2, 1);
    let wait = WaitOptions::default().mode(WaitMode::Interrupt).timeout(LONG);
    let (mut slow, mut sleeper) = (card.h2c(0).unwrap(), card.h2c(1).unwrap());
    let reads = || served.network.with_card(0, |card| card.counters().mmio_reads).unwrap();
    for round in 0..3 {
        let events = slow.events().unwrap();
        let _ = events.take();
        let at = CardAddr::new(0x1000 * round);
        let data = bytes(round, 3000);
        slow.arm().unwrap();
        let ticket = slow.submit(card.buffer_from(&data).unwrap(), at).unwrap();
        slow.poll().unwrap();
        // The other channel's engine is halted: it may not fetch its descriptors.
        let halt = PerChannel::one(Direction::H2c, 1).into_bits();
        let (halt_on, halt_off) = (SgdmaCommonBlock::HALT_SET, SgdmaCommonBlock::HALT_CLEAR);
        card.dma_bar().write32(SGDMA_COMMON_BASE.offset_by(halt_on.offset()), halt).unwrap();
        let halted = sleeper.submit(card.buffer_from(&data).unwrap(), CardAddr::new(0x10_0000)).unwrap();
        let before = reads();
        let short = wait.timeout(Duration::from_millis(150));
        assert!(matches!(
            sleeper.wait(halted, short),
            Err(Error { kind: ChannelError::TimedOut { .. }, .. })
        ));
        let during = reads() - before;
        assert!(during < 40, "{during} register reads in one sleep");
        card.dma_bar().write32(SGDMA_COMMON_BASE.offset_by(halt_off.offset()), halt).unwrap();
        assert_eq!(sleeper.wait(halted, wait).unwrap().outcome, Ok(3000));
        // The owner was notified, by the line or by the thread that masked it; waits by interrupt work as before.
        assert!(events.take() > 0, "round {round}");
        assert_eq!(slow.wait(ticket, wait).unwrap().outcome, Ok(3000));
        let ticket = slow.submit(card.buffer_from(&data).unwrap(), at).unwrap();
        assert_eq!(slow.wait(ticket, wait).unwrap().outcome, Ok(3000));
        assert!(peek(&served.network, 0, at, 3000) == data);
    }
    // The line is one level for both channels, so that the number of its rises is not defined.
    assert_ne!(served.network.with_card(0, |card| card.counters().interrupts), Some(0));
    drop((slow, sleeper, card));
    served.finish();
}

/// Two idle event loops on one line: completions that were seen before the loops arm wake neither of them, and each transfer wakes its
/// owner.
#[test]
fn served_card_intx_listener_not_woken_by_seen_completion() {
    let (served, card) = with_intx(2, 1);
    let mut channels = [card.h2c(0).unwrap(), card.h2c(1).unwrap()];
    let mut tickets: Vec<_> = Vec::new();
    for round in 0..4_u64 {
        for (at, channel) in (1_u64..).zip(&mut channels) {
            let data = bytes(round, 3000);
            let ticket = channel.submit(card.buffer_from(&data).unwrap(), CardAddr::new(at << 20)).unwrap();
            let events = channel.events().unwrap();
            // As an event loop does: collect, arm, poll, and sleep until the event fd is readable.
            loop {
                let _ = events.take();
                channel.arm().unwrap();
                channel.poll().unwrap();
                if channel.has_ended(ticket) {
                    break;
                }
                let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
                let mut asleep = [PollFd::new(&events, PollFlags::IN)];
                assert_eq!(rustix::event::poll(&mut asleep, Some(&limit)), Ok(1), "round {round}");
            }
            tickets.push(ticket);
        }
        // Both are armed, with nothing in flight. Wake-ups in flight have arrived by the second pass.
        let mut woken = 0;
        for _ in 0..10 {
            for channel in &mut channels {
                let events = channel.events().unwrap();
                woken += events.take().min(1);
                channel.arm().unwrap();
                assert_eq!(channel.poll().unwrap(), 0);
            }
        }
        assert!(woken <= 4, "round {round}: {woken} wake-ups without an interrupt");
    }
    drop((channels, card));
    served.finish();
}

/// Whether the server has another client.
const fn is_busy(error: &VfioUserOpenError) -> bool {
    matches!(error, VfioUserOpenError::Busy { .. })
}

/// A client that disconnects without notice, with transfers in flight, leaves a card that the next one can open and use.
#[test]
fn served_card_survives_vanished_client() {
    let served = Served::start(with_channels(1, 1));
    let connection = Connection::connect(&served.path, LONG).unwrap();
    // The system shuts down the socket of a killed process; this handle does the same.
    let kill = Connection::new(connection.as_fd().try_clone_to_owned().unwrap());
    let options = VfioUserOptions::default().deadline(LONG);
    let backend = VfioUserBackend::over(connection, &served.path, options).unwrap();
    let card = Card::from_backend(Arc::new(backend)).unwrap();
    let mut channel = card.h2c(0).unwrap();
    for _ in 0..16 {
        channel.submit(card.buffer(1 << 20).unwrap(), CardAddr::ZERO).unwrap();
    }
    channel.poll().unwrap();
    kill.shut_down();
    drop((channel, card));
    // The card is busy until the server has processed everything that the killed client had sent.
    let began = Instant::now();
    let backend = loop {
        match VfioUserBackend::open_with(&served.path, options) {
            Ok(backend) => break backend,
            Err(error) => assert!(is_busy(&error) && began.elapsed() < LONG, "{error}"),
        }
    };
    let card = Card::from_backend(Arc::new(backend)).unwrap();
    let data = bytes(1, 10_000);
    card.h2c(0).unwrap().write(card.buffer_from(&data).unwrap(), CardAddr::new(64)).unwrap();
    assert!(peek(&served.network, 0, CardAddr::new(64), 10_000) == data);
    drop(card);
    served.finish();
}

#[test]
fn served_card_recovery_reaches_reset() {
    let served = Served::start(with_channels(1, 1));
    let backend: Arc<dyn Backend> = served.backend();
    let options =
        RecoveryOptions::default().with_max_level(RecoveryLevel::Function).at_least(RecoveryLevel::Function);
    let report = recovery::recover(&backend, &OpenOptions::default(), &options).unwrap();
    let outcome = report.outcome(RecoveryLevel::Function).unwrap();
    assert_eq!(outcome.word(), "recovered", "{report:?}");
    let card = Card::from_backend(backend).unwrap();
    card.h2c(0).unwrap().write(card.buffer(4096).unwrap(), CardAddr::ZERO).unwrap();
    drop(card);
    served.finish();
}

/// The server ends with transfers in flight: every wait returns an error, in every mode, and none lasts for ever.
#[test]
fn served_card_server_end_ends_every_wait() {
    for wait in waits() {
        let mut served = Served::start(with_channels(1, 1));
        let card = served.open();
        card.enable_interrupts().unwrap();
        let mut channel = card.h2c(0).unwrap();
        let done = channel.submit(card.buffer(4096).unwrap(), CardAddr::ZERO).unwrap();
        channel.wait(done, wait).unwrap();
        served.end();
        let ticket = channel.submit(card.buffer(4096).unwrap(), CardAddr::ZERO).unwrap();
        let lost = match channel.wait(ticket, wait) {
            // The call that detects it first ends all transfers, each with its own outcome.
            Ok(completion) => {
                assert!(completion.outcome.is_err());
                channel.poll().unwrap_err()
            }
            Err(error) => error,
        };
        assert!(matches!(lost, Error { kind: ChannelError::Disconnected { .. }, .. }), "{wait:?}: {lost}");
        assert_eq!(channel.in_flight(), 0);
        let read = card.dma_bar().read32(BarOffset::ZERO).unwrap_err();
        let MmioError::Server { source: ServerError::Disconnected { cause, .. }, .. } = read else {
            panic!("{read}")
        };
        assert!(matches!(cause, ConnectionError::Closed | ConnectionError::System(_)), "{cause}");
        drop((channel, card));
        let missing = VfioUserBackend::open(&served.path).unwrap_err();
        assert!(matches!(missing, VfioUserOpenError::Connect(_)), "{missing}");
    }
}

/// The card in the other process writes, acknowledges and completes transfers from other nodes, though its host takes no event.
#[test]
fn served_card_unpolled_host_takes_transfers() {
    let network = SimNetwork::builder().cards(2).build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card.sock");
    let server = CardServer::bind(&path).unwrap();
    let (stop, stopped) = UnixStream::pair().unwrap();
    let served = network.clone();
    let thread = std::thread::spawn(move || {
        server.run(&served, 1, stopped).unwrap();
    });
    let backend = VfioUserBackend::open_with(&path, VfioUserOptions::default().deadline(LONG)).unwrap();
    let mut options = EndpointOptions::default();
    options.event_entries = 128;
    let mut receiver =
        Endpoint::open_with(&Card::from_backend(Arc::new(backend)).unwrap(), &options).unwrap();
    let mut sender = Endpoint::open(&Card::from_backend(network.backend(0)).unwrap()).unwrap();
    let (source, target) = (CardAddr::new(0x10_0000), CardAddr::new(0x2000_0000));
    let data = bytes(6, 1 << 20);
    poke(&network, 0, source, &data);
    let range = CardRange::new(target, data.len() as u64);
    let region = receiver.open_region(sender.node(), range).unwrap();
    let silent = SendOptions::default().notify(SendNotify::None);
    for n in 0..200 {
        let (length, options) = if n == 100 { (1 << 20, SendOptions::default()) } else { (5000, silent) };
        let ticket = sender.send(source, &region.remote, 0, length, options).unwrap();
        assert_eq!(sender.wait(ticket, LONG).unwrap().result, Ok(()));
    }
    assert!(peek(&network, 1, target, data.len()) == data);
    let arrived = receiver.wait_notification(LONG).unwrap();
    assert_eq!((arrived.address, arrived.length), (target, 1 << 20));
    assert!(!receiver.mirror().is_stale());
    assert_eq!(receiver.check_mirror().unwrap(), []);
    assert!(receiver.counters().events_dropped > 0);
    drop((sender, receiver));
    drop(stop);
    thread.join().unwrap();
}
