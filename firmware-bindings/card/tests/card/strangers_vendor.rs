//! The card as the vendor's kernel driver uses it (XDMA driver for Linux, 2020 to 2025): probe, vectors, transfers by
//! interrupt and by polling, performance ring, unloading; every built-in card, every interrupt method.

use crate::strangers::{Guest, gather, pages, scatter};
use crate::support::*;
use fpga_card::{BarRole, CardDescription};

/// Descriptors of one engine: 64 KiB, and what a driver allocates for each.
const RING: u64 = 0x1_0000_0000;
const RING_SIZE: u64 = 0x1_0000;
const WORDS: u64 = 0x2_0000_0000;
const DATA: u64 = 0x3_0000_0000;
/// What a stream's descriptors report.
const RESULTS: u64 = 0x4_0000_0000;
/// As many descriptors as a run has at most.
const MOST: u64 = 2048;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Poll,
    Msix,
    Msi,
    Line,
}

const METHODS: [Method; 4] = [Method::Poll, Method::Msix, Method::Msi, Method::Line];

/// One engine as the driver remembers it.
#[derive(Clone, Copy, Debug)]
struct Engine {
    base: u64,
    /// Its bit in the interrupt block, and its vector.
    number: u32,
    to_card: bool,
    /// Where the next run's descriptors start.
    next: u64,
}

struct Driver {
    guest: Guest,
    method: Method,
    dma: u8,
    user: Option<u8>,
    bypass: Option<u8>,
    engines: Vec<Engine>,
    enable: u32,
    start: u32,
}

impl Driver {
    /// Probe; panics where the real one would give up.
    fn load(mut guest: Guest, method: Method) -> Self {
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
        // The configuration BAR answers with the identifiers; the others are named by position.
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
            assert_eq!(driver.read(at), 0, "nothing is left over at {at:#x}");
        }
        driver.write(0x2018, !0);
        driver.write(0x200C, !0);
        driver.requests();
        driver.find_engines();
        driver.set_up_interrupts();
        if method != Method::Poll {
            driver.write(0x2014, !0);
        }
        driver.requests();
        driver.write(0x2008, (1 << 17) - 1);
        driver.requests();
        driver
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

    fn set_up_interrupts(&mut self) {
        let channels = self.engines.len() as u32;
        // The workaround for cores that forget about the line: its bit is cleared whatever the method.
        let command = self.guest.config(0x04, 2);
        self.guest.set_config(0x04, 2, command & !0x0400);
        match self.method {
            Method::Msix | Method::Poll => {
                assert!(self.guest.enable_msix(channels + 16), "channels and sixteen for the user");
                self.vectors(0x20A0, 0, channels);
                self.vectors(0x2080, channels, channels + 16);
            }
            Method::Msi => assert!(self.guest.enable_msi()),
            Method::Line => assert_eq!(self.guest.config(0x3D, 1), 1, "INTA: vectors may stay 0"),
        }
    }

    fn vectors(&mut self, at: u64, first: u32, end: u32) {
        let numbers: Vec<u32> = (first..end).collect();
        for (index, four) in numbers.chunks(4).enumerate() {
            let word = four.iter().enumerate().fold(0, |word, (place, vector)| word | vector << (8 * place));
            self.write(at + 4 * index as u64, word);
        }
    }

    /// One run: segments of host memory to or from `card`; returns where its descriptors were.
    fn run(&mut self, engine: usize, segments: &[(u64, u32)], card: u64) {
        let first = self.begin(engine, segments, card);
        self.serve(engine, segments.len() as u32);
        self.end(engine, first, segments.len() as u64);
    }

    /// Builds the descriptors and starts the engine; returns where they are.
    fn begin(&mut self, engine: usize, segments: &[(u64, u32)], card: u64) -> u64 {
        let Engine { base, number, to_card, next } = self.engines[engine];
        let ring = RING + RING_SIZE * u64::from(number);
        let count = segments.len() as u64;
        assert!(next + count <= MOST);
        // Blocks of adjacent descriptors end where a multiple of 64 does.
        let adjacent = |index: u64, left: u64| (63 - index % 64).min(left.saturating_sub(1)) as u32;
        let mut at_card = card;
        for (index, (at, length)) in (0..).zip(segments) {
            let place = next + index;
            let left = count - index - 1;
            let (flags, following) = if left == 0 { (0x13, 0) } else { (0, ring + 32 * (place + 1)) };
            let control = MAGIC | if left == 0 { 0 } else { adjacent(place + 1, left) << 8 } | flags;
            let (source, destination) = if to_card { (*at, at_card) } else { (at_card, *at) };
            self.guest.host.descriptor(ring + 32 * place, control, *length, source, destination, following);
            // On the card the next piece follows; a stream's descriptor names where its result goes instead.
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
        *next = (*next + count) % MOST;
    }

    /// What happens until the run is known to be done.
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
                assert_eq!(self.read(0x2044), bit, "who asks");
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

    fn unload(mut self) -> Guest {
        self.write(0x2018, !0);
        self.write(0x200C, !0);
        self.requests();
        if matches!(self.method, Method::Msix | Method::Poll) {
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

#[test]
fn every_card_is_probed_used_and_left_by_every_method() {
    for builtin in CardDescription::builtins().filter(|builtin| builtin.name != "quirky") {
        let description = CardDescription::builtin(builtin.name).expect("built in");
        if description.xdma.stream {
            // No addresses; see `streams`.
            continue;
        }
        let base = description.memory.base;
        let few = u32::from(description.interrupts.msix_vectors)
            < u32::from(description.xdma.h2c_channels + description.xdma.c2h_channels) + 16;
        let mut machine = Guest::new(description.clone());
        for method in METHODS {
            // The driver insists on a vector for every user interrupt.
            if few && matches!(method, Method::Msix | Method::Poll) {
                continue;
            }
            let mut driver = Driver::load(machine, method);
            let seen = (driver.guest.bar(BarRole::User), driver.guest.bar(BarRole::Bypass));
            assert_eq!((driver.user, driver.bypass), seen, "{}: BARs by position", builtin.name);
            let engines = usize::from(description.xdma.h2c_channels);
            assert_eq!(driver.engines.len(), engines + usize::from(description.xdma.c2h_channels));
            driver.guest.host.map(DATA, 0x4_0000);
            for (round, (offset, length)) in
                [(0, 64), (1, 1), (0, 4096), (4095, 2), (513, 9001), (7, 65_536 - 7)].into_iter().enumerate()
            {
                let segments = pages(DATA, offset, length);
                let data = pattern(length as usize, round as u32 + 1);
                scatter(&mut driver.guest.host, &segments, &data);
                let card = base + 3 * round as u64;
                driver.run(round % engines, &segments, card);
                scatter(&mut driver.guest.host, &segments, &vec![0; length as usize]);
                driver.run(engines + round % engines.min(driver.engines.len() - engines), &segments, card);
                let back = gather(&mut driver.guest.host, &segments);
                assert_eq!(back, data, "{} by {method:?}: {length} bytes at {offset}", builtin.name);
            }
            assert!(
                driver.guest.card.faults().is_empty(),
                "{}: {:?}",
                builtin.name,
                driver.guest.card.faults()
            );
            machine = driver.unload();
        }
    }
}

#[test]
fn runs_of_any_length_and_start_come_through() {
    for method in [Method::Poll, Method::Msix, Method::Line] {
        let mut driver = Driver::load(Guest::new(small()), method);
        driver.guest.host.map(DATA, 4096 * (MOST as usize + 1));
        // Starts at every kind of place in a block and in a page of 128.
        for count in [1, 2, 62, 1, 63, 64, 65, 1, 127, 128, 129, 300, 1] {
            let segments = pages(DATA, 0, 4096 * count);
            let data = pattern(4096 * count as usize, count as u32);
            scatter(&mut driver.guest.host, &segments, &data);
            driver.run(1, &segments, 0x10_0000);
            assert_eq!(driver.guest.card.faults().len(), 0);
            let mut seen = vec![0; data.len()];
            driver.guest.card.peek(fpga_registers::CardAddr::new(0x10_0000), &mut seen).expect("memory");
            assert!(seen == data, "{count} descriptors by {method:?}");
        }
        // All of them at once.
        driver.engines[0].next = 0;
        let segments = pages(DATA, 0, 4096 * MOST);
        driver.run(0, &segments, 0);
        driver.engines[4].next = 0;
        driver.run(4, &segments, 0);
        assert_eq!(driver.guest.card.counters().descriptors, 944 + 2 * MOST);
    }
}

#[test]
fn the_performance_ring_runs_until_it_is_stopped() {
    for method in [Method::Msix, Method::Line] {
        let mut driver = Driver::load(Guest::new(small()), method);
        driver.guest.host.map(DATA, 0x1000);
        let (ring, base) = (RING, driver.engines[0].base);
        // No Stop, no Completed, no adjacency: the last one leads back to the first.
        for index in 0..128 {
            let next = ring + 32 * ((index + 1) % 128);
            driver.guest.host.descriptor(ring + 32 * index, MAGIC, 4096, DATA, 0, next);
        }
        driver.write(base + 0x90, 0x00F8_3E5E);
        driver.write(base + 0xC0, 1 << 1);
        driver.read(base);
        driver.write(base + 0xC0, 1 << 2 | 1);
        driver.read(base);
        for (at, value) in
            [(0x4080, ring as u32), (0x4084, (ring >> 32) as u32), (0x4088, 0), (0x04, driver.start)]
        {
            driver.write(base + at, value);
        }
        assert_eq!(driver.read(base + 0x40), 1, "busy, and nothing else");
        let first = driver.read(base + 0x48);
        assert!(driver.read(base + 0x48) > first, "it goes on by itself");
        let cycles = driver.read(base + 0xC4);
        let beats = driver.read(base + 0xCC);
        assert!(cycles > 0 && beats > 0 && beats.is_multiple_of(64), "{cycles} cycles, {beats} beats");
        for at in [0xC8, 0xD0, 0xD4, 0xD8] {
            assert_eq!(driver.read(base + at), 0, "upper halves, and what newer cores do not have");
        }
        driver.write(base + 0x04, driver.start & !1);
        assert_eq!(driver.read(base + 0x40), 0, "idle; nobody asked for the idle bit");
        let host = &driver.guest.host;
        assert!(host.interrupts.is_empty() && !host.line, "nothing was flagged");
    }
}

#[test]
fn user_interrupts_reach_their_vectors() {
    for method in [Method::Msix, Method::Msi, Method::Line] {
        let mut driver = Driver::load(Guest::new(small()), method);
        let user = driver.user.expect("a user BAR");
        let cdma = 0x1000;
        // A copy inside the card, interrupt on completion: its line is user interrupt 0.
        driver.guest.write(user, cdma, 1 << 12);
        for (at, value) in [(0x18, 0), (0x1C, 0), (0x20, 0x1000), (0x24, 0), (0x28, 64)] {
            driver.guest.write(user, cdma + at, value);
        }
        assert_eq!(driver.requests(), (1, 0));
        let vector = driver.engines.len() as u16;
        match method {
            Method::Msix => assert_eq!(driver.guest.host.interrupts, [vector]),
            Method::Msi => assert_eq!(driver.guest.host.messages, [0]),
            _ => assert!(driver.guest.host.line, "and stays until the source is cleared"),
        }
        driver.guest.write(user, cdma + 4, 1 << 12);
        assert_eq!(driver.requests(), (0, 0));
        assert!(!driver.guest.host.line);
    }
}

/// Several engines and a user interrupt at once on one line, or one message: the handler masks all that ask, and each engine is served
/// and unmasked in its turn. As long as one of them is not, the line comes back with its mask.
#[test]
fn one_handler_serves_all_that_ask() {
    for (method, h2c, c2h) in [Method::Msi, Method::Line]
        .into_iter()
        .flat_map(|method| [(method, 1, 1), (method, 2, 1), (method, 2, 2)])
    {
        let mut description = small();
        (description.xdma.h2c_channels, description.xdma.c2h_channels) = (h2c, c2h);
        let mut driver = Driver::load(Guest::new(description), method);
        driver.guest.host.map(DATA, 0x1000);
        let count = driver.engines.len();
        let all = (1 << count) - 1;
        for order in 0..count {
            for engine in 0..count {
                driver.begin(engine, &[(DATA, 64)], 0x1000);
            }
            let user = driver.user.expect("a user BAR");
            driver.guest.write(user, 0x1000, 1 << 12);
            for (at, value) in [(0x18, 0), (0x1C, 0), (0x20, 0x1000), (0x24, 0), (0x28, 64)] {
                driver.guest.write(user, 0x1000 + at, value);
            }
            let asserted = |driver: &Driver| method == Method::Line && driver.guest.host.line;
            assert_eq!(asserted(&driver), method == Method::Line);
            assert_eq!(driver.read(0x2044), all, "all ask");
            driver.write(0x2018, all);
            assert_eq!(driver.read(0x2040), 1, "and the user's, which the handler leaves to others");
            assert_eq!(asserted(&driver), method == Method::Line, "so the line stays");
            driver.guest.write(user, 0x1004, 1 << 12);
            assert!(!asserted(&driver), "masked, or cleared");
            assert_eq!(driver.read(0x204C), all, "what is masked is pending");
            for place in 0..count {
                let engine = (order + place) % count;
                let Engine { base, number, .. } = driver.engines[engine];
                // Unmasked before it is served, it asks again; the others stay masked.
                driver.write(0x2014, 1 << number);
                assert_eq!((asserted(&driver), driver.read(0x2044)), (method == Method::Line, 1 << number));
                assert_eq!(driver.read(base + 0x44), 0b110);
                let start = driver.start;
                driver.write(base + 0x04, start & !1);
                assert_eq!(driver.read(base + 0x48), 1);
                assert_eq!((asserted(&driver), driver.read(0x2044)), (false, 0), "served");
            }
            assert_eq!(driver.requests(), (0, 0));
            driver.guest.host.messages.clear();
        }
        driver.unload();
    }
}

/// Fixed card addresses, as the driver's address mode does it: set once, the alignments asked for again, then runs as ever. The engine
/// moves whole beats to or from one place; what is not whole beats is refused with its bit.
#[test]
fn fixed_addresses_by_the_drivers_address_mode() {
    for method in [Method::Poll, Method::Msix, Method::Line] {
        let mut driver = Driver::load(Guest::new(small()), method);
        driver.guest.host.map(DATA, 0x2000);
        let to_card = 0;
        let base = driver.engines[to_card].base;
        driver.write(base + 0x08, 1 << 25);
        let alignments = driver.read(base + 0x4C);
        assert_eq!((alignments >> 16 & 0xFF, alignments >> 8 & 0xFF), (64, 64), "whole beats");
        driver.start |= 1 << 25;
        let data = pattern(256, 5);
        driver.guest.host.put(DATA, &data);
        driver.run(to_card, &[(DATA, 256)], 0x4000);
        let mut seen = [0; 128];
        driver.guest.card.peek(fpga_registers::CardAddr::new(0x4000), &mut seen).expect("memory");
        assert_eq!(seen[..64], data[192..], "the last beat is what stays");
        assert_eq!(seen[64..], [0; 64], "and nothing lies behind it");
        assert!(driver.guest.card.faults().is_empty());
        // Off again: every address as before.
        driver.start &= !(1 << 25);
        driver.write(base + 0x0C, 1 << 25);
        driver.run(to_card, &[(DATA + 3, 99)], 0x5001);
        driver.guest.card.peek(fpga_registers::CardAddr::new(0x5001), &mut seen[..99]).expect("memory");
        assert_eq!(seen[..99], data[3..102], "{method:?}");
    }
}

/// A transfer that fails: what the driver reads to find out, its stop, and that the next run works.
#[test]
fn a_failed_run_is_stopped_and_the_next_one_works() {
    for method in [Method::Msix, Method::Line] {
        let mut driver = Driver::load(Guest::new(small()), method);
        driver.guest.host.map(DATA, 0x1000);
        let Engine { base, number, .. } = driver.engines[0];
        let bit = 1 << number;
        // The second page is nobody's.
        let first = driver.begin(0, &[(DATA, 64), (0x7_0000_0000, 64), (DATA, 64)], 0x1000);
        if method == Method::Line {
            assert_eq!(driver.read(0x2044), bit);
            driver.write(0x2018, bit);
            driver.read(0x2040);
        } else {
            assert_eq!(std::mem::take(&mut driver.guest.host.interrupts), [number as u16]);
            let enable = driver.enable;
            driver.write(base + 0x98, enable);
            driver.read(0x204C);
        }
        let status = driver.read(base + 0x44);
        assert_eq!(status & 0x3E00, 1 << 9, "the host does not support this read: {status:#x}");
        assert_eq!(status & 1, 0, "not busy");
        assert_eq!(driver.read(base + 0x48), 1, "one was done");
        let (start, enable) = (driver.start, driver.enable);
        driver.write(base + 0x04, start & !1);
        if method == Method::Line {
            driver.write(0x2014, bit);
        } else {
            driver.write(base + 0x94, enable);
        }
        driver.end(0, first, 3);
        assert!(!driver.guest.host.line && driver.guest.host.interrupts.is_empty());
        driver.run(0, &[(DATA, 64)], 0x1000);
    }
}

#[test]
fn registers_can_be_poked_as_the_tests_do() {
    let mut driver = Driver::load(Guest::new(small()), Method::Poll);
    for value in [0, 1, 0, 1] {
        driver.write(0x301C, value);
        assert_eq!(driver.read(0x301C), value);
    }
    assert_eq!((driver.read(0x3008), driver.read(0x300C)), (0, 2), "payload 128, read requests 512");
    assert_eq!(driver.read(0x3014), 2);
    for channel in 4..8 {
        assert_eq!(driver.read(0x100 * channel), 0, "no such channel");
    }
    // Fixed addresses are a mode of the channel; what must be aligned is asked for again.
    driver.write(0x08, 1 << 25);
    assert_eq!(driver.read(0x4C), 0x0040_4040, "addresses and lengths in whole beats");
    driver.write(0x0C, 1 << 25);
    assert_eq!(driver.read(0x4C), 0x0001_0140);
    // Descriptors written through the bypass BAR: words of any width.
    let bypass = driver.bypass.expect("a bypass BAR");
    for (at, width) in [(0, 1), (3, 2), (9, 4), (17, 8), (31, 3)] {
        let bytes = pattern(width, at as u32 + 1);
        driver.guest.card.bar_write(bypass, at, &bytes, &mut driver.guest.host);
        let mut back = vec![0; width];
        driver.guest.card.bar_read(bypass, at, &mut back);
        assert_eq!(back, bytes);
    }
}

#[test]
fn every_number_of_channels_has_its_bits_and_vectors() {
    for (h2c, c2h) in (1..=4).flat_map(|h2c| (1..=4).map(move |c2h| (h2c, c2h))) {
        let mut description = small();
        (description.xdma.h2c_channels, description.xdma.c2h_channels) = (h2c, c2h);
        let mut machine = Guest::new(description);
        for method in METHODS {
            let mut driver = Driver::load(machine, method);
            assert_eq!(driver.engines.len(), usize::from(h2c + c2h));
            driver.guest.host.map(DATA, 0x2000);
            for engine in 0..driver.engines.len() {
                driver.run(engine, &[(DATA + 3, 100), (DATA + 0x1001, 77)], 0x1000);
            }
            assert!(driver.guest.card.faults().is_empty(), "{h2c} + {c2h} by {method:?}");
            machine = driver.unload();
        }
    }
}

/// Credits as the driver grants them where it was told to: before the start, as many as the run has descriptors.
#[test]
fn credits_granted_before_the_start_are_enough() {
    let mut driver = Driver::load(Guest::new(small()), Method::Msix);
    let (engine, base) = (4, driver.engines[4].base);
    driver.guest.host.map(DATA, 4096 * 8);
    driver.write(0x6024, 1 << 16);
    for count in [1_u64, 5, 8] {
        driver.write(base + 0x408C, count as u32);
        assert_eq!(driver.read(base + 0x408C), count as u32);
        driver.run(engine, &pages(DATA, 0, 4096 * count), 0);
        driver.write(base + 0x408C, 0);
        assert_eq!(driver.read(base + 0x408C), 0, "used up, and cleared with Run");
    }
    driver.write(0x6028, 1 << 16);
    assert_eq!(driver.read(0x6020), 0);
    driver.run(engine, &pages(DATA, 0, 4096), 0);
}

/// Receives are posted first, as the vendor's streaming test does it; what was sent comes back through the loopback, and the
/// lengths are those of the results, not of the descriptors.
#[test]
fn streams_by_their_results() {
    for method in [Method::Poll, Method::Msix] {
        let description = CardDescription::builtin("us-plus-x8-stream").expect("built in");
        let mut driver = Driver::load(Guest::new(description), method);
        driver.guest.host.map(DATA, 0x2_0000);
        driver.guest.host.map(RESULTS, 0x1000);
        for (round, length) in [1024, 64, 1, 4096, 9000, 32_000].into_iter().enumerate() {
            let (sender, receiver) = (round % 2, 2 + round % 2);
            let sent = pages(DATA, 0, length);
            let received = pages(DATA + 0x1_0000, 0, length);
            let data = pattern(length as usize, round as u32 + 1);
            scatter(&mut driver.guest.host, &sent, &data);
            driver.guest.host.put(RESULTS, &[0; 0x1000]);
            let firsts = [driver.begin(receiver, &received, RESULTS), driver.begin(sender, &sent, 0x1234)];
            let mut vectors = std::mem::take(&mut driver.guest.host.interrupts);
            vectors.sort_unstable();
            if method == Method::Msix {
                assert_eq!(vectors, [sender as u16, receiver as u16]);
            }
            for (engine, first) in [receiver, sender].into_iter().zip(firsts) {
                if method == Method::Msix {
                    driver.guest.host.interrupts.push(engine as u16);
                }
                driver.serve(engine, sent.len() as u32);
                driver.end(engine, first, sent.len() as u64);
            }
            let results: Vec<_> = (0..received.len() as u64)
                .map(|index| {
                    let at = RESULTS + 32 * index;
                    (driver.guest.host.get_word(at), driver.guest.host.get_word(at + 4))
                })
                .collect();
            let total: u32 = results.iter().map(|(_, length)| length).sum();
            assert_eq!(u64::from(total), length);
            let last = results.len() - 1;
            for (index, (status, _)) in results.iter().enumerate() {
                assert_eq!(*status, 0x52B4_0000 | u32::from(index == last), "the last one has the end");
            }
            assert!(gather(&mut driver.guest.host, &received) == data, "{length} bytes by {method:?}");
        }
        driver.unload();
    }
}
