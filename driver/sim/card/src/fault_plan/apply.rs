//! Faults that affect the whole card.

use super::{CardEvent, FaultPlan, Plan};
use crate::card::{Card, Liveness};
use crate::config_space::{InterruptMethod, PciError};
use crate::host::Interrupt;

impl Card {
    /// Replaces the fault plan. Faults that have happened already keep their effect. The plan of a card file applies from the start and
    /// survives resets.
    pub fn set_fault_plan(&mut self, plan: &FaultPlan) {
        let mut plan = Plan::new(plan);
        plan.keep_hooks(&self.plan);
        self.plan = plan;
    }

    /// For each fault of the plan: its number of opportunities, and how often it was injected.
    pub fn fault_progress(&self) -> impl Iterator<Item = (u64, u64)> {
        self.plan.progress()
    }

    /// Returns whether the card was removed.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.presence == Liveness::Removed
    }

    /// Puts a removed card back, in its power-on state and with memory lost.
    pub fn replug(&mut self) {
        self.presence = Liveness::Present;
        self.reprogram();
    }

    /// Reports an error of the link. Status bits and the error-reporting capability change at once; the message to the root leaves with
    /// the next [`Self::step`], if software has enabled it.
    pub fn report_error(&mut self, error: PciError) {
        if let Some(message) = self.config.report(error) {
            self.xdma.messages.report(message);
        }
    }

    /// Switches error reporting in the PCI Express capability on or off, as a kernel that owns error reporting does. Not counted as an
    /// access.
    pub fn set_error_reporting(&mut self, on: bool) {
        self.config.set_error_reporting(on);
    }

    /// Counts a BAR access of software as an opportunity for faults.
    #[inline]
    pub(crate) fn record_access_opportunity(&mut self) {
        if self.plan.watches_accesses() {
            self.plan.access(&mut self.faults);
            self.apply_due();
        }
    }

    /// Carries out the events that are due.
    pub(crate) fn apply_due(&mut self) {
        while let Some(event) = self.plan.take_due() {
            tracing::debug!(?event, "planned fault");
            match event {
                CardEvent::AllOnes => self.presence = self.presence.max_loss(Liveness::AllOnes),
                CardEvent::Removal => {
                    self.presence = Liveness::Removed;
                    self.xdma.messages.remove();
                }
                CardEvent::Reset => self.reset(),
                CardEvent::Pci(error) => self.report_error(error),
                CardEvent::Spurious(number) => {
                    let interrupt = match self.config.interrupt_method() {
                        InterruptMethod::Msix => Interrupt::Msix(number),
                        InterruptMethod::Msi => Interrupt::Msi(number),
                        // The line is a level and has no spurious messages.
                        InterruptMethod::Line => continue,
                    };
                    self.xdma.messages.send_without_cause(interrupt);
                }
            }
        }
    }
}
