//! Decoding of keys from the bytes of a terminal.
//!
//! `crossterm` is not used: it reads until input arrives, and its loop never ends after a hangup of the terminal. The sequences are those of
//! xterm and compatible terminals (ECMA-48 control sequences; "PC-Style Function Keys" of XTerm Control Sequences).

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};

/// Key that `top` uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(u8),
    /// Ctrl-C, which is an ordinary byte in raw mode.
    Interrupt,
    Escape,
    Tab,
    BackTab,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    /// Any other key.
    Other,
    /// Hangup of the terminal.
    Gone,
}

/// Queue of the pressed keys that were not processed yet.
#[derive(Debug, Default)]
pub(super) struct Keys {
    pressed: VecDeque<Key>,
}

impl Keys {
    /// Returns the next key. Waits at most `wait` for it.
    pub(super) fn next(&mut self, wait: Duration) -> io::Result<Option<Key>> {
        if self.pressed.is_empty() {
            self.read(wait)?;
        }
        Ok(self.pressed.pop_front())
    }

    fn read(&mut self, wait: Duration) -> io::Result<()> {
        let stdin = io::stdin();
        let mut waited = [PollFd::new(&stdin, PollFlags::IN)];
        // Callers' waits are far below the limit of a `Timespec`.
        let wait = Timespec::try_from(wait).unwrap_or_default();
        match poll(&mut waited, Some(&wait)) {
            Ok(0) | Err(Errno::INTR) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut bytes = [0; 64];
        match read(&stdin, &mut bytes) {
            Ok(0) | Err(Errno::IO) => self.pressed.push_back(Key::Gone),
            Ok(count) => parse(bytes.get(..count).unwrap_or_default(), &mut self.pressed),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Decodes bytes that arrived together. An escape as the last byte is the key Escape; any other one begins a sequence.
fn parse(mut bytes: &[u8], into: &mut VecDeque<Key>) {
    while let Some((first, rest)) = bytes.split_first() {
        let (key, used) = match (first, rest) {
            (0x1B, [b'[' | b'O', sequence @ ..]) => sequence_key(sequence),
            (0x1B, []) => (Key::Escape, 0),
            (0x1B, _) => (Key::Other, 1),
            (0x03, _) => (Key::Interrupt, 0),
            (b'\t', _) => (Key::Tab, 0),
            (0x20..0x7F, _) => (Key::Char(*first), 0),
            _ => (Key::Other, 0),
        };
        into.push_back(key);
        bytes = rest.get(used..).unwrap_or_default();
    }
}

/// Returns the key of a control sequence, and the number of bytes of the sequence after the escape.
fn sequence_key(sequence: &[u8]) -> (Key, usize) {
    // Parameters, then the final byte.
    let Some(end) = sequence.iter().position(|byte| (0x40..0x7F).contains(byte)) else {
        return (Key::Other, 1 + sequence.len());
    };
    let key = match sequence.get(..=end).unwrap_or_default() {
        b"A" => Key::Up,
        b"B" => Key::Down,
        b"C" => Key::Right,
        b"D" => Key::Left,
        b"H" | b"1~" | b"7~" => Key::Home,
        b"Z" => Key::BackTab,
        b"5~" => Key::PageUp,
        b"6~" => Key::PageDown,
        _ => Key::Other,
    };
    (key, 2 + end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let mut found = VecDeque::new();
        parse(bytes, &mut found);
        found.into()
    }

    #[test]
    fn keys_terminal_sequences_are_decoded() {
        for (bytes, expected) in [
            (&b""[..], &[][..]),
            (b"q", &[Key::Char(b'q')]),
            (b"\x1b", &[Key::Escape]),
            (b"\x03", &[Key::Interrupt]),
            (b"\x1b[A\x1bOB\x1b[C\x1b[D", &[Key::Up, Key::Down, Key::Right, Key::Left]),
            (b"\x1b[5~\x1b[6~x", &[Key::PageUp, Key::PageDown, Key::Char(b'x')]),
            (b"\x1b[H\x1b[1~\x1bOH", &[Key::Home, Key::Home, Key::Home]),
            (b"\t\x1b[Z", &[Key::Tab, Key::BackTab]),
            (b"\x1b[1;5A2", &[Key::Other, Key::Char(b'2')]),
            (b"\x1b[12", &[Key::Other]),
            (b"\x1bq \xC3\xA4", &[Key::Other, Key::Char(b' '), Key::Other, Key::Other]),
        ] {
            assert_eq!(keys(bytes), expected, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn keys_any_bytes_are_consumed(bytes in any::<Vec<u8>>(), plain in "[ -~]*") {
            prop_assert!(keys(&bytes).len() <= bytes.len());
            prop_assert_eq!(keys(plain.as_bytes()), plain.bytes().map(Key::Char).collect::<Vec<_>>());
        }
    }
}
