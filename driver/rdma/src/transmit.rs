//! Transmit path from a `Transmit` of the engine to packets: header blocks and descriptors by H2C, payload by the CDMA chain.
//!
//! A transmit uses one window (of the NI) and one chain slot (of the host): host staging memory for the header block and two CDMA
//! descriptors, and their place in card memory (module `chain`). Both belong to the card from the upload until the NI's window-free event,
//! which shows that the chain has passed the slot and the packets have left.

use fpga_driver::errors::{Cause, CauseClass};
use fpga_registers::invariant::DebugExpect as _;
use std::collections::VecDeque;

use fpga_firmware::event;
use fpga_firmware::generated::Flags;
use fpga_firmware::window::{self, CommandFields, LinkFields, WindowHeader, WindowKind};
use fpga_firmware::wire::{LinkFeedback as LinkWord, LinkLoad};
use fpga_pci::{DmaBuffer, RegisteredMemory, Waited};
use fpga_protocol::Nanos;
use fpga_protocol::sender::{Transmit, TransmitKind};
use fpga_registers::CardAddr;
use fpga_ring::cdma_ring::LENGTH_BITS;

use super::chain::{Chain, SLOT_BYTES, SlotPayload};
use super::host_source::HostSources;
use super::sending::SenderSet;
use super::{EndpointError, RESERVED_CARD_BYTES};
use fpga_driver::extension::TransmitWindows;
use fpga_driver::{Card, H2cChannel, MemoryHandle, NiInfo, Ticket, TransferFailed, WaitOptions};

/// Host staging memory per slot in bytes: the longest header block and a chain slot, on separate cache lines.
const STAGING_BYTES: usize = (window::MAX_HEADER_BLOCK + SLOT_BYTES).next_multiple_of(64);
/// Offset of the chain slot in its staging memory.
const STAGED_SLOT: usize = window::MAX_HEADER_BLOCK.next_multiple_of(64);
/// Time without a released window after which the CDMA engine's status is read, and interval of further reads, in nanoseconds.
const STALL_CHECK_NS: u64 = 10_000_000;
/// The same as [`Nanos`].
pub(super) const POLL_INTERVAL: Nanos = Nanos::new(STALL_CHECK_NS);
/// Time without a released window after which the network interface counts as stuck, in nanoseconds.
const STUCK_NS: u64 = 2_000_000_000;
/// Maximum time that counts for a pause between two polls, in nanoseconds.
const PAUSE_NS: u64 = 200_000_000;

/// Slot in flight to the card.
#[derive(Debug)]
struct StagedSlot {
    /// Ticket of the last of its transfers: when it has ended, all have.
    ticket: Ticket,
    /// Number of its transfers.
    transfers: u64,
}

/// Windows, chain, and the channel that feeds them.
#[derive(Debug)]
pub(super) struct TransmitPath {
    uploads: VecDeque<StagedSlot>,
    pub(super) h2c: H2cChannel,
    /// Host memory from which payload is sent.
    pub(super) sources: HostSources,
    chain: Chain,
    /// Staging memory of all slots. The channel owns it as well, and quarantines it if its engine may still read it.
    staging: RegisteredMemory,
    staged: MemoryHandle,
    windows: TransmitWindows,
    /// Bit n: window n is free for the host to fill.
    free: u32,
    /// Chain slot of each window that the card holds.
    slot_of: [u32; 32],
    /// Bit n: the card holds chain slot n.
    busy: u64,
    sequence: u32,
    card: Card,
    /// Number of windows filled, which is the number of the next slot.
    filled: u64,
    /// Time of the last released window in nanoseconds, moved forward by the time without polls.
    last_progress: u64,
    /// Time of the last check of `last_progress`.
    watched: u64,
    /// Time of the last read of the CDMA engine's status.
    looked: u64,
    /// Commands to cancel that may still be on the way to the NI, each with the number of windows that were out at the request.
    cancels: Vec<(u32, u32)>,
    scratch: Box<[u8; STAGING_BYTES]>,
}

impl TransmitPath {
    pub(super) fn new(
        card: &Card,
        info: &NiInfo,
        mut h2c: H2cChannel,
        chain: CardAddr,
    ) -> Result<Self, EndpointError> {
        let windows = info.windows;
        check_windows(&windows).map_err(|reason| EndpointError::Windows { reason })?;
        if !info.memory.contains(chain, RESERVED_CARD_BYTES) || !chain.is_aligned_to(64) {
            return Err(EndpointError::Option {
                what: "the card address of the CDMA chain",
                found: chain.get(),
                expected: "64-byte aligned, inside card memory with 64 KiB behind it",
            });
        }
        // One more slot than can be in use, so that the engine's position is unambiguous.
        let slots = windows.count + 1;
        let staging = card.registered_memory(slots as usize * STAGING_BYTES)?;
        let staged = h2c.register_memory(staging.clone()).map_err(|refused| refused.error)?;
        let windows_end = windows.address(windows.count, 0);
        let chain = Chain::begin(card.cdma()?, chain, slots, windows_end.max(info.memory.last()))?;
        let mut guards = vec![0; chain.bytes()];
        chain.guards(&mut guards);
        let guards = card.buffer_from(&guards)?;
        let first = chain.first();
        let mut path = Self {
            uploads: VecDeque::with_capacity(windows.count as usize),
            staging,
            staged,
            h2c,
            sources: HostSources::default(),
            chain,
            windows,
            free: u32::MAX >> (32 - windows.count),
            slot_of: [0; 32],
            busy: 0,
            sequence: 0,
            card: card.clone(),
            filled: 0,
            last_progress: 0,
            watched: 0,
            looked: 0,
            cancels: Vec::new(),
            scratch: Box::new([0; STAGING_BYTES]),
        };
        path.write(guards, first, WaitOptions::default())?;
        Ok(path)
    }

    pub(super) const fn chain(&self) -> CardAddr {
        self.chain.first()
    }

    pub(super) const fn overruns(&self) -> u64 {
        self.chain.overruns()
    }

    pub(super) const fn filled(&self) -> u64 {
        self.filled
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.busy == 0
    }

    /// Returns whether header blocks are in flight, whose end only a poll shows.
    pub(super) fn is_uploading(&self) -> bool {
        !self.uploads.is_empty()
    }

    /// Fills windows as long as there is something to send and a free window, and moves uploads forward. Returns the amount of work done.
    pub(super) fn fill_windows(
        &mut self,
        now: Nanos,
        sender: &mut SenderSet,
    ) -> Result<usize, EndpointError> {
        let mut work = self.advance(now)?;
        // Three transfers per window and at most 32 windows, so the ring always has space.
        while self.free != 0 && self.busy & 1 << self.chain.place(self.filled) == 0 {
            let Some(transmit) = sender.poll_transmit(now) else { break };
            if self.busy == 0 {
                self.last_progress = now.get();
            }
            self.fill(&transmit)?;
            work += 1;
        }
        // Uploads that were submitted just now, or before.
        if work != 0 {
            work += self.advance(now)?;
        }
        if self.busy != 0 {
            self.watch(now)?;
        }
        Ok(work)
    }

    /// Processes finished uploads, and lets the chain run up to the last of them with a single tail write.
    fn advance(&mut self, now: Nanos) -> Result<usize, EndpointError> {
        self.h2c.poll()?;
        // A success is only counted. A transfer of the user may end here, after its call was cancelled.
        while let Some(done) = self.h2c.next_completion() {
            if let Err(fault) = done.outcome
                && self.is_upload(done.ticket)
            {
                return Err(EndpointError::Upload(*fault));
            }
        }
        let mut count = 0;
        while self.uploads.pop_front_if(|upload| self.h2c.has_ended(upload.ticket)).is_some() {
            count += 1;
        }
        if count != 0 {
            self.chain.post(count as u64)?;
            // The card can begin only now: the time before was the caller's.
            self.last_progress = now.get();
        }
        Ok(count)
    }

    /// Returns whether it is one of the transfers of a slot in flight.
    fn is_upload(&self, ticket: Ticket) -> bool {
        let before = |upload: &StagedSlot| upload.ticket.number().checked_sub(ticket.number());
        self.uploads.iter().any(|upload| before(upload).is_some_and(|before| before < upload.transfers))
    }

    fn fill(&mut self, transmit: &Transmit) -> Result<(), EndpointError> {
        let window = self.free.trailing_zeros();
        let slot = self.chain.place(self.filled);
        self.sequence = event::next_sequence(self.sequence);
        let header = header(transmit, self.sequence);
        let length = header
            .encode(transmit.ops.as_slice(), transmit.ops.paths(), &mut self.scratch[..])
            .map_err(|error| EndpointError::Header(Cause::new(CauseClass::Argument, None, error)))?;
        let too_long = |_| EndpointError::Windows { reason: "payload above the CDMA's limit" };
        let from_host = match transmit.kind {
            TransmitKind::Data => self.sources.find(transmit.source),
            _ => None,
        };
        let payload = match (&transmit.kind, from_host) {
            (TransmitKind::Data, None) => {
                SlotPayload::Memory { source: transmit.source, length: transmit.payload_length }
            }
            (TransmitKind::Data, Some(_)) => SlotPayload::InWindow,
            _ => SlotPayload::None,
        };
        let place =
            self.scratch.get_mut(STAGED_SLOT..).debug_expect("space for the slot").unwrap_or_default();
        self.chain
            .encode(self.filled, payload, &self.windows, window, self.sequence, place)
            .map_err(too_long)?;

        let offset = slot as usize * STAGING_BYTES;
        self.staging
            .memory()
            .write(offset, &self.scratch[..])
            .map_err(|error| EndpointError::Memory(error.into()))?;
        let window_address = self.windows.address(window, 0);
        self.h2c.submit_at(self.staged, offset, length, window_address)?;
        let mut transfers = 2;
        if let Some((memory, at)) = from_host {
            let bytes = usize::try_from(transmit.payload_length).unwrap_or(usize::MAX);
            let to = self.windows.address(window, self.windows.payload_offset);
            self.h2c.submit_at(memory, at, bytes, to)?;
            transfers = 3;
        }
        let slot_address = self.chain.address(self.filled);
        let ticket = self.h2c.submit_at(self.staged, offset + STAGED_SLOT, SLOT_BYTES, slot_address)?;

        self.uploads.push_back(StagedSlot { ticket, transfers });
        self.free &= !(1 << window);
        self.busy |= 1 << slot;
        if let Some(place) = self.slot_of.get_mut(window as usize).debug_expect("a free window exists") {
            *place = slot;
        }
        self.filled += 1;
        Ok(())
    }

    /// Notes a request to cancel command `number`, which overtakes the command if that is still on the way: the NI ignores it then.
    pub(super) fn note_cancel(&mut self, number: u32) {
        let out = self.busy.count_ones();
        if out != 0 {
            self.cancels.push((number, out));
        }
    }

    /// Repeats the requests to cancel after a window was released, each until all windows that were out before it have been released.
    pub(super) fn repeat_cancels(&mut self, mut request: impl FnMut(u32)) {
        self.cancels.retain_mut(|(number, out)| {
            request(*number);
            *out -= 1;
            *out != 0
        });
    }

    /// Handles a window that the NI has sent and released.
    pub(super) fn window_free(&mut self, index: u16, now: Nanos) -> Result<(), EndpointError> {
        let bit = 1u32.checked_shl(index.into()).unwrap_or(0);
        let out = (u32::MAX >> (32 - self.windows.count)) & !self.free;
        let Some(slot) = self.slot_of.get(usize::from(index)).filter(|_| out & bit != 0) else {
            return Err(EndpointError::WindowNotInFlight { index });
        };
        self.busy &= !(1 << slot);
        self.free |= bit;
        self.last_progress = now.get();
        Ok(())
    }

    /// Checks the CDMA engine while windows are outstanding.
    fn watch(&mut self, now: Nanos) -> Result<(), EndpointError> {
        // After a long time without polls this process may have been stopped, and a simulated card with it.
        let pause = now.get().saturating_sub(core::mem::replace(&mut self.watched, now.get()));
        let unseen = pause.saturating_sub(PAUSE_NS);
        self.last_progress = self.last_progress.saturating_add(unseen).min(now.get());
        let waited = now.get().saturating_sub(self.last_progress);
        if waited < STALL_CHECK_NS || now.get().saturating_sub(self.looked) < STALL_CHECK_NS {
            return Ok(());
        }
        self.looked = now.get();
        let status = self.chain.status()?;
        if status.has_error() {
            if self.chain.resume(status, self.filled)? {
                self.last_progress = now.get();
                return Ok(());
            }
            return Err(EndpointError::Chain { status });
        }
        if waited < STUCK_NS {
            return Ok(());
        }
        Err(EndpointError::WindowsStuck {
            outstanding: self.busy.count_ones(),
            waited: Waited::new(&**self.card.backend(), waited),
        })
    }

    /// Runs a transfer of the user on the endpoint's channel. Header blocks in flight continue.
    pub(super) fn write(
        &mut self,
        buffer: DmaBuffer,
        to: CardAddr,
        options: WaitOptions,
    ) -> Result<DmaBuffer, TransferFailed> {
        self.h2c.write_with(buffer, to, options)
    }
}

fn header(transmit: &Transmit, sequence: u32) -> WindowHeader {
    let mut flags = transmit.notice_flags();
    if transmit.silent {
        flags = flags.with(Flags::SILENT);
    }
    let mut link = LinkFields::NONE;
    let (kind, command) = match transmit.kind {
        TransmitKind::Data => (WindowKind::Data, CommandFields::NONE),
        TransmitKind::Command { number, priority, patience, scheme } => {
            (WindowKind::Command, CommandFields { number, priority, timeout_ns: patience.get(), scheme })
        }
        TransmitKind::Link(LinkWord::Active {
            receiver,
            state: LinkLoad { link: number, rate, queue },
            ..
        }) => {
            link = LinkFields { number, receiver: receiver.get(), rate, queue };
            (WindowKind::LinkActive, CommandFields::NONE)
        }
        TransmitKind::Link(LinkWord::Inquiry { number }) => {
            link.number = number;
            (WindowKind::LinkInquiry, CommandFields::NONE)
        }
        _ => (WindowKind::Arrival, CommandFields::NONE),
    };
    let flags = if matches!(transmit.kind, TransmitKind::Link(_)) { Flags::NONE } else { flags };
    WindowHeader {
        sequence,
        flags,
        destination: transmit.node,
        transfer: transmit.transfer,
        oldest_live: transmit.oldest_live,
        segment: transmit.segment,
        segment_count: transmit.segment_count,
        segment_length: transmit.segment_length,
        base: transmit.segment_base,
        key: transmit.key,
        transfer_base: transmit.transfer_base,
        transfer_length: transmit.transfer_length,
        first_packet: transmit.first_packet,
        packet_count: transmit.ops.len(),
        packet_size_log2: transmit.packet_size_log2,
        kind,
        segment_packets: transmit.segment_packets,
        tries: transmit.tries,
        path: transmit.path,
        path_list: transmit.ops.differ_in_path(),
        command,
        link,
    }
}

/// Checks all values from which addresses are computed, once: numbers from a device are not trusted.
fn check_windows(windows: &TransmitWindows) -> Result<(), &'static str> {
    let payload_end = u64::from(windows.payload_offset) + u64::from(windows.payload_size);
    let all = u64::from(windows.count) * u64::from(windows.stride);
    if windows.count == 0 {
        Err("there are none")
    } else if windows.payload_size == 0 || payload_end > u64::from(windows.stride) {
        Err("the payload does not fit into a window")
    } else if windows.payload_size >= 1 << LENGTH_BITS {
        Err("the payload is longer than one CDMA descriptor copies (23 bits)")
    } else if u64::from(windows.commit_offset) + 4 > u64::from(windows.stride) {
        Err("the commit word does not fit into a window")
    } else if (windows.payload_offset as usize) < window::MAX_HEADER_BLOCK {
        Err("the header block does not fit before the payload")
    } else if windows.base.checked_add(all).is_none() {
        Err("they leave the address space")
    } else {
        Ok(())
    }
}
