//! The vendor's kernel driver (XDMA driver for Linux) as messages: those that a virtual machine monitor forwards while that driver probes,
//! moves data with MSI-X, handles an event of user logic and is removed. `fpga-card`'s tests contain more of it, directly against the card.
#![expect(clippy::cast_possible_truncation, reason = "addresses and patterns of tests are small")]

use crate::served::client::{BYPASS, Client, DMA, LONG, PAGE, Served, USER, file};
use crate::served::interrupts::{listen, set, taken};
use fpga_pci::Interrupt;
use fpga_vfio_user::wire::{DmaUnmap, IrqAction, IrqData, Request, irq, region};
use std::os::fd::OwnedFd;

/// Value that the driver writes to a channel's control register, without Run, and the interrupts that it enables.
const CONTROL: u32 = 0x00F8_3E1E;
/// Four H2C and four C2H channels.
const CHANNELS: u32 = 8;
const USERS: u32 = 16;
/// Addresses of the channels' descriptors, each on a page of its own, and of the data.
const RINGS: u64 = 0x1000;
const DATA: u64 = 0x10_000;
const PAGES: u64 = 64;

struct Driver {
    client: Client,
    memory: OwnedFd,
    /// Start of the machine's memory as the card sees it.
    base: u64,
    vectors: Vec<Interrupt>,
}

impl Driver {
    fn config(&mut self, at: u64, width: u32) -> u32 {
        let bytes = self.client.read(region::CONFIG, at, width).unwrap();
        bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
    }

    fn set_config(&mut self, at: u64, width: usize, value: u32) {
        self.client.write(region::CONFIG, at, &value.to_le_bytes()[..width]).unwrap();
    }

    fn read(&mut self, at: u64) -> u32 {
        self.client.read32(DMA, at)
    }

    fn set(&mut self, at: u64, value: u32) {
        self.client.write32(DMA, at, value);
    }

    fn requests(&mut self) -> (u32, u32) {
        (self.read(0x2040), self.read(0x2044))
    }

    /// Writes both lists of vectors, four per word.
    fn vectors(&mut self, at: u64, first: u32, count: u32) {
        for word in 0..count.div_ceil(4) {
            let four = (0..4).fold(0, |all, place| all | (first + 4 * word + place) << (8 * place));
            self.set(at + 4 * u64::from(word), four);
        }
    }

    /// The kernel finds the function, and the driver probes it.
    fn probe(client: Client, base: u64) -> Self {
        let memory = file(PAGES, true);
        let mut driver = Self { client, memory, base, vectors: Vec::new() };
        assert_eq!(driver.config(0, 4), 0x903F_10EE);
        // Sizes of the BARs, as the monitor's firmware and the kernel determine them, with decoding off.
        driver.set_config(4, 2, 0);
        let sizes = [0x10, 0x14, 0x18].map(|at| {
            let before = driver.config(at, 4);
            driver.set_config(at, 4, u32::MAX);
            let mask = driver.config(at, 4) & !0xF;
            driver.set_config(at, 4, before);
            mask.wrapping_neg()
        });
        assert_eq!(sizes, [0x1_0000, 0x1_0000, 0x400_0000]);
        for (at, address) in [(0x10, 0xE000_0000), (0x14, 0xE001_0000), (0x18, 0xE400_0000)] {
            driver.set_config(at, 4, address);
        }
        driver.set_config(4, 2, 2);
        let express = u64::from(driver.capability(0x10));
        let control = driver.config(express + 8, 2) & !0x7000 | 0x2110;
        driver.set_config(express + 8, 2, control);
        driver.set_config(4, 2, 6);
        // The configuration BAR answers with its identifiers; the user BAR is probed first.
        let identifiers = |driver: &mut Self, bar| {
            (driver.client.read32(bar, 0x2000) >> 16, driver.client.read32(bar, 0x3000) >> 16)
        };
        assert_ne!(identifiers(&mut driver, USER), (0x1FC2, 0x1FC3));
        assert_eq!(identifiers(&mut driver, DMA), (0x1FC2, 0x1FC3));
        driver.set(0x2018, !0);
        driver.set(0x200C, !0);
        driver.requests();
        for channel in 0..u64::from(CHANNELS) {
            let base = place(channel);
            let identifier = 0x1FC0 + u32::from(base >= 0x1000);
            assert_eq!(
                (driver.read(base) >> 16, driver.read(base) >> 8 & 0xF),
                (identifier, base as u32 >> 8 & 0xF)
            );
            driver.set(base + 0x0C, 1 << 25);
            assert_eq!(driver.read(base + 0x4C), 0x0001_0140);
            driver.set(base + 0x90, CONTROL);
        }
        let (base, memory) = (driver.base, &driver.memory);
        driver.client.map(base, PAGES * PAGE, 3, Some((memory, 0))).unwrap();
        driver.vectors = listen(&mut driver.client, irq::MSIX, CHANNELS + USERS);
        driver.vectors(0x20A0, 0, CHANNELS);
        driver.vectors(0x2080, CHANNELS, USERS);
        driver.set(0x2014, !0);
        driver.set(0x2008, 0xFFFF);
        driver.requests();
        driver
    }

    fn capability(&mut self, id: u32) -> u32 {
        let mut at = self.config(0x34, 1);
        while at != 0 && self.config(at.into(), 1) != id {
            at = self.config(u64::from(at) + 1, 1);
        }
        at
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        assert_eq!(rustix::io::pwrite(&self.memory, bytes, at).unwrap(), bytes.len());
    }

    fn get(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        assert_eq!(rustix::io::pread(&self.memory, &mut bytes, at).unwrap(), length);
        bytes
    }

    /// Runs channel `channel` once, with a descriptor for every page of the data, and the accesses of the interrupt handler.
    fn run(&mut self, channel: u64, at: u64, length: u64, card: u64) {
        let (base, ring) = (place(channel), RINGS + PAGE * channel);
        let mut pieces = Vec::new();
        let mut from = at;
        while from < at + length {
            let end = ((from / PAGE + 1) * PAGE).min(at + length);
            pieces.push((from, end - from));
            from = end;
        }
        let count = pieces.len() as u64;
        for (number, (from, size)) in (0..).zip(&pieces) {
            let left = count - number - 1;
            let flags = if left == 0 { 0x13 } else { (left - 1) << 8 };
            let (host, card) = (self.base + from, card + (from - at));
            let (source, destination) = if base < 0x1000 { (host, card) } else { (card, host) };
            let next = if left == 0 { 0 } else { self.base + ring + 32 * (number + 1) };
            let words = [0xAD4B_0000 | flags | size << 32, source, destination, next];
            self.put(ring + 32 * number, &words.map(u64::to_le_bytes).concat());
        }
        let first = self.base + ring;
        self.set(base + 0x4080, first as u32);
        self.set(base + 0x4084, (first >> 32) as u32);
        self.set(base + 0x4088, count as u32 - 1);
        self.set(base + 0x04, CONTROL | 1);
        self.read(base + 0x40);
        self.read(base + 0x40);
        let vector = usize::try_from(channel).unwrap();
        assert_eq!(self.vectors[vector].wait(LONG).unwrap(), Some(1));
        self.set(base + 0x98, CONTROL);
        self.read(0x204C);
        assert_eq!(self.read(base + 0x44), 0b110, "stopped, completed, not busy");
        self.set(base + 0x04, CONTROL);
        assert_eq!(u64::from(self.read(base + 0x48)), count);
        self.set(base + 0x94, CONTROL);
        assert!(taken(&self.vectors).iter().all(|count| *count == 0), "no further interrupts");
    }

    /// Waits for an event of user logic: the handler masks the line; the application handles the event and unmasks the line.
    fn take_event(&mut self, served: &Served, line: u8) {
        assert!(served.network.set_user_interrupt(0, line, true));
        let vector = usize::try_from(CHANNELS).unwrap() + usize::from(line);
        assert_eq!(self.vectors[vector].wait(LONG).unwrap(), Some(1));
        assert_eq!(self.requests(), (1 << line, 0));
        self.set(0x200C, 1 << line);
        assert!(served.network.set_user_interrupt(0, line, false));
        self.set(0x2008, 1 << line);
        assert_eq!(self.requests(), (0, 0));
        assert!(taken(&self.vectors).iter().all(|count| *count == 0));
    }

    fn remove(mut self) -> Client {
        self.set(0x2018, !0);
        self.set(0x200C, !0);
        self.requests();
        for at in (0x20A0..0x20A8).chain(0x2080..0x2090).step_by(4) {
            self.set(at, 0);
        }
        set(&mut self.client, irq::MSIX, 0..0, IrqAction::Trigger, IrqData::None, &[]).unwrap();
        for channel in 0..u64::from(CHANNELS) {
            self.set(place(channel) + 0x90, 0);
        }
        self.set_config(4, 2, 2);
        let unmap = DmaUnmap { argsz: 24, flags: 0, address: self.base, size: PAGES * PAGE };
        self.client.ask(&Request::DmaUnmap(unmap), &[]).unwrap();
        self.client
    }
}

/// Offset of the registers of channel number `channel`: H2C, then C2H.
const fn place(channel: u64) -> u64 {
    0x1000 * (channel / 4) + 0x100 * (channel % 4)
}

#[test]
fn foreign_client_probe_transfer_remove_twice() {
    let served = Served::start();
    let mut client = served.connect();
    // Without an IOMMU, memory is at its physical address; with one, at any address that the kernel chooses.
    for base in [0, 0xFFFF_0000_0000] {
        let mut driver = Driver::probe(client, base);
        for (round, (offset, length)) in
            (0..).zip([(0, 64), (0, 4096), (1, 1), (4095, 2), (513, 9001), (7, 65_529)])
        {
            let data: Vec<u8> = (0..length).map(|index| (index * 7 + round * 31 + 1) as u8).collect();
            driver.put(DATA + offset, &data);
            driver.run(round % 4, DATA + offset, length, 0x2_0000 + round);
            driver.put(DATA + offset, &vec![0; data.len()]);
            driver.run(4 + (round + 1) % 4, DATA + offset, length, 0x2_0000 + round);
            assert!(driver.get(DATA + offset, data.len()) == data, "{length} bytes at {offset}");
        }
        // The bypass BAR shows the data of the last run.
        assert_ne!(driver.client.read32(BYPASS, 0x2_0005), 0);
        for line in [0, 7, 15] {
            driver.take_event(&served, line);
        }
        client = driver.remove();
    }
    let faults = served.network.with_card(0, |card| card.faults().ever()).unwrap();
    assert_eq!(faults, 0);
    served.stop();
}
