//! The card as the vendor's kernel driver uses it (XDMA driver for Linux, 2020 to 2025): probe, transfers by interrupt or by polling, and
//! unloading. The tests are in the modules.

mod interrupts;
mod transfers;

use crate::foreign_drivers::GuestMachine;
use crate::support::*;

/// Descriptors of one engine: 64 KiB, the size that a driver allocates for each.
const RING: u64 = 0x1_0000_0000;
const RING_SIZE: u64 = 0x1_0000;
const WORDS: u64 = 0x2_0000_0000;
const DATA: u64 = 0x3_0000_0000;
/// Results of a stream's descriptors.
const RESULTS: u64 = 0x4_0000_0000;
/// Maximum number of descriptors of a run.
const MAX_RUN_DESCRIPTORS: u64 = 2048;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Poll,
    Msix,
    Msi,
    Line,
}

const METHODS: [Method; 4] = [Method::Poll, Method::Msix, Method::Msi, Method::Line];

/// State of one engine in the driver.
#[derive(Clone, Copy, Debug)]
struct Engine {
    base: u64,
    /// Its bit in the interrupt block, which is also its vector.
    number: u32,
    to_card: bool,
    /// Address of the next run's descriptors.
    next: u64,
}

struct Driver {
    guest: GuestMachine,
    method: Method,
    dma: u8,
    user: Option<u8>,
    bypass: Option<u8>,
    engines: Vec<Engine>,
    enable: u32,
    start: u32,
}

impl Driver {
    /// Probe; panics where the real driver would give up.
    fn load(guest: GuestMachine, method: Method) -> Self {
        Self::probe(guest, method).ok().expect("channels and sixteen vectors for the user")
    }

    /// Probe. `Err`: the kernel has fewer vectors than the driver requests (ENOSPC), and the probe fails.
    fn probe(mut guest: GuestMachine, method: Method) -> Result<Self, Box<GuestMachine>> {
        guest.enable();
        if guest.config(0x06, 2) & 8 != 0 {
            guest.set_config(0x06, 2, 8);
        }
        let express = guest.capability(0x10).expect("PCI Express");
        for bit in [0x0010, 0x0100] {
            let control = guest.config(express + 8, 2);
            guest.set_config(express + 8, 2, control | bit);
        }
        let control = guest.config(express + 8, 2) & !0x7000;
        guest.set_config(express + 8, 2, control | 2 << 12);
        guest.set_master(true);
        // The configuration BAR is found by its identifiers; the others are named by position.
        let present: Vec<u8> = (0..6).filter(|bar| guest.lengths[usize::from(*bar)] > 0).collect();
        let position = present
            .iter()
            .position(|bar| {
                guest.lengths[usize::from(*bar)] >= 0x8000
                    && guest.read(*bar, 0x2000) >> 16 == 0x1FC2
                    && guest.read(*bar, 0x3000) >> 16 == 0x1FC3
            })
            .expect("a configuration BAR");
        let dma = present[position];
        let (user, bypass) = match (present.len(), position) {
            (1, _) => (None, None),
            (2, 0) => (None, Some(present[1])),
            (2, _) => (Some(present[0]), None),
            (_, 1 | 2) => (Some(present[0]), present.last().copied()),
            (count, position) => panic!("{count} BARs with this one at {position}"),
        };
        let mut driver = Self { guest, method, dma, user, bypass, engines: Vec::new(), enable: 0, start: 0 };
        for at in [0x2004, 0x2010, 0x2040, 0x2044, 0x2048, 0x204C] {
            assert_eq!(driver.read(at), 0, "no bit remains set at {at:#x}");
        }
        driver.write(0x2018, !0);
        driver.write(0x200C, !0);
        driver.requests();
        driver.find_engines();
        if !driver.set_up_interrupts() {
            return Err(Box::new(driver.guest));
        }
        if method != Method::Poll {
            driver.write(0x2014, !0);
        }
        driver.requests();
        driver.write(0x2008, (1 << 17) - 1);
        driver.requests();
        Ok(driver)
    }

    fn read(&mut self, at: u64) -> u32 {
        self.guest.read(self.dma, at)
    }

    fn write(&mut self, at: u64, value: u32) {
        self.guest.write(self.dma, at, value);
    }

    fn requests(&mut self) -> (u32, u32) {
        (self.read(0x2040), self.read(0x2044))
    }

    fn find_engines(&mut self) {
        let poll = self.method == Method::Poll;
        (self.enable, self.start) =
            if poll { (0x00F8_3E18, 0x04F8_3E19) } else { (0x00F8_3E1E, 0x00F8_3E1F) };
        for (to_card, target, identifier) in [(true, 0x0000, 0x1FC0), (false, 0x1000, 0x1FC1)] {
            for channel in 0..4 {
                let base = target + 0x100 * channel;
                let word = self.read(base);
                if word >> 16 != identifier || u64::from(word >> 8 & 0xF) != channel {
                    break;
                }
                let streams = self.guest.card.description().xdma.stream;
                assert_eq!(word & 0x8000 != 0, streams, "memory mapped or streams");
                let number = self.engines.len() as u32;
                self.write(base + 0x0C, 1 << 25);
                let alignments = self.read(base + 0x4C);
                assert_eq!((alignments >> 16 & 0xFF, alignments >> 8 & 0xFF, alignments & 0xFF), (1, 1, 64));
                self.guest.host.map(RING + RING_SIZE * u64::from(number), RING_SIZE as usize);
                if poll {
                    let word = WORDS + 0x1000 * u64::from(number);
                    self.guest.host.map(word, 4);
                    self.write(base + 0x88, word as u32);
                    self.write(base + 0x8C, (word >> 32) as u32);
                }
                self.write(base + 0x90, self.enable);
                self.engines.push(Engine { base, number, to_card, next: 0 });
            }
        }
    }

    /// Returns whether there are enough vectors. By default, and in poll mode, the driver uses MSI-X if the card has it, otherwise MSI.
    fn set_up_interrupts(&mut self) -> bool {
        let channels = self.engines.len() as u32;
        // Workaround for cores that ignore the interrupt-disable bit: it is cleared for every method.
        let command = self.guest.config(0x04, 2);
        self.guest.set_config(0x04, 2, command & !0x0400);
        let messages = self.has_msix();
        match self.method {
            Method::Msix | Method::Poll if messages => {
                if !self.guest.enable_msix(channels + 16) {
                    return false;
                }
                self.vectors(0x20A0, 0, channels);
                self.vectors(0x2080, channels, channels + 16);
            }
            Method::Msi | Method::Poll => assert!(self.guest.enable_msi()),
            Method::Msix | Method::Line => {
                assert_eq!(self.guest.config(0x3D, 1), 1, "INTA: vectors may stay 0")
            }
        }
        true
    }

    fn has_msix(&mut self) -> bool {
        self.guest.capability(0x11).is_some()
    }

    fn vectors(&mut self, at: u64, first: u32, end: u32) {
        let numbers: Vec<u32> = (first..end).collect();
        for (index, four) in numbers.chunks(4).enumerate() {
            let word = four.iter().enumerate().fold(0, |word, (place, vector)| word | vector << (8 * place));
            self.write(at + 4 * index as u64, word);
        }
    }

    /// One run: segments of host memory to or from `card`. Returns the address of its descriptors.
    fn run(&mut self, engine: usize, segments: &[(u64, u32)], card: u64) {
        let first = self.begin(engine, segments, card);
        self.serve(engine, segments.len() as u32);
        self.end(engine, first, segments.len() as u64);
    }

    /// Builds the descriptors and starts the engine. Returns the address of the descriptors.
    fn begin(&mut self, engine: usize, segments: &[(u64, u32)], card: u64) -> u64 {
        self.begin_with(engine, segments, card, 0)
    }

    /// The same with a completion for every descriptor: reads of streams that end with their packets.
    fn begin_each_reporting(&mut self, engine: usize, segments: &[(u64, u32)], card: u64) -> u64 {
        self.begin_with(engine, segments, card, COMPLETED)
    }

    fn begin_with(&mut self, engine: usize, segments: &[(u64, u32)], card: u64, each: u32) -> u64 {
        let Engine { base, number, to_card, next } = self.engines[engine];
        let ring = RING + RING_SIZE * u64::from(number);
        let count = segments.len() as u64;
        assert!(next + count <= MAX_RUN_DESCRIPTORS);
        // Blocks of adjacent descriptors end at multiples of 64.
        let adjacent = |index: u64, left: u64| (63 - index % 64).min(left.saturating_sub(1)) as u32;
        let mut at_card = card;
        for (index, (at, length)) in (0..).zip(segments) {
            let place = next + index;
            let left = count - index - 1;
            let (flags, following) = if left == 0 { (0x13, 0) } else { (each, ring + 32 * (place + 1)) };
            let control = MAGIC | if left == 0 { 0 } else { adjacent(place + 1, left) << 8 } | flags;
            let (source, destination) = if to_card { (*at, at_card) } else { (at_card, *at) };
            self.guest.host.descriptor(ring + 32 * place, control, *length, source, destination, following);
            // The next chunk follows on the card; a stream's descriptor has the address of its result instead.
            at_card += if card == RESULTS { 32 } else { u64::from(*length) };
        }
        let first = ring + 32 * next;
        self.write(base + 0x4080, first as u32);
        self.write(base + 0x4084, (first >> 32) as u32);
        self.write(base + 0x4088, adjacent(next, count));
        self.write(base + 0x04, self.start);
        self.read(base + 0x40);
        self.read(base + 0x40);
        first
    }

    /// Descriptors are wiped as soon as they are done.
    fn end(&mut self, engine: usize, first: u64, count: u64) {
        self.guest.host.put(first, &vec![0; 32 * count as usize]);
        let next = &mut self.engines[engine].next;
        *next = (*next + count) % MAX_RUN_DESCRIPTORS;
    }

    /// Services the run until its completion is detected.
    fn serve(&mut self, engine: usize, count: u32) {
        let Engine { base, number, .. } = self.engines[engine];
        let bit = 1 << number;
        if self.method == Method::Poll {
            let word = WORDS + 0x1000 * u64::from(number);
            assert_eq!(self.guest.host.get_word(word), count, "the write-back");
            self.guest.host.put(word, &[0; 4]);
            self.write(base + 0x04, self.start & !1);
            assert!(self.guest.host.interrupts.is_empty(), "polling causes no interrupts");
            return;
        }
        match self.method {
            Method::Msix => {
                assert_eq!(std::mem::take(&mut self.guest.host.interrupts), [number as u16]);
                self.write(base + 0x98, self.enable);
                self.read(0x204C);
            }
            _ => {
                if self.method == Method::Msi {
                    assert_eq!(std::mem::take(&mut self.guest.host.messages), [0]);
                } else {
                    assert!(self.guest.host.line);
                }
                assert_eq!(self.read(0x2044), bit, "requesting channel");
                self.write(0x2018, bit);
                assert_eq!(self.read(0x2040), 0, "flush, and the user's");
                assert!(!self.guest.host.line);
            }
        }
        assert_eq!(self.read(base + 0x44), 0b110, "stopped, completed, not busy");
        self.write(base + 0x04, self.start & !1);
        assert_eq!(self.read(base + 0x48), count);
        if self.method == Method::Msix {
            self.write(base + 0x94, self.enable);
        } else {
            self.write(0x2014, bit);
        }
        let host = &self.guest.host;
        assert!(host.interrupts.is_empty() && host.messages.is_empty() && !host.line, "and nothing more");
    }

    fn unload(mut self) -> GuestMachine {
        self.write(0x2018, !0);
        self.write(0x200C, !0);
        self.requests();
        if matches!(self.method, Method::Msix | Method::Poll) && self.has_msix() {
            let channels = self.engines.len() as u64;
            for at in (0..channels.div_ceil(4)).map(|word| 0x20A0 + 4 * word) {
                self.write(at, 0);
            }
            for at in (0x2080..0x2090).step_by(4) {
                self.write(at, 0);
            }
        }
        self.guest.disable_messages();
        for engine in self.engines.clone() {
            self.write(engine.base + 0x90, 0);
        }
        self.guest.set_master(false);
        self.guest.host.ranges.clear();
        self.guest
    }
}
