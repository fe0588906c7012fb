//! State of the ports, behind their lock.

use std::fmt::Arguments;
use std::thread::ThreadId;

use crate::bus::Bus;
use crate::lite::{Lite, LiteAccess};
use crate::options::Parameters;
use crate::stream::StreamPorts;

/// Cycles without a response after which an access is reported.
const REPORT_AFTER: u64 = 1_000_000;
/// Defects of the design that are reported one by one.
const MAX_REPORTED: u32 = 20;
const FIRST_UNREPORTED: u32 = MAX_REPORTED + 1;

#[derive(Debug)]
pub(super) struct State {
    pub(super) bus: Bus,
    /// Master of the bypass BAR (`m_axib`).
    pub(super) bypass: Bus,
    pub(super) lite: Lite,
    /// Ports by channel number; none on a memory-mapped build.
    pub(super) streams: Vec<StreamPorts>,
    pub(super) cycle: u64,
    /// Cycle of the last activity, and of the begin of the batch.
    pub(super) active: u64,
    pub(super) began: u64,
    /// Cycle of the last response or command.
    pub(super) progress: u64,
    pub(super) is_reported: bool,
    /// Defects of the design since the last reset.
    pub(super) defects: u32,
    pub(super) requests: u32,
    pub(super) acknowledged: u32,
    pub(super) is_reset_requested: bool,
    /// A channel waits for a descriptor of the design: it gets a batch.
    pub(super) is_descriptor_wanted: bool,
    /// The design has loaded a descriptor.
    pub(super) is_loaded: bool,
    /// No command before this cycle.
    pub(super) quiet_until: u64,
    pub(super) is_ended: bool,
    /// Accesses begun by this thread are admitted at once.
    pub(super) simulator: Option<ThreadId>,
}

impl State {
    /// State at the start of a simulation: the design is reset first.
    pub(super) fn new(parameters: &Parameters) -> Self {
        let width = usize::try_from(parameters.data_bits / 8).unwrap_or(64);
        Self {
            bus: Bus::new(width, parameters.id_bits),
            bypass: Bus::narrow(width, parameters.id_bits),
            lite: Lite::default(),
            streams: (0..if parameters.stream { parameters.channels } else { 0 })
                .map(|_| StreamPorts::new(width))
                .collect(),
            cycle: 0,
            active: 0,
            began: 0,
            progress: 0,
            is_reported: false,
            defects: 0,
            requests: 0,
            acknowledged: 0,
            is_reset_requested: true,
            is_descriptor_wanted: false,
            is_loaded: false,
            quiet_until: 0,
            is_ended: false,
            simulator: None,
        }
    }

    pub(super) fn begin_batch(&mut self) {
        tracing::debug!(cycle = self.cycle, "batch");
        (self.began, self.active, self.progress) = (self.cycle, self.cycle, self.cycle);
        self.is_reported = false;
    }

    pub(super) fn has_unadmitted(&self) -> bool {
        self.bus.has_unadmitted()
            || self.bypass.has_unadmitted()
            || self.lite.has_unadmitted()
            || self.streams.iter().any(StreamPorts::has_unadmitted)
    }

    pub(super) fn is_active(&self) -> bool {
        self.bus.is_active()
            || self.bypass.is_active()
            || self.lite.is_active()
            || crate::cdma::is_any_busy()
            || crate::network::is_any_busy()
            || self.streams.iter().any(StreamPorts::is_active)
    }

    /// Stream ports for which `is` holds, one bit each.
    pub(super) fn ports_that(&self, is: impl Fn(&StreamPorts) -> bool) -> u32 {
        self.streams.iter().enumerate().fold(0, |mask, (number, port)| mask | u32::from(is(port)) << number)
    }

    /// C2H stream ports that are ready in the next cycle, one bit each.
    pub(super) fn offer_ready(&mut self) -> u32 {
        self.streams.iter_mut().for_each(StreamPorts::offer_ready);
        self.ports_that(StreamPorts::is_ready)
    }

    /// Handles accepted beats; returns whether the card can continue a stream channel.
    pub(super) fn stream_news(&mut self, accepted: u32) -> bool {
        let cycle = self.cycle;
        if accepted != 0 {
            self.note_progress();
        }
        let mut any = false;
        for (number, port) in self.streams.iter_mut().enumerate() {
            if accepted >> number & 1 != 0 {
                port.accepted();
            }
            any |= port.take_news(cycle);
        }
        any
    }

    pub(super) fn admit(&mut self) {
        if self.has_unadmitted() {
            tracing::debug!(cycle = self.cycle, "admitted");
        }
        self.bus.admit();
        self.bypass.admit();
        self.lite.admit(self.cycle);
        self.streams.iter_mut().for_each(StreamPorts::admit);
    }

    pub(super) const fn note_progress(&mut self) {
        (self.progress, self.is_reported) = (self.cycle, false);
    }

    /// Reports a defect of the design at its port `port`, with its cycle: a wrong response may be repeated in every cycle.
    pub(super) fn report_defect(&mut self, port: Arguments<'_>, defect: Arguments<'_>) {
        self.defects = self.defects.saturating_add(1);
        let cycle = self.cycle;
        match self.defects {
            ..=MAX_REPORTED => tracing::error!(cycle, "{port}: {defect}"),
            FIRST_UNREPORTED => tracing::error!(
                cycle,
                "{port}: more than {MAX_REPORTED} defects; further ones are not reported until the card is reset"
            ),
            _ => {}
        }
    }

    /// Reports accesses for which nothing has happened for long, once.
    pub(super) fn report_silence(&mut self) {
        if self.is_reported || self.cycle.saturating_sub(self.progress) < REPORT_AFTER {
            return;
        }
        self.is_reported = true;
        let (cycle, cycles) = (self.cycle, REPORT_AFTER);
        for (unit, at, is_write) in self.bus.in_progress() {
            let what = if is_write { "write" } else { "read" };
            tracing::warn!(cycle, "m_axi: {what} at {at:#x} of {unit:?}: no progress for {cycles} cycles");
        }
        for (number, _) in self.streams.iter().enumerate().filter(|(_, port)| port.is_stalled()) {
            tracing::warn!(cycle, "m_axis_h2c_{number}: TREADY low for {cycles} cycles");
        }
        for (_, at, is_write) in self.bypass.in_progress() {
            let what = if is_write { "write" } else { "read" };
            tracing::warn!(cycle, "m_axib: {what} at {at:#x}: no progress for {cycles} cycles");
        }
        if let Some(LiteAccess { at, value, .. }) = self.lite.in_progress() {
            let what = if value.is_some() { "write" } else { "read" };
            tracing::warn!(cycle, "m_axil: {what} at {at:#x}: no response for {cycles} cycles");
        }
    }
}
