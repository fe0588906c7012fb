//! Faults as data: what is to go wrong with a card, and when.
//!
//! A [`FaultPlan`] is a list of faults. Each one has its opportunities (a message that is about to leave, a descriptor
//! that starts, an access of software, ...), lets the first ones pass, and strikes at the following ones by chance,
//! as often as it may. The chance is drawn from the plan's seed, and opportunities are counted, not timed: the same plan
//! with the same accesses and the same work does the same again. A card file carries a plan in its section `faults`
//! ([`FaultsDescription`]), a program gives one to [`crate::Card::set_fault_plan`].
//!
//! A channel fault makes the card look at each descriptor by itself; a card without one does not pay for the plan.

mod apply;
mod file;
mod run;

use crate::config_space::PciError;
pub(crate) use apply::Liveness;
pub use file::{FaultEntry, FaultName, FaultProblem, FaultsDescription};
use fpga_protocol::time::Nanos;
use fpga_registers::xdma::Direction;
use fpga_registers::xdma::channel::ChannelError;
pub(crate) use run::{CardEvent, CdmaFault, DescriptorFault, InterruptDisposition, Plan, WritebackFault};
use serde::{Deserialize, Serialize};

/// Faults, and what decides about their chances.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultPlan {
    /// Start of the random numbers.
    pub seed: u64,
    /// The faults, asked in this order; of those that strike at one opportunity, the first counts.
    pub list: Vec<PlannedFault>,
}

impl FaultPlan {
    /// An empty plan.
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

/// A fault and when it strikes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedFault {
    /// What happens.
    pub fault: InjectedFault,
    /// Opportunities that pass first.
    pub skip: u64,
    /// How often it strikes; `None` for ever.
    pub times: Option<u64>,
    /// It strikes at one of this many opportunities on average; 0 and 1: at every one.
    pub one_in: u32,
}

impl PlannedFault {
    /// `fault` at its first opportunity, once.
    #[must_use]
    pub const fn new(fault: InjectedFault) -> Self {
        Self { fault, skip: 0, times: Some(1), one_in: 1 }
    }

    /// Lets `opportunities` pass first.
    #[must_use]
    pub const fn after(mut self, opportunities: u64) -> Self {
        self.skip = opportunities;
        self
    }

    /// Strikes so often.
    #[must_use]
    pub const fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Strikes for ever.
    #[must_use]
    pub const fn always(mut self) -> Self {
        self.times = None;
        self
    }

    /// Strikes at one of `opportunities` on average.
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
    /// The direction.
    #[must_use]
    pub const fn direction(self) -> Direction {
        match self {
            Self::H2c(_) => Direction::H2c,
            Self::C2h(_) => Direction::C2h,
        }
    }

    /// The channel's number in its direction.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::H2c(number) | Self::C2h(number) => number,
        }
    }
}

/// What counts as an opportunity of a fault that befalls the whole card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Opportunity {
    /// An access of software to a BAR: the fault comes before it.
    #[default]
    Access,
    /// The end of a DMA descriptor: the fault comes after it.
    Descriptor,
}

/// An error of the CDMA.
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
    /// The bit in the CDMA's status register (PG034).
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

/// What becomes of the metadata that a C2H stream channel writes back for every descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamWritebackFault {
    /// It is not written at all.
    Missing,
    /// Only its first word is.
    Torn,
    /// These two words are written.
    Words([u32; 2]),
}

/// What can go wrong. Where a channel or a vector may be named, `None` means any.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InjectedFault {
    /// An interrupt does not arrive: neither the message nor the rise of the line. Opportunity: a message leaves.
    LostInterrupt {
        /// Message number.
        vector: Option<u16>,
    },
    /// An interrupt arrives later. Opportunity: a message leaves.
    LateInterrupt {
        /// Message number.
        vector: Option<u16>,
        /// How much later.
        delay: Nanos,
    },
    /// An interrupt arrives that has no cause.
    SpuriousInterrupt {
        /// Message number.
        vector: u16,
        /// What counts.
        on: Opportunity,
    },
    /// A channel stops for good at the start of a descriptor: busy, until a reset of the card. Opportunity: a descriptor
    /// starts.
    Stall {
        /// Channel.
        channel: Option<ChannelName>,
    },
    /// A count of completed descriptors is too high or too low. Opportunity: a count is reported, in the register or
    /// by a write-back.
    WrongCount {
        /// Channel.
        channel: Option<ChannelName>,
        /// Added to the true count.
        by: i32,
    },
    /// A count is the one that was reported before. Opportunity: a count is reported.
    StaleCount {
        /// Channel.
        channel: Option<ChannelName>,
    },
    /// A count is this number, whatever happened. Opportunity: a count is reported.
    ImpossibleCount {
        /// Channel.
        channel: Option<ChannelName>,
        /// The number.
        count: u32,
    },
    /// A write-back does not reach host memory. Opportunity: a write-back.
    MissingWriteback {
        /// Channel.
        channel: Option<ChannelName>,
    },
    /// Of a write-back's four bytes, only the first ones reach host memory. Opportunity: a write-back.
    TornWriteback {
        /// Channel.
        channel: Option<ChannelName>,
        /// How many, 1 to 3.
        bytes: u8,
    },
    /// The metadata of a stream descriptor is wrong. Opportunity: a C2H stream channel writes metadata.
    Metadata {
        /// Channel.
        channel: Option<ChannelName>,
        /// In which way.
        fault: StreamWritebackFault,
    },
    /// The end of a packet is lost: what follows continues it. Without end this is a stream that never ends. Opportunity: a
    /// C2H stream channel gets the end of a packet.
    LostPacketEnd {
        /// Channel.
        channel: Option<ChannelName>,
    },
    /// A descriptor ends with an error in the channel's status. As in any other case, the error is noted and stops the
    /// channel only where the control register says so. Opportunity: a descriptor starts on a channel that has the bit.
    StatusError {
        /// Channel.
        channel: Option<ChannelName>,
        /// The error.
        error: ChannelError,
    },
    /// The host refuses a descriptor fetch. Opportunity: a block of descriptors is fetched.
    RefusedFetch {
        /// Channel.
        channel: Option<ChannelName>,
    },
    /// The host refuses data: an H2C channel's read fails, a C2H channel's write is lost without a trace in any register.
    /// Opportunity: up to 64 KiB of a descriptor move.
    RefusedData {
        /// Channel.
        channel: Option<ChannelName>,
    },
    /// From now on every register reads as all ones and takes no writes, until a reset of the card. Configuration space
    /// answers, engines go on.
    AllOnes {
        /// What counts.
        on: Opportunity,
    },
    /// The card is pulled out: configuration space reads as all ones too, nothing moves any more.
    SurpriseRemoval {
        /// What counts.
        on: Opportunity,
    },
    /// The link reports an error: status bits, error-reporting capability, message to the root.
    Pci {
        /// Which.
        error: PciError,
        /// What counts.
        on: Opportunity,
    },
    /// The card is reset, by somebody else.
    Reset {
        /// What counts.
        on: Opportunity,
    },
    /// The CDMA ends with an error. Opportunity: up to 64 KiB of a copy move, or a descriptor of the CDMA is fetched.
    Cdma {
        /// Which.
        error: CdmaError,
    },
    /// An AXI slave never answers the CDMA: its copy stays where it is, and neither it nor a soft reset comes to an end until a
    /// reset of the card. Opportunity: up to 64 KiB of a copy move.
    CdmaStall,
}
