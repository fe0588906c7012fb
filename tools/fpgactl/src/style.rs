//! Style of text: colours, characters and width.
//!
//! Colours follow `--color`. By default they are used only on terminals, and not if `NO_COLOR` (<https://no-color.org>) is set to a
//! non-empty value or the terminal is `dumb`.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use clap::ValueEnum;

/// When output is coloured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColourChoice {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Capabilities of standard output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutputStyle {
    /// Whether colours are used.
    pub colours: bool,
    /// Whether characters other than ASCII are used: block elements, lines, Braille.
    pub unicode: bool,
}

/// Colour of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Healthy.
    Green,
    /// Needs attention.
    Yellow,
    /// Unhealthy.
    Red,
    /// Less important.
    Dim,
}

impl OutputStyle {
    /// Style of standard output, by `choice` and the environment.
    #[must_use]
    pub fn of(choice: ColourChoice) -> Self {
        Self::decided(choice, std::io::stdout().is_terminal(), |name| std::env::var_os(name))
    }

    fn decided(
        choice: ColourChoice,
        terminal: bool,
        variable: impl Fn(&str) -> Option<std::ffi::OsString>,
    ) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let dumb = set("TERM").is_some_and(|term| term == "dumb");
        let colours = match choice {
            ColourChoice::Always => true,
            ColourChoice::Never => false,
            ColourChoice::Auto => terminal && !dumb && set("NO_COLOR").is_none(),
        };
        // The first variable that is set determines the character set (POSIX.1-2017, 8.2).
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        let unicode = locale.is_some_and(|name| {
            let name = name.to_string_lossy().to_ascii_lowercase();
            name.contains("utf-8") || name.contains("utf8")
        });
        Self { colours, unicode: unicode && !dumb }
    }

    /// Colours `text`, if there are colours.
    #[must_use]
    pub fn paint(self, colour: Colour, text: &str) -> String {
        if !self.colours {
            return text.to_owned();
        }
        // ECMA-48, 8.3.117: Select Graphic Rendition.
        let code = match colour {
            Colour::Green => 32,
            Colour::Yellow => 33,
            Colour::Red => 31,
            Colour::Dim => 2,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// Colours the status word at the beginning of each line.
    #[must_use]
    pub fn paint_status(self, text: &str) -> String {
        if !self.colours {
            return text.to_owned();
        }
        let line = |line: &str| {
            let (word, rest) = line.split_at(line.find(' ').unwrap_or(line.len()));
            let colour = match word {
                "pass" => Colour::Green,
                "warn" => Colour::Yellow,
                "fail" => Colour::Red,
                "skip" => Colour::Dim,
                _ => return line.to_owned(),
            };
            self.paint(colour, word) + rest
        };
        text.split('\n').map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Width of standard output in columns, if it is a terminal that reports it.
#[must_use]
pub fn columns() -> Option<usize> {
    columns_of(&std::io::stdout())
}

/// Width of `stream` in columns, if it is a terminal that reports it.
#[must_use]
pub fn columns_of(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    let size = stream.is_terminal().then(|| rustix::termios::tcgetwinsize(stream)).and_then(Result::ok);
    size.map(|size| size.ws_col.into()).filter(|columns| *columns > 0)
}

/// Returns whether text written to `stream` can be changed again: it is a terminal with a movable cursor. A terminal without a name is
/// unknown, and `dumb` is the name of those without a movable cursor (terminfo).
#[must_use]
pub fn redraws(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && moves_cursor(std::env::var_os("TERM"))
}

fn moves_cursor(term: Option<std::ffi::OsString>) -> bool {
    term.is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// Width of the terminal of standard output, else the value of `COLUMNS`, else `otherwise`.
#[must_use]
pub fn width(otherwise: u16) -> u16 {
    let terminal = || rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| size.ws_col);
    let variable = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal().filter(|columns| *columns > 0).or_else(variable).unwrap_or(otherwise).clamp(20, 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manner(choice: ColourChoice, terminal: bool, variables: &[(&str, &str)]) -> OutputStyle {
        OutputStyle::decided(choice, terminal, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
        })
    }

    #[test]
    fn style_colours_follow_terminal_and_choice() {
        use ColourChoice::{Always, Auto, Never};
        for (choice, terminal, variables, colours) in [
            (Auto, true, &[][..], true),
            (Auto, false, &[], false),
            (Auto, true, &[("NO_COLOR", "1")], false),
            (Auto, true, &[("NO_COLOR", "")], true),
            (Auto, true, &[("TERM", "dumb")], false),
            (Always, false, &[("NO_COLOR", "1")], true),
            (Never, true, &[], false),
        ] {
            assert_eq!(
                manner(choice, terminal, variables).colours,
                colours,
                "{choice:?} {terminal} {variables:?}"
            );
        }
    }

    #[test]
    fn style_dumb_terminal_is_not_rewritten() {
        for (term, moves) in [(Some("xterm"), true), (Some("dumb"), false), (Some(""), false), (None, false)]
        {
            assert_eq!(moves_cursor(term.map(Into::into)), moves, "{term:?}");
        }
    }

    #[test]
    fn style_unicode_follows_locale() {
        for (variables, unicode) in [
            (&[("LANG", "de_DE.UTF-8")][..], true),
            (&[("LANG", "C.utf8")], true),
            (&[("LANG", "C")], false),
            (&[], false),
            (&[("LANG", "de_DE.UTF-8"), ("LC_ALL", "C")], false),
            (&[("LC_CTYPE", "C.UTF-8"), ("LANG", "C")], true),
            (&[("LANG", "C.UTF-8"), ("TERM", "dumb")], false),
        ] {
            assert_eq!(manner(ColourChoice::Auto, true, variables).unicode, unicode, "{variables:?}");
        }
    }

    #[test]
    fn style_only_status_is_coloured() {
        let text = "pass  a\nfailing is not a status\nfail  b pass\n";
        assert_eq!(OutputStyle::default().paint_status(text), text);
        let coloured = OutputStyle { colours: true, unicode: false }.paint_status(text);
        assert_eq!(
            coloured,
            "\u{1b}[32mpass\u{1b}[0m  a\nfailing is not a status\n\u{1b}[31mfail\u{1b}[0m  b pass\n"
        );
    }
}
