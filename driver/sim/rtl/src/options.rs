//! Options of a simulation, parameters of the RTL module, and the card that they describe.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use fpga_sim::{CardDescription, DescriptionError};

use crate::pace::Ratio;
use crate::trace::{TRIGGERS, TraceOptions};

/// Parameters of the SystemVerilog module `fpga_xdma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// Data bus in bits.
    pub(crate) data_bits: u32,
    pub(crate) id_bits: u32,
    /// Channels of each direction.
    pub(crate) channels: u32,
    /// Lines of `usr_irq_req`.
    pub(crate) user_interrupts: u32,
    /// AXI4-Stream ports instead of the memory master.
    pub(crate) stream: bool,
    /// Bypass BAR and its AXI4 master.
    pub(crate) bypass: bool,
    /// Channels with a descriptor bypass port: H2C in bits 3:0, C2H in 7:4.
    pub(crate) descriptor_bypass: u32,
    /// `axi_aclk` is `sys_clk`.
    pub(crate) clock_input: bool,
}

/// When simulated time advances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ClockMode {
    /// From an access of the host, an interrupt or a reset until `settle` cycles after the last activity at the ports.
    #[default]
    Locked,
    /// Always.
    Free,
}

/// Options, from the simulator's plusargs or the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) socket: Option<PathBuf>,
    pub(crate) card: Option<PathBuf>,
    pub(crate) clock: ClockMode,
    /// Maximum of simulated time per wall-clock time.
    pub(crate) ratio: Option<Ratio>,
    /// Period of `axi_aclk` in ps instead of the parameter's; even.
    pub(crate) period: Option<u32>,
    /// Cycles that follow the last activity, for the design's reactions.
    pub(crate) settle: u64,
    /// Cycles after which a read of the host without a response reads as all ones; 0 never. `None`: those of [`COMPLETION_TIMEOUT_PS`].
    pub(crate) read_timeout: Option<u64>,
    /// End the simulation at SIGINT and SIGTERM.
    pub(crate) signals: bool,
    /// Print `ready SOCKET` on standard output when clients can connect.
    pub(crate) announce: bool,
    /// End the simulation when its first client disconnects.
    pub(crate) once: bool,
    /// File for a record of the events.
    pub(crate) record: Option<PathBuf>,
    /// Time after which the simulation ends.
    pub(crate) timeout: Option<Duration>,
    /// Triggers of the waveform.
    pub(crate) trace: TraceOptions,
}

/// Periods of `axi_aclk` in ps.
const PERIODS: std::ops::RangeInclusive<u32> = 2..=1_000_000_000;
/// Simulated time after which a read of the host without a response reads as all ones, in ps: the completion timeout of PCIe, 50 ms at most by
/// default (Device Control 2).
const COMPLETION_TIMEOUT_PS: u64 = 50_000_000_000;
/// Period of `axi_aclk` in ps for [`COMPLETION_TIMEOUT_PS`], where only the simulator knows it.
pub(crate) const ASSUMED_PERIOD: u32 = 4000;
/// Default of `settle`.
const SETTLE: u64 = 64;

impl Default for Options {
    fn default() -> Self {
        Self {
            socket: None,
            card: None,
            clock: ClockMode::Locked,
            ratio: None,
            period: None,
            settle: SETTLE,
            read_timeout: None,
            signals: false,
            announce: false,
            once: false,
            record: None,
            timeout: None,
            trace: TraceOptions::default(),
        }
    }
}

/// Names of the options: plusarg `+fpga_NAME=VALUE`, environment variable `FPGA_RTL_NAME` in capitals.
pub(crate) const NAMES: [&str; 15] = [
    "socket",
    "card",
    "clock",
    "ratio",
    "period",
    "settle",
    "read_timeout",
    "signals",
    "announce",
    "once",
    "record",
    "timeout",
    "trace_from",
    "trace_until",
    "trace_after",
];

/// Reason why a simulation does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("option {name}: `{value}` is not {expected}")]
    Value { name: String, value: String, expected: &'static str },
    #[error("there is no option `{0}`; the options are {options}", options = NAMES.join(", "))]
    Unknown(String),
    #[error("option ratio: simulated time is locked to the host's accesses")]
    RatioLocked,
    #[error("option period: axi_aclk is sys_clk (parameter HALF_PERIOD is 0)")]
    PeriodOfInput,
    #[error("no socket")]
    NoSocket,
    #[error("instance {0} of fpga_xdma has no socket")]
    NoSocketOf(usize),
    #[error(transparent)]
    Card(#[from] DescriptionError),
    #[error("parameter {name} of fpga_xdma is {value}: {rule}")]
    Parameter { name: &'static str, value: u32, rule: &'static str },
    #[error("parameter {name} of fpga_cdma is {value}: {rule}")]
    CdmaParameter { name: &'static str, value: u32, rule: &'static str },
    #[error(transparent)]
    Engine(#[from] fpga_sim::CardError),
    #[error("the card file has {key} {described}, but parameter {name} of fpga_xdma is {value}")]
    Mismatch { key: &'static str, described: u32, name: &'static str, value: u32 },
    #[error(transparent)]
    Network(#[from] fpga_sim::SimNetworkError),
    #[error(transparent)]
    Serve(#[from] fpga_sim::served::ServeError),
    #[error(
        "{}: the record cannot be created: {cause}", path.display()
    )]
    Record { path: PathBuf, cause: std::io::Error },
    #[error("{what}: {cause}")]
    System { what: &'static str, cause: std::io::Error },
}

impl StartError {
    /// The problem, and what to do about it in a second line.
    pub(crate) fn with_help(&self) -> String {
        self.help().map_or_else(|| self.to_string(), |help| format!("{self}\nhelp: {help}"))
    }

    fn help(&self) -> Option<Cow<'static, str>> {
        Some(match self {
            Self::Value { name, .. } => {
                format!("give +fpga_{name}=VALUE to the simulator, or remove it").into()
            }
            Self::RatioLocked => "give +fpga_clock=free too, or remove +fpga_ratio".into(),
            Self::PeriodOfInput => "change the clock of the test bench, or remove +fpga_period".into(),
            Self::NoSocket => "give +fpga_socket=PATH to the simulator, or set FPGA_RTL_SOCKET".into(),
            Self::NoSocketOf(instance) => {
                format!("give +fpga_socket.{instance}=PATH to the simulator, or set its parameter SOCKET")
                    .into()
            }
            Self::Parameter { .. } | Self::CdmaParameter { .. } => "correct the instance".into(),
            Self::Mismatch { .. } => "change one of them, or omit the card file".into(),
            Self::Network(error) => error.help()?.into(),
            Self::Serve(error) => error.help()?.into(),
            Self::Record { .. } => "name a file in a folder that you may write to".into(),
            _ => return None,
        })
    }
}

impl Options {
    /// Sets option `name`. An empty value keeps the default.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), StartError> {
        if value.is_empty() {
            return Ok(());
        }
        let bad = |expected| StartError::Value { name: name.to_owned(), value: value.to_owned(), expected };
        match name {
            "socket" => self.socket = Some(value.into()),
            "card" => self.card = Some(value.into()),
            "record" => self.record = Some(value.into()),
            "clock" => {
                self.clock = match value {
                    "locked" => ClockMode::Locked,
                    "free" => ClockMode::Free,
                    _ => return Err(bad("`locked` or `free`")),
                }
            }
            "ratio" => {
                let ratio = value.parse().map_err(|()| bad("a ratio from 1e-9 to 1000"))?;
                self.ratio = Some(ratio);
            }
            "period" => {
                let period = u32::from_str(value).ok();
                let period = period.filter(|period| period % 2 == 0 && PERIODS.contains(period));
                self.period = Some(period.ok_or_else(|| bad("an even number of ps from 2 to 1000000000"))?);
            }
            "trace_from" | "trace_until" => {
                let trigger = Some(value.parse().map_err(|()| bad(TRIGGERS))?);
                let into = if name == "trace_from" { &mut self.trace.from } else { &mut self.trace.until };
                *into = trigger;
            }
            "trace_after" => {
                let cycles = u64::from_str(value).map_err(|_| bad("a number of cycles"))?;
                self.trace.after = Some(cycles);
            }
            "settle" => self.settle = u64::from_str(value).map_err(|_| bad("a number of cycles"))?,
            "read_timeout" => {
                self.read_timeout = Some(u64::from_str(value).map_err(|_| bad("a number of cycles"))?);
            }
            "timeout" => {
                let seconds = f64::from_str(value).ok();
                let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                self.timeout = Some(limit.ok_or_else(|| bad("a number of seconds"))?);
            }
            "signals" | "announce" | "once" => {
                let is_set = match value {
                    "0" => false,
                    "1" => true,
                    _ => return Err(bad("0 or 1")),
                };
                match name {
                    "signals" => self.signals = is_set,
                    "announce" => self.announce = is_set,
                    _ => self.once = is_set,
                }
            }
            _ => return Err(StartError::Unknown(name.to_owned())),
        }
        Ok(())
    }

    /// Cycles of `period` ps after which a read without a response ends; `None`: it never does.
    pub(crate) fn read_cycles(&self, period: u32) -> Option<u64> {
        let default = COMPLETION_TIMEOUT_PS / u64::from(period.max(1));
        Some(self.read_timeout.unwrap_or(default)).filter(|cycles| *cycles > 0)
    }

    /// Checks the options that depend on each other and on the module.
    pub(crate) fn check(&self, parameters: &Parameters) -> Result<(), StartError> {
        if self.ratio.is_some() && self.clock == ClockMode::Locked {
            return Err(StartError::RatioLocked);
        }
        if self.period.is_some() && parameters.clock_input {
            return Err(StartError::PeriodOfInput);
        }
        Ok(())
    }

    /// Sets the options that `variable` has, as environment variables do.
    pub(crate) fn with_environment(
        mut self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, StartError> {
        for name in NAMES {
            if let Some(value) = variable(&format!("FPGA_RTL_{}", name.to_uppercase())) {
                self.set(name, &value)?;
            }
        }
        Ok(self)
    }
}

impl Parameters {
    /// Checks the values that the module accepts.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        let rules = [
            (
                "DATA_WIDTH",
                self.data_bits,
                matches!(self.data_bits, 64 | 128 | 256 | 512),
                "it must be 64, 128, 256 or 512",
            ),
            ("CHANNELS", self.channels, (1..=4).contains(&self.channels), "it must be 1 to 4"),
            ("ID_WIDTH", self.id_bits, (1..=16).contains(&self.id_bits), "it must be 1 to 16"),
            (
                "USER_INTERRUPTS",
                self.user_interrupts,
                (1..=16).contains(&self.user_interrupts),
                "it must be 1 to 16",
            ),
        ];
        for (name, value, is_valid, rule) in rules {
            if !is_valid {
                return Err(StartError::Parameter { name, value, rule });
            }
        }
        Ok(())
    }

    /// The card of these parameters: that of the card file, which must agree with them, or one with the vendor's ids.
    pub(crate) fn card(&self, file: Option<&Path>) -> Result<CardDescription, StartError> {
        self.check()?;
        let Some(file) = file else {
            let mut card = CardDescription::default();
            card.name = "RTL simulation".to_owned();
            card.pci.subsystem_device = 0x0007;
            card.bars.bypass = card.bars.bypass.filter(|_| self.bypass);
            card.memory.size = 0x1_0000;
            card.xdma.data_width = u16::try_from(self.data_bits).unwrap_or(512);
            let channels = u8::try_from(self.channels).unwrap_or(1);
            (card.xdma.h2c_channels, card.xdma.c2h_channels) = (channels, channels);
            card.xdma.stream = self.stream;
            return Ok(card);
        };
        let card = CardDescription::load(file)?;
        let agreements = [
            ("xdma.data_width", card.xdma.data_width.into(), "DATA_WIDTH", self.data_bits),
            ("xdma.h2c_channels", card.xdma.h2c_channels.into(), "CHANNELS", self.channels),
            ("xdma.c2h_channels", card.xdma.c2h_channels.into(), "CHANNELS", self.channels),
            ("xdma.stream", card.xdma.stream.into(), "STREAM", self.stream.into()),
            ("bars.bypass", card.bars.bypass.is_some().into(), "BYPASS_BAR", self.bypass.into()),
        ];
        for (key, described, name, value) in agreements {
            if described != value {
                return Err(StartError::Mismatch { key, described, name, value });
            }
        }
        Ok(card)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: Parameters = Parameters {
        data_bits: 256,
        id_bits: 4,
        channels: 2,
        user_interrupts: 4,
        stream: false,
        bypass: false,
        descriptor_bypass: 0,
        clock_input: false,
    };

    #[test]
    fn default_card_has_the_parameters() {
        let card = PARAMETERS.card(None).expect("a card");
        assert_eq!((card.xdma.data_width, card.xdma.h2c_channels, card.xdma.c2h_channels), (256, 2, 2));
        assert!(card.validate().is_ok());
    }

    #[test]
    fn wrong_parameter_is_named() {
        let error = Parameters { data_bits: 100, ..PARAMETERS }.card(None).expect_err("a wrong width");
        assert!(error.to_string().contains("DATA_WIDTH"), "{error}");
    }

    #[test]
    fn card_file_with_other_width_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("card.yaml");
        std::fs::write(
            &file,
            "schema_version: 3\nxdma: {data_width: 128, h2c_channels: 2, c2h_channels: 2}\n",
        )
        .expect("a file");
        let error = PARAMETERS.card(Some(&file)).expect_err("a mismatch");
        assert!(error.to_string().contains("xdma.data_width 128"), "{error}");
    }

    #[test]
    fn environment_is_overridden_by_plusargs() {
        let variable = |name: &str| (name == "FPGA_RTL_SETTLE").then(|| "10".to_owned());
        let mut options = Options::default().with_environment(variable).expect("options");
        assert_eq!(options.settle, 10);
        options.set("settle", "20").expect("a number");
        assert_eq!(options.settle, 20);
        assert!(options.set("clock", "fast").is_err());
        assert!(options.set("speed", "1").is_err());
    }

    #[test]
    fn read_timeout_is_50_ms_unless_given() {
        let mut options = Options::default();
        assert_eq!(options.read_cycles(ASSUMED_PERIOD), Some(12_500_000));
        assert_eq!(options.read_cycles(16_000), Some(3_125_000));
        options.set("read_timeout", "20000").expect("a number");
        assert_eq!(options.read_cycles(ASSUMED_PERIOD), Some(20_000));
        options.set("read_timeout", "0").expect("a number");
        assert_eq!(options.read_cycles(ASSUMED_PERIOD), None);
    }

    #[test]
    fn ratio_needs_free_clock_and_period_needs_own_clock() {
        let mut options = Options::default();
        options.set("ratio", "0.5").expect("a ratio");
        assert!(matches!(options.check(&PARAMETERS), Err(StartError::RatioLocked)));
        options.set("clock", "free").expect("a mode");
        assert!(options.check(&PARAMETERS).is_ok());
        for value in ["0", "3", "4.5", "2000000000", "250MHz"] {
            assert!(matches!(options.set("period", value), Err(StartError::Value { .. })), "{value}");
        }
        options.set("period", "8000").expect("a period");
        let parameters = Parameters { clock_input: true, ..PARAMETERS };
        assert!(matches!(options.check(&parameters), Err(StartError::PeriodOfInput)));
        let error = options.set("trace_from", "sometime").expect_err("no trigger");
        assert!(error.to_string().contains("read:ADDRESS"), "{error}");
    }
}
