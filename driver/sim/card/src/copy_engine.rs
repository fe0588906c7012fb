//! The CDMA without a card, between a register port and the AXI masters of a design outside the model.

use crate::card::CardError;
use crate::cdma::Cdma;
use crate::cdma::port::CopyPorts;
use crate::counters::CardCounters;
use crate::description::CardDescription;
use crate::design::Design;
use crate::fault_log::FaultLog;
use crate::fault_plan::{FaultPlan, Plan};
use crate::host::{HostPort, NoHost};
use crate::link::{EngineContext, Upstream};
use crate::memory::PAGE;
use crate::space::CardSpace;
use crate::stream::Streams;
use fpga_protocol::time::Nanos;
use std::sync::Arc;

/// AXI CDMA (PG034) by itself, for simulations of RTL that contains the IP.
///
/// Both masters may answer [`DesignError::Pending`](crate::DesignError::Pending): [`step`](Self::step) then does nothing until
/// [`Design::outcome`] has the result.
#[derive(Debug)]
pub struct CopyEngine {
    cdma: Cdma,
    space: CardSpace,
    streams: Streams,
    counters: CardCounters,
    faults: FaultLog,
    plan: Plan,
}

impl CopyEngine {
    /// Builds the engine of section `cdma` of `description`; `data` is behind `m_axi`, `descriptors` behind `m_axi_sg`.
    ///
    /// # Errors
    /// [`CardError`] if the description is invalid.
    pub fn new(
        mut description: CardDescription,
        data: Arc<dyn Design>,
        descriptors: Arc<dyn Design>,
    ) -> Result<Self, CardError> {
        // Memory and streams of the card are not used.
        description.memory.size = PAGE as u64;
        description.xdma.stream = false;
        description.validate()?;
        let mut cdma = Cdma::new(&description);
        cdma.ports = Some(CopyPorts::new(data, descriptors));
        Ok(Self {
            cdma,
            space: CardSpace::new(&description)
                .map_err(|error| CardError::Memory { size: description.memory.size, reason: error.kind() })?,
            streams: Streams::new(&description),
            counters: CardCounters::default(),
            faults: FaultLog::new(),
            plan: Plan::new(&FaultPlan::default()),
        })
    }

    /// Reads the register at byte `offset`.
    #[must_use]
    pub fn read(&self, offset: u32) -> u32 {
        self.cdma.read(offset)
    }

    /// Writes the register at byte `offset`.
    pub fn write(&mut self, offset: u32, value: u32) {
        self.cdma.write(offset, value, &mut self.faults);
    }

    /// Level of `cdma_introut`.
    #[must_use]
    pub const fn interrupt(&self) -> bool {
        self.cdma.interrupt_line()
    }

    /// Returns whether the engine works, or a timer of it runs.
    #[must_use]
    pub fn is_busy(&self, now: Nanos) -> bool {
        !self.cdma.is_idle(now) || self.cdma.deadline().is_some()
    }

    /// Does one unit of work at time `now`. Returns `false` if there is none, or if it waits for a master.
    pub fn step(&mut self, now: Nanos) -> bool {
        let Self { cdma, space, streams, counters, faults, plan } = self;
        let host: &mut dyn HostPort = &mut NoHost;
        let upstream = Upstream { host, bus_master: false, counters, faults, plan };
        let mut lanes =
            EngineContext { upstream, space, streams, now, quantum: PAGE, turn: u64::MAX, paced: false };
        cdma.step(&mut lanes)
    }

    /// Resets the engine and drops its accesses, as `aresetn` does.
    pub fn reset(&mut self) {
        self.cdma.reset();
        if let Some(ports) = &mut self.cdma.ports {
            ports.abandon();
        }
    }
}
