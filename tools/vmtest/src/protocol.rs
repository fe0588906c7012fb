//! Messages of a guest on its second serial line: one JSON document per line. `vm/init.sh` writes them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// Maximum length of an accepted line: the guest truncates outputs, and base64 adds a third.
pub(crate) const MAX_LINE_BYTES: u64 = 1 << 20;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum GuestLine {
    /// The guest has booted.
    Boot {
        /// Release of its kernel.
        kernel: String,
    },
    /// A step begins.
    Begin {
        /// Name of the step.
        step: String,
    },
    /// A step has ended.
    End {
        /// Name of the step.
        step: String,
        /// Exit status of its shell; 143 and above if it was killed.
        status: i32,
        /// Standard output.
        stdout: Encoded,
        /// Standard error.
        stderr: Encoded,
    },
    /// A step requests an action outside the guest.
    Ask {
        /// Request in words.
        what: Encoded,
    },
    /// All steps have ended; the guest waits for the request to power off.
    Done,
}

/// Bytes in base64: a program's output may contain anything.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Encoded(pub(crate) String);

impl TryFrom<String> for Encoded {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Ok(Self(String::from_utf8_lossy(&STANDARD.decode(text)?).into_owned()))
    }
}

/// Requests of a step: `host WORDS` in its script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// Line for the emulator's monitor: `monitor LINE`.
    Monitor(String),
    /// Unplugs a device: `unplug NAME`, with its name in the emulator (card0, port0).
    Unplug(String),
    /// Request for the control socket of a served card (see `fpgactl card control --help`): `card NUMBER control REQUEST`.
    Control(usize, String),
    /// Makes the port above a device report an uncorrectable error: `card NUMBER bus-error`.
    BusError(usize),
}

impl Request {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (word, rest) = text.split_once(' ')?;
        match word {
            "monitor" => Some(Self::Monitor(rest.to_owned())),
            "unplug" => Some(Self::Unplug(rest.to_owned())),
            "card" => {
                let (number, what) = rest.split_once(' ')?;
                let number = number.parse().ok()?;
                match what.split_once(' ') {
                    None => (what == "bus-error").then_some(Self::BusError(number)),
                    Some((word, request)) => {
                        (word == "control").then(|| Self::Control(number, request.to_owned()))
                    }
                }
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocol_guest_lines_parse() {
        let read = |line: &str| serde_json::from_str::<GuestLine>(line);
        assert_eq!(
            read(r#"{"event":"boot","kernel":"6.12"}"#).unwrap(),
            GuestLine::Boot { kernel: "6.12".into() }
        );
        assert_eq!(read(r#"{"event":"done"}"#).unwrap(), GuestLine::Done);
        let end = read(r#"{"event":"end","step":"list","status":1,"stdout":"aGkK","stderr":""}"#).unwrap();
        let (stdout, stderr) = (Encoded("hi\n".into()), Encoded(String::new()));
        assert_eq!(end, GuestLine::End { step: "list".into(), status: 1, stdout, stderr });
        let ask = GuestLine::Ask { what: Encoded("hi\n".into()) };
        assert_eq!(read(r#"{"event":"ask","what":"aGkK"}"#).unwrap(), ask);
        for line in [
            "",
            "{}",
            r#"{"event":"other"}"#,
            r#"{"event":"end","step":"a","status":0,"stdout":"%","stderr":""}"#,
        ] {
            assert!(read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn protocol_requests_parse() {
        assert_eq!(Request::parse("unplug card0"), Some(Request::Unplug("card0".into())));
        assert_eq!(Request::parse("card 1 bus-error"), Some(Request::BusError(1)));
        let control = Request::Control(0, r#"{"do": "state"}"#.into());
        assert_eq!(Request::parse(r#"card 0 control {"do": "state"}"#), Some(control));
        assert_eq!(Request::parse("monitor info pci"), Some(Request::Monitor("info pci".into())));
        for text in
            ["", "unplug", "card x bus-error", "card 0", "card 0 explode", "card 0 explode now", "quit now"]
        {
            assert_eq!(Request::parse(text), None, "{text}");
        }
    }
}
