//! The card as used by other drivers: the kernel's own (`drivers/dma/xilinx/xdma.c`), one for a small board with a single descriptor and
//! the legacy line (PicoEVB), and user-space programs.

use crate::foreign_drivers::GuestMachine;
use crate::support::*;
use fpga_card::{BarRole, CardDescription};

const RING: u64 = 0x1_0000_0000;
const DATA: u64 = 0x2_0000_0000;

/// Run, stopped, completed, alignment, magic, all read, write and descriptor errors.
const MAINLINE_START: u32 = 0x00FF_FE1F;
/// Descriptor and read error (one bit each), idle, magic, completed, stopped.
const MAINLINE_ENABLE: u32 = 0x0008_0256;

/// The kernel's driver: finds channels without stopping at a gap, requests a vector per channel.
struct Mainline {
    guest: GuestMachine,
    dma: u8,
    channels: u64,
    /// Reads the status in its handler (since 6.8); earlier versions read only the count.
    reads_status: bool,
}

impl Mainline {
    fn load(description: CardDescription, reads_status: bool) -> Self {
        let mut guest = GuestMachine::new(description);
        guest.enable();
        guest.set_master(true);
        let dma = guest.bar(BarRole::Dma).expect("a DMA BAR");
        let mut channels = 0;
        for (base, identifier) in [(0x0000, 0x1FC0), (0x1000, 0x1FC1)] {
            for at in (0..4).map(|channel| base + 0x100 * channel) {
                if guest.read(dma, at) >> 16 == identifier {
                    guest.write(dma, at + 0x0C, 1 << 25);
                    guest.write(dma, at + 0x90, MAINLINE_ENABLE);
                    channels += 1;
                }
            }
        }
        assert!(guest.enable_msix(channels + 1));
        for word in 0..channels.div_ceil(4) {
            let vectors = (4 * word..channels.min(4 * word + 4)).enumerate();
            let value = vectors.fold(0, |value, (place, vector)| value | vector << (8 * place));
            guest.write(dma, 0x20A0 + 4 * u64::from(word), value);
        }
        guest.write(dma, 0x2080, channels);
        guest.write(dma, 0x2014, !0);
        Self { guest, dma, channels: channels.into(), reads_status }
    }

    /// Descriptors in blocks of 32 that are not contiguous. Only the last descriptor of a block has the address and the size of the next
    /// one. After 128 blocks a run ends, and the rest is another run.
    fn transfer(&mut self, base: u64, vector: u16, segments: &[(u64, u32)], card: u64) {
        let block_at = |block: u64| RING + 0x1000 * block;
        let count = segments.len() as u64;
        let mut at_card = card;
        for (index, (at, length)) in (0_u64..).zip(segments) {
            let (block, place) = (index / 32, index % 32);
            let left = count - index - 1;
            let last = left == 0 || (index + 1).is_multiple_of(128 * 32);
            let (control, next) = if last {
                (3, 0)
            } else if place == 31 {
                ((left.min(32) - 1) << 8, block_at(block + 1))
            } else {
                (0, 0)
            };
            let (source, destination) = if base < 0x1000 { (*at, at_card) } else { (at_card, *at) };
            let control = MAGIC | control as u32;
            self.guest.host.descriptor(
                block_at(block) + 32 * place,
                control,
                *length,
                source,
                destination,
                next,
            );
            at_card += u64::from(*length);
        }
        let mut done = 0;
        while done < count {
            let first = block_at(done / 32);
            let adjacent = (count - done).min(32) - 1;
            self.guest.write(self.dma, base + 0x0C, 1);
            self.guest.write(self.dma, base + 0x4080, first as u32);
            self.guest.write(self.dma, base + 0x4084, (first >> 32) as u32);
            self.guest.write(self.dma, base + 0x4088, adjacent as u32);
            self.guest.write(self.dma, base + 0x04, MAINLINE_START);
            assert_eq!(std::mem::take(&mut self.guest.host.interrupts), [vector], "one interrupt per run");
            if self.reads_status {
                assert_eq!(self.guest.read(self.dma, base + 0x44), 0b110);
            }
            let completed = u64::from(self.guest.read(self.dma, base + 0x48));
            assert_eq!(completed, (count - done).min(128 * 32));
            done += completed;
        }
    }
}

#[test]
fn foreign_mainline_32_descriptor_blocks() {
    // It requests one vector more than there are channels.
    let eight = include_str!("../../../../../tests/cards/eight-vectors.yaml");
    for name in ["default", "us-x8", "7-series-gen2-x8", "eight-vectors"] {
        for reads_status in [false, true] {
            let description = match name {
                "eight-vectors" => CardDescription::parse(std::path::Path::new(name), eight).expect(name),
                _ => CardDescription::builtin(name).expect("built in"),
            };
            let base = description.memory.base;
            let mut driver = Mainline::load(description, reads_status);
            driver.guest.host.map(RING, 0x1000 * 144);
            driver.guest.host.map(DATA, 0x1_0000);
            let data = pattern(0x1_0000, 5);
            driver.guest.host.put(DATA, &data);
            let half = (driver.channels / 2) as u16;
            for count in [1_u64, 2, 31, 32, 33, 64, 65, 4095, 4096, 4097, 4500] {
                let segments: Vec<_> = (0..count).map(|index| (DATA + 16 * (index % 4096), 16)).collect();
                driver.transfer(0x0000, 0, &segments, base);
                let back: Vec<_> = (0..count.min(64)).map(|index| (DATA + 0x8000 + 16 * index, 16)).collect();
                driver.transfer(0x1000, half, &back, base);
                let length = 16 * back.len();
                assert_eq!(driver.guest.host.get(DATA + 0x8000, length), data[..length], "{name}, {count}");
                driver.guest.host.put(DATA, &data);
            }
            assert!(driver.guest.card.faults().is_empty(), "{name}");
        }
    }
}

#[test]
fn foreign_mainline_cyclic_ring_interrupts_again_after_status_read() {
    let mut driver = Mainline::load(small(), true);
    driver.guest.host.map(RING, 0x1000);
    driver.guest.host.map(DATA, 0x1000);
    for index in 0..4 {
        let next = RING + 32 * ((index + 1) % 4);
        driver.guest.host.descriptor(
            RING + 32 * index,
            MAGIC | COMPLETED,
            64,
            0x40 * index,
            DATA + 0x40 * index,
            next,
        );
    }
    let (dma, base) = (driver.dma, 0x1100);
    for (at, value) in
        [(0x4080, RING as u32), (0x4084, (RING >> 32) as u32), (0x4088, 0), (0x04, MAINLINE_START)]
    {
        driver.guest.write(dma, base + at, value);
    }
    let mut before = 0;
    for _ in 0..5 {
        assert_eq!(std::mem::take(&mut driver.guest.host.interrupts), [5], "H2C channels come first");
        assert_eq!(driver.guest.read(dma, base + 0x44), 0b101, "busy, completed");
        let completed = driver.guest.read(dma, base + 0x48);
        assert!(completed > before);
        before = completed;
    }
    driver.guest.write(dma, base + 0x0C, 1);
    driver.guest.host.interrupts.clear();
    assert_eq!(driver.guest.read(dma, base + 0x40) & 1, 0, "stopped");
    let stopped = driver.guest.read(dma, base + 0x48);
    assert_eq!(driver.guest.read(dma, base + 0x48), stopped);
}

#[test]
fn foreign_single_descriptor_by_intx() {
    for name in ["artix-x1", "artix-x4", "default"] {
        let description = CardDescription::builtin(name).expect("built in");
        let channels = u64::from(description.xdma.h2c_channels);
        let base = description.memory.base;
        let mut guest = GuestMachine::new(description);
        guest.enable();
        guest.set_master(true);
        let dma = guest.bar(BarRole::Dma).expect("a DMA BAR");
        guest.host.map(RING, 0x1000);
        guest.host.map(DATA, 0x2_0000);
        let data = pattern(0x1_0000, 77);
        guest.host.put(DATA, &data);
        for (channel, bit, source, destination) in
            [(0x0000, 1, DATA, base + 0x40), (0x1000, 1 << channels, base + 0x40, DATA + 0x1_0000)]
        {
            for _ in 0..2 {
                guest.host.descriptor(RING, MAGIC | 0x13, 0x1_0000, source, destination, 0);
                for (at, value) in [(0x4080, RING as u32), (0x4084, (RING >> 32) as u32), (0x4088, 0)] {
                    guest.write(dma, channel + at, value);
                }
                guest.read(dma, channel + 0x44);
                guest.write(dma, channel + 0x90, u32::MAX);
                guest.write(dma, 0x2014, bit);
                guest.write(dma, channel + 0xC0, 1 << 2 | 1);
                assert!(!guest.host.line);
                guest.write(dma, channel + 0x04, 0x00FF_FE7F);
                assert!(guest.host.line, "{name}");
                // Its handler reads both channels.
                let seen = [guest.read(dma, 0x0044) & !1, guest.read(dma, 0x1044) & !1];
                let mine = usize::from(channel != 0);
                assert_eq!((seen[mine], seen[1 - mine]), (0b110, 0));
                assert!(!guest.host.line, "reading cleared it");
                guest.write(dma, 0x2018, bit);
                guest.write(dma, channel + 0x90, 0);
                for at in [0x6014, 0x6018] {
                    guest.write(dma, at, if channel == 0 { 1 } else { 1 << 16 });
                }
                guest.write(dma, channel + 0x04, 0);
                assert_eq!(guest.read(dma, channel + 0x40), 0);
                let width = u32::from(guest.card.description().xdma.data_width) / 8;
                assert_eq!(guest.read(dma, channel + 0xD0), 0);
                assert_eq!(guest.read(dma, channel + 0xCC), 0x1_0000 / width, "beats");
            }
        }
        assert!(guest.host.get(DATA + 0x1_0000, 0x1_0000) == data, "{name}");
        assert_eq!(guest.host.rises, 4);
    }
}

#[test]
fn foreign_user_space_polling_registers() {
    // Memory decoding and bus mastering through sysfs; everything else has its power-on value.
    let mut guest = GuestMachine::new(small());
    guest.set_config(0x04, 2, 6);
    let dma = guest.bar(BarRole::Dma).expect("a DMA BAR");
    guest.host.map(RING, 0x1000);
    guest.host.map(DATA, 0x1000);
    guest.host.put(DATA, &pattern(1000, 3));
    for (run, length) in [1000, 1, 333].into_iter().enumerate() {
        guest.host.descriptor(RING, MAGIC | STOP | COMPLETED, length, DATA, 0x5000, 0);
        guest.write(dma, 0x4080, RING as u32);
        guest.write(dma, 0x4084, (RING >> 32) as u32);
        guest.write(dma, 0x4088, 0);
        // Set and clear aliases instead of full writes.
        guest.write(dma, 0x08, 1);
        assert_eq!(guest.read(dma, 0x40), 0, "nothing is recorded that Control did not ask for");
        assert_eq!(guest.read(dma, 0x48), 1, "run {run}");
        guest.write(dma, 0x0C, 1);
    }
    assert_eq!(guest.read(dma, 0x2044), 0);
    assert!(!guest.host.line && guest.host.interrupts.is_empty());
    // Accesses of every width at every offset of the registers have no unintended effect.
    let before = guest.read(dma, 0x48);
    for width in [1, 2, 4, 8] {
        for at in (0..0x1_0000_u64 - 8).step_by(width) {
            let mut bytes = vec![0; width];
            guest.card.bar_read(dma, at, &mut bytes);
        }
    }
    guest.work();
    assert_eq!(guest.read(dma, 0x48), before);
    assert!(guest.card.faults().is_empty());
}
