//! CDMA chain that fills transmit windows: a circular list of slots in card memory, each with the two descriptors of a window.
//!
//! | Slot in card memory | Bytes |
//! |---|---|
//! | payload descriptor | 64 |
//! | commit descriptor | 64 |
//! | commit word, on a 64-byte line of its own (builds without DRE need the alignment) | 64 |
//!
//! A slot that is not in use is a guard: its descriptors are marked complete, either initially or by the engine. There is always one more
//! slot than can be in use. An engine that is started once too often ([`Cdmasr::is_overrun`]) halts at a guard instead of copying old data, and
//! continues after a reset.

use fpga_registers::CardAddr;
use fpga_registers::cdma::descriptor::LengthError;
use fpga_registers::cdma::{Cdmasr, SgDescriptor, SgStatus};

use fpga_driver::extension::TransmitWindows;
use fpga_driver::{Cdma, CdmaError, Error};

/// Size of a slot in bytes.
pub(super) const SLOT_BYTES: usize = 192;
/// Offset of the commit descriptor in a slot.
const COMMIT_DESCRIPTOR: u64 = 64;
/// Offset of the commit word in a slot.
const COMMIT_WORD: u64 = 128;

/// Payload of a window.
#[derive(Clone, Copy, Debug)]
pub(super) enum SlotPayload {
    /// None: a notice or a command.
    None,
    /// In card memory.
    Memory {
        /// First address.
        source: CardAddr,
        /// Length in bytes.
        length: u32,
    },
    /// In the window already.
    InWindow,
}

/// CDMA chain. Slots are numbered consecutively as they are used: number `n` is at position `n` modulo their count.
#[derive(Debug)]
pub(super) struct Chain {
    cdma: Cdma,
    first: CardAddr,
    count: u32,
    /// Number of slots posted to the engine.
    posted: u64,
    /// Number of times that the engine ran past its tail.
    overruns: u64,
    /// Slot at which the engine last ran past its tail.
    overrun_at: Option<u64>,
}

impl Chain {
    /// Creates a chain of `count` slots from `first` and starts the engine, idle. `highest` is the last address that the chain will use.
    pub(super) fn begin(
        cdma: Cdma,
        first: CardAddr,
        count: u32,
        highest: CardAddr,
    ) -> Result<Self, Error<CdmaError>> {
        cdma.begin_chain(first, highest)?;
        Ok(Self { cdma, first, count, posted: 0, overruns: 0, overrun_at: None })
    }

    pub(super) const fn first(&self) -> CardAddr {
        self.first
    }

    pub(super) const fn overruns(&self) -> u64 {
        self.overruns
    }

    pub(super) fn status(&self) -> Result<Cdmasr, Error<CdmaError>> {
        self.cdma.status()
    }

    fn slot(&self, place: u32) -> CardAddr {
        CardAddr::new(self.first.get() + u64::from(place) * SLOT_BYTES as u64)
    }

    /// Returns the card address of slot `number`.
    pub(super) fn address(&self, number: u64) -> CardAddr {
        self.slot(self.place(number))
    }

    /// Returns the position of slot `number` in the circle.
    pub(super) fn place(&self, number: u64) -> u32 {
        u32::try_from(number % u64::from(self.count.max(1))).unwrap_or(0)
    }

    /// Fills `into` with all slots as guards, for card memory from [`first`](Self::first).
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

    /// Returns the size of all slots in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.count as usize * SLOT_BYTES
    }

    /// Encodes slot `number` into `into`: `payload` goes to `window`, then the commit word.
    pub(super) fn encode(
        &self,
        number: u64,
        payload: SlotPayload,
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
        // A descriptor of 0 bytes is an error (PG034): without a payload to copy, it copies the commit word to where it has no effect. Without a
        // payload that is the payload area; with one in the window, the header's sequence number, which is the same word.
        let (source, to, bytes) = match payload {
            SlotPayload::Memory { source, length } => (source, payload_place, length),
            SlotPayload::InWindow => (commit_word, windows.address(window, 0), 4),
            SlotPayload::None => (commit_word, payload_place, 4),
        };
        let payload = SgDescriptor::new(source, to, bytes)?.with_next(commit_descriptor);
        let commit = SgDescriptor::new(commit_word, commit_place, 4)?.with_next(self.address(number + 1));
        let words = payload.to_words().into_iter().chain(commit.to_words()).chain([sequence]);
        debug_assert!(into.len() >= SLOT_BYTES, "space for both descriptors and the commit word");
        for (place, word) in into.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        Ok(())
    }

    /// Posts `count` more slots that have arrived in card memory: lets the engine run up to the last of them.
    pub(super) fn post(&mut self, count: u64) -> Result<(), Error<CdmaError>> {
        self.posted += count;
        self.tail().map_or(Ok(()), |tail| self.cdma.extend_chain(tail))
    }

    /// Returns the address of the last descriptor of the last posted slot.
    fn tail(&self) -> Option<CardAddr> {
        let last = self.posted.checked_sub(1)?;
        Some(CardAddr::new(self.address(last).get() + COMMIT_DESCRIPTOR))
    }

    /// Handles an engine that halted with `status` while `filled` slots were posted or in flight. If it halted because it was started once
    /// too often, resets and resumes it, and returns true.
    ///
    /// The engine may have run past the posted slots, into slots that had arrived meanwhile; these are valid.
    pub(super) fn resume(&mut self, status: Cdmasr, filled: u64) -> Result<bool, Error<CdmaError>> {
        if !status.is_overrun() {
            return Ok(false);
        }
        let current = self.cdma.chain_position()?;
        let low = |address: CardAddr| address.to_low_high().0;
        let places = (0..self.count).map(|place| (place, self.slot(place)));
        let found = places.flat_map(|(place, at)| [(place, at, 0), (place, at, COMMIT_DESCRIPTOR)]).find_map(
            |(place, at, offset)| {
                let at = CardAddr::new(at.get() + offset);
                (low(at) == current).then_some((place, at, offset != 0))
            },
        );
        let Some((place, at, inside)) = found else { return Ok(false) };
        // All slots before it are complete. The engine stands at a slot in use only in the middle of it, if the end of the slot had not
        // arrived.
        let behind = (u64::from(self.place(filled)) + u64::from(self.count) - u64::from(place))
            % u64::from(self.count);
        let behind = if inside && behind == 0 { u64::from(self.count) } else { behind };
        let Some(number) = filled.checked_sub(behind) else { return Ok(false) };
        if self.overrun_at.replace(number) == Some(number) {
            // Twice at the same slot is a different fault.
            return Ok(false);
        }
        self.overruns += 1;
        let tail = self.tail().filter(|_| number < self.posted);
        self.cdma.restart_chain(at, tail)?;
        Ok(true)
    }
}
