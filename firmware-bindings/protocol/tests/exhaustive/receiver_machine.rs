//! Receiving end of a search: the receiver, its memory and its application.

use fpga_firmware::event::{EventKind, NackReason};
use fpga_firmware::ids::{Incarnation, TransferId};
use fpga_firmware::wire::{Arrived, Common, Control, Flags};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{Output, Receiver};
use fpga_protocol::sender::Notify;
use fpga_registers::CardAddr;

use crate::exhaustive::case::{Case, LAST, PACKET, TransferName, WirePacket, base, byte};
use crate::exhaustive::common::{self, BASE, KEY, Memory, RECEIVER, SENDER};
use crate::exhaustive::machine::{Machine, Reaction, Stimulus};

/// Progress of one transfer, as observed from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Progress {
    /// Written packets of the transfer, one bit each.
    written: u16,
    /// Completed segments, one bit each.
    complete: u8,
    expired: u8,
    /// Registered segments, one bit each.
    registered: u8,
    notices: u8,
}

/// The receiver, its observed outputs, and the owner of each part of memory.
#[derive(Clone, Hash)]
pub(crate) struct ReceiverMachine {
    receiver: Receiver,
    due: Option<Nanos>,
    /// By incarnation, then by transfer.
    told: Vec<Progress>,
    /// By packet: the range that a short last packet covers, and the rest.
    memory: Vec<[Option<TransferName>; 2]>,
}

impl ReceiverMachine {
    pub(crate) fn new(case: &Case) -> Self {
        let transfers = usize::try_from(case.incarnations() * case.transfers).unwrap();
        let places = usize::try_from(case.all_packets() + case.transfers).unwrap();
        Self {
            receiver: common::receiver(case.receiver()),
            due: None,
            told: vec![Progress::default(); transfers],
            memory: vec![[None; 2]; places],
        }
    }

    fn progress(&mut self, case: &Case, (incarnation, transfer): TransferName) -> &mut Progress {
        let at = usize::try_from((incarnation - 1) * case.transfers + transfer).unwrap();
        &mut self.told[at]
    }

    /// Whether its sender may complete a transfer: the receiver's application was notified, or is about to be.
    pub(crate) fn has_all(&self, case: &Case, (incarnation, transfer): TransferName) -> bool {
        let at = usize::try_from((incarnation - 1) * case.transfers + transfer).unwrap();
        let progress = self.told[at];
        match case.notify {
            Notify::Receiver => progress.notices == 1,
            _ => u32::from(progress.written).count_ones() == case.all_packets(),
        }
    }

    /// Whether data of a later incarnation than `incarnation` was written.
    pub(crate) fn has_later(&self, case: &Case, incarnation: u32) -> bool {
        let later = self.told.iter().skip((incarnation * case.transfers) as usize);
        later.into_iter().any(|progress| progress.written != 0)
    }

    /// Whether no state remains, and the application was notified correctly: once of each complete transfer, and of the expiry of the
    /// others.
    pub(crate) fn is_clean(&self, case: &Case) -> bool {
        let receiver = &self.receiver;
        let left = (receiver.registry_occupancy(), receiver.escape_occupancy());
        let records = (receiver.transfers_in_progress(), receiver.tombstones());
        let all = (1u32 << case.all_packets()) - 1;
        left == (0, 0)
            && records == (0, 0)
            && self.told.iter().all(|progress| {
                let written = u32::from(progress.written);
                // Each operation that was registered has ended, by completion or by expiry.
                progress.notices == u8::from(written == all)
                    && progress.registered == progress.complete ^ progress.expired
            })
    }

    /// Whether the memory of `name` holds only bytes of transfers of its incarnation.
    pub(crate) fn is_whole(&self, case: &Case, name: TransferName) -> bool {
        is_whole(&self.memory, case, name)
    }

    /// Records the owners of written bytes, which the byte values identify.
    fn written(&mut self, case: &Case, memory: &Memory, moved: &mut Reaction) {
        for (address, bytes) in &memory.writes {
            let mut all = (1..=case.incarnations())
                .flat_map(|incarnation| (0..case.transfers).map(move |n| (incarnation, n)));
            let owner = all.find(|name| {
                address.checked_sub(base(*name)).is_some_and(|offset| {
                    offset + bytes.len() as u64 <= case.length()
                        && bytes.iter().zip(offset..).all(|(found, at)| *found == byte(*name, at))
                })
            });
            let Some(name) = owner else {
                moved.faults.bad_writes += 1;
                continue;
            };
            let packet = (address - base(name)) / PACKET;
            let progress = self.progress(case, name);
            let segment = packet / u64::from(case.packets);
            let over = progress.written >> packet & 1 != 0 || progress.complete >> segment & 1 != 0;
            progress.written |= 1 << packet;
            let place = usize::try_from((address - BASE) / PACKET).unwrap();
            let pieces = if bytes.len() as u64 == LAST { 1 } else { 2 };
            let mut stale = false;
            for owner in &mut self.memory[place][..pieces] {
                // Bytes of an earlier incarnation must not overwrite those of a later one.
                stale |= owner.is_some_and(|owner| owner.0 > name.0);
                *owner = Some(name);
            }
            moved.faults.bad_writes += usize::from(over || stale);
        }
    }

    fn outputs(&mut self, case: &Case, before: &[[Option<TransferName>; 2]], moved: &mut Reaction) {
        while let Some(output) = self.receiver.poll_output().copied() {
            match output {
                Output::Send(Control::Ack(ack)) => {
                    let (name, segment) =
                        ((case.incarnation(ack.peer_incarnation), ack.transfer.get()), ack.segment);
                    moved.sent.push(WirePacket::Ack { name, segment, op: ack.op.get(), tries: ack.tries });
                }
                // The sender has ended: its answers change nothing.
                Output::Send(Control::Nack(nack)) if nack.reason == NackReason::Superseded => {
                    let newest = case.incarnation(Incarnation::new(nack.op.get()));
                    moved.faults.hangs += usize::from(newest <= case.incarnation(nack.peer_incarnation));
                }
                Output::Send(Control::Nack(nack)) => {
                    let (name, segment) =
                        ((case.incarnation(nack.peer_incarnation), nack.transfer.get()), nack.segment);
                    let passing = [NackReason::Busy, NackReason::EscapeFull, NackReason::Trimmed];
                    assert!(passing.contains(&nack.reason), "{}", nack.reason);
                    moved.sent.push(WirePacket::Nack {
                        name,
                        segment,
                        op: nack.op.get(),
                        tries: nack.tries,
                        reason: nack.reason,
                    });
                }
                Output::Send(Control::SegmentDone(done)) => {
                    let name = (case.incarnation(done.peer_incarnation), done.transfer.get());
                    moved.sent.push(WirePacket::Done { name, segment: done.segment });
                }
                Output::Event(event) => {
                    let name = (case.incarnation(event.incarnation), event.transfer.get());
                    let bit = 1u8.checked_shl(event.segment).unwrap_or(0);
                    match event.kind {
                        EventKind::Completed => {
                            let progress = self.progress(case, name);
                            moved.faults.false_completions += usize::from(progress.complete & bit != 0);
                            progress.complete |= bit;
                        }
                        EventKind::Registered => self.progress(case, name).registered |= bit,
                        EventKind::Expired => self.progress(case, name).expired |= bit,
                        EventKind::Notice => {
                            self.progress(case, name).notices += 1;
                            // The notice of a transfer that waited for ARRIVED comes before the first write of a later incarnation.
                            let is_whole = self.is_whole(case, name) || is_whole(before, case, name);
                            moved.faults.false_completions += usize::from(!is_whole);
                        }
                        EventKind::Fault => moved.faults.bad_writes += 1,
                        _ => {}
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Segments complete exactly when all their packets are in memory; transfers are notified once, and not before.
    fn judge(&self, case: &Case, moved: &mut Reaction) {
        let segment = (1u16 << case.packets) - 1;
        for progress in &self.told {
            let mut complete = 0;
            for n in 0..case.segments {
                let bits = progress.written >> (n * u32::from(case.packets)) & segment;
                complete |= u8::from(bits == segment) << n;
            }
            let all = u32::from(complete).count_ones() == case.segments;
            let told = match case.notify {
                Notify::Receiver => progress.notices == u8::from(all),
                _ => progress.notices <= u8::from(all),
            };
            moved.faults.false_completions += usize::from(progress.complete != complete || !told);
        }
    }
}

impl Machine for ReceiverMachine {
    fn due(&self) -> Option<Nanos> {
        self.due
    }

    fn happen(&mut self, case: &Case, now: Nanos, happening: Stimulus) -> Reaction {
        let mut moved = Reaction::default();
        let mut memory = Memory::default();
        match happening {
            Stimulus::Arrives(WirePacket::Arrival { name }) => {
                let arrived = Arrived {
                    common: Common {
                        source: SENDER,
                        destination: RECEIVER,
                        incarnation: case.number(name.0),
                        flags: Flags::NONE,
                        path: 0,
                    },
                    transfer: TransferId::new(name.1),
                    address: CardAddr::new(base(name)),
                    length: case.length(),
                    key: KEY,
                };
                self.receiver.handle_arrived(now, &arrived);
            }
            Stimulus::Arrives(flight) => {
                if let Some((header, payload)) = case.packet(flight) {
                    if header.common.flags.contains(Flags::TRIMMED) {
                        self.receiver.handle_trimmed(now, &header, &mut memory);
                    } else {
                        let would_write = self.receiver.would_write(&header, payload.len());
                        self.receiver.handle_packet(now, &header, &payload, &mut memory);
                        let one_write = [(header.address.get(), payload)];
                        assert!(!would_write || memory.writes == one_write, "announced: one write");
                    }
                }
            }
            Stimulus::TimeOut => self.receiver.handle_timeout(now),
            Stimulus::Begins | Stimulus::Restarts | Stimulus::Dies => {}
        }
        let before = self.memory.clone();
        self.written(case, &memory, &mut moved);
        self.outputs(case, &before, &mut moved);
        self.judge(case, &mut moved);
        self.due = self.receiver.poll_timeout();
        moved
    }
}

/// Whether the memory of `name` holds only bytes of transfers of its incarnation.
fn is_whole(memory: &[[Option<TransferName>; 2]], case: &Case, name: TransferName) -> bool {
    let packets = usize::try_from(case.all_packets()).unwrap();
    let places = memory.iter().skip(usize::try_from(name.1).unwrap()).take(packets);
    places.enumerate().all(|(n, place)| {
        let pieces = if n + 1 == packets { 1 } else { 2 };
        place[..pieces].iter().all(|owner| owner.is_some_and(|owner| owner.0 == name.0))
    })
}
