//! Execution of a fault plan: counts opportunities, draws random numbers, keeps events that are due.

use super::{
    CdmaError, ChannelName, FaultPlan, InjectedFault, Opportunity, PlannedFault, StreamWritebackFault,
};
use crate::config_space::kinds::PciError;
use crate::fault_log::{FaultKind, FaultLog, Unit};
use fpga_protocol::time::Nanos;
use fpga_registers::xdma::Direction;
use fpga_registers::xdma::channel::StatusError;

/// Number of channels of both directions, for per-channel state.
const CHANNELS: usize = 8;

/// Fault that affects the whole card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CardEvent {
    AllOnes,
    Removal,
    Reset,
    Pci(PciError),
    Spurious(u16),
}

/// Fault of a descriptor that starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DescriptorFault {
    Stall,
    Error(StatusError),
}

/// Fault of a CDMA copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CdmaFault {
    Stall,
    Error(CdmaError),
}

/// Fault of a write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WritebackFault {
    Missing,
    /// Only this number of bytes arrives.
    Torn(usize),
}

/// Disposition of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterruptDisposition {
    Send,
    Drop,
    Delay(Nanos),
}

/// Planned fault, its opportunities and its injections.
#[derive(Debug, Clone)]
struct Entry {
    planned: PlannedFault,
    opportunities: u64,
    struck: u64,
}

impl Entry {
    /// Counts an opportunity; returns whether the fault is injected.
    fn strikes(&mut self, random: &mut u64) -> bool {
        let PlannedFault { skip, times, one_in, .. } = self.planned;
        self.opportunities = self.opportunities.saturating_add(1);
        let open = self.opportunities > skip && times.is_none_or(|times| self.struck < times);
        let strikes = open && (one_in <= 1 || draw(random).is_multiple_of(one_in.into()));
        self.struck += u64::from(strikes);
        strikes
    }
}

/// The next random number (SplitMix64, Steele, Lea and Flood, OOPSLA 2014).
const fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// Kinds of opportunity that the plan needs.
#[derive(Clone, Copy, Debug, Default)]
struct FaultInterest {
    channels: bool,
    /// A fault of the whole card has descriptors as its opportunity.
    descriptors: bool,
    counts: bool,
    messages: bool,
    accesses: bool,
    cdma: bool,
}

/// Fault plan of one card.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    entries: Vec<Entry>,
    /// Count that is reported regardless of the plan ([`crate::Card::override_completed_count`]).
    count_override: Option<u32>,
    /// The same for metadata ([`crate::Card::break_stream_writeback`]).
    metadata_override: Option<StreamWritebackFault>,
    interest: FaultInterest,
    random: u64,
    /// Count that each channel reported last.
    counts: [u32; CHANNELS],
    due: Vec<CardEvent>,
}

impl Plan {
    pub(crate) fn new(plan: &FaultPlan) -> Self {
        let entry = |planned: &PlannedFault| Entry { planned: planned.clone(), opportunities: 0, struck: 0 };
        let mut new =
            Self { entries: plan.list.iter().map(entry).collect(), random: plan.seed, ..Self::default() };
        new.find_interest();
        new
    }

    fn find_interest(&mut self) {
        let mut interest = FaultInterest {
            counts: self.count_override.is_some(),
            channels: self.metadata_override.is_some(),
            ..FaultInterest::default()
        };
        for entry in &self.entries {
            use InjectedFault as Fault;
            match &entry.planned.fault {
                Fault::LostInterrupt { .. } | Fault::LateInterrupt { .. } => interest.messages = true,
                Fault::WrongCount { .. } | Fault::StaleCount { .. } | Fault::ImpossibleCount { .. } => {
                    interest.counts = true;
                }
                Fault::Stall { .. }
                | Fault::MissingWriteback { .. }
                | Fault::TornWriteback { .. }
                | Fault::Metadata { .. }
                | Fault::LostPacketEnd { .. }
                | Fault::StatusError { .. }
                | Fault::RefusedFetch { .. }
                | Fault::RefusedData { .. } => interest.channels = true,
                Fault::AllOnes { on }
                | Fault::SurpriseRemoval { on }
                | Fault::SpuriousInterrupt { on, .. }
                | Fault::Pci { on, .. }
                | Fault::Reset { on } => match on {
                    Opportunity::Access => interest.accesses = true,
                    Opportunity::Descriptor => interest.descriptors = true,
                },
                Fault::Cdma { .. } | Fault::CdmaStall => interest.cdma = true,
            }
        }
        interest.channels |= interest.counts || interest.descriptors;
        self.interest = interest;
    }

    pub(crate) fn override_count(&mut self, count: Option<u32>) {
        self.count_override = count;
        self.find_interest();
    }

    pub(crate) fn break_metadata(&mut self, fault: Option<StreamWritebackFault>) {
        self.metadata_override = fault;
        self.find_interest();
    }

    /// Copies the overrides set by the card's hooks from the previous plan.
    pub(crate) fn keep_hooks(&mut self, before: &Self) {
        (self.count_override, self.metadata_override) = (before.count_override, before.metadata_override);
        self.find_interest();
    }

    /// Returns the number of opportunities and of injections of each fault.
    pub(crate) fn progress(&self) -> impl Iterator<Item = (u64, u64)> {
        self.entries.iter().map(|entry| (entry.opportunities, entry.struck))
    }

    /// Returns whether descriptors have to be executed one by one.
    #[inline]
    pub(crate) const fn watches_channels(&self) -> bool {
        self.interest.channels
    }

    /// Returns whether events have to be applied after each descriptor, because a fault of the whole card may happen there.
    #[inline]
    pub(crate) const fn watches_descriptors(&self) -> bool {
        self.interest.descriptors
    }

    #[inline]
    pub(crate) const fn watches_counts(&self) -> bool {
        self.interest.counts
    }

    #[inline]
    pub(crate) const fn watches_messages(&self) -> bool {
        self.interest.messages
    }

    #[inline]
    pub(crate) const fn watches_accesses(&self) -> bool {
        self.interest.accesses
    }

    #[inline]
    pub(crate) const fn watches_cdma(&self) -> bool {
        self.interest.cdma
    }

    /// Records an opportunity for the faults that `select` matches. Each of them counts it. The first one to be injected is logged and
    /// returned.
    fn strike<T>(
        &mut self,
        unit: Unit,
        faults: &mut FaultLog,
        select: impl Fn(&InjectedFault) -> Option<T>,
    ) -> Option<T> {
        let mut answer = None;
        for (index, entry) in self.entries.iter_mut().enumerate() {
            let Some(selected) = select(&entry.planned.fault) else { continue };
            if entry.strikes(&mut self.random) && answer.is_none() {
                let number = u32::try_from(index).unwrap_or(u32::MAX);
                faults.push(FaultKind::Injected, unit, entry.opportunities, number);
                answer = Some(selected);
            }
        }
        answer
    }

    /// Records that software is about to access a BAR.
    pub(crate) fn access(&mut self, faults: &mut FaultLog) {
        self.moment(Opportunity::Access, Unit::Xdma, faults);
    }

    /// Records that a descriptor of channel `unit` is done.
    pub(crate) fn descriptor_done(&mut self, unit: Unit, faults: &mut FaultLog) {
        self.moment(Opportunity::Descriptor, unit, faults);
    }

    fn moment(&mut self, moment: Opportunity, unit: Unit, faults: &mut FaultLog) {
        let event = self.strike(unit, faults, |fault| match fault {
            InjectedFault::AllOnes { on } if *on == moment => Some(CardEvent::AllOnes),
            InjectedFault::SurpriseRemoval { on } if *on == moment => Some(CardEvent::Removal),
            InjectedFault::Reset { on } if *on == moment => Some(CardEvent::Reset),
            InjectedFault::Pci { error, on } if *on == moment => Some(CardEvent::Pci(*error)),
            InjectedFault::SpuriousInterrupt { vector, on } if *on == moment => {
                Some(CardEvent::Spurious(*vector))
            }
            _ => None,
        });
        self.due.extend(event);
    }

    #[inline]
    pub(crate) const fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Takes the next event that is due.
    pub(crate) fn take_due(&mut self) -> Option<CardEvent> {
        self.due.pop()
    }

    /// Returns the fault of a descriptor that starts on channel `unit`.
    pub(crate) fn descriptor_starts(&mut self, unit: Unit, faults: &mut FaultLog) -> Option<DescriptorFault> {
        self.strike(unit, faults, |fault| match fault {
            InjectedFault::Stall { channel } if is(*channel, unit) => Some(DescriptorFault::Stall),
            InjectedFault::StatusError { channel, error } if is(*channel, unit) && has(unit, *error) => {
                Some(DescriptorFault::Error(*error))
            }
            _ => None,
        })
    }

    /// Returns whether the host refuses a block fetch of channel `unit`.
    pub(crate) fn fetch_refused(&mut self, unit: Unit, faults: &mut FaultLog) -> bool {
        let select = |fault: &InjectedFault| match fault {
            InjectedFault::RefusedFetch { channel } if is(*channel, unit) => Some(()),
            _ => None,
        };
        self.strike(unit, faults, select).is_some()
    }

    /// Returns whether the host refuses a data access of channel `unit`.
    pub(crate) fn data_refused(&mut self, unit: Unit, faults: &mut FaultLog) -> bool {
        let select = |fault: &InjectedFault| match fault {
            InjectedFault::RefusedData { channel } if is(*channel, unit) => Some(()),
            _ => None,
        };
        self.strike(unit, faults, select).is_some()
    }

    /// Returns the fault of a write-back of channel `unit`.
    pub(crate) fn writeback(&mut self, unit: Unit, faults: &mut FaultLog) -> Option<WritebackFault> {
        self.strike(unit, faults, |fault| match fault {
            InjectedFault::MissingWriteback { channel } if is(*channel, unit) => {
                Some(WritebackFault::Missing)
            }
            InjectedFault::TornWriteback { channel, bytes } if is(*channel, unit) => {
                Some(WritebackFault::Torn(usize::from(*bytes)))
            }
            _ => None,
        })
    }

    /// Returns the fault of a metadata write of stream channel `unit`.
    pub(crate) fn metadata(&mut self, unit: Unit, faults: &mut FaultLog) -> Option<StreamWritebackFault> {
        let planned = self.strike(unit, faults, |fault| match fault {
            InjectedFault::Metadata { channel, fault } if is(*channel, unit) => Some(*fault),
            _ => None,
        });
        self.metadata_override.or(planned)
    }

    /// Returns whether stream channel `unit` loses the end of a packet.
    pub(crate) fn packet_end_lost(&mut self, unit: Unit, faults: &mut FaultLog) -> bool {
        let select = |fault: &InjectedFault| match fault {
            InjectedFault::LostPacketEnd { channel } if is(*channel, unit) => Some(()),
            _ => None,
        };
        self.strike(unit, faults, select).is_some()
    }

    /// Returns the count that channel `unit` reports instead of the true `count`.
    pub(crate) fn count(&mut self, unit: Unit, count: u32, faults: &mut FaultLog) -> u32 {
        let before = channel_place(unit).and_then(|place| self.counts.get(place)).copied().unwrap_or(0);
        let select = |fault: &InjectedFault| match fault {
            InjectedFault::WrongCount { channel, by } if is(*channel, unit) => {
                Some(count.wrapping_add_signed(*by))
            }
            InjectedFault::StaleCount { channel } if is(*channel, unit) => Some(before),
            InjectedFault::ImpossibleCount { channel, count } if is(*channel, unit) => Some(*count),
            _ => None,
        };
        let planned = self.strike(unit, faults, select);
        let reported = self.count_override.or(planned).unwrap_or(count);
        if let Some(place) = channel_place(unit).and_then(|place| self.counts.get_mut(place)) {
            *place = reported;
        }
        reported
    }

    /// Returns the disposition of an interrupt that is about to leave; `number` is the message number, 0 for the line.
    pub(crate) fn message(&mut self, number: u16, now: Nanos, faults: &mut FaultLog) -> InterruptDisposition {
        let concerns = |vector: Option<u16>| vector.is_none_or(|vector| vector == number);
        let verdict = self.strike(Unit::Xdma, faults, |fault| match fault {
            InjectedFault::LostInterrupt { vector } if concerns(*vector) => Some(InterruptDisposition::Drop),
            InjectedFault::LateInterrupt { vector, delay } if concerns(*vector) => {
                Some(InterruptDisposition::Delay(now.saturating_add(*delay)))
            }
            _ => None,
        });
        verdict.unwrap_or(InterruptDisposition::Send)
    }

    /// Returns the fault of a CDMA data access.
    pub(crate) fn is_cdma_stalled(&mut self, faults: &mut FaultLog) -> Option<CdmaFault> {
        self.strike(Unit::Cdma, faults, |fault| match fault {
            InjectedFault::CdmaStall => Some(CdmaFault::Stall),
            InjectedFault::Cdma { error } if !error.of_descriptor() => Some(CdmaFault::Error(*error)),
            _ => None,
        })
    }

    /// Returns the fault of a CDMA descriptor fetch.
    pub(crate) fn cdma_fetches(&mut self, faults: &mut FaultLog) -> Option<CdmaError> {
        self.strike(Unit::Cdma, faults, |fault| match fault {
            InjectedFault::Cdma { error } if error.of_descriptor() => Some(*error),
            _ => None,
        })
    }
}

fn is(channel: Option<ChannelName>, unit: Unit) -> bool {
    match channel {
        None => true,
        Some(ChannelName::H2c(number)) => unit == Unit::H2c(number),
        Some(ChannelName::C2h(number)) => unit == Unit::C2h(number),
    }
}

/// Returns whether a channel of the unit's direction has a bit for `error`.
fn has(unit: Unit, error: StatusError) -> bool {
    let direction = if matches!(unit, Unit::C2h(_)) { Direction::C2h } else { Direction::H2c };
    StatusError::all(direction).contains(&error)
}

fn channel_place(unit: Unit) -> Option<usize> {
    match unit {
        Unit::H2c(number) => Some(usize::from(number & 3)),
        Unit::C2h(number) => Some(usize::from(number & 3) + CHANNELS / 2),
        _ => None,
    }
}
