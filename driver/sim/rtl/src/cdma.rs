//! AXI CDMA instances (`fpga_cdma`): the engine of the card model between its registers and two AXI masters.
//!
//! Everything happens on the simulator's thread. While an engine works, or a timer of it runs, simulated time advances also with a locked
//! clock ([`is_any_busy`]).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use fpga_pci::lock;
use fpga_protocol::time::Nanos;
use fpga_sim::{AxiAccess, CardDescription, CopyEngine, Design, DesignError};

use crate::burst::MAX_WIDTH;
use crate::bus::{Bus, BusError};
use crate::options::StartError;

/// Bytes of the descriptor master's data bus (PG034).
const DESCRIPTOR_WIDTH: usize = 4;
/// Clock period of the model's timers: 250 MHz, so that the delay timer ticks every 125 cycles (PG034).
const NANOS_PER_CYCLE: u64 = 4;
/// Maximum number of units of work in one cycle: more than an engine has without an access.
const UNITS: u32 = 16;
/// Cycles without a response after which an access is reported.
const REPORT_AFTER: u64 = 1_000_000;

/// Number of engines that work.
static BUSY: AtomicU32 = AtomicU32::new(0);
static INSTANCES: Mutex<Vec<Arc<Mutex<CdmaSimulation>>>> = Mutex::new(Vec::new());

/// Returns whether an engine works.
pub(crate) fn is_any_busy() -> bool {
    BUSY.load(Ordering::Relaxed) != 0
}

/// Parameters of `fpga_cdma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CdmaParameters {
    pub(crate) data_bits: u32,
    pub(crate) address_bits: u32,
    pub(crate) length_bits: u32,
    pub(crate) sg: bool,
    pub(crate) dre: bool,
}

impl CdmaParameters {
    fn card(&self) -> Result<CardDescription, StartError> {
        let rules = [
            (
                "DATA_WIDTH",
                self.data_bits,
                matches!(self.data_bits, 32 | 64 | 128 | 256 | 512),
                "it must be 32, 64, 128, 256 or 512",
            ),
            ("ADDR_WIDTH", self.address_bits, (32..=64).contains(&self.address_bits), "it must be 32 to 64"),
            ("LENGTH_WIDTH", self.length_bits, matches!(self.length_bits, 23 | 26), "it must be 23 or 26"),
        ];
        for (name, value, is_valid, rule) in rules {
            if !is_valid {
                return Err(StartError::CdmaParameter { name, value, rule });
            }
        }
        let mut card = CardDescription::default();
        card.cdma.data_width = u16::try_from(self.data_bits).unwrap_or(512);
        card.cdma.address_width = u8::try_from(self.address_bits).unwrap_or(64);
        card.cdma.max_length_bits = u8::try_from(self.length_bits).unwrap_or(26);
        (card.cdma.sg, card.cdma.dre) = (self.sg, self.dre);
        Ok(card)
    }
}

/// One AXI master.
#[derive(Debug)]
pub(crate) struct Master {
    bus: Mutex<Bus>,
    name: &'static str,
}

impl Master {
    fn new(name: &'static str, width: usize) -> Arc<Self> {
        Arc::new(Self { bus: Mutex::new(Bus::new(width, 1)), name })
    }

    pub(crate) fn bus<T>(&self, act: impl FnOnce(&mut Bus) -> T) -> T {
        act(&mut lock(&self.bus))
    }
}

impl Design for Master {
    fn read(&self, access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError> {
        self.bus(|bus| bus.begin(access, false, vec![0; into.len()], true));
        Err(DesignError::Pending)
    }

    fn write(&self, access: AxiAccess, from: &[u8]) -> Result<(), DesignError> {
        self.bus(|bus| bus.begin(access, true, from.to_vec(), true));
        Err(DesignError::Pending)
    }

    fn outcome(&self, access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError> {
        self.bus(|bus| bus.take(access.unit, into))
    }

    fn read_register(&self, _offset: u64) -> u32 {
        u32::MAX
    }

    fn write_register(&self, _offset: u64, _value: u32) {}
}

/// One instance.
#[derive(Debug)]
pub(crate) struct CdmaSimulation {
    engine: CopyEngine,
    data: Arc<Master>,
    descriptors: Arc<Master>,
    number: usize,
    cycle: u64,
    /// Cycle of the last command or response.
    progress: u64,
    is_busy: bool,
    is_reset: bool,
}

/// Signals of a cycle: commands and data of both masters, and the interrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CdmaFlags {
    /// Write command 0, write data 1, read command 2; of the data master, and of the descriptor master.
    pub(crate) masters: [u32; 2],
    pub(crate) interrupt: bool,
}

/// Builds an instance. Returns its handle.
pub(crate) fn open(parameters: &CdmaParameters) -> Result<usize, StartError> {
    let description = parameters.card()?;
    let width = usize::try_from(parameters.data_bits / 8).unwrap_or(MAX_WIDTH);
    let (data, descriptors) = (Master::new("m_axi", width), Master::new("m_axi_sg", DESCRIPTOR_WIDTH));
    let (behind, beside): (Arc<Master>, Arc<Master>) = (Arc::clone(&data), Arc::clone(&descriptors));
    let engine = CopyEngine::new(description, behind, beside)?;
    let mut instances = lock(&INSTANCES);
    let number = instances.len();
    instances.push(Arc::new(Mutex::new(CdmaSimulation {
        engine,
        data,
        descriptors,
        number,
        cycle: 0,
        progress: 0,
        is_busy: false,
        is_reset: false,
    })));
    Ok(number)
}

/// Calls `act` with the instance of `handle`, if there is one.
pub(crate) fn with<T>(handle: i32, act: impl FnOnce(&mut CdmaSimulation) -> T) -> Option<T> {
    let instance = lock(&INSTANCES).get(usize::try_from(handle).ok()?).map(Arc::clone)?;
    Some(act(&mut lock(&instance)))
}

impl CdmaSimulation {
    const fn now(&self) -> Nanos {
        Nanos::new(self.cycle.saturating_mul(NANOS_PER_CYCLE))
    }

    pub(crate) fn read(&self, offset: u32) -> u32 {
        self.engine.read(offset)
    }

    pub(crate) fn write(&mut self, offset: u32, value: u32) {
        tracing::debug!(cycle = self.cycle, "fpga_cdma {}: {offset:#x} <- {value:#x}", self.number);
        self.engine.write(offset, value);
        self.note_busy();
    }

    /// One of the masters: 0 data, 1 descriptors.
    pub(crate) fn bus<T>(&mut self, master: i32, act: impl FnOnce(&mut Bus) -> T) -> T {
        self.progress = self.cycle;
        self.master(master).bus(act)
    }

    fn master(&self, number: i32) -> &Master {
        if number == 0 { &self.data } else { &self.descriptors }
    }

    /// Reports a defect of the slave, with its cycle.
    pub(crate) fn check(&self, master: i32, result: Result<(), BusError>) {
        if let Err(error) = result {
            let (cycle, name) = (self.cycle, self.master(master).name);
            tracing::error!(cycle, "fpga_cdma {}, {name}: {error}", self.number);
        }
    }

    /// One cycle, after its responses.
    pub(crate) fn clock(&mut self, is_reset: bool) -> CdmaFlags {
        self.cycle += 1;
        if is_reset {
            if !self.is_reset {
                self.engine.reset();
                self.data.bus(Bus::reset);
                self.descriptors.bus(Bus::reset);
            }
            self.is_reset = true;
            self.note_busy();
            return CdmaFlags::default();
        }
        self.is_reset = false;
        let now = self.now();
        for _ in 0..UNITS {
            if !self.engine.step(now) {
                break;
            }
        }
        self.note_busy();
        if !self.is_busy {
            self.progress = self.cycle;
        } else if self.cycle - self.progress == REPORT_AFTER {
            self.report_silence();
        }
        CdmaFlags {
            masters: [&self.data, &self.descriptors].map(|master| lock(&master.bus).flags()),
            interrupt: self.engine.interrupt(),
        }
    }

    fn report_silence(&self) {
        for master in [&self.data, &self.descriptors] {
            for (_, at, is_write) in lock(&master.bus).in_progress() {
                let what = if is_write { "write" } else { "read" };
                tracing::warn!(
                    cycle = self.cycle,
                    "fpga_cdma {}, {}: {what} at {at:#x}: no progress for {REPORT_AFTER} cycles",
                    self.number,
                    master.name
                );
            }
        }
    }

    fn note_busy(&mut self) {
        let is_busy = self.engine.is_busy(self.now());
        if is_busy != self.is_busy {
            self.is_busy = is_busy;
            if is_busy {
                BUSY.fetch_add(1, Ordering::Relaxed);
            } else {
                BUSY.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}
