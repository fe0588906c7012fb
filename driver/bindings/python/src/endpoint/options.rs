//! Options of endpoints and transfers.

use std::path::PathBuf;
use std::time::Duration;

use fpga_rdma::{EndpointOptions, Scheme, SendOptions, SendTimeout};
use pyo3::prelude::*;

use super::Endpoint;
use crate::card::Card;
use crate::error::Failure;
use crate::numbers;
use crate::wait;

/// Parses the name of a scheme: `registry`, `receiver-window`.
pub(super) fn parse_scheme(name: &str) -> Result<Scheme, Failure> {
    let plain = |name: &str| -> String {
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let wanted = plain(name);
    Scheme::ALL.iter().copied().find(|known| plain(known.name()) == wanted).ok_or_else(|| {
        Failure::value(format!(
            "there is no scheme '{name}'; the schemes are registry, receiver-window, adaptive-window, selective"
        ))
    })
}

pub(super) fn seconds(span: f64, name: &str) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(span)
        .map_err(|_| Failure::value(format!("{name} is {span} s: give a time of 0 s or more")))
}

pub(super) fn send_options(
    priority: u8,
    scheme: Option<&str>,
    deadline: Option<f64>,
) -> Result<SendOptions, Failure> {
    let mut options = SendOptions::default().priority(priority);
    options.scheme = scheme.map(parse_scheme).transpose()?;
    options.deadline = deadline.map(|deadline| seconds(deadline, "deadline")).transpose()?;
    Ok(options)
}

#[pymethods]
impl Card {
    #[pyo3(signature = (*, scheme = "registry", other_schemes = Vec::new(), channel = None, read_channel = None, segment = None, big_threshold = None, event_ring = 16384, event_line = 0, incarnation = None, incarnation_file = None, packets = None, transfers = None, destinations = None, source_alignment = None, window = None, round_trip = None, timeout = None, give_up = None, registry_timeout = None, escape_timeout = None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn endpoint(
        &self,
        py: Python<'_>,
        scheme: &str,
        other_schemes: Vec<String>,
        #[pyo3(from_py_with = numbers::channel)] channel: Option<u8>,
        #[pyo3(from_py_with = numbers::read_channel)] read_channel: Option<u8>,
        #[pyo3(from_py_with = numbers::segment)] segment: Option<u32>,
        #[pyo3(from_py_with = numbers::big_threshold)] big_threshold: Option<u32>,
        #[pyo3(from_py_with = numbers::event_ring)] event_ring: u32,
        #[pyo3(from_py_with = numbers::event_line)] event_line: u8,
        #[pyo3(from_py_with = numbers::incarnation)] incarnation: Option<u32>,
        incarnation_file: Option<PathBuf>,
        #[pyo3(from_py_with = numbers::packets)] packets: Option<u32>,
        #[pyo3(from_py_with = numbers::transfers)] transfers: Option<u32>,
        #[pyo3(from_py_with = numbers::destinations)] destinations: Option<u32>,
        #[pyo3(from_py_with = numbers::source_alignment)] source_alignment: Option<u32>,
        #[pyo3(from_py_with = numbers::window)] window: Option<u32>,
        round_trip: Option<f64>,
        timeout: Option<f64>,
        give_up: Option<f64>,
        registry_timeout: Option<f64>,
        escape_timeout: Option<f64>,
    ) -> Result<Endpoint, Failure> {
        let mut options = EndpointOptions::default();
        options.scheme = parse_scheme(scheme)?;
        options.other_schemes =
            other_schemes.iter().map(|name| parse_scheme(name)).collect::<Result<_, _>>()?;
        (options.channel, options.read_channel) = (channel, read_channel);
        (options.segment_size, options.big_threshold) = (segment, big_threshold);
        (options.event_entries, options.event_line) = (event_ring, event_line);
        (options.incarnation, options.incarnation_file) = (incarnation, incarnation_file);
        options.ops = packets;
        (options.transfers, options.destinations) = (transfers, destinations);
        options.source_alignment = source_alignment;
        options.tuning.window = window;
        if let Some(timeout) = timeout {
            options.timeout = SendTimeout::Fixed { timeout: seconds(timeout, "timeout")?, max_tries: 0 };
        }
        if let Some(span) = registry_timeout {
            options.registry_timeout = Some(seconds(span, "registry_timeout")?);
        }
        for (given, name, option) in [
            (round_trip, "round_trip", &mut options.round_trip),
            (give_up, "give_up", &mut options.give_up),
            (escape_timeout, "escape_timeout", &mut options.escape_timeout),
        ] {
            if let Some(span) = given {
                *option = seconds(span, name)?;
            }
        }
        let card = self.0.get()?;
        let opened = wait::detached(py, || fpga_rdma::Endpoint::open_with(&card, &options))?;
        Endpoint::new(&self.0, opened)
    }
}
