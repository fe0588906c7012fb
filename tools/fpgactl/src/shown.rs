//! Text of a failure on the terminal and in JSON: the problem in one line, and what to do about it in the next.

use core::fmt;

/// Separates the problem from the advice in the messages of [`CliError`](crate::error::CliError).
pub(crate) const HELP: &str = "\nhelp: ";

/// A failure as it is shown: `Display` writes the problem, and `help:` with the advice in a second line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The failure, its object and its value.
    pub(crate) problem: String,
    /// Advice in terms of the command line.
    pub(crate) help: Option<String>,
}

impl Shown {
    /// Returns both parts in one line, for the cell of a table or as a part of another message.
    pub(crate) fn in_one_line(&self) -> String {
        match &self.help {
            Some(help) => format!("{}; {help}", self.problem),
            None => self.problem.clone(),
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)?;
        match &self.help {
            Some(help) => write!(f, "{HELP}{help}"),
            None => Ok(()),
        }
    }
}
