//! Fault injection as data: which faults a card has, and when.
//!
//! A [`FaultPlan`] is a list of faults. Each fault has opportunities (a message that is about to leave, a descriptor that starts, an
//! access of software, ...). It skips the first ones, then is injected at the following ones with its probability, up to its maximum
//! count. Random numbers come from the plan's seed, and opportunities are counted, not timed: the same plan with the same accesses and the
//! same work gives the same faults. A card file contains a plan in its section `faults` ([`FaultsDescription`]); a program passes one to
//! [`crate::Card::set_fault_plan`].
//!
//! A channel fault makes the card process each descriptor separately. A card without channel faults has no cost from the plan.

mod apply;
mod file;
mod run;

use crate::config_space::kinds::PciError;
pub use file::{FaultEntry, FaultName, FaultProblem, FaultsDescription};
use fpga_protocol::time::Nanos;
use fpga_registers::xdma::Direction;
use fpga_registers::xdma::channel::StatusError;
pub(crate) use run::{CardEvent, CdmaFault, DescriptorFault, InterruptDisposition, Plan, WritebackFault};
use serde::{Deserialize, Serialize};

/// List of faults, and the seed of their random numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultPlan {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Faults, checked in this order. If several are due at one opportunity, the first one is injected.
    pub list: Vec<PlannedFault>,
}

impl FaultPlan {
    /// Creates an empty plan.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, list: Vec::new() }
    }

    /// Adds a fault.
    #[must_use]
    pub fn with(mut self, fault: PlannedFault) -> Self {
        self.list.push(fault);
        self
    }
}

/// Fault and the opportunities at which it is injected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedFault {
    /// Fault to inject.
    pub fault: InjectedFault,
    /// Number of opportunities to skip first.
    pub skip: u64,
    /// Maximum number of injections; `None`: no limit.
    pub times: Option<u64>,
    /// The fault is injected at one of this many opportunities on average; 0 and 1: at every one.
    pub one_in: u32,
}

impl PlannedFault {
    /// Creates a plan entry that injects `fault` once, at its first opportunity.
    #[must_use]
    pub const fn new(fault: InjectedFault) -> Self {
        Self { fault, skip: 0, times: Some(1), one_in: 1 }
    }

    /// Skips `opportunities` first.
    #[must_use]
    pub const fn after(mut self, opportunities: u64) -> Self {
        self.skip = opportunities;
        self
    }

    /// Sets the maximum number of injections.
    #[must_use]
    pub const fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Removes the limit on the number of injections.
    #[must_use]
    pub const fn always(mut self) -> Self {
        self.times = None;
        self
    }

    /// Injects the fault at one of `opportunities` on average.
    #[must_use]
    pub const fn with_probability(mut self, opportunities: u32) -> Self {
        self.one_in = opportunities;
        self
    }
}

/// A DMA channel by name; in a card file `h2c0` to `c2h3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChannelName {
    /// Host to card.
    H2c(u8),
    /// Card to host.
    C2h(u8),
}

impl ChannelName {
    /// Direction of the channel.
    #[must_use]
    pub const fn direction(self) -> Direction {
        match self {
            Self::H2c(_) => Direction::H2c,
            Self::C2h(_) => Direction::C2h,
        }
    }

    /// Returns the number of the channel in its direction.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::H2c(number) | Self::C2h(number) => number,
        }
    }
}

/// Opportunity of a fault that affects the whole card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Opportunity {
    /// An access of software to a BAR; the fault happens before it.
    #[default]
    Access,
    /// The end of a DMA descriptor; the fault happens after it.
    Descriptor,
}

/// Error of the CDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CdmaError {
    /// Status bit 4, internal.
    Internal,
    /// Status bit 5, slave error on data.
    Slave,
    /// Status bit 6, decode error on data.
    Decode,
    /// Status bit 8, internal error of scatter-gather.
    SgInternal,
    /// Status bit 9, slave error on a descriptor.
    SgSlave,
    /// Status bit 10, decode error on a descriptor.
    SgDecode,
}

impl CdmaError {
    /// Bit in the CDMA's status register (PG034).
    pub(crate) const fn bit(self) -> u32 {
        match self {
            Self::Internal => 1 << 4,
            Self::Slave => 1 << 5,
            Self::Decode => 1 << 6,
            Self::SgInternal => 1 << 8,
            Self::SgSlave => 1 << 9,
            Self::SgDecode => 1 << 10,
        }
    }

    pub(crate) const fn of_descriptor(self) -> bool {
        matches!(self, Self::SgInternal | Self::SgSlave | Self::SgDecode)
    }
}

/// Fault in the metadata that a C2H stream channel writes back for every descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamWritebackFault {
    /// The metadata is not written.
    Missing,
    /// Only the first word is written.
    Torn,
    /// These two words are written instead.
    Words([u32; 2]),
}

/// Fault that can be injected. For channels and vectors, `None` means any.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InjectedFault {
    /// An interrupt does not arrive: neither the message nor the rise of the line. Opportunity: a message leaves.
    LostInterrupt {
        /// Message number.
        vector: Option<u16>,
    },
    /// An interrupt arrives late. Opportunity: a message leaves.
    LateInterrupt {
        /// Message number.
        vector: Option<u16>,
        /// Delay.
        delay: Nanos,
    },
    /// An interrupt arrives without a cause.
    SpuriousInterrupt {
        /// Message number.
        vector: u16,
        /// Kind of opportunity.
        on: Opportunity,
    },
    /// A channel hangs at the start of a descriptor: it stays busy until the card is reset. Opportunity: a descriptor starts.
    Stall {
        /// Channel.
        channel: Option<ChannelName>,
    },
    /// A completed-descriptor count is too high or too low. Opportunity: a count is reported, in the register or by a write-back.
    WrongCount {
        /// Channel.
        channel: Option<ChannelName>,
        /// Number added to the true count.
        by: i32,
    },
    /// A count repeats the previously reported one. Opportunity: a count is reported.
    StaleCount {
        /// Channel.
        channel: Option<ChannelName>,
    },
    /// A count has this fixed value. Opportunity: a count is reported.
    ImpossibleCount {
        /// Channel.
        channel: Option<ChannelName>,
        /// Reported value.
        count: u32,
    },
    /// A write-back does not reach host memory. Opportunity: a write-back.
    MissingWriteback {
        /// Channel.
        channel: Option<ChannelName>,
    },
    /// Only the first bytes of a four-byte write-back reach host memory. Opportunity: a write-back.
    TornWriteback {
        /// Channel.
        channel: Option<ChannelName>,
        /// Number of bytes that arrive, 1 to 3.
        bytes: u8,
    },
    /// The metadata of a stream descriptor is wrong. Opportunity: a C2H stream channel writes metadata.
    Metadata {
        /// Channel.
        channel: Option<ChannelName>,
        /// Kind of metadata fault.
        fault: StreamWritebackFault,
    },
    /// The end of a packet is lost: the following data continues the packet. Without a limit this is a stream that never ends.
    /// Opportunity: a C2H stream channel gets the end of a packet.
    LostPacketEnd {
        /// Channel.
        channel: Option<ChannelName>,
    },
    /// A descriptor ends with an error in the channel's status. As for a real error, the control register decides whether it is noted and
    /// stops the channel. Opportunity: a descriptor starts on a channel that has the bit.
    StatusError {
        /// Channel.
        channel: Option<ChannelName>,
        /// The error.
        error: StatusError,
    },
    /// The host refuses a descriptor fetch. Opportunity: a block of descriptors is fetched.
    RefusedFetch {
        /// Channel.
        channel: Option<ChannelName>,
    },
    /// The host refuses data: an H2C channel's read fails, a C2H channel's write is lost without a trace in any register. Opportunity: up
    /// to 64 KiB of a descriptor move.
    RefusedData {
        /// Channel.
        channel: Option<ChannelName>,
    },
    /// Every register reads as all ones and ignores writes until the card is reset. Configuration space answers, and the engines continue.
    AllOnes {
        /// Kind of opportunity.
        on: Opportunity,
    },
    /// The card is removed: configuration space reads as all ones too, and no data moves.
    SurpriseRemoval {
        /// Kind of opportunity.
        on: Opportunity,
    },
    /// The link reports an error: status bits, error-reporting capability, message to the root.
    Pci {
        /// Error.
        error: PciError,
        /// Kind of opportunity.
        on: Opportunity,
    },
    /// The card is reset by another party than the driver.
    Reset {
        /// Kind of opportunity.
        on: Opportunity,
    },
    /// The CDMA ends with an error. Opportunity: up to 64 KiB of a copy move, or a descriptor of the CDMA is fetched.
    Cdma {
        /// Error.
        error: CdmaError,
    },
    /// An AXI slave never answers the CDMA. Its copy stalls, and neither the copy nor a soft reset ends until the card is reset.
    /// Opportunity: up to 64 KiB of a copy move.
    CdmaStall,
}
