//! Intrusive doubly linked lists over slot numbers: constant-time append and removal, no allocation.
//!
//! One [`ListLinks`] holds the links of every slot of a table; any number of [`List`]s share it, and a slot is in at
//! most one of them at a time.

use alloc::boxed::Box;

use fpga_registers::cast::index;

/// Value for "no slot".
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct ListLink {
    previous: u32,
    next: u32,
}

/// Links of all slots of one table.
#[derive(Clone, Debug)]
pub(crate) struct ListLinks(Box<[ListLink]>);

impl ListLinks {
    pub(crate) const BYTES_PER_SLOT: usize = size_of::<ListLink>();

    pub(crate) fn new(slots: u32) -> Self {
        Self(alloc::vec![ListLink { previous: NONE, next: NONE }; index(slots)].into_boxed_slice())
    }

    /// Returns the slot after this one in its list.
    pub(crate) fn next(&self, slot: u32) -> Option<u32> {
        self.0.get(index(slot)).map(|link| link.next).filter(|next| *next != NONE)
    }
}

/// First and last slot of one list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { head: NONE, tail: NONE, len: 0 };

    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// Returns the slots of this list, first to last.
    pub(crate) fn iter(&self, links: &ListLinks) -> impl Iterator<Item = u32> {
        core::iter::successors(self.head(), |slot| links.next(*slot))
    }

    pub(crate) fn head(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    pub(crate) fn tail(&self) -> Option<u32> {
        (self.tail != NONE).then_some(self.tail)
    }

    pub(crate) fn push_back(&mut self, links: &mut ListLinks, slot: u32) {
        self.insert_sorted(links, slot, |_| false);
    }

    /// Inserts a slot before all those at the end that it `precedes`.
    pub(crate) fn insert_sorted(
        &mut self,
        links: &mut ListLinks,
        slot: u32,
        mut precedes: impl FnMut(u32) -> bool,
    ) {
        let (mut previous, mut next) = (self.tail, NONE);
        while previous != NONE && precedes(previous) {
            next = previous;
            previous = links.0[index(previous)].previous;
        }
        links.0[index(slot)] = ListLink { previous, next };
        match previous {
            NONE => self.head = slot,
            before => links.0[index(before)].next = slot,
        }
        match next {
            NONE => self.tail = slot,
            after => links.0[index(after)].previous = slot,
        }
        self.len += 1;
    }

    /// Removes a slot that is in this list.
    pub(crate) fn remove(&mut self, links: &mut ListLinks, slot: u32) {
        let ListLink { previous, next } = links.0[index(slot)];
        match previous {
            NONE => self.head = next,
            before => links.0[index(before)].next = next,
        }
        match next {
            NONE => self.tail = previous,
            after => links.0[index(after)].previous = previous,
        }
        links.0[index(slot)] = ListLink { previous: NONE, next: NONE };
        self.len -= 1;
    }

    pub(crate) fn pop_front(&mut self, links: &mut ListLinks) -> Option<u32> {
        let head = self.head()?;
        self.remove(links, head);
        Some(head)
    }
}
