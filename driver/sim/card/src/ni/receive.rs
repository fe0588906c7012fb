//! Packets from the network: to the receivers of the active schemes, to the host as events, or answered here.

use fpga_firmware::event::{Event, EventKind, FaultReason};
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber};
use fpga_firmware::wire::{
    Ack, AnswerBody, AnswerNotes, CRC_LENGTH, Common, Control, Data, DataHeader, Flags, Hello, LinkPacket,
    Message, MessageAnswer, MessageBytes, Nack, NackReason, Packet, SegmentDone, SegmentName, WIRE_VERSION,
    WireError, checksum_apart,
};
use fpga_protocol::receiver::{MemoryFault, ReceiveMemory, SegmentKey};
use fpga_protocol::time::Nanos;
use fpga_registers::CardAddr;
use fpga_registers::invariant::DebugExpect as _;

use super::faults::Fault;
use super::scheme::ActiveSchemes;
use super::settings::Settings;
use super::{Ni, ReceivePort};
use crate::fault_log::{FaultKind, FaultLog, Unit};
use crate::host::FrameSource;
use crate::space::CardSpace;

impl Ni {
    pub(crate) fn prefetches(&self) -> bool {
        match &self.exchange {
            ActiveSchemes::Registry(receiver) | ActiveSchemes::Both(receiver, _) => receiver.prefetches(),
            ActiveSchemes::Messages(_) => false,
        }
    }

    /// Announces a frame that will arrive soon.
    pub(crate) fn expect(&self, frame: &[u8]) {
        if let ActiveSchemes::Registry(receiver) | ActiveSchemes::Both(receiver, _) = &self.exchange
            && let Some(SegmentName { source, incarnation, transfer, segment }) = SegmentName::peek(frame)
        {
            receiver.prefetch_entry(&SegmentKey { source, incarnation, transfer, segment });
        }
    }

    /// Processes a frame from the network. Returns the number of frames sent in answer.
    pub(crate) fn receive(
        &mut self,
        now: Nanos,
        frame: &[u8],
        space: &mut CardSpace,
        log: &mut FaultLog,
    ) -> u64 {
        self.now = now;
        if !self.enabled() {
            return 0;
        }
        self.received = self.received.wrapping_add(1);
        let packet = match Packet::parse(frame) {
            Ok(packet) => packet,
            Err(error) if error.is_damage() => {
                self.bad_crc = self.bad_crc.wrapping_add(1);
                return 0;
            }
            // Of a kind to which a receiver has no answer: as lost.
            Err(WireError::Flags { found, .. }) if found.contains(Flags::TRIMMED) => {
                self.trimmed = self.trimmed.wrapping_add(1);
                return 0;
            }
            Err(_) => {
                self.bad_packet = self.bad_packet.wrapping_add(1);
                let fault = Fault::new(FaultReason::BadPacket);
                log.push(FaultKind::Network, Unit::Ni, 0, fault.reason.value().into());
                self.fault(fault, None);
                return 0;
            }
        };
        let for_us = packet.common().destination.get() == self.settings.node_id;
        match (packet, &mut self.exchange) {
            (Packet::Data(data), ActiveSchemes::Registry(receiver)) => {
                receiver.set_notice_slots(self.events.notice_slots());
                receiver.handle_data(now, &data, &mut ReceivePort { space, written: &mut self.written });
            }
            (Packet::Data(data), ActiveSchemes::Both(receiver, node)) => {
                // Either receiver may know the newest incarnation of a node.
                let Common { source, incarnation, .. } = data.header().common;
                if let Some(newest) = node.receiver.superseding(source, incarnation).filter(|_| for_us) {
                    let answer = refuse_segment(&data, Some(newest), &self.settings);
                    return u64::from(self.frames.send_control(&answer).is_ok());
                }
                let slots = self.events.notice_slots();
                receiver.set_notice_slots(slots.saturating_sub(node.receiver.reserved_notices()));
                receiver.handle_data(now, &data, &mut ReceivePort { space, written: &mut self.written });
                self.exchange.note_high_water();
            }
            (
                Packet::Control(Control::Arrived(arrived)),
                ActiveSchemes::Registry(receiver) | ActiveSchemes::Both(receiver, _),
            ) => {
                receiver.handle_arrived(now, &arrived);
            }
            _ if !for_us => {
                self.bad_packet = self.bad_packet.wrapping_add(1);
                return 0;
            }
            (Packet::Message(bytes), ActiveSchemes::Messages(_) | ActiveSchemes::Both(..)) => {
                if let Some(sent) = self.receive_message(now, &bytes, space) {
                    return sent;
                }
            }
            (Packet::Link(packet), _) => return self.handle_link_packet(&packet),
            (Packet::Message(bytes), ActiveSchemes::Registry(_)) => {
                self.bad_packet = self.bad_packet.wrapping_add(1);
                let answer = bytes.read().ok().and_then(|(message, _)| {
                    nack_message(&message, AnswerBody::Refused(NackReason::Scheme, 0), &self.settings)
                });
                return answer.map_or(0, |answer| {
                    u64::from(self.frames.send(0, |buffer| answer.encode(&[], buffer)).is_ok())
                });
            }
            (Packet::Data(data), ActiveSchemes::Messages(_)) => {
                self.bad_packet = self.bad_packet.wrapping_add(1);
                let answer = refuse_segment(&data, None, &self.settings);
                return u64::from(self.frames.send_control(&answer).is_ok());
            }
            (Packet::Control(Control::Arrived(_)), ActiveSchemes::Messages(_)) => {
                self.bad_packet = self.bad_packet.wrapping_add(1);
                return 0;
            }
            (Packet::Control(control), _) => return self.answer(&control),
        }
        self.drain().frames
    }

    /// Processes a packet with payload whose bytes others may change. Returns the number of frames sent in answer; `None`, without any
    /// effect, for a packet that must be copied first.
    ///
    /// Addresses, lengths and keys come from the copy of the header alone. The checksum covers it and the payload as it is in card memory:
    /// a change after that has no effect. If it is wrong, the packet counts as damaged, and the bytes belong to a packet that has not arrived.
    pub(crate) fn receive_in_place(
        &mut self,
        now: Nanos,
        frame: &impl FrameSource,
        space: &mut CardSpace,
    ) -> Option<u64> {
        if !self.enabled() {
            return None;
        }
        let header = DataHeader::parse_apart(frame.start(), frame.length())?;
        let head = frame.start().get(..header.length())?;
        let length = frame.length().checked_sub(head.len() + CRC_LENGTH)?;
        let slots = self.events.notice_slots();
        let receiver = match &mut self.exchange {
            ActiveSchemes::Registry(receiver) => {
                receiver.set_notice_slots(slots);
                receiver
            }
            ActiveSchemes::Both(receiver, node) => {
                let Common { source, incarnation, .. } = header.common;
                if node.receiver.superseding(source, incarnation).is_some() {
                    return None;
                }
                receiver.set_notice_slots(slots.saturating_sub(node.receiver.reserved_notices()));
                receiver
            }
            ActiveSchemes::Messages(_) => return None,
        };
        if !receiver.would_write(&header, length) {
            return None;
        }
        let payload = space.plain_range(header.address, length)?;
        let mut checksum = [0; CRC_LENGTH];
        if !frame.read(head.len(), payload) || !frame.read(head.len() + length, &mut checksum) {
            return None;
        }
        self.now = now;
        self.received = self.received.wrapping_add(1);
        if checksum_apart(head, payload) != checksum {
            self.bad_crc = self.bad_crc.wrapping_add(1);
            return Some(0);
        }
        let mut written = Written { at: header.address, bytes: 0 };
        receiver.handle_packet(now, &header, payload, &mut written);
        self.written += written.bytes;
        self.exchange.note_high_water();
        Some(self.drain().frames)
    }

    /// Processes a packet of a message scheme for this node. Returns the number of frames sent if it is refused.
    fn receive_message(
        &mut self,
        now: Nanos,
        bytes: &MessageBytes<'_>,
        space: &mut CardSpace,
    ) -> Option<u64> {
        let (message, payload) = bytes.read().debug_expect("parsed before").ok()?;
        if let ActiveSchemes::Both(receiver, _) = &self.exchange
            && let Common { source, incarnation, .. } = message.common()
            && let Some(newest) = receiver.superseding(source, incarnation)
            && let Some(answer) = nack_message(&message, AnswerBody::Superseded(newest), &self.settings)
        {
            return Some(u64::from(self.frames.send(0, |buffer| answer.encode(&[], buffer)).is_ok()));
        }
        self.exchange.move_access_table();
        let reserved = match &self.exchange {
            ActiveSchemes::Both(receiver, _) => receiver.reserved_notices(),
            _ => 0,
        };
        let slots = self.events.notice_slots().saturating_sub(reserved);
        if let Some(node) = self.exchange.messages_mut() {
            node.receiver.set_notice_slots(slots);
            node.receive(now, &message, payload, &mut ReceivePort { space, written: &mut self.written });
        }
        self.exchange.move_access_table();
        self.exchange.note_high_water();
        None
    }

    /// Processes a link packet for this node: by the message sender, by the host, which is the sender of the registry, or by the
    /// controller. Returns the number of frames sent.
    fn handle_link_packet(&mut self, packet: &LinkPacket) -> u64 {
        if !self.settings.link.is_on() {
            return 0;
        }
        let answer = self.link.receive(self.now, packet, &self.settings);
        if let Some(node) = self.exchange.messages_mut() {
            node.handle_link_packet(self.now, packet);
        }
        if self.exchange.windows_may_hold().0
            && let Some(event) = Event::of_link(packet)
        {
            // Any node may send such packets: they get the share of events that may be dropped.
            if self.events.has_table_credit() {
                self.events.post(self.now, event);
            } else {
                self.link.counts.events_dropped = self.link.counts.events_dropped.wrapping_add(1);
            }
        }
        let sent = answer.is_some_and(|answer| self.frames.send(0, |buffer| answer.encode(buffer)).is_ok());
        u64::from(sent)
    }

    /// Turns a packet for the sending side into an event; answers a hello.
    fn answer(&mut self, control: &Control) -> u64 {
        let Common { source: from, incarnation, .. } = control.common();
        let ours = Incarnation::new(self.settings.incarnation);
        let (index, count) = match control {
            Control::Ack(ack) => AnswerNotes::from(ack).event_fields(),
            Control::Nack(nack) => AnswerNotes::from(nack).event_fields(),
            _ => (0, 0),
        };
        let event = match control {
            // An answer to a packet of an earlier incarnation, or to none: no operation waits for it.
            Control::Ack(Ack { peer_incarnation, .. })
            | Control::Nack(Nack { peer_incarnation, .. })
            | Control::SegmentDone(SegmentDone { peer_incarnation, .. })
                if *peer_incarnation != ours =>
            {
                return 0;
            }
            Control::Ack(ack) => Event {
                node: from,
                incarnation: ack.peer_incarnation,
                transfer: ack.transfer,
                segment: ack.segment,
                op: ack.op,
                tries: ack.tries,
                generation: incarnation.get(),
                index,
                count,
                ..Event::new(EventKind::Ack)
            },
            Control::Nack(nack) => Event {
                reason: nack.reason.value(),
                node: from,
                incarnation: nack.peer_incarnation,
                transfer: nack.transfer,
                segment: nack.segment,
                op: nack.op,
                tries: nack.tries,
                generation: incarnation.get(),
                index,
                count,
                ..Event::new(EventKind::Nack)
            },
            Control::SegmentDone(done) => Event {
                node: from,
                incarnation: done.peer_incarnation,
                transfer: done.transfer,
                segment: done.segment,
                generation: incarnation.get(),
                ..Event::new(EventKind::SegmentDone)
            },
            Control::Hello(_) => {
                let reply = Control::HelloReply(self.hello(from));
                return u64::from(self.frames.send_control(&reply).is_ok());
            }
            // A reply without request, or a duplicate by the network.
            Control::HelloReply(_) if self.asked == 0 => return 0,
            Control::HelloReply(hello) => Event {
                node: from,
                generation: incarnation.get(),
                op: OpNumber::new(hello.wire_version.into()),
                tries: hello.packet_size_log2,
                index: hello.mask_bits,
                count: hello.capabilities.bits(),
                segment: hello.schemes,
                length: hello.registry_timeout_us.into(),
                ..Event::new(EventKind::Hello)
            },
            // Handled by the receiver.
            Control::Arrived(_) => return 0,
        };
        if event.kind == EventKind::Hello {
            self.asked -= 1;
        }
        self.events.post(self.now, event);
        0
    }

    /// Capabilities of this node, addressed to node `to`.
    fn hello(&self, to: NodeId) -> Hello {
        Hello {
            common: Common {
                source: NodeId::new(self.settings.node_id),
                destination: to,
                incarnation: Incarnation::new(self.settings.incarnation),
                flags: Flags::NONE,
                path: 0,
            },
            packet_size_log2: self.build.packet_size_log2,
            wire_version: WIRE_VERSION,
            mask_bits: self.build.mask_bits,
            capabilities: self.build.capabilities,
            schemes: self.settings.active_schemes(),
            registry_timeout_us: self.settings.registry_timeout_us,
        }
    }

    /// Asks a node for its capabilities. Returns `false` if the request is not possible now. If the frame queue is full, the request is
    /// lost, as it may be in the network.
    pub(super) fn ask(&mut self, node: u32) -> bool {
        let node = NodeId::new(node);
        if node == NodeId::ANY || !self.enabled() {
            return false;
        }
        let hello = Control::Hello(self.hello(node));
        if !self.frames.has_space() {
            return true;
        }
        self.asked = self.asked.saturating_add(1);
        self.frames.send_control(&hello).is_ok()
    }
}

/// Memory with a payload that has been written to `at` already.
struct Written {
    at: CardAddr,
    /// Bytes of the payload, once its write was accepted.
    bytes: u64,
}

impl ReceiveMemory for Written {
    fn write(&mut self, at: CardAddr, bytes: &[u8]) -> Result<(), MemoryFault> {
        let length = bytes.len() as u64;
        if at != self.at || self.bytes != 0 {
            return Err(MemoryFault { address: at, length });
        }
        self.bytes = length;
        Ok(())
    }
}

/// Refusal of a message scheme's packet, by an interface with the registry scheme or with this answer; `None` if no answer is expected.
fn nack_message(message: &Message, answer: AnswerBody, settings: &Settings) -> Option<Message> {
    let (number, body) = match message {
        Message::Request(request) => (request.message, answer),
        Message::Data(header) => (header.message, answer),
        Message::Read(request) => (request.read, AnswerBody::ReadRefused(NackReason::Scheme)),
        Message::Answer(_) => return None,
    };
    let Common { source, incarnation, .. } = message.common();
    Some(Message::Answer(MessageAnswer {
        common: answering(source, settings),
        message: number,
        peer_incarnation: incarnation,
        context: None,
        senders: 0,
        body,
    }))
}

/// Refusal of a packet of the registry scheme: the interface has message schemes only, or knows the later incarnation `newest`.
fn refuse_segment(data: &Data<'_>, newest: Option<Incarnation>, settings: &Settings) -> Control {
    let header = data.header();
    Control::Nack(Nack {
        common: answering(header.common.source, settings),
        op: newest.map_or(header.op, |newest| OpNumber::new(newest.get())),
        transfer: header.transfer,
        segment: header.segment,
        peer_incarnation: header.common.incarnation,
        tries: header.tries,
        delay: 0,
        reason: if newest.is_some() { NackReason::Superseded } else { NackReason::Scheme },
    })
}

fn answering(to: NodeId, settings: &Settings) -> Common {
    Common {
        source: NodeId::new(settings.node_id),
        destination: to,
        incarnation: Incarnation::new(settings.incarnation),
        flags: Flags::NONE,
        path: 0,
    }
}
