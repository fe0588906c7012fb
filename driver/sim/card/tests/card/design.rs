//! A design behind the AXI ports that responds later, or never.

use crate::support::*;
use crate::xdma::{C2H0, DATA, DESCRIPTORS, H2C0, START_POLL, WRITEBACK, chain};
use fpga_card::{AxiAccess, Card, Design, DesignError, Unit};
use fpga_registers::CardAddr;
use std::sync::{Arc, Mutex};

/// Accesses so far, and the responses that have arrived.
#[derive(Debug, Default)]
struct Log {
    begun: Vec<(AxiAccess, usize)>,
    written: Vec<u8>,
    responses: Vec<(Unit, Result<(), DesignError>)>,
    resets: usize,
    /// Register writes with strobes.
    narrow: Vec<(u64, u32, u8)>,
}

#[derive(Debug, Default)]
struct Slow(Mutex<Log>);

impl Slow {
    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.0.lock().expect("no panic")
    }

    fn respond(&self, unit: Unit, result: Result<(), DesignError>) {
        self.log().responses.push((unit, result));
    }
}

impl Design for Slow {
    fn read(&self, access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError> {
        self.log().begun.push((access, into.len()));
        Err(DesignError::Pending)
    }

    fn write(&self, access: AxiAccess, from: &[u8]) -> Result<(), DesignError> {
        let mut log = self.log();
        log.begun.push((access, from.len()));
        log.written.extend(from);
        Err(DesignError::Pending)
    }

    fn outcome(&self, access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError> {
        let mut log = self.log();
        let found = log.responses.iter().position(|(unit, _)| *unit == access.unit);
        let (_, result) = log.responses.remove(found.ok_or(DesignError::Pending)?);
        into.fill(0xC2);
        result
    }

    fn read_register(&self, offset: u64) -> u32 {
        offset as u32
    }

    fn write_register(&self, _offset: u64, _value: u32) {}

    fn write_register_bytes(&self, offset: u64, value: u32, strobes: u8) {
        self.log().narrow.push((offset, value, strobes));
    }

    fn reset(&self) {
        self.log().resets += 1;
    }
}

fn testbed() -> (CardTestbed, Arc<Slow>) {
    let design = Arc::new(Slow::default());
    let mut testbed = CardTestbed::new();
    let behind: Arc<Slow> = Arc::clone(&design);
    testbed.card = Card::with_design(small(), behind).expect("valid");
    testbed.card.set_command(true, true);
    testbed.card.enable_msix(32);
    testbed.write(DMA, H2C0 + 0x88, WRITEBACK as u32);
    (testbed, design)
}

fn start_h2c(testbed: &mut CardTestbed, lengths: &[u32]) {
    chain(testbed, lengths, STOP | COMPLETED);
    testbed.start(H2C0, DESCRIPTORS, lengths.len() as u32 - 1, START_POLL);
    testbed.run();
}

#[test]
fn pending_write_reads_host_data_once() {
    let (mut testbed, design) = testbed();
    let data = pattern(5000, 3);
    testbed.host.put(DATA, &data);
    start_h2c(&mut testbed, &[4096, 904]);
    for _ in 0..3 {
        // A wake-up without a response changes nothing.
        testbed.card.wake_channels();
        testbed.run();
    }
    assert_eq!(design.log().begun.len(), 1);
    assert_eq!(testbed.read(DMA, H2C0 + 0x48), 0);
    for completed in 1..=2 {
        design.respond(Unit::H2c(0), Ok(()));
        testbed.card.wake_channels();
        testbed.run();
        assert_eq!(testbed.read(DMA, H2C0 + 0x48), completed);
    }
    assert_eq!(design.log().written, data);
    let reads = testbed.host.reads.iter().filter(|(at, _)| *at >= DATA);
    assert_eq!(reads.copied().collect::<Vec<_>>(), [(DATA, 4096), (DATA + 4096, 904)]);
    assert_eq!(testbed.host.get_word(WRITEBACK), 2);
    assert_eq!(testbed.card.counters().h2c_bytes, 5000);
}

#[test]
fn pending_channel_leaves_others_working() {
    let (mut testbed, design) = testbed();
    start_h2c(&mut testbed, &[64]);
    testbed.host.descriptor(DESCRIPTORS + 0x1000, MAGIC | STOP | COMPLETED, 100, 0x40, DATA, 0);
    testbed.start(C2H0, DESCRIPTORS + 0x1000, 0, START_POLL);
    testbed.run();
    let expected = AxiAccess { unit: Unit::C2h(0), at: CardAddr::new(0x40), fixed: None };
    assert_eq!(design.log().begun.get(1), Some(&(expected, 100)));
    design.respond(Unit::C2h(0), Ok(()));
    testbed.card.wake_channels();
    testbed.run();
    assert_eq!(testbed.read(DMA, C2H0 + 0x48), 1);
    assert_eq!(testbed.host.get(DATA, 100), [0xC2; 100]);
    // The other channel still waits, and its registers answer.
    assert_eq!((testbed.read(DMA, H2C0 + 0x48), testbed.read(DMA, H2C0 + 0x40) & 1), (0, 1));
    testbed.write(DMA, H2C0 + 0x04, 0);
    testbed.run();
    assert_eq!(testbed.read(DMA, H2C0 + 0x40) & 1, 1, "it cannot stop");
    testbed.card.reset();
    testbed.card.set_command(true, true);
    assert_eq!((testbed.read(DMA, H2C0 + 0x40) & 1, design.log().resets), (0, 1));
}

#[test]
fn late_error_response_sets_status_bit() {
    for (error, bit) in [(DesignError::Decode, 14), (DesignError::Slave, 15)] {
        let (mut testbed, design) = testbed();
        chain(&mut testbed, &[64, 64], STOP | COMPLETED);
        // The vendor's driver does not enable these errors.
        testbed.start(H2C0, DESCRIPTORS, 1, START_POLL | 0x1F << 14);
        testbed.run();
        design.respond(Unit::H2c(0), Err(error));
        testbed.card.wake_channels();
        testbed.run();
        assert_eq!(testbed.read(DMA, H2C0 + 0x40), 1 << bit);
        assert_eq!(design.log().begun.len(), 1, "the engine has stopped");
    }
}

#[test]
fn fixed_address_is_passed_with_beat_width() {
    let (mut testbed, design) = testbed();
    chain(&mut testbed, &[256], STOP | COMPLETED);
    testbed.start(H2C0, DESCRIPTORS, 0, START_POLL | 1 << 25);
    testbed.run();
    let expected = AxiAccess { unit: Unit::H2c(0), at: CardAddr::new(0), fixed: Some(64) };
    assert_eq!(design.log().begun, [(expected, 256)]);
}

#[test]
fn user_bar_access_is_made_without_card() {
    let (testbed, design) = testbed();
    let access = testbed.card.design_access(USER, 0x20, 8).expect("the design answers");
    let mut bytes = [0; 8];
    access.read(&mut bytes);
    assert_eq!(bytes, [0x20, 0, 0, 0, 0x24, 0, 0, 0]);
    // No whole dword: strobes.
    let access = testbed.card.design_access(USER, 0x23, 3).expect("the design answers");
    assert!(access.write(&[1, 2, 3]));
    assert_eq!(design.log().narrow, [(0x20, 0x0100_0000, 0b1000), (0x24, 0x0302, 0b0011)]);
    assert!(testbed.card.design_access(DMA, 0, 4).is_none());
}

#[test]
fn design_beyond_leaves_memory_and_interface_to_model() {
    const BASE: u64 = 1 << 40;
    let design = Arc::new(Slow::default());
    let mut description = small();
    description.memory.base = BASE;
    description.ni.window_base = BASE + description.memory.size;
    description.bars.user.as_mut().expect("a BAR").size = 0x2_0000;
    let behind: Arc<Slow> = Arc::clone(&design);
    let mut testbed = CardTestbed::new();
    testbed.card = Card::with_design_beyond(description, behind).expect("valid");
    testbed.card.set_command(true, true);
    testbed.write(DMA, H2C0 + 0x88, WRITEBACK as u32);
    // The interface's registers are the model's, those beyond them the design's.
    assert_eq!(testbed.read(USER, 0), fpga_firmware::generated::IDENTITY_MAGIC);
    assert!(testbed.card.design_access(USER, 0x2000, 4).is_none());
    assert!(testbed.card.design_access(USER, 0x1_0004, 4).is_some());
    assert_eq!(testbed.read(USER, 0x1_0004), 0x1_0004);
    // Own memory.
    let data = pattern(300, 9);
    testbed.host.put(DATA, &data);
    testbed.host.descriptor(DESCRIPTORS, MAGIC | STOP | COMPLETED, 300, DATA, BASE + 0x80, 0);
    testbed.start(H2C0, DESCRIPTORS, 0, START_POLL);
    testbed.run();
    let mut written = vec![0; 300];
    testbed.card.peek(CardAddr::new(BASE + 0x80), &mut written).expect("memory");
    assert_eq!(written, data);
    assert_eq!(design.log().begun.len(), 0);
    testbed.host.descriptor(
        DESCRIPTORS + 0x1000,
        MAGIC | STOP | COMPLETED,
        300,
        BASE + 0x80,
        DATA + 0x400,
        0,
    );
    testbed.start(C2H0, DESCRIPTORS + 0x1000, 0, START_POLL);
    testbed.run();
    assert_eq!(testbed.host.get(DATA + 0x400, 300), data);
    // Other addresses.
    testbed.write(DMA, H2C0 + 0x04, 0);
    start_h2c(&mut testbed, &[64]);
    let expected = AxiAccess { unit: Unit::H2c(0), at: CardAddr::new(0), fixed: None };
    assert_eq!(design.log().begun, [(expected, 64)]);
}
