//! A host for register-level tests: sparse memory with holes and permissions, and a list of interrupts.

use fpga_card::{Card, CardDescription, DmaFault, DmaSpace, ErrorMessage, HostPort, Interrupt};
use fpga_protocol::time::Nanos;
use fpga_registers::{CardAddr, Iova};
use std::collections::BTreeMap;

pub(crate) const USER: u8 = 0;
pub(crate) const DMA: u8 = 1;
pub(crate) const BYPASS: u8 = 2;

/// Magic, and the control bits of a descriptor.
pub(crate) const MAGIC: u32 = 0xAD4B_0000;
pub(crate) const STOP: u32 = 1;
pub(crate) const COMPLETED: u32 = 2;

/// Host memory: ranges that the card may read, each with a flag for write permission.
#[derive(Default)]
pub(crate) struct Host {
    pub(crate) ranges: BTreeMap<u64, (Vec<u8>, bool)>,
    /// Vectors of MSI-X messages.
    pub(crate) interrupts: Vec<u16>,
    /// MSI messages.
    pub(crate) messages: Vec<u16>,
    /// Level of the legacy line, and number of its rises.
    pub(crate) line: bool,
    pub(crate) rises: usize,
    pub(crate) errors: Vec<ErrorMessage>,
    /// Addresses and lengths of the card's reads, in order.
    pub(crate) reads: Vec<(u64, usize)>,
    /// Addresses and lengths of the card's writes, in order.
    pub(crate) writes: Vec<(u64, usize)>,
}

impl Host {
    pub(crate) fn map(&mut self, at: u64, length: usize) {
        self.ranges.insert(at, (vec![0; length], true));
    }

    pub(crate) fn map_read_only(&mut self, at: u64, length: usize) {
        self.ranges.insert(at, (vec![0; length], false));
    }

    fn byte(&mut self, at: u64) -> Option<(&mut u8, bool)> {
        let (start, (bytes, writable)) = self.ranges.range_mut(..=at).next_back()?;
        let byte = bytes.get_mut(usize::try_from(at - start).ok()?)?;
        Some((byte, *writable))
    }

    fn part(&mut self, at: u64) -> Option<(&mut [u8], bool)> {
        let (start, (bytes, writable)) = self.ranges.range_mut(..=at).next_back()?;
        let rest = bytes.get_mut(usize::try_from(at - start).ok()?..)?;
        if rest.is_empty() { None } else { Some((rest, *writable)) }
    }

    pub(crate) fn put(&mut self, at: u64, bytes: &[u8]) {
        for (index, new) in bytes.iter().enumerate() {
            *self.byte(at + index as u64).expect("mapped").0 = *new;
        }
    }

    pub(crate) fn get(&mut self, at: u64, length: usize) -> Vec<u8> {
        (0..length).map(|index| *self.byte(at + index as u64).expect("mapped").0).collect()
    }

    pub(crate) fn get_word(&mut self, at: u64) -> u32 {
        u32::from_le_bytes(self.get(at, 4).try_into().expect("four bytes"))
    }

    /// Writes an XDMA descriptor at `at`: control, length, source, destination, next.
    pub(crate) fn descriptor(
        &mut self,
        at: u64,
        control: u32,
        length: u32,
        source: u64,
        destination: u64,
        next: u64,
    ) {
        let mut bytes = Vec::new();
        bytes.extend(control.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.extend(source.to_le_bytes());
        bytes.extend(destination.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        self.put(at, &bytes);
    }
}

impl DmaSpace for Host {
    fn read(&mut self, at: Iova, into: &mut [u8]) -> Result<(), DmaFault> {
        self.reads.push((at.get(), into.len()));
        let mut done = 0;
        while done < into.len() {
            let address = at.get().wrapping_add(done as u64);
            let (from, _) = self.part(address).ok_or(DmaFault { at: Iova::new(address), write: false })?;
            let count = from.len().min(into.len() - done);
            into[done..done + count].copy_from_slice(&from[..count]);
            done += count;
        }
        Ok(())
    }

    fn write(&mut self, at: Iova, from: &[u8]) -> Result<(), DmaFault> {
        self.writes.push((at.get(), from.len()));
        let mut done = 0;
        while done < from.len() {
            let address = at.get().wrapping_add(done as u64);
            let fault = DmaFault { at: Iova::new(address), write: true };
            let (into, writable) = self.part(address).ok_or(fault)?;
            if !writable {
                return Err(fault);
            }
            let count = into.len().min(from.len() - done);
            into[..count].copy_from_slice(&from[done..done + count]);
            done += count;
        }
        Ok(())
    }
}

impl HostPort for Host {
    fn interrupt(&mut self, interrupt: Interrupt) {
        match interrupt {
            Interrupt::Msix(vector) => self.interrupts.push(vector),
            Interrupt::Msi(message) => self.messages.push(message),
            Interrupt::Line(asserted) => {
                assert_ne!(asserted, self.line, "the line is reported when it changes");
                self.line = asserted;
                self.rises += usize::from(asserted);
            }
            other => panic!("{other:?} is new"),
        }
    }

    fn error(&mut self, message: ErrorMessage) {
        self.errors.push(message);
    }
}

/// A card and its host, set up like a kernel and a driver would: decoding, bus master and MSI-X on.
pub(crate) struct CardTestbed {
    pub(crate) card: Card,
    pub(crate) host: Host,
    pub(crate) now: u64,
}

pub(crate) fn small() -> CardDescription {
    let mut description = CardDescription::default();
    description.memory.size = 64 << 20;
    description
}

impl CardTestbed {
    pub(crate) fn new() -> Self {
        Self::with(small())
    }

    pub(crate) fn with(description: CardDescription) -> Self {
        let mut card = Card::new(description).expect("valid");
        card.set_command(true, true);
        card.enable_msix(32);
        let mut host = Host::default();
        host.map(0x10_0000, 0x10_0000);
        Self { card, host, now: 0 }
    }

    pub(crate) fn write(&mut self, bar: u8, at: u64, value: u32) {
        self.card.bar_write(bar, at, &value.to_le_bytes(), &mut self.host);
    }

    pub(crate) fn read(&mut self, bar: u8, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.card.bar_read(bar, at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    pub(crate) fn step(&mut self) -> bool {
        self.now += 10;
        self.card.step(Nanos::new(self.now), &mut self.host)
    }

    /// Steps until no work remains.
    pub(crate) fn run(&mut self) {
        for _ in 0..1_000_000 {
            if !self.step() {
                return;
            }
        }
        panic!("the card never became idle");
    }

    pub(crate) fn memory(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.card.peek(CardAddr::new(at), &mut bytes).expect("card memory");
        bytes
    }

    pub(crate) fn poke(&mut self, at: u64, bytes: &[u8]) {
        self.card.poke(CardAddr::new(at), bytes).expect("card memory");
    }

    /// Sets the first descriptor, adjacency, then control of a channel (`base` 0x0000 + n * 0x100 or 0x1000 + n * 0x100).
    pub(crate) fn start(&mut self, base: u64, first: u64, adjacent: u32, control: u32) {
        self.write(DMA, base + 0x4080, first as u32);
        self.write(DMA, base + 0x4084, (first >> 32) as u32);
        self.write(DMA, base + 0x4088, adjacent);
        self.write(DMA, base + 0x04, control);
    }
}

/// A recognisable byte pattern.
pub(crate) fn pattern(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        })
        .collect()
}
