//! The section `faults` of a card file.
//!
//! An entry is flat: the fault's name, its parameters, and when it is injected. So every key has a line and column, and a key that the
//! fault does not use is an error.

use super::{
    CdmaError, ChannelName, FaultPlan, InjectedFault, Opportunity, PlannedFault, StreamWritebackFault,
};
use crate::config_space::kinds::{CorrectableError, PciError, UncorrectableError};
use fpga_protocol::time::Nanos;
use fpga_registers::xdma::Direction;
use fpga_registers::xdma::channel::StatusError;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};

/// Section `faults`. Programs also write it, for a card that another process serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct FaultsDescription {
    /// Seed of the random numbers.
    pub seed: u64,
    /// List of faults.
    pub list: Vec<FaultEntry>,
}

impl FaultsDescription {
    /// Builds the plan that the section describes.
    ///
    /// # Errors
    /// The index of the first invalid entry, and the [`FaultProblem`].
    pub fn plan(&self) -> Result<FaultPlan, (usize, FaultProblem)> {
        let planned = self.list.iter().enumerate();
        let list = planned.map(|(index, entry)| entry.planned().map_err(|problem| (index, problem)));
        Ok(FaultPlan { seed: self.seed, list: list.collect::<Result<_, _>>()? })
    }
}

/// Fault names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultName {
    /// [`InjectedFault::LostInterrupt`]; `vector`.
    LostInterrupt,
    /// [`InjectedFault::LateInterrupt`]; `delay_ns`, `vector`.
    LateInterrupt,
    /// [`InjectedFault::SpuriousInterrupt`]; `vector`, `on`.
    SpuriousInterrupt,
    /// [`InjectedFault::Stall`]; `channel`.
    Stall,
    /// [`InjectedFault::WrongCount`]; `by`, `channel`.
    WrongCount,
    /// [`InjectedFault::StaleCount`]; `channel`.
    StaleCount,
    /// [`InjectedFault::ImpossibleCount`]; `count`, `channel`.
    ImpossibleCount,
    /// [`InjectedFault::MissingWriteback`]; `channel`.
    MissingWriteback,
    /// [`InjectedFault::TornWriteback`]; `bytes`, `channel`.
    TornWriteback,
    /// [`InjectedFault::Metadata`], missing; `channel`.
    MissingMetadata,
    /// [`InjectedFault::Metadata`], torn; `channel`.
    TornMetadata,
    /// [`InjectedFault::Metadata`], other words; `words`, `channel`.
    WrongMetadata,
    /// [`InjectedFault::LostPacketEnd`]; `channel`.
    LostPacketEnd,
    /// [`InjectedFault::StatusError`]; `error`, `channel`.
    StatusError,
    /// [`InjectedFault::RefusedFetch`]; `channel`.
    RefusedFetch,
    /// [`InjectedFault::RefusedData`]; `channel`.
    RefusedData,
    /// [`InjectedFault::AllOnes`]; `on`.
    AllOnes,
    /// [`InjectedFault::SurpriseRemoval`]; `on`.
    SurpriseRemoval,
    /// [`InjectedFault::Pci`]; `error`, `on`.
    PciError,
    /// [`InjectedFault::Reset`]; `on`.
    Reset,
    /// [`InjectedFault::Cdma`]; `error`.
    CdmaError,
    /// [`InjectedFault::CdmaStall`].
    CdmaStall,
}

/// One fault of a card file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FaultEntry {
    /// Name of the fault.
    pub fault: FaultName,
    /// Channel, `h2c0` to `c2h3`; any if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<ChannelName>,
    /// Interrupt message; any if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vector: Option<u16>,
    /// Delay of an interrupt in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<u64>,
    /// Number that is added to a count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<i32>,
    /// Number that is reported as a count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Number of bytes of a write-back that arrive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u8>,
    /// Two words that are written as metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<[u32; 2]>,
    /// Name of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Kind of opportunity, where there is a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<Opportunity>,
    /// Number of opportunities to skip first.
    #[serde(default)]
    pub skip: u64,
    /// How often the fault is injected; `null`: without limit.
    #[serde(default = "once")]
    pub times: Option<u64>,
    /// The fault is injected at one of this many opportunities on average.
    #[serde(default = "every")]
    pub one_in: u32,
}

#[expect(clippy::unnecessary_wraps, reason = "the type of the key, whose other value is null")]
const fn once() -> Option<u64> {
    Some(1)
}

const fn every() -> u32 {
    1
}

/// Error in an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultProblem {
    /// The fault needs this key.
    #[error("this fault needs the key `{key}`, which is missing")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// The fault does not use this key.
    #[error("this fault does not use the key `{key}`")]
    Unused {
        /// The key.
        key: &'static str,
    },
    /// No error has this name.
    #[error("unknown error `{found}`; known: {known}")]
    UnknownError {
        /// The name.
        found: String,
        /// The available names.
        known: String,
    },
    /// The error belongs to channels of the other direction.
    #[error("channels of this direction do not have this error; those of the other direction do")]
    OtherDirection,
    /// A number is outside its range.
    #[error("{found} is out of range; allowed: {least} to {most}")]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// The value.
        found: u64,
        /// Smallest allowed.
        least: u64,
        /// Largest allowed.
        most: u64,
    },
}

impl FaultProblem {
    /// Key of the entry that the problem is about; `fault` if a key is missing.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "fault",
            Self::Unused { key } | Self::OutOfRange { key, .. } => key,
            Self::UnknownError { .. } => "error",
            Self::OtherDirection => "channel",
        }
    }
}

/// Takes the keys of a fault out of an entry, so that the remaining ones can be refused.
struct Keys(FaultEntry);

impl Keys {
    fn any_channel(&mut self) -> Option<ChannelName> {
        self.0.channel.take()
    }

    fn on(&mut self) -> Opportunity {
        self.0.on.take().unwrap_or_default()
    }

    fn error<T: Copy>(&mut self, known: &[(&'static str, T)]) -> Result<T, FaultProblem> {
        let found = needed("error", self.0.error.take())?;
        known.iter().find(|(name, _)| *name == found).map(|(_, error)| *error).ok_or_else(|| {
            let known = known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            FaultProblem::UnknownError { found, known }
        })
    }

    /// Refuses keys that were not taken.
    fn finish(&self) -> Result<(), FaultProblem> {
        let entry = &self.0;
        let left = [
            ("channel", entry.channel.is_some()),
            ("vector", entry.vector.is_some()),
            ("delay_ns", entry.delay_ns.is_some()),
            ("by", entry.by.is_some()),
            ("count", entry.count.is_some()),
            ("bytes", entry.bytes.is_some()),
            ("words", entry.words.is_some()),
            ("error", entry.error.is_some()),
            ("on", entry.on.is_some()),
        ];
        let unused = left.into_iter().find(|(_, there)| *there);
        unused.map_or(Ok(()), |(key, _)| Err(FaultProblem::Unused { key }))
    }
}

fn needed<T>(key: &'static str, value: Option<T>) -> Result<T, FaultProblem> {
    value.ok_or(FaultProblem::Missing { key })
}

fn within(key: &'static str, found: u64, least: u64, most: u64) -> Result<(), FaultProblem> {
    if (least..=most).contains(&found) {
        Ok(())
    } else {
        Err(FaultProblem::OutOfRange { key, found, least, most })
    }
}

impl FaultEntry {
    /// Creates an entry that injects `fault` once, at its first opportunity. The caller adds the parameters.
    #[must_use]
    pub const fn new(fault: FaultName) -> Self {
        Self {
            fault,
            channel: None,
            vector: None,
            delay_ns: None,
            by: None,
            count: None,
            bytes: None,
            words: None,
            error: None,
            on: None,
            skip: 0,
            times: once(),
            one_in: 1,
        }
    }

    /// Converts the entry to a planned fault.
    ///
    /// # Errors
    /// [`FaultProblem`]: a key is missing, is not used by the fault, or has an invalid value.
    pub fn planned(&self) -> Result<PlannedFault, FaultProblem> {
        let mut keys = Keys(self.clone());
        let fault = injected(self.fault, &mut keys)?;
        keys.finish()?;
        within("one_in", self.one_in.into(), 1, u32::MAX.into())?;
        within("times", self.times.unwrap_or(1), 1, u64::MAX)?;
        Ok(PlannedFault { fault, skip: self.skip, times: self.times, one_in: self.one_in })
    }
}

fn injected(name: FaultName, keys: &mut Keys) -> Result<InjectedFault, FaultProblem> {
    Ok(match name {
        FaultName::LostInterrupt => InjectedFault::LostInterrupt { vector: keys.0.vector.take() },
        FaultName::LateInterrupt => {
            let delay = Nanos::new(needed("delay_ns", keys.0.delay_ns.take())?);
            InjectedFault::LateInterrupt { vector: keys.0.vector.take(), delay }
        }
        FaultName::SpuriousInterrupt => {
            let vector = needed("vector", keys.0.vector.take())?;
            within("vector", vector.into(), 0, 31)?;
            InjectedFault::SpuriousInterrupt { vector, on: keys.on() }
        }
        FaultName::Stall => InjectedFault::Stall { channel: keys.any_channel() },
        FaultName::WrongCount => {
            let by = needed("by", keys.0.by.take())?;
            InjectedFault::WrongCount { channel: keys.any_channel(), by }
        }
        FaultName::StaleCount => InjectedFault::StaleCount { channel: keys.any_channel() },
        FaultName::ImpossibleCount => {
            let count = needed("count", keys.0.count.take())?;
            InjectedFault::ImpossibleCount { channel: keys.any_channel(), count }
        }
        FaultName::MissingWriteback => InjectedFault::MissingWriteback { channel: keys.any_channel() },
        FaultName::TornWriteback => {
            let bytes = needed("bytes", keys.0.bytes.take())?;
            within("bytes", bytes.into(), 1, 3)?;
            InjectedFault::TornWriteback { channel: keys.any_channel(), bytes }
        }
        FaultName::MissingMetadata => metadata(keys, StreamWritebackFault::Missing),
        FaultName::TornMetadata => metadata(keys, StreamWritebackFault::Torn),
        FaultName::WrongMetadata => {
            let words = needed("words", keys.0.words.take())?;
            metadata(keys, StreamWritebackFault::Words(words))
        }
        FaultName::LostPacketEnd => InjectedFault::LostPacketEnd { channel: keys.any_channel() },
        FaultName::StatusError => {
            let error = keys.error(STATUS_ERRORS)?;
            let channel = keys.any_channel();
            if channel.is_some_and(|channel| !StatusError::all(channel.direction()).contains(&error)) {
                return Err(FaultProblem::OtherDirection);
            }
            InjectedFault::StatusError { channel, error }
        }
        FaultName::RefusedFetch => InjectedFault::RefusedFetch { channel: keys.any_channel() },
        FaultName::RefusedData => InjectedFault::RefusedData { channel: keys.any_channel() },
        FaultName::AllOnes => InjectedFault::AllOnes { on: keys.on() },
        FaultName::SurpriseRemoval => InjectedFault::SurpriseRemoval { on: keys.on() },
        FaultName::PciError => InjectedFault::Pci { error: keys.error(PCI_ERRORS)?, on: keys.on() },
        FaultName::Reset => InjectedFault::Reset { on: keys.on() },
        FaultName::CdmaError => InjectedFault::Cdma { error: keys.error(CDMA_ERRORS)? },
        FaultName::CdmaStall => InjectedFault::CdmaStall,
    })
}

fn metadata(keys: &mut Keys, fault: StreamWritebackFault) -> InjectedFault {
    InjectedFault::Metadata { channel: keys.any_channel(), fault }
}

const STATUS_ERRORS: &[(&str, StatusError)] = &[
    ("align_mismatch", StatusError::AlignMismatch),
    ("magic_stopped", StatusError::MagicStopped),
    ("invalid_length", StatusError::InvalidLength),
    ("host_read_unsupported_request", StatusError::HostReadUnsupportedRequest),
    ("host_read_completer_abort", StatusError::HostReadCompleterAbort),
    ("host_read_parity", StatusError::HostReadParity),
    ("host_read_poisoned", StatusError::HostReadPoisoned),
    ("host_read_unexpected_completion", StatusError::HostReadUnexpectedCompletion),
    ("card_read_decode", StatusError::CardReadDecode),
    ("card_read_slave", StatusError::CardReadSlave),
    ("card_write_decode", StatusError::CardWriteDecode),
    ("card_write_slave", StatusError::CardWriteSlave),
    ("descriptor_unsupported_request", StatusError::DescriptorUnsupportedRequest),
    ("descriptor_completer_abort", StatusError::DescriptorCompleterAbort),
    ("descriptor_parity", StatusError::DescriptorParity),
    ("descriptor_poisoned", StatusError::DescriptorPoisoned),
    ("descriptor_unexpected_completion", StatusError::DescriptorUnexpectedCompletion),
];

const CDMA_ERRORS: &[(&str, CdmaError)] = &[
    ("internal", CdmaError::Internal),
    ("slave", CdmaError::Slave),
    ("decode", CdmaError::Decode),
    ("sg_internal", CdmaError::SgInternal),
    ("sg_slave", CdmaError::SgSlave),
    ("sg_decode", CdmaError::SgDecode),
];

const PCI_ERRORS: &[(&str, PciError)] = &[
    ("receiver", PciError::Correctable(CorrectableError::Receiver)),
    ("bad_tlp", PciError::Correctable(CorrectableError::BadTlp)),
    ("bad_dllp", PciError::Correctable(CorrectableError::BadDllp)),
    ("replay_rollover", PciError::Correctable(CorrectableError::ReplayRollover)),
    ("replay_timeout", PciError::Correctable(CorrectableError::ReplayTimeout)),
    ("advisory_non_fatal", PciError::Correctable(CorrectableError::AdvisoryNonFatal)),
    ("data_link_protocol", PciError::Uncorrectable(UncorrectableError::DataLinkProtocol)),
    ("surprise_down", PciError::Uncorrectable(UncorrectableError::SurpriseDown)),
    ("poisoned_tlp", PciError::Uncorrectable(UncorrectableError::PoisonedTlp)),
    ("flow_control", PciError::Uncorrectable(UncorrectableError::FlowControl)),
    ("completion_timeout", PciError::Uncorrectable(UncorrectableError::CompletionTimeout)),
    ("completer_abort", PciError::Uncorrectable(UncorrectableError::CompleterAbort)),
    ("unexpected_completion", PciError::Uncorrectable(UncorrectableError::UnexpectedCompletion)),
    ("receiver_overflow", PciError::Uncorrectable(UncorrectableError::ReceiverOverflow)),
    ("malformed_tlp", PciError::Uncorrectable(UncorrectableError::MalformedTlp)),
    ("ecrc", PciError::Uncorrectable(UncorrectableError::Ecrc)),
    ("unsupported_request", PciError::Uncorrectable(UncorrectableError::UnsupportedRequest)),
];

impl Serialize for ChannelName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let direction = match self.direction() {
            Direction::C2h => "c2h",
            _ => "h2c",
        };
        serializer.collect_str(&format_args!("{direction}{}", self.number()))
    }
}

impl<'de> Deserialize<'de> for ChannelName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let known = [Direction::H2c, Direction::C2h].into_iter().flat_map(|direction| {
            (0..4_u8).map(move |number| match direction {
                Direction::H2c => (Self::H2c(number), format!("h2c{number}")),
                Direction::C2h => (Self::C2h(number), format!("c2h{number}")),
            })
        });
        known.into_iter().find(|(_, known)| *known == name).map(|(channel, _)| channel).ok_or_else(|| {
            D::Error::custom(format_args!("unknown channel `{name}`; known: h2c0 to h2c3, c2h0 to c2h3"))
        })
    }
}
