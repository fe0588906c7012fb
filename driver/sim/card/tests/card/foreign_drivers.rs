//! A guest's kernel around the card, for tests that drive it as foreign drivers do.

use crate::support::*;
use fpga_card::{BarRole, Card, CardDescription};
use fpga_protocol::time::Nanos;

/// Address at which the guest maps the BARs. The model does not decode addresses; software reads back the written value.
const WINDOW: u32 = 0xE000_0000;

/// Card in a machine, with BARs assigned as firmware does it.
pub(crate) struct GuestMachine {
    pub(crate) card: Card,
    pub(crate) host: Host,
    now: u64,
    /// Size by BAR register; 0 for a missing one.
    pub(crate) lengths: [u64; 6],
}

impl GuestMachine {
    pub(crate) fn new(description: CardDescription) -> Self {
        let card = Card::new(description).expect("valid");
        let mut guest = Self { card, host: Host::default(), now: 0, lengths: [0; 6] };
        guest.enumerate();
        guest
    }

    /// Ids, header, BAR sizes with the decoder off, ROM, capabilities, all of configuration space.
    fn enumerate(&mut self) {
        assert_ne!(self.config(0x00, 4), u32::MAX, "a device answers");
        assert_eq!(self.config(0x0E, 1), 0, "one function, type 0");
        let command = self.config(0x04, 2);
        self.set_config(0x04, 2, command & !7);
        let mut index = 0_u16;
        while index < 6 {
            let at = 0x10 + 4 * index;
            let before = self.config(at, 4);
            self.set_config(at, 4, u32::MAX);
            let low = self.config(at, 4);
            self.set_config(at, 4, before);
            let place = usize::from(index);
            index += 1;
            if low == 0 {
                continue;
            }
            assert_eq!(low & 1, 0, "memory");
            let mut mask = u64::from(low & !0xF) | 0xFFFF_FFFF_0000_0000;
            if low >> 1 & 3 == 2 {
                self.set_config(at + 4, 4, u32::MAX);
                mask = mask & 0xFFFF_FFFF | u64::from(self.config(at + 4, 4)) << 32;
                self.set_config(at + 4, 4, 0);
                index += 1;
            }
            self.lengths[place] = (!mask).wrapping_add(1);
            let address =
                if self.lengths[place] > 1 << 24 { 0 } else { WINDOW + 0x0100_0000 * u32::from(index) };
            self.set_config(at, 4, address);
            assert_eq!(self.config(at, 4) & !0xF, address, "the address stays");
        }
        self.set_config(0x30, 4, !0x7FF);
        assert_eq!(self.config(0x30, 4), 0, "no ROM");
        let mut at = self.config(0x34, 1);
        let mut seen = Vec::new();
        while at != 0 {
            let place = at as u16;
            seen.push(self.config(place, 1));
            at = self.config(place + 1, 1);
            assert!(seen.len() < 48, "a loop of capabilities");
        }
        assert!(seen.contains(&0x01) && seen.contains(&0x10), "power management and PCI Express: {seen:?}");
        let mut extended = 0x100;
        while extended != 0 && self.config(extended, 4) != 0 {
            extended = (self.config(extended, 4) >> 20) as u16;
        }
        for at in (0..0x1000).step_by(4) {
            self.config(at, 4);
        }
        self.set_config(0x04, 2, command);
    }

    /// Steps of enabling a device: power state, memory decoding, legacy interrupts allowed.
    pub(crate) fn enable(&mut self) {
        self.set_config(0x44, 2, self.config_peek(0x44) & !3);
        self.set_config(0x04, 2, self.config_peek(0x04) & 0xFFFF | 2);
    }

    pub(crate) fn set_master(&mut self, on: bool) {
        let command = self.config(0x04, 2) & !4;
        self.set_config(0x04, 2, if on { command | 4 } else { command });
    }

    fn config_peek(&self, at: u16) -> u32 {
        let mut bytes = [0; 4];
        self.card.config().read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    pub(crate) fn config(&mut self, at: u16, width: usize) -> u32 {
        let mut bytes = [0; 4];
        self.card.config_read(at, &mut bytes[..width]);
        u32::from_le_bytes(bytes)
    }

    pub(crate) fn set_config(&mut self, at: u16, width: usize, value: u32) {
        self.card.config_write(at, &value.to_le_bytes()[..width]);
        self.work();
    }

    /// Returns the offset of capability `id`.
    pub(crate) fn capability(&mut self, id: u32) -> Option<u16> {
        let mut at = self.config(0x34, 1) as u16;
        while at != 0 && self.config(at, 1) != id {
            at = self.config(at + 1, 1) as u16;
        }
        (at != 0).then_some(at)
    }

    /// Returns the ids of the capabilities, in list order.
    pub(crate) fn capabilities(&mut self) -> Vec<u32> {
        let mut seen = Vec::new();
        let mut at = self.config(0x34, 1) as u16;
        while at != 0 {
            seen.push(self.config(at, 1));
            at = self.config(at + 1, 1) as u16;
        }
        seen
    }

    /// Enables MSI-X as a kernel does: function masked, entries written, function unmasked.
    pub(crate) fn enable_msix(&mut self, vectors: u32) -> bool {
        let Some(at) = self.capability(0x11) else { return false };
        let control = self.config(at + 2, 2);
        if vectors > (control & 0x7FF) + 1 {
            return false;
        }
        self.set_config(at + 2, 2, control | 0xC000);
        let table = self.config(at + 4, 4);
        let (bar, offset) = ((table & 7) as u8, u64::from(table & !7));
        for vector in 0..u64::from(vectors) {
            let entry = offset + 16 * vector;
            assert_eq!(self.read(bar, entry + 12) & 1, 1, "entries start masked");
            self.write(bar, entry, 0xFEE0_0000);
            self.write(bar, entry + 4, 0);
            self.write(bar, entry + 8, 0x40 + vector as u32);
            self.write(bar, entry + 12, 0);
        }
        self.set_config(at + 2, 2, control & !0x4000 | 0x8000);
        true
    }

    /// Disables messages; a kernel masks the entries first.
    pub(crate) fn disable_messages(&mut self) {
        if let Some(at) = self.capability(0x11) {
            let table = self.config(at + 4, 4);
            for entry in 0..u64::from(self.config(at + 2, 2) & 0x7FF) + 1 {
                self.write((table & 7) as u8, u64::from(table & !7) + 16 * entry + 12, 1);
            }
        }
        for id in [0x05, 0x11] {
            if let Some(at) = self.capability(id) {
                let enable = if id == 0x05 { 1 } else { 0x8000 };
                let control = self.config(at + 2, 2);
                self.set_config(at + 2, 2, control & !enable);
            }
        }
    }

    /// Enables one message, as most drivers request.
    pub(crate) fn enable_msi(&mut self) -> bool {
        let Some(at) = self.capability(0x05) else { return false };
        let control = self.config(at + 2, 2);
        self.set_config(at + 2, 2, control & !0x70);
        self.set_config(at + 4, 4, 0xFEE0_0000);
        self.set_config(at + 12, 2, 0x31);
        self.set_config(at + 2, 2, control & !0x70 | 1);
        true
    }

    pub(crate) fn bar(&self, role: BarRole) -> Option<u8> {
        self.card.bars().iter().find(|bar| bar.role == role).map(|bar| bar.index)
    }

    pub(crate) fn read(&mut self, bar: u8, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.card.bar_read(bar, at, &mut bytes);
        self.work();
        u32::from_le_bytes(bytes)
    }

    pub(crate) fn write(&mut self, bar: u8, at: u64, value: u32) {
        self.card.bar_write(bar, at, &value.to_le_bytes(), &mut self.host);
        self.work();
    }

    /// Lets the card work for a limited time: a circular ring keeps it busy forever.
    pub(crate) fn work(&mut self) {
        for _ in 0..200 {
            self.now += 100;
            if self.card.work(Nanos::new(self.now), &mut self.host, 64) == 0 {
                return;
            }
        }
    }
}

/// Segments of `length` bytes of host memory that start `offset` bytes into a page, one per page, with pages in scattered order.
pub(crate) fn pages(first: u64, offset: u64, length: u64) -> Vec<(u64, u32)> {
    let count = (offset + length).div_ceil(4096);
    // A stride that is coprime to every count in use spreads the pages.
    let place = |page: u64| first + 4096 * (page * 2917 % count.max(1));
    let mut left = length;
    (0..count)
        .map(|page| {
            let start = if page == 0 { offset } else { 0 };
            let part = left.min(4096 - start);
            left -= part;
            (place(page) + start, part as u32)
        })
        .collect()
}

pub(crate) fn scatter(host: &mut Host, segments: &[(u64, u32)], data: &[u8]) {
    let mut rest = data;
    for (at, length) in segments {
        let (part, left) = rest.split_at(*length as usize);
        host.put(*at, part);
        rest = left;
    }
}

pub(crate) fn gather(host: &mut Host, segments: &[(u64, u32)]) -> Vec<u8> {
    segments.iter().flat_map(|(at, length)| host.get(*at, *length as usize)).collect()
}
