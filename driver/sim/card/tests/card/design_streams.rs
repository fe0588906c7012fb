//! A design behind the stream ports, and one that loads descriptors at the bypass ports.

use crate::support::*;
use crate::xdma::{C2H0, DATA, DESCRIPTORS, H2C0, START_POLL, WRITEBACK};
use fpga_card::{AxiAccess, Card, Design, DesignError, LoadedDescriptor, StreamBytes, Unit};
use std::sync::{Arc, Mutex};

const EOP: u32 = 1 << 4;
const METADATA: u64 = WRITEBACK + 0x1000;
const TARGET: u64 = DATA + 0x2_0000;
/// Completed descriptors of a channel, status, control.
const COUNT: u64 = 0x48;
const STATUS: u64 = 0x40;
const CONTROL: u64 = 0x04;

#[derive(Debug, Default)]
struct Log {
    sent: Vec<(u8, Vec<u8>, bool)>,
    /// The port has accepted the bytes.
    is_accepted: bool,
    /// Bytes at the C2H port, and whether their packet ends with them.
    arrived: Vec<(Vec<u8>, bool)>,
    /// Requests of the C2H channel: their lengths.
    requests: Vec<usize>,
    stops: Vec<u8>,
    wanted: Vec<Unit>,
    written: Vec<(u64, Vec<u8>)>,
}

#[derive(Debug, Default)]
struct Ports(Mutex<Log>);

impl Ports {
    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.0.lock().expect("no panic")
    }
}

impl Design for Ports {
    fn read(&self, _access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError> {
        into.fill(0xC2);
        Ok(())
    }

    fn write(&self, access: AxiAccess, from: &[u8]) -> Result<(), DesignError> {
        self.log().written.push((access.at.get(), from.to_vec()));
        Ok(())
    }

    fn send_stream(&self, channel: u8, from: &[u8], ends: bool) -> Result<(), DesignError> {
        self.log().sent.push((channel, from.to_vec(), ends));
        Err(DesignError::Pending)
    }

    fn stream_sent(&self, _channel: u8) -> Result<(), DesignError> {
        if std::mem::take(&mut self.log().is_accepted) { Ok(()) } else { Err(DesignError::Pending) }
    }

    fn receive_stream(&self, _channel: u8, into: &mut [u8]) -> Result<StreamBytes, DesignError> {
        let mut log = self.log();
        log.requests.push(into.len());
        if log.arrived.is_empty() {
            return Err(DesignError::Pending);
        }
        let (bytes, ends) = log.arrived.remove(0);
        into.get_mut(..bytes.len()).expect("not more than requested").copy_from_slice(&bytes);
        Ok(StreamBytes { count: bytes.len(), ends })
    }

    fn stop_stream(&self, channel: u8) {
        self.log().stops.push(channel);
    }

    fn descriptor_wanted(&self, unit: Unit) {
        self.log().wanted.push(unit);
    }

    fn read_register(&self, _offset: u64) -> u32 {
        0
    }

    fn write_register(&self, _offset: u64, _value: u32) {}
}

fn testbed(is_stream: bool) -> (CardTestbed, Arc<Ports>) {
    let design = Arc::new(Ports::default());
    let mut testbed = CardTestbed::new();
    let mut description = small();
    description.xdma.stream = is_stream;
    let behind: Arc<Ports> = Arc::clone(&design);
    testbed.card = Card::with_design(description, behind).expect("valid");
    testbed.card.set_command(true, true);
    testbed.card.enable_msix(32);
    (testbed, design)
}

fn wake(testbed: &mut CardTestbed) {
    testbed.card.wake_channels();
    testbed.run();
}

/// One C2H descriptor of `length` bytes, and the start of its channel.
fn receive(testbed: &mut CardTestbed, length: u32) {
    testbed.host.put(METADATA, &[0; 8]);
    testbed.host.descriptor(DESCRIPTORS, MAGIC | STOP | COMPLETED, length, METADATA, TARGET, 0);
    testbed.start(C2H0, DESCRIPTORS, 0, START_POLL);
    testbed.run();
}

#[test]
fn stream_descriptor_ends_when_port_has_accepted_its_bytes() {
    let (mut testbed, design) = testbed(true);
    let data = pattern(192, 1);
    testbed.host.put(DATA, &data);
    testbed.host.descriptor(DESCRIPTORS, MAGIC, 128, DATA, 0, DESCRIPTORS + 32);
    testbed.host.descriptor(DESCRIPTORS + 32, MAGIC | STOP | COMPLETED | EOP, 64, DATA + 128, 0, 0);
    testbed.start(H2C0, DESCRIPTORS, 0, START_POLL);
    testbed.run();
    for completed in 0..2 {
        wake(&mut testbed);
        assert_eq!(testbed.read(DMA, H2C0 + COUNT), completed);
        assert_eq!(design.log().sent.len(), completed as usize + 1, "the bytes are sent once");
        design.log().is_accepted = true;
        wake(&mut testbed);
    }
    assert_eq!(testbed.read(DMA, H2C0 + COUNT), 2);
    // TLAST is at the end of the descriptor with EOP.
    assert_eq!(design.log().sent, [(0, data[..128].to_vec(), false), (0, data[128..].to_vec(), true)]);
}

#[test]
fn stream_bytes_that_arrive_later_fill_the_descriptor() {
    let (mut testbed, design) = testbed(true);
    receive(&mut testbed, 256);
    assert!(design.log().requests.iter().all(|length| *length == 256));
    let data = pattern(150, 2);
    for (bytes, ends) in [(&data[..100], false), (&data[100..], true)] {
        assert_eq!(testbed.read(DMA, C2H0 + COUNT), 0);
        design.log().arrived.push((bytes.to_vec(), ends));
        wake(&mut testbed);
    }
    assert_eq!(testbed.read(DMA, C2H0 + COUNT), 1);
    assert_eq!(testbed.host.get(TARGET, 150), data);
    assert_eq!((testbed.host.get_word(METADATA), testbed.host.get_word(METADATA + 4)), (0x52B4_0001, 150));
    // The second request is for the rest.
    assert_eq!(design.log().requests.last(), Some(&156));
}

#[test]
fn stopped_stream_stalls_its_port() {
    let (mut testbed, design) = testbed(true);
    receive(&mut testbed, 256);
    assert!(design.log().stops.is_empty());
    testbed.write(DMA, C2H0 + CONTROL, START_POLL & !1);
    testbed.run();
    assert_eq!((testbed.read(DMA, C2H0 + STATUS) & 1, &*design.log().stops), (0, &[0][..]));
    // The next run asks again.
    let requests = design.log().requests.len();
    receive(&mut testbed, 128);
    assert_eq!(design.log().requests.get(requests), Some(&128));
    design.log().arrived.push((vec![7; 10], true));
    wake(&mut testbed);
    assert_eq!((testbed.read(DMA, C2H0 + COUNT), testbed.host.get_word(METADATA + 4)), (1, 10));
}

#[test]
fn bypass_port_takes_descriptors_while_channel_runs() {
    let (mut testbed, design) = testbed(false);
    assert!(testbed.card.set_descriptor_bypass(Unit::H2c(0)));
    assert!(!testbed.card.set_descriptor_bypass(Unit::H2c(9)));
    let data = pattern(300, 3);
    testbed.host.put(DATA, &data);
    let first = LoadedDescriptor { source: DATA, destination: 0x40, length: 100, control: COMPLETED };
    assert_eq!(testbed.card.bypass_ready(), 0, "Run is not set");
    assert!(!testbed.card.load_descriptor(Unit::H2c(0), &first));
    testbed.write(DMA, H2C0 + CONTROL, START_POLL);
    testbed.run();
    assert_eq!((testbed.card.bypass_ready(), &*design.log().wanted), (1, &[Unit::H2c(0)][..]));
    assert!(!testbed.card.load_descriptor(Unit::C2h(0), &first), "this channel fetches its descriptors");

    let second = LoadedDescriptor { source: DATA + 100, destination: 0x1000, length: 200, ..first };
    for descriptor in [&first, &second] {
        assert!(testbed.card.load_descriptor(Unit::H2c(0), descriptor));
    }
    testbed.run();
    assert_eq!(testbed.read(DMA, H2C0 + COUNT), 2);
    assert_eq!(design.log().written, [(0x40, data[..100].to_vec()), (0x1000, data[100..].to_vec())]);
    // The host's memory was read for data only: no descriptor was fetched.
    assert_eq!(testbed.host.reads, [(DATA, 100), (DATA + 100, 200)]);
}

#[test]
fn bypass_port_is_not_ready_with_eight_descriptors() {
    let (mut testbed, _design) = testbed(false);
    testbed.card.set_descriptor_bypass(Unit::H2c(0));
    testbed.write(DMA, H2C0 + CONTROL, START_POLL);
    testbed.run();
    let descriptor = LoadedDescriptor { source: DATA, destination: 0, length: 64, control: COMPLETED };
    for _ in 0..8 {
        assert!(testbed.card.load_descriptor(Unit::H2c(0), &descriptor));
    }
    assert_eq!(testbed.card.bypass_ready(), 0);
    assert!(!testbed.card.load_descriptor(Unit::H2c(0), &descriptor));
    testbed.run();
    assert_eq!((testbed.card.bypass_ready(), testbed.read(DMA, H2C0 + COUNT)), (1, 8));
}
