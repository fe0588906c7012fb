//! The copy engine's chain that fills transmit windows: slots in card memory, each with a window's two descriptors, in a circle.
//!
//! | Slot in card memory | Bytes |
//! |---|---|
//! | payload descriptor | 64 |
//! | commit descriptor | 64 |
//! | commit word, on a line of its own (builds without DRE need the alignment) | 64 |
//!
//! A slot that is not in use is a guard: its descriptors are marked complete, by the engine that has done them or from the beginning.
//! There is always one more slot than can be in use. An engine that is started once too often ([`is_overrun`]) halts there instead of copying something old, and goes on after a reset.

use fpga_protocol::sender::{Transmit, TransmitKind};
use fpga_registers::CardAddr;
use fpga_registers::cdma::descriptor::LengthError;
use fpga_registers::cdma::{Cdmasr, SgDescriptor, SgStatus};

use crate::cdma::{CHAIN_CONTROL, Cdma, CdmaError, is_overrun};
use crate::ni::TransmitWindows;

/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = 192;
/// The commit descriptor's place in a slot.
const COMMIT_DESCRIPTOR: u64 = 64;
/// The commit word's place in a slot.
const COMMIT_WORD: u64 = 128;

/// The chain. Slots are numbered as they are used, without end: number `n` lies in place `n` modulo their count.
#[derive(Debug)]
pub(super) struct Chain {
    cdma: Cdma,
    first: CardAddr,
    count: u32,
    /// Slots that the engine was told of.
    posted: u64,
    /// How often the engine ran past its tail.
    overruns: u64,
    /// The slot at which it stood then.
    overrun_at: Option<u64>,
}

impl Chain {
    /// A chain of `count` slots from `first` on, in which the engine is at rest. `highest`: the last address that it will name.
    pub(super) fn begin(
        cdma: Cdma,
        first: CardAddr,
        count: u32,
        highest: CardAddr,
    ) -> Result<Self, CdmaError> {
        cdma.begin_chain(first, highest)?;
        Ok(Self { cdma, first, count, posted: 0, overruns: 0, overrun_at: None })
    }

    pub(super) const fn first(&self) -> CardAddr {
        self.first
    }

    pub(super) const fn overruns(&self) -> u64 {
        self.overruns
    }

    pub(super) fn status(&self) -> Result<Cdmasr, CdmaError> {
        self.cdma.status()
    }

    fn slot(&self, place: u32) -> CardAddr {
        CardAddr::new(self.first.get() + u64::from(place) * SLOT_BYTES as u64)
    }

    /// Where slot `number` lies.
    pub(super) fn address(&self, number: u64) -> CardAddr {
        self.slot(self.place(number))
    }

    /// Which of the places slot `number` takes.
    pub(super) fn place(&self, number: u64) -> u32 {
        u32::try_from(number % u64::from(self.count.max(1))).unwrap_or(0)
    }

    /// The contents of all slots as guards, for card memory from [`first`](Self::first) on.
    pub(super) fn guards(&self, into: &mut [u8]) {
        let mark = SgStatus::new().with_completed(true).into_bits();
        for (place, slot) in (0..self.count).zip(into.chunks_exact_mut(SLOT_BYTES)) {
            slot.fill(0);
            let links = [
                CardAddr::new(self.slot(place).get() + COMMIT_DESCRIPTOR),
                self.address(u64::from(place) + 1),
            ];
            for (descriptor, next) in slot.chunks_exact_mut(64).zip(links) {
                let (low, high) = next.to_low_high();
                let words = [low, high, 0, 0, 0, 0, 0, mark];
                for (bytes, word) in descriptor.chunks_exact_mut(4).zip(words) {
                    bytes.copy_from_slice(&word.to_le_bytes());
                }
            }
        }
    }

    /// Bytes of all slots.
    pub(super) const fn bytes(&self) -> usize {
        self.count as usize * SLOT_BYTES
    }

    /// Writes slot `number` to `into`: `transmit`'s payload into `window`, then the commit word.
    pub(super) fn encode(
        &self,
        number: u64,
        transmit: &Transmit,
        windows: &TransmitWindows,
        window: u32,
        sequence: u32,
        into: &mut [u8],
    ) -> Result<(), LengthError> {
        let at = self.address(number);
        let commit_descriptor = CardAddr::new(at.get() + COMMIT_DESCRIPTOR);
        let commit_word = CardAddr::new(at.get() + COMMIT_WORD);
        let payload_place = windows.address(window, windows.payload_offset);
        let commit_place = windows.address(window, windows.commit_offset);
        // A notice or a command has no payload, but a descriptor of no bytes is an error (PG034): it copies the commit word to where it does
        // no harm.
        let (source, bytes) = match transmit.kind {
            TransmitKind::Data => (transmit.source, transmit.payload_length),
            _ => (commit_word, 4),
        };
        let payload = SgDescriptor::new(source, payload_place, bytes)?.with_next(commit_descriptor);
        let commit = SgDescriptor::new(commit_word, commit_place, 4)?.with_next(self.address(number + 1));
        let words = payload.to_words().into_iter().chain(commit.to_words()).chain([sequence]);
        for (place, word) in into.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        Ok(())
    }

    /// `count` slots more are in card memory: lets the engine run up to the last of them.
    pub(super) fn post(&mut self, count: u64) -> Result<(), CdmaError> {
        self.posted += count;
        self.tail().map_or(Ok(()), |tail| self.cdma.advance(tail))
    }

    /// The last descriptor of the last slot that the engine was told of.
    fn tail(&self) -> Option<CardAddr> {
        let last = self.posted.checked_sub(1)?;
        Some(CardAddr::new(self.address(last).get() + COMMIT_DESCRIPTOR))
    }

    /// The engine has halted with `status`, and `filled` slots were given to the card or are on their way there. If it did for
    /// having been started once too often, it is reset and goes on; whether it was that.
    ///
    /// It may have got further than it was told: into slots that had arrived meanwhile, which are as they should be.
    pub(super) fn resume(&mut self, status: Cdmasr, filled: u64) -> Result<bool, CdmaError> {
        if !is_overrun(status) {
            return Ok(false);
        }
        let current = self.cdma.current_low()?;
        let low = |address: CardAddr| address.to_low_high().0;
        let places = (0..self.count).map(|place| (place, self.slot(place)));
        let found = places.flat_map(|(place, at)| [(place, at, 0), (place, at, COMMIT_DESCRIPTOR)]).find_map(
            |(place, at, offset)| {
                let at = CardAddr::new(at.get() + offset);
                (low(at) == current).then_some((place, at, offset != 0))
            },
        );
        let Some((place, at, inside)) = found else { return Ok(false) };
        // All before it is done. It stands at a slot in use only if it is in the middle of it, whose end had not arrived.
        let behind = (u64::from(self.place(filled)) + u64::from(self.count) - u64::from(place))
            % u64::from(self.count);
        let behind = if inside && behind == 0 { u64::from(self.count) } else { behind };
        let Some(number) = filled.checked_sub(behind) else { return Ok(false) };
        if self.overrun_at.replace(number) == Some(number) {
            // Twice at one place is something else.
            return Ok(false);
        }
        self.overruns += 1;
        let tail = self.tail().filter(|_| number < self.posted);
        self.cdma.resume_chain(at, tail, CHAIN_CONTROL)?;
        Ok(true)
    }
}
