//! Options of endpoints and of single transfers.

use core::ffi::c_char;

use fpga_rdma::{EndpointOptions, Scheme, SendNotify, SendOptions, SendTimeout};

use crate::abi::{
    FPGA_NOTIFY_NONE, FPGA_NOTIFY_RECEIVER, FPGA_NOTIFY_SENDER, fpga_endpoint_options, fpga_send_options,
};
use crate::call::{duration, read_options, set_option, set_time, text};
use crate::error::Failure;

/// Parses the name of a scheme: `registry`, `receiver-window`.
fn scheme(name: &str) -> Result<Scheme, Failure> {
    let name = name.trim();
    let is_named = |scheme: &Scheme| {
        let known = scheme.name().chars().filter(char::is_ascii_alphanumeric);
        let found = name.chars().filter(char::is_ascii_alphanumeric);
        known.map(|c| c.to_ascii_lowercase()).eq(found.map(|c| c.to_ascii_lowercase()))
    };
    Scheme::ALL.iter().copied().find(is_named).ok_or_else(|| {
        let names: Vec<String> = Scheme::ALL.iter().map(|known| hyphenated(known.name())).collect();
        Failure::argument(&format!("there is no scheme \"{name}\"; the schemes are {}", names.join(", ")))
    })
}

/// Writes `ReceiverWindow` as `receiver-window`.
fn hyphenated(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

fn optional_scheme(name: *const c_char) -> Result<Option<Scheme>, Failure> {
    if name.is_null() { Ok(None) } else { scheme(text(name, "the name of the scheme")?).map(Some) }
}

const fn nonzero(value: u32) -> Option<u32> {
    if value == 0 { None } else { Some(value) }
}

impl fpga_endpoint_options {
    /// Returns the options for the driver.
    pub(crate) fn options(&self) -> Result<EndpointOptions, Failure> {
        let channel = |plus_1: u32| -> Result<Option<u8>, Failure> {
            nonzero(plus_1).map(|number| crate::channel::number(number - 1)).transpose()
        };
        let mut options = EndpointOptions::default();
        if let Some(scheme) = optional_scheme(self.scheme)? {
            options.scheme = scheme;
        }
        if !self.other_schemes.is_null() {
            let names = text(self.other_schemes, "the names of other schemes")?;
            let names = names.split(',').filter(|name| !name.trim().is_empty());
            options.other_schemes = names.map(scheme).collect::<Result<_, _>>()?;
        }
        options.channel = channel(self.h2c_channel_plus_1)?;
        options.read_channel = channel(self.c2h_channel_plus_1)?;
        options.big_threshold = nonzero(self.big_threshold);
        options.segment_size = nonzero(self.segment_size);
        options.tuning.window = nonzero(self.window);
        set_option(&mut options.event_entries, self.event_entries);
        options.event_line = crate::channel::number(self.event_line)?;
        options.incarnation = nonzero(self.incarnation);
        if !self.incarnation_file.is_null() {
            options.incarnation_file =
                Some(text(self.incarnation_file, "the name of the incarnation file")?.into());
        }
        options.ops = nonzero(self.packets);
        options.transfers = nonzero(self.transfers);
        options.destinations = nonzero(self.destinations);
        options.source_alignment = nonzero(self.source_alignment);
        if self.timeout_ns != 0 {
            options.timeout = SendTimeout::Fixed { timeout: duration(self.timeout_ns), max_tries: 0 };
        }
        if self.registry_timeout_ns != 0 {
            options.registry_timeout = Some(duration(self.registry_timeout_ns));
        }
        set_time(&mut options.round_trip, self.round_trip_ns);
        set_time(&mut options.give_up, self.give_up_ns);
        set_time(&mut options.escape_timeout, self.escape_timeout_ns);
        Ok(options)
    }
}

/// Returns the options of one transfer.
pub(crate) fn send_options(options: *const fpga_send_options, size: usize) -> Result<SendOptions, Failure> {
    let options = read_options(options, size)?;
    let notify = match options.notify {
        FPGA_NOTIFY_RECEIVER => SendNotify::Receiver,
        FPGA_NOTIFY_SENDER => SendNotify::Sender,
        FPGA_NOTIFY_NONE => SendNotify::None,
        _ => {
            return Err(Failure::argument(&format!(
                "notify is {}, which is not a value of fpga_notify",
                options.notify
            )));
        }
    };
    let priority = u8::try_from(options.priority)
        .map_err(|_| Failure::argument(&format!("priority is {}, the maximum is 255", options.priority)))?;
    let mut send_options = SendOptions::default().notify(notify).priority(priority);
    if let Some(scheme) = optional_scheme(options.scheme)? {
        send_options = send_options.scheme(scheme);
    }
    if options.deadline_ns != 0 {
        send_options = send_options.deadline(duration(options.deadline_ns));
    }
    Ok(send_options)
}
