//! Copy stage of a host's card: a segment is in a transmit window before its first packet leaves.

use std::collections::VecDeque;

use fpga_protocol::scheme::traits::{Header, OutgoingPacket};

use super::PICOS;
use crate::scenario::CopyStage;

/// Packets of one segment that share a transmit window.
#[derive(Debug, Default)]
struct StagedWindow {
    /// Time at which the copy ends, in picoseconds.
    ready: u64,
    packets: VecDeque<OutgoingPacket>,
}

/// Transmit windows of one host, oldest first, and its copy engine.
#[derive(Debug, Default)]
pub(super) struct Copying {
    windows: VecDeque<StagedWindow>,
    /// Time at which the copy engine becomes free, in picoseconds.
    free: u64,
    /// First packet of the next segment.
    held: Option<OutgoingPacket>,
}

/// Transfer and segment of a packet.
fn segment_of(packet: &OutgoingPacket) -> Option<(u32, u32)> {
    match packet.header {
        Header::Data(header) => Some((header.transfer.get(), header.segment)),
        _ => None,
    }
}

impl Copying {
    /// Starts the copies of segments while there is a free window and a packet to send. `next` returns the sender's next packet.
    pub(super) fn fill(
        &mut self,
        stage: &CopyStage,
        now: u64,
        mut next: impl FnMut() -> Option<OutgoingPacket>,
    ) {
        while self.windows.len() < stage.windows as usize {
            let Some(first) = self.held.take().or_else(&mut next) else { return };
            let mut packets = VecDeque::from([first]);
            while let Some(packet) = next() {
                if segment_of(&packet).is_none() || segment_of(&packet) != segment_of(&first) {
                    self.held = Some(packet);
                    break;
                }
                packets.push_back(packet);
            }
            let bytes = packets.iter().map(|packet| u64::from(packet.payload)).sum();
            let command = stage.command.get().saturating_mul(PICOS);
            let copy = command.saturating_add(stage.rate.time_of(bytes).get().saturating_mul(PICOS));
            self.free = self.free.max(now).saturating_add(copy);
            self.windows.push_back(StagedWindow { ready: self.free, packets });
        }
    }

    /// Takes the next packet whose segment is copied. The window is free when its last packet is taken.
    pub(super) fn take(&mut self, now: u64) -> Option<OutgoingPacket> {
        let window = self.windows.front_mut().filter(|window| window.ready <= now)?;
        let packet = window.packets.pop_front();
        if window.packets.is_empty() {
            self.windows.pop_front();
        }
        packet
    }

    /// Time at which the next packet can leave, in picoseconds; `None` without one.
    pub(super) fn ready(&self) -> Option<u64> {
        self.windows.front().map(|window| window.ready)
    }
}
