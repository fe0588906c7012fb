//! Memory windows: the ranges that each peer may write (docs/protocol.md 5.4).
//!
//! The key protects against accidents and against foreign senders that cannot listen on the network. It is not
//! cryptography: every packet carries it in clear text.

use alloc::boxed::Box;

use fpga_firmware::generated::Permissions;
use fpga_firmware::ids::NodeId;
use fpga_registers::{CardAddr, quantity};

/// Range of card memory that the host has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryWindow {
    /// Node that may use it; [`NodeId::ANY`] for all nodes.
    pub source: NodeId,
    /// Address of the first byte.
    pub base: CardAddr,
    /// Length in bytes.
    pub length: u64,
    /// Key that packets must carry.
    pub key: u64,
    /// Permitted accesses.
    pub permissions: Permissions,
}

impl MemoryWindow {
    /// Whether `source`, with `key`, may write `length` bytes at `address` through this window.
    #[inline]
    #[must_use]
    pub fn allows_write(&self, source: NodeId, key: u64, address: CardAddr, length: u64) -> bool {
        self.permissions.contains(Permissions::WRITE) && self.covers(source, key, address, length)
    }

    #[inline]
    fn covers(&self, source: NodeId, key: u64, address: CardAddr, length: u64) -> bool {
        let Some(offset) = address.get().checked_sub(self.base.get()) else { return false };
        (self.source == source || self.source == NodeId::ANY)
            && self.key == key
            && offset <= self.length
            && length <= self.length - offset
    }
}

/// Invalid memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// The window index does not exist.
    #[error("memory window {index} does not exist: this interface has {count}, numbered from 0")]
    Index {
        /// Index given.
        index: u32,
        /// Number of windows of the table.
        count: u32,
    },
    /// The range is empty, or beyond the address space.
    #[error(
        "a memory window of {length} at {base} is not possible: give at least one byte, inside the address space",
        length = quantity(*length, "byte"),
    )]
    Range {
        /// First byte given.
        base: CardAddr,
        /// Length given, in bytes.
        length: u64,
    },
}

/// Table of memory windows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AccessTable {
    windows: Box<[Option<MemoryWindow>]>,
}

impl AccessTable {
    /// Bytes of state of one window.
    pub(super) const BYTES: usize = size_of::<Option<MemoryWindow>>();

    /// Creates a table of `count` windows, all closed.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self { windows: alloc::vec![None; fpga_registers::cast::index(count)].into_boxed_slice() }
    }

    /// Returns the number of windows.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        u32::try_from(self.windows.len()).unwrap_or(u32::MAX)
    }

    /// Opens window `index` and replaces its previous content.
    ///
    /// # Errors
    /// The index or the range is invalid; the table is unchanged.
    pub fn install(&mut self, index: u32, window: MemoryWindow) -> Result<(), WindowError> {
        let MemoryWindow { base, length, .. } = window;
        if length == 0 || base.checked_add(length).is_none() {
            return Err(WindowError::Range { base, length });
        }
        *self.place(index)? = Some(window);
        Ok(())
    }

    /// Closes window `index`, open or not.
    ///
    /// # Errors
    /// The window index does not exist.
    pub fn remove(&mut self, index: u32) -> Result<(), WindowError> {
        *self.place(index)? = None;
        Ok(())
    }

    /// Returns window `index`, if it is open.
    #[must_use]
    pub fn get(&self, index: u32) -> Option<&MemoryWindow> {
        self.windows.get(fpga_registers::cast::index(index))?.as_ref()
    }

    /// Whether one window allows the whole write. A write that spans two windows is refused: they may have been opened
    /// for different purposes.
    #[inline]
    #[must_use]
    pub fn allows_write(&self, source: NodeId, key: u64, address: CardAddr, length: u64) -> bool {
        self.allowing_write(0, source, key, address, length).is_some()
    }

    /// Whether one window allows the whole read.
    #[must_use]
    pub fn allows_read(&self, source: NodeId, key: u64, address: CardAddr, length: u64) -> bool {
        self.windows.iter().flatten().any(|window| {
            window.permissions.contains(Permissions::READ) && window.covers(source, key, address, length)
        })
    }

    /// Like [`AccessTable::allows_write`], starting at window `first`. Returns the window to start at next time.
    #[inline]
    pub(crate) fn allowing_write(
        &self,
        first: u16,
        source: NodeId,
        key: u64,
        address: CardAddr,
        length: u64,
    ) -> Option<u16> {
        let allows = |window: &Option<MemoryWindow>| {
            window.as_ref().is_some_and(|window| window.allows_write(source, key, address, length))
        };
        if self.windows.get(usize::from(first)).is_some_and(allows) {
            return Some(first);
        }
        self.windows.iter().position(allows).map(|at| u16::try_from(at).unwrap_or(0))
    }

    fn place(&mut self, index: u32) -> Result<&mut Option<MemoryWindow>, WindowError> {
        let count = self.capacity();
        self.windows.get_mut(fpga_registers::cast::index(index)).ok_or(WindowError::Index { index, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> MemoryWindow {
        MemoryWindow {
            source: NodeId::new(3),
            base: CardAddr::new(0x1000),
            length: 0x100,
            key: 7,
            permissions: Permissions::WRITE,
        }
    }

    #[test]
    fn access_table_allows_only_opened_range_source_and_key() {
        let mut table = AccessTable::new(2);
        table.install(1, window()).unwrap();
        let allows =
            |source, key, at, length| table.allows_write(NodeId::new(source), key, CardAddr::new(at), length);
        assert!(allows(3, 7, 0x1000, 0x100));
        assert!(allows(3, 7, 0x10FF, 1));
        assert!(!allows(3, 7, 0x0FFF, 1));
        assert!(!allows(3, 7, 0x1000, 0x101));
        assert!(!allows(3, 7, 0x10FF, 2));
        assert!(!allows(3, 7, 0x1100, u64::MAX));
        assert!(!allows(4, 7, 0x1000, 1));
        assert!(!allows(3, 8, 0x1000, 1));
    }

    #[test]
    fn access_table_search_start_does_not_change_result() {
        let mut table = AccessTable::new(4);
        table.install(1, MemoryWindow { base: CardAddr::new(0x2000), ..window() }).unwrap();
        table.install(3, window()).unwrap();
        let allowing = |table: &AccessTable, first, at| {
            table.allowing_write(first, NodeId::new(3), 7, CardAddr::new(at), 1)
        };
        for first in [0, 1, 2, 3, 4, u16::MAX] {
            assert_eq!(allowing(&table, first, 0x1000), Some(3));
            assert_eq!(allowing(&table, first, 0x2000), Some(1));
            assert_eq!(allowing(&table, first, 0x3000), None);
        }
        table.remove(3).unwrap();
        assert_eq!(allowing(&table, 3, 0x1000), None);
        // A window beyond the range of the returned index is found, too.
        let mut wide = AccessTable::new(1 << 17);
        wide.install(1 << 16, window()).unwrap();
        assert_eq!(allowing(&wide, 0, 0x1000), Some(0));
    }

    #[test]
    fn access_table_any_source_read_only_and_removed_windows() {
        let mut table = AccessTable::new(1);
        let read_only = MemoryWindow { permissions: Permissions::READ, ..window() };
        table.install(0, read_only).unwrap();
        assert!(!table.allows_write(NodeId::new(3), 7, CardAddr::new(0x1000), 1));
        table.install(0, MemoryWindow { source: NodeId::ANY, ..window() }).unwrap();
        assert!(table.allows_write(NodeId::new(99), 7, CardAddr::new(0x1000), 1));
        table.remove(0).unwrap();
        assert!(!table.allows_write(NodeId::new(99), 7, CardAddr::new(0x1000), 1));
        assert_eq!(table.remove(1), Err(WindowError::Index { index: 1, count: 1 }));
        let empty = MemoryWindow { length: 0, ..window() };
        assert!(matches!(table.install(0, empty), Err(WindowError::Range { .. })));
    }
}
