//! Cards with a design behind their AXI ports.

use std::sync::{Arc, Weak};

use fpga_firmware::generated as contract;

use super::{Card, CardError, access_count};
use crate::config_space::BarRole;
use crate::counters::AccessTarget;
use crate::description::CardDescription;
use crate::design::{Design, DesignAccess, DesignPoll, LoadedDescriptor, Requester};
use crate::fault_log::Unit;

impl Card {
    /// Builds the described card with `design` behind its AXI ports: all card addresses, and all of the user BAR. The network interface and
    /// the copy engine of the description are not there.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_design(description: CardDescription, design: Arc<dyn Design>) -> Result<Self, CardError> {
        let mut card = Self::new(description)?;
        card.space.set_design(design, false);
        Ok(card)
    }

    /// Builds the described card with `design` beyond it: behind the card addresses that are neither in the description's memory nor in its
    /// transmit windows, and behind the user BAR beyond the registers of the network interface and the copy engine. Accesses
    /// of the copy engine are those of [`Unit::Cdma`](crate::Unit::Cdma).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_design_beyond(
        description: CardDescription,
        design: Arc<dyn Design>,
    ) -> Result<Self, CardError> {
        let mut card = Self::new(description)?;
        card.space.set_design(design, true);
        Ok(card)
    }

    /// Returns whether a design answers at the card's AXI ports.
    #[must_use]
    pub fn has_design(&self) -> bool {
        self.space.design().is_some()
    }

    /// Wakes the channels that wait for a response of the design. Call it when [`Design::outcome`] has a result that it did not have before.
    pub fn wake_channels(&mut self) {
        // The copy engine follows the channels.
        self.turns.awake |= self.all_channels() << 1 | 1;
    }

    /// Looks for responses of the design ([`Design::poll`]), and wakes the channels that wait for one.
    pub fn poll_design(&mut self) -> DesignPoll {
        let polled = self.space.design().map_or(DesignPoll::Idle, Design::poll);
        if polled == DesignPoll::Responded {
            self.wake_channels();
        }
        polled
    }

    /// Claims stream channel `number` for the program at the other side of the BARs, or releases it ([`Design::claim_stream`]). Returns
    /// `false` if another program has it.
    pub fn claim_stream(&mut self, is_c2h: bool, number: u8, takes: bool) -> bool {
        let unit = if is_c2h { Unit::C2h(number) } else { Unit::H2c(number) };
        self.space.design().is_none_or(|design| design.claim_stream(unit, takes))
    }

    /// Builds channel `unit` with a descriptor bypass port (PG195): its descriptors come from user logic, and it fetches none. Returns
    /// whether the channel exists.
    pub fn set_descriptor_bypass(&mut self, unit: Unit) -> bool {
        self.xdma.set_bypass(unit)
    }

    /// Channels whose bypass port is ready: H2C in bits 3:0, C2H in 7:4. Software must have set Run, and 8 descriptors fit.
    #[must_use]
    pub fn bypass_ready(&self) -> u32 {
        self.xdma.takes_descriptors()
    }

    /// Loads a descriptor at the bypass port of channel `unit`. Returns `false` and ignores it if the port is not ready.
    pub fn load_descriptor(&mut self, unit: Unit, descriptor: &LoadedDescriptor) -> bool {
        self.turns.awake |= self.all_channels();
        self.xdma.load(unit, descriptor)
    }

    /// Returns the access of `length` bytes at `offset` of BAR `bar` if the design answers it. It can last, so the
    /// caller makes it without the card, and reports it by [`note_design_access`](Self::note_design_access). Other accesses are made by
    /// [`bar_read`](Self::bar_read) and [`bar_write`](Self::bar_write).
    #[must_use]
    pub fn design_access(&self, bar: u8, offset: u64, length: usize) -> Option<DesignAccess> {
        let is_answered = || !self.description.quirks.silent_user_bar;
        let design = self.space.shared_design()?;
        let role = self.decode(bar, offset, length)?;
        if self.is_removed() || role == BarRole::User && !is_answered() {
            return None;
        }
        if self.space.is_design_beyond() && (role == BarRole::Bypass || !self.is_register_of_design(offset)) {
            return None;
        }
        let base = self.description.bars.bypass.as_ref().map_or(0, |bar| bar.card_address);
        DesignAccess::new(design, role, offset, base)
    }

    /// Returns whether the register at `offset` of the user BAR is the design's.
    pub(super) fn is_register_of_design(&self, offset: u64) -> bool {
        let own = u64::from(contract::USER_BAR_MIN_SIZE);
        self.has_design() && (!self.space.is_design_beyond() || offset >= own)
    }

    /// Names the program whose accesses the design answers ([`Design::set_requester`]).
    pub fn set_requester(&self, requester: Weak<dyn Requester>) {
        if let Some(design) = self.space.design() {
            design.set_requester(requester);
        }
    }

    /// Counts and logs an access that was made by [`design_access`](Self::design_access).
    pub fn note_design_access(&mut self, bar: u8, offset: u64, bytes: &[u8], write: bool) {
        let count = if write { &mut self.counters.mmio_writes } else { &mut self.counters.mmio_reads };
        *count += access_count(bytes.len());
        self.record(AccessTarget::Bar(bar), offset, bytes, write);
    }
}
