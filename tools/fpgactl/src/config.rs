//! Defaults file of `--config`: the same values as on the command line. Command-line options override the file.
//!
//! ```yaml
//! schema_version: 1
//! card: mock:cards/small.yaml
//! map: maps/filter.yaml
//! timeout: 5m
//! transfer:
//!   size: 1GiB
//!   chunk: 64MiB
//! ```

pub(crate) mod error;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use fpga_input::plain_message;
use fpga_netmodel::{BitRate, Blackout};

use crate::cli::{self, Notifier, SegmentLength};
use crate::impair::{self, ImpairArgs, JitterDistribution, ReorderModel};
use crate::style::ColourChoice;
use crate::target::Target;
use crate::units;

pub use error::ConfigError;

/// Version of the file's schema.
pub const SCHEMA_VERSION: u32 = 1;

/// Content of the file. Every key but the version is optional.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// [`SCHEMA_VERSION`].
    #[serde(deserialize_with = "version")]
    pub schema_version: u32,
    /// `--card`.
    #[serde(default, deserialize_with = "target")]
    pub card: Option<Target>,
    /// `--peer`.
    #[serde(default, deserialize_with = "target")]
    pub peer: Option<Target>,
    /// `--map`.
    #[serde(default)]
    pub map: Option<PathBuf>,
    /// `--json`.
    #[serde(default)]
    pub json: bool,
    /// `--color`.
    #[serde(default)]
    pub color: Option<ColourChoice>,
    /// `--no-progress`.
    #[serde(default)]
    pub no_progress: bool,
    /// Number of `-v` options.
    #[serde(default)]
    pub verbose: u8,
    /// `--timeout`.
    #[serde(default, deserialize_with = "duration")]
    pub timeout: Option<Duration>,
    /// `--message-timeout`.
    #[serde(default, deserialize_with = "duration")]
    pub message_timeout: Option<Duration>,
    /// Options of `transfer`.
    #[serde(default)]
    pub transfer: TransferDefaults,
}

/// Options of `transfer`, by their names on the command line.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferDefaults {
    /// `--size`; not used with a file.
    #[serde(default, deserialize_with = "bytes")]
    pub size: Option<u64>,
    /// `--threshold`.
    #[serde(default, deserialize_with = "bytes")]
    pub threshold: Option<u64>,
    /// `--segment`.
    #[serde(default, deserialize_with = "segment")]
    pub segment: Option<SegmentLength>,
    /// `--packet`.
    #[serde(default, deserialize_with = "packet")]
    pub packet: Option<u32>,
    /// `--chunk`.
    #[serde(default, deserialize_with = "chunk")]
    pub chunk: Option<u64>,
    /// `--notify`.
    #[serde(default, deserialize_with = "choice")]
    pub notify: Option<Notifier>,
    /// `--seed`.
    #[serde(default)]
    pub seed: Option<u64>,
    /// `--reorder`.
    #[serde(default, deserialize_with = "reorder")]
    pub reorder: Option<u16>,
    /// `--loss`.
    #[serde(default, deserialize_with = "share")]
    pub loss: Option<f64>,
    /// `--burst`.
    #[serde(default, deserialize_with = "burst")]
    pub burst: Option<f64>,
    /// `--control-loss`.
    #[serde(default, deserialize_with = "share")]
    pub control_loss: Option<f64>,
    /// `--duplicate`.
    #[serde(default, deserialize_with = "share")]
    pub duplicate: Option<f64>,
    /// `--control-duplicate`.
    #[serde(default, deserialize_with = "share")]
    pub control_duplicate: Option<f64>,
    /// `--corrupt`.
    #[serde(default, deserialize_with = "share")]
    pub corrupt: Option<f64>,
    /// `--control-corrupt`.
    #[serde(default, deserialize_with = "share")]
    pub control_corrupt: Option<f64>,
    /// `--delay`.
    #[serde(default, deserialize_with = "duration")]
    pub delay: Option<Duration>,
    /// `--jitter`.
    #[serde(default, deserialize_with = "duration")]
    pub jitter: Option<Duration>,
    /// `--jitter-law`.
    #[serde(default, deserialize_with = "choice")]
    pub jitter_law: Option<JitterDistribution>,
    /// `--reorder-law`.
    #[serde(default, deserialize_with = "choice")]
    pub reorder_law: Option<ReorderModel>,
    /// `--deadline`.
    #[serde(default, deserialize_with = "duration")]
    pub deadline: Option<Duration>,
    /// `--priority`.
    #[serde(default)]
    pub priority: Option<u8>,
    /// `--blackout`, a list.
    #[serde(default, deserialize_with = "blackouts")]
    pub blackout: Vec<Blackout>,
    /// `--rate`.
    #[serde(default, deserialize_with = "rate")]
    pub rate: Option<BitRate>,
    /// `--queue`.
    #[serde(default, deserialize_with = "duration")]
    pub queue: Option<Duration>,
}

impl TransferDefaults {
    /// The impairments of the simulated network that these options describe.
    #[must_use]
    pub fn impair(&self) -> ImpairArgs {
        ImpairArgs {
            loss: self.loss,
            burst: self.burst,
            control_loss: self.control_loss,
            duplicate: self.duplicate,
            control_duplicate: self.control_duplicate,
            corrupt: self.corrupt,
            control_corrupt: self.control_corrupt,
            delay: self.delay,
            jitter: self.jitter,
            jitter_law: self.jitter_law,
            reorder_law: self.reorder_law,
            blackout: self.blackout.clone(),
            rate: self.rate,
            queue: self.queue,
        }
    }
}

impl Config {
    /// Parses a defaults file's `text`; `file` is only named in errors.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        serde_path_to_error::deserialize(serde_yaml::Deserializer::from_str(text)).map_err(|error| {
            let key = error.path().to_string();
            let source = error.into_inner();
            let (mut line, mut column) = source.location().map_or((1, 1), |at| (at.line(), at.column()));
            let message = bare_message(&source.to_string(), &key);
            // For a refused value, the parser knows only where its mapping starts.
            if let Some((key_line, key_column)) = locate(text, &key)
                && key_line != line
            {
                (line, column) = (key_line, key_column);
            }
            ConfigError::Invalid { file: file.to_owned(), line, column, key, message }
        })
    }
}

/// The parser's message without the position and the key, which are shown separately.
fn bare_message(message: &str, key: &str) -> String {
    let message = &plain_message(message);
    let parent = key.split('.').next().unwrap_or(key);
    [key, parent]
        .into_iter()
        .find_map(|prefix| message.strip_prefix(prefix)?.strip_prefix(": "))
        .unwrap_or(message)
        .to_owned()
}

/// Line and column of a dotted key in block style.
fn locate(text: &str, key: &str) -> Option<(usize, usize)> {
    let mut lines = text.lines().enumerate();
    let mut found = None;
    for part in key.split('.') {
        found = lines.find_map(|(index, line)| {
            let start = line.trim_start();
            let value = start.strip_prefix(part)?.trim_start();
            value.starts_with(':').then_some((index + 1, line.len() - start.len() + 1))
        });
        found?;
    }
    found
}

/// Number or text, as the text that the command line would contain.
#[derive(Deserialize)]
#[serde(untagged)]
enum ScalarText {
    Number(u64),
    Fraction(f64),
    Text(String),
}

fn written<'de, D: Deserializer<'de>, T, E: std::fmt::Display>(
    deserializer: D,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Option<T>, D::Error> {
    let written: Option<ScalarText> = Option::deserialize(deserializer)
        .map_err(|_| D::Error::custom("expected a number or text such as 64MiB"))?;
    let text = match written {
        None => return Ok(None),
        Some(ScalarText::Number(number)) => number.to_string(),
        Some(ScalarText::Fraction(number)) => number.to_string(),
        Some(ScalarText::Text(text)) => text,
    };
    parse(&text).map(Some).map_err(D::Error::custom)
}

fn version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        SCHEMA_VERSION => Ok(SCHEMA_VERSION),
        found => Err(D::Error::custom(format_args!("version {found} is not known; write schema_version: 1"))),
    }
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    written(deserializer, units::bytes)
}

fn segment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SegmentLength>, D::Error> {
    written(deserializer, cli::segment_length)
}

fn chunk<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    written(deserializer, cli::chunk_size)
}

fn packet<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    written(deserializer, cli::packet_size)
}

fn reorder<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    written(deserializer, cli::reorder_depth)
}

fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    written(deserializer, units::probability)
}

fn burst<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    written(deserializer, impair::burst_length)
}

fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BitRate>, D::Error> {
    written(deserializer, units::bit_rate)
}

fn blackouts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Blackout>, D::Error> {
    let texts: Vec<String> = Vec::deserialize(deserializer)?;
    texts.iter().map(|text| impair::blackout(text).map_err(D::Error::custom)).collect()
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    written(deserializer, units::duration)
}

fn target<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Target>, D::Error> {
    written(deserializer, str::parse)
}

/// Deserializes one of the words that the command line accepts.
fn choice<'de, D: Deserializer<'de>, T: ValueEnum>(deserializer: D) -> Result<Option<T>, D::Error> {
    written(deserializer, |text| {
        T::from_str(text, false).map_err(|_| {
            let known = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
            let known: Vec<_> = known.map(|value| value.get_name().to_owned()).collect();
            format!("\"{text}\" is not known; write {}", known.join(" or "))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(Path::new("a.yaml"), text)
    }

    #[test]
    fn config_every_key_is_read() {
        let text = "schema_version: 1\ncard: mock\npeer: mock:b.yaml\nmap: maps/own.yaml\njson: true\nno_progress: true\nverbose: 2\n\
                    timeout: 5ms\nmessage_timeout: 2s\ntransfer:\n  size: 0x1000\n  threshold: 4096\n  segment: 8KiB\n  packet: 1KiB\n  \
                    chunk: 1MiB\n  notify: sender\n  seed: 7\n  reorder: 0\n  loss: 0.5%\n  burst: 2.5\n  control_loss: 0.25\n  \
                    duplicate: 1\n  corrupt: 0\n  delay: 5us\n  jitter: 1us\n  jitter_law: log-normal\n  reorder_law: degree\n  control_duplicate: 0.5\n  \
                    control_corrupt: 1%\n  deadline: 5s\n  priority: 3\n  blackout: [\"5ms,1ms\", \"9ms,1ms\"]\n  \
                    rate: 10Gbit\n  queue: 100us\n";
        let config = parse(text).unwrap();
        assert_eq!(config.card, Some(Target::default()));
        assert_eq!(config.peer, Some("mock:b.yaml".parse().unwrap()));
        assert_eq!(config.map.as_deref(), Some(Path::new("maps/own.yaml")));
        assert!(config.json && config.no_progress);
        assert_eq!(config.verbose, 2);
        assert_eq!(config.timeout, Some(Duration::from_millis(5)));
        assert_eq!(config.message_timeout, Some(Duration::from_secs(2)));
        let transfer = config.transfer;
        assert_eq!(
            (transfer.size, transfer.threshold, transfer.segment, transfer.packet, transfer.chunk),
            (Some(4096), Some(4096), Some(SegmentLength::Bytes(8192)), Some(1024), Some(1 << 20))
        );
        assert_eq!(
            (transfer.notify, transfer.seed, transfer.reorder),
            (Some(Notifier::Sender), Some(7), Some(0))
        );
        let network = transfer.impair();
        assert_eq!((network.loss, network.burst, network.control_loss), (Some(0.005), Some(2.5), Some(0.25)));
        assert_eq!((network.duplicate, network.corrupt), (Some(1.0), Some(0.0)));
        assert_eq!(
            network.delay.zip(network.jitter),
            Some((Duration::from_micros(5), Duration::from_micros(1)))
        );
        assert_eq!(
            (network.jitter_law, network.reorder_law),
            (Some(JitterDistribution::LogNormal), Some(ReorderModel::Degree))
        );
        assert_eq!((network.control_duplicate, network.control_corrupt), (Some(0.5), Some(0.01)));
        assert_eq!((transfer.deadline, transfer.priority), (Some(Duration::from_secs(5)), Some(3)));
        assert_eq!(network.blackout.len(), 2);
        assert_eq!(
            (network.rate, network.queue),
            (Some(BitRate::from_gbps(10)), Some(Duration::from_micros(100)))
        );
    }

    /// The example of the manual can be read, and its page lists every key.
    #[test]
    fn config_manual_example_has_every_key() {
        let page = include_str!("../../../docs/guide/command-line.md");
        let (_, example) = page.split_once("```yaml\n").unwrap();
        let (example, _) = example.split_once("```").unwrap();
        let config = parse(example).unwrap();
        assert_eq!((config.verbose, config.transfer.packet), (1, Some(512)), "{example}");
        // An unknown key is answered with the list of known keys.
        for section in ["nothing: 1", "transfer: {nothing: 1}"] {
            let error = parse(&format!("schema_version: 1\n{section}\n")).unwrap_err().to_string();
            let (_, keys) = error.split_once("expected one of ").unwrap();
            let keys: Vec<&str> = keys.split('`').skip(1).step_by(2).collect();
            assert!(keys.len() > 8, "{error}");
            for key in keys {
                let shown = page.contains(&format!("`{key}`"))
                    || page.contains(&format!("{key}: "))
                    || page.contains(&format!("{key}:  "));
                assert!(shown, "{key}");
            }
        }
    }

    #[test]
    fn config_error_is_named_with_position() {
        for (text, parts) in [
            ("card: mock\n", ["a.yaml:1:", "schema_version"]),
            ("schema_version: 2\n", ["a.yaml:1:", "version 2 is not known"]),
            ("schema_version: 1\ncrad: mock\n", ["a.yaml:2:1", "crad"]),
            (
                "schema_version: 1\ntransfer:\n  seed: 1\n  size: 4KB\n",
                ["a.yaml:4:3", "key `transfer.size`: \"4KB\""],
            ),
            ("schema_version: 1\ntransfer:\n  chunk: 0\n", ["a.yaml:3:", "key `transfer.chunk`"]),
            ("schema_version: 1\ncard: nonsense\n", ["a.yaml:2:1", "key `card`: \"nonsense\" is"]),
            ("schema_version: 1\ntransfer:\n  loss: 5\n", ["a.yaml:3:", "not a probability"]),
            ("schema_version: 1\ntransfer:\n  blackout: [5ms]\n", ["a.yaml:3:", "is not a blackout"]),
            ("schema_version: 1\nmap: [a]\n", ["a.yaml:2:", "key `map`"]),
            ("schema_version: 1\nverbose: 300\n", ["a.yaml:2:", "key `verbose`"]),
            ("schema_version: 1\n  card: [\n", ["a.yaml:", "key `"]),
        ] {
            let error = parse(text).unwrap_err().to_string();
            for part in parts {
                assert!(error.contains(part), "{text:?}: {error}");
            }
        }
    }
}
