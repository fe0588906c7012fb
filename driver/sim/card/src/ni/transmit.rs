//! Transmit windows: commit, check, segmentation into packets, sending.

use super::faults::Fault;
use super::frames::FrameQueue;
use super::link::LinkCounts;
use crate::host::{FrameParts, HostPort};
use crate::space::{COMMIT_OFFSET, CardSpace, PAYLOAD_OFFSET};
use fpga_firmware::event::FaultReason;
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber};
use fpga_firmware::window::{HEADER_LENGTH, WindowError, WindowHeader, WindowKind};
use fpga_firmware::wire::{Control, START_HEADER_LENGTH};
use fpga_registers::bytes::u32_at;
use fpga_registers::cast::low32;
use std::collections::VecDeque;

/// Window whose packets are being sent.
#[derive(Debug)]
struct ActiveWindow {
    window: u8,
    header: WindowHeader,
    next: u16,
}

/// Result of one step of the transmitter.
pub(super) enum TransmitStep {
    /// Nothing to do.
    Idle,
    /// One packet was sent; more follow.
    More,
    /// The window's last packet was sent; the window can be filled again.
    Freed(u8),
    /// The window is invalid; it can be filled again.
    Refused(u8, Fault),
    /// The window holds a command (a transfer for the card to execute); the window can be filled again.
    Command(u8, WindowHeader),
}

/// Committed windows, in order.
#[derive(Debug)]
pub(super) struct Transmit {
    queue: VecDeque<u8>,
    busy: u32,
    active: Option<ActiveWindow>,
    packet_size_log2: u8,
    payload_size: u64,
    count: u8,
    freed: u32,
}

impl Transmit {
    pub(super) fn new(count: u8, packet_size_log2: u8, payload_size: u64) -> Self {
        Self {
            queue: VecDeque::with_capacity(32),
            busy: 0,
            active: None,
            packet_size_log2,
            payload_size,
            count,
            freed: 0,
        }
    }

    pub(super) fn reset(&mut self) {
        self.queue.clear();
        self.active = None;
        (self.busy, self.freed) = (0, 0);
    }

    /// Value of WINDOW_FREE.
    pub(super) fn free_windows(&self) -> u32 {
        let all = 1_u64.checked_shl(self.count.into()).map_or(u32::MAX, |end| low32(end.wrapping_sub(1)));
        all & !self.busy
    }

    pub(super) const fn transmitting(&self) -> bool {
        self.busy != 0
    }

    /// Returns the number of windows freed since reset.
    pub(super) const fn freed(&self) -> u32 {
        self.freed
    }

    /// Queues the windows whose commit word was written; calls `refuse` for those that are being sent already.
    pub(super) fn commit(&mut self, committed: u32, space: &CardSpace, mut refuse: impl FnMut(u8)) {
        for window in (0..self.count).filter(|window| committed >> window & 1 != 0) {
            // Clearing the word (writing zero) is not a commit.
            let word = space.window(window.into()).and_then(commit_word);
            if word.is_none_or(|word| word == 0) {
                continue;
            }
            if self.busy >> window & 1 != 0 {
                refuse(window);
            } else {
                self.busy |= 1 << window;
                self.queue.push_back(window);
            }
        }
    }

    fn free(&mut self, window: u8) {
        self.busy &= !(1 << window);
        self.active = None;
        self.freed = self.freed.wrapping_add(1);
    }

    /// Sends one packet, by `network` if it takes frames at once. Windows may hold packets of `segments` and, where the interface executes transfers itself, `commands`.
    pub(super) fn step(
        &mut self,
        space: &CardSpace,
        frames: &mut FrameQueue,
        counts: &mut LinkCounts,
        (source, incarnation): (NodeId, Incarnation),
        (segments, commands): (bool, bool),
        network: Option<&mut (dyn HostPort + '_)>,
    ) -> TransmitStep {
        if self.busy == 0 || !frames.has_space() {
            return TransmitStep::Idle;
        }
        if self.active.is_none() {
            let Some(window) = self.queue.pop_front() else { return TransmitStep::Idle };
            match self.check(window, space) {
                Ok(header) if commands && header.kind == WindowKind::Command => {
                    self.free(window);
                    return TransmitStep::Command(window, header);
                }
                Ok(header) if !segments || header.kind == WindowKind::Command => {
                    self.free(window);
                    return TransmitStep::Refused(window, bad_header(window, &header));
                }
                Ok(header) => self.active = Some(ActiveWindow { window, header, next: 0 }),
                Err(fault) => {
                    self.free(window);
                    return TransmitStep::Refused(window, fault);
                }
            }
        }
        let Some(ActiveWindow { window, header, next }) = &mut self.active else { return TransmitStep::Idle };
        let window = *window;
        let sent = match header.kind {
            WindowKind::Arrival => header
                .arrival(source, incarnation)
                .is_some_and(|arrived| frames.send_control(&Control::Arrived(arrived)).is_ok()),
            WindowKind::LinkInquiry | WindowKind::LinkActive => {
                header.link_packet(source, incarnation).is_some_and(|packet| {
                    counts.note_sent(&packet.word);
                    frames.send(0, |buffer| packet.encode(buffer)).is_ok()
                })
            }
            _ => send_packet(header, *next, window, space, frames, (source, incarnation), network).is_some(),
        };
        if !sent {
            let fault = bad_header(window, header);
            self.free(window);
            return TransmitStep::Refused(window, fault);
        }
        *next += 1;
        if *next < header.packet_count {
            return TransmitStep::More;
        }
        self.free(window);
        TransmitStep::Freed(window)
    }

    /// Checks and returns the header that `window`'s commit word refers to.
    fn check(&self, window: u8, space: &CardSpace) -> Result<WindowHeader, Fault> {
        let empty = Fault { window: window.into(), ..Fault::new(FaultReason::BadHeader) };
        let ram = space.window(window.into()).ok_or(empty)?;
        let commit = commit_word(ram).ok_or(empty)?;
        let torn = |detail| Fault { window: window.into(), detail, ..Fault::new(FaultReason::TornHeader) };
        // The sequence number is checked first: a torn header may contain anything.
        let sequence = u32_at(ram, 0).ok_or(empty)?;
        if sequence != commit {
            return Err(torn(commit));
        }
        let (header, _) = WindowHeader::decode(ram).map_err(|error| match error {
            WindowError::Torn { commit, .. } => torn(commit),
            _ => empty,
        })?;
        let fits = header.kind != WindowKind::Data
            || header.packet_size_log2 <= self.packet_size_log2
                && u64::from(header.payload_length()) <= self.payload_size;
        if fits { Ok(header) } else { Err(bad_header(window, &header)) }
    }
}

fn bad_header(window: u8, header: &WindowHeader) -> Fault {
    Fault {
        window: window.into(),
        node: header.destination.get(),
        transfer: header.transfer.get(),
        segment: header.segment,
        ..Fault::new(FaultReason::BadHeader)
    }
}

fn send_packet(
    header: &WindowHeader,
    index: u16,
    window: u8,
    space: &CardSpace,
    frames: &mut FrameQueue,
    (source, incarnation): (NodeId, Incarnation),
    network: Option<&mut (dyn HostPort + '_)>,
) -> Option<()> {
    let ram = space.window(window.into())?;
    let op = OpNumber::new(u32_at(ram, HEADER_LENGTH + 4 * usize::from(index))?);
    let path = if header.path_list {
        *ram.get(header.path_list_offset() + usize::from(index))?
    } else {
        header.path
    };
    let packet = header.packet(index, op, path, source, incarnation)?;
    let range = header.payload_range(index)?;
    let start = usize::try_from(PAYLOAD_OFFSET).ok()?;
    let from = start.checked_add(usize::try_from(range.start).ok()?)?;
    let to = start.checked_add(usize::try_from(range.end).ok()?)?;
    let payload = ram.get(from..to)?;
    let destination = packet.common.destination;
    // A frame does not overtake those that wait in buffers, and one for this card itself does not leave.
    if !frames.is_waiting()
        && destination != source
        && let Some(sink) = network.and_then(|network| network.frame_sink(destination))
    {
        let mut head = [0; START_HEADER_LENGTH];
        let (length, checksum) = packet.encode_apart(payload, &mut head).ok()?;
        sink.send(&FrameParts { header: head.get(..length)?, payload, checksum });
        frames.note_sent();
        return Some(());
    }
    frames.send(payload.len(), |buffer| packet.encode(payload, buffer)).ok()
}

fn commit_word(ram: &[u8]) -> Option<u32> {
    u32_at(ram, usize::try_from(COMMIT_OFFSET).ok()?)
}
