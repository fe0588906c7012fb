//! Mapped registers of a process.

use std::sync::Arc;

use crate::files::{Files, OpenFile};

/// Registers mapped at an address.
#[derive(Debug, Clone)]
pub(super) struct Mapped {
    /// First address.
    start: u64,
    /// Address behind the last byte.
    end: u64,
    /// Offset of the first byte in the BAR.
    offset: u64,
    pub(super) file: Arc<OpenFile>,
}

impl Mapped {
    /// Offset in the BAR of the byte at `address`.
    pub(super) const fn offset_of(&self, address: u64) -> u64 {
        self.offset + (address - self.start)
    }

    /// Whether it contains `length` bytes at `address`.
    pub(super) fn contains(&self, address: u64, length: usize) -> bool {
        self.start <= address && address.checked_add(length as u64).is_some_and(|end| end <= self.end)
    }
}

/// Register mappings of a process, as last read from `/proc`.
#[derive(Debug, Default)]
pub(super) struct Mappings(Vec<Mapped>);

impl Mappings {
    /// Registers mapped at `address` in the process of `thread`.
    pub(super) fn find(&mut self, thread: i32, files: &Files, address: u64) -> Option<Mapped> {
        if self.at(address).is_none() {
            let text = std::fs::read_to_string(format!("/proc/{thread}/maps")).ok()?;
            self.0 = text.lines().filter_map(|line| parse(line, files)).collect();
        }
        self.at(address).cloned()
    }

    fn at(&self, address: u64) -> Option<&Mapped> {
        self.0.iter().find(|mapped| (mapped.start..mapped.end).contains(&address))
    }
}

/// One line: `start-end permissions offset device inode name`, numbers in hexadecimal.
fn parse(line: &str, files: &Files) -> Option<Mapped> {
    let name = line.get(line.find('/')?..)?;
    let file = files.of_mapping(name)?;
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
    let offset = hexadecimal(fields.nth(1)?)?;
    Some(Mapped { start: hexadecimal(start)?, end: hexadecimal(end)?, offset, file })
}
