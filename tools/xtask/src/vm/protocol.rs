//! What a guest says on its second serial line: one JSON document a line. `vm/init.sh` writes them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// Longest line that is believed to be one: outputs are cut in the guest, and base64 adds a third.
pub(crate) const LONGEST: u64 = 1 << 20;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum Said {
    /// The guest is up.
    Boot {
        /// Its kernel's release.
        kernel: String,
    },
    /// A step begins.
    Begin {
        /// Its name.
        step: String,
    },
    /// A step has ended.
    End {
        /// Its name.
        step: String,
        /// Exit status of its shell; 143 and above for one that was killed.
        status: i32,
        /// Standard output.
        stdout: Encoded,
        /// Standard error.
        stderr: Encoded,
    },
    /// A step wants something done outside.
    Ask {
        /// In words.
        what: String,
    },
    /// All steps have ended; the guest waits to be told to power off.
    Done,
}

/// Bytes in base64: a program's output may hold anything.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Encoded(pub(crate) String);

impl TryFrom<String> for Encoded {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Ok(Self(String::from_utf8_lossy(&STANDARD.decode(text)?).into_owned()))
    }
}

/// What a step may ask for: `host WORDS` in its script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// A line for the emulator's monitor: `monitor LINE`.
    Monitor(String),
    /// Takes a device out: `unplug NAME`, as the emulator calls it (card0, port0).
    Unplug(String),
    /// Takes a served card out of its slot, without a warning: `pull-out NUMBER`.
    PullOut(usize),
    /// Puts it back, in its power-on state: `put-back NUMBER`.
    PutBack(usize),
}

impl Request {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (word, rest) = text.split_once(' ')?;
        match word {
            "monitor" => Some(Self::Monitor(rest.to_owned())),
            "unplug" => Some(Self::Unplug(rest.to_owned())),
            "pull-out" => rest.parse().ok().map(Self::PullOut),
            "put-back" => rest.parse().ok().map(Self::PutBack),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let read = |line: &str| serde_json::from_str::<Said>(line);
        assert_eq!(
            read(r#"{"event":"boot","kernel":"6.12"}"#).unwrap(),
            Said::Boot { kernel: "6.12".into() }
        );
        assert_eq!(read(r#"{"event":"done"}"#).unwrap(), Said::Done);
        let end = read(r#"{"event":"end","step":"list","status":1,"stdout":"aGkK","stderr":""}"#).unwrap();
        let (stdout, stderr) = (Encoded("hi\n".into()), Encoded(String::new()));
        assert_eq!(end, Said::End { step: "list".into(), status: 1, stdout, stderr });
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
    fn requests_are_few() {
        assert_eq!(Request::parse("unplug card0"), Some(Request::Unplug("card0".into())));
        assert_eq!(Request::parse("pull-out 1"), Some(Request::PullOut(1)));
        assert_eq!(Request::parse("put-back 0"), Some(Request::PutBack(0)));
        assert_eq!(Request::parse("monitor info pci"), Some(Request::Monitor("info pci".into())));
        for text in ["", "unplug", "pull-out x", "quit now"] {
            assert_eq!(Request::parse(text), None, "{text}");
        }
    }
}
