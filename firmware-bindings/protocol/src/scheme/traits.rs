//! Common traits of every scheme's sender and receiver, including the registry's.
//!
//! Packets pass as values. A caller with a wire encodes and parses them ([`fpga_firmware::wire`]); a simulation passes
//! them on directly.

use fpga_firmware::event::Event;
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_firmware::wire::{
    AnswerNotes, Arrived, CRC_LENGTH, Common, Control, DataHeader, Flags, Message, StartFields,
};
use fpga_registers::CardAddr;

use crate::feedback::LinkPacket;
use crate::feedback::flow::{FlowConfig, FlowControl};
use crate::receiver::{self, AccessTable, ReceiveMemory};
use crate::sender::{self, Command, CommandCompletion, CommandError, SendTicket, Transmit, TransmitKind};
use crate::time::Nanos;

/// Packet without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Header {
    /// DATA or START of the registry scheme.
    Data(DataHeader),
    /// Any other packet of the registry scheme.
    Control(Control),
    /// A packet of another scheme.
    Message(Message),
    /// Link feedback packet.
    Link(LinkPacket),
}

impl Header {
    /// Returns the common header.
    #[must_use]
    pub const fn common(&self) -> Common {
        match self {
            Self::Data(header) => header.common,
            Self::Control(control) => control.common(),
            Self::Message(message) => message.common(),
            Self::Link(packet) => packet.common,
        }
    }

    const fn common_mut(&mut self) -> &mut Common {
        match self {
            Self::Data(header) => &mut header.common,
            Self::Control(control) => control.common_mut(),
            Self::Message(message) => message.common_mut(),
            Self::Link(packet) => &mut packet.common,
        }
    }

    /// Marks the packet as a switch with a long queue does.
    pub const fn mark(&mut self) {
        let common = self.common_mut();
        common.flags = common.flags.with(Flags::MARKED);
    }

    /// Returns the length on the wire in bytes, without payload, with checksum.
    #[must_use]
    pub const fn length(&self) -> usize {
        match self {
            Self::Data(header) => header.length() + CRC_LENGTH,
            Self::Control(control) => control.length(),
            Self::Message(message) => message.length(),
            Self::Link(packet) => packet.length(),
        }
    }

    /// Whether it carries payload.
    #[must_use]
    pub const fn is_data(&self) -> bool {
        matches!(self, Self::Data(_) | Self::Message(Message::Data(_)))
    }
}

/// Packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutgoingPacket {
    /// Header.
    pub header: Header,
    /// Card address of the payload.
    pub source: CardAddr,
    /// Payload bytes.
    pub payload: u32,
}

/// Output of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send this packet.
    Send(Header),
    /// Report this event to the host.
    Event(Event),
}

/// Sender of a node. The order of calls is that of [`crate::sender`].
pub trait SchemeSender {
    /// Queues a transfer.
    ///
    /// # Errors
    /// See [`CommandError`]; the sender is unchanged.
    fn submit(&mut self, now: Nanos, command: Command) -> Result<SendTicket, CommandError>;

    /// Processes a packet for the sender; any other is ignored.
    fn handle_packet(&mut self, now: Nanos, header: &Header);

    /// Processes expired timers.
    fn handle_timeout(&mut self, now: Nanos);

    /// Returns the time of the next call of [`Self::handle_timeout`].
    fn poll_timeout(&self) -> Option<Nanos>;

    /// Returns the next packet to send.
    fn poll_packet(&mut self, now: Nanos) -> Option<OutgoingPacket>;

    /// Returns the next completion.
    fn poll_completion(&mut self) -> Option<CommandCompletion>;
}

/// Receiver of a node. The order of calls is that of [`crate::receiver`].
pub trait SchemeReceiver {
    /// Processes a packet for the receiver; any other is ignored.
    fn handle_packet(
        &mut self,
        now: Nanos,
        header: &Header,
        payload: &[u8],
        memory: &mut (impl ReceiveMemory + ?Sized),
    );

    /// Processes expired timers.
    fn handle_timeout(&mut self, now: Nanos);

    /// Returns the time of the next call of [`Self::handle_timeout`].
    fn poll_timeout(&self) -> Option<Nanos>;

    /// Returns the next output.
    fn poll_action(&mut self) -> Option<Action>;

    /// Returns the memory windows of this node.
    fn access_mut(&mut self) -> &mut AccessTable;
}

/// Sender of the registry scheme, one packet at a time: it cuts transmit windows as a card's NI does. Retransmissions leave before the
/// rest of a window, as from an NI that has the op table itself.
#[derive(Clone, Debug)]
pub struct RegistrySender {
    sender: sender::Sender,
    node: NodeId,
    window: Option<Transmit>,
    /// Number of packets of the window that were sent.
    sent: u16,
}

impl RegistrySender {
    /// Creates a sender for `node`.
    #[must_use]
    pub fn new(node: NodeId, sender: sender::Sender) -> Self {
        Self { sender: sender.report_departures(), node, window: None, sent: 0 }
    }

    /// Enables flow control by link feedback.
    pub fn control_flow(&mut self, config: FlowConfig) {
        self.sender.control_flow(self.node, config);
    }

    /// Like [`sender::Sender::flow_mut`].
    pub fn flow_mut(&mut self) -> Option<&mut FlowControl> {
        self.sender.flow_mut()
    }

    /// Returns the wrapped sender.
    #[must_use]
    pub const fn inner(&self) -> &sender::Sender {
        &self.sender
    }
}

/// Returns packet `number` of a transmit window, counted from 0, as the NI of `source` creates it; `None` beyond the
/// last.
#[must_use]
pub fn packet_of(
    transmit: &Transmit,
    source: NodeId,
    incarnation: Incarnation,
    number: u16,
) -> Option<OutgoingPacket> {
    let flags = transmit.notice_flags();
    let common = Common { source, destination: transmit.node, incarnation, flags, path: transmit.path };
    if let TransmitKind::Link(word) = transmit.kind {
        let header = Header::Link(LinkPacket { common: Common { flags: Flags::NONE, ..common }, word });
        return (number == 0).then_some(OutgoingPacket { header, source: transmit.source, payload: 0 });
    }
    if transmit.kind == TransmitKind::Arrival {
        let arrived = Arrived {
            common: Common { flags: Flags::NONE, ..common },
            transfer: transmit.transfer,
            address: transmit.transfer_base,
            length: transmit.transfer_length,
            key: transmit.key,
        };
        let header = Header::Control(Control::Arrived(arrived));
        return (number == 0).then_some(OutgoingPacket { header, source: transmit.source, payload: 0 });
    }
    let op = *transmit.ops.as_slice().get(usize::from(number))?;
    let size = 1_u32.checked_shl(transmit.packet_size_log2.into())?;
    let before = u32::from(number).saturating_mul(size);
    let payload = transmit.payload_length.saturating_sub(before).min(size);
    let index = transmit.first_packet.saturating_add(number);
    let start = StartFields {
        base: transmit.segment_base,
        segment_length: transmit.segment_length,
        packets: transmit.segment_packets,
        transfer_base: transmit.transfer_base,
        transfer_length: transmit.transfer_length,
    };
    let common = Common { path: transmit.ops.path(number), ..common };
    let header = DataHeader {
        common,
        transfer: transmit.transfer,
        oldest_live: transmit.oldest_live,
        segment: transmit.segment,
        segment_count: transmit.segment_count,
        address: transmit.segment_base.checked_add(u64::from(index) * u64::from(size))?,
        key: transmit.key,
        op,
        tries: transmit.tries,
        packet_size_log2: transmit.packet_size_log2,
        start: (index == 0).then_some(start),
    };
    let source = transmit.source.checked_add(before.into())?;
    Some(OutgoingPacket { header: Header::Data(header), source, payload })
}

impl SchemeSender for RegistrySender {
    fn submit(&mut self, now: Nanos, command: Command) -> Result<SendTicket, CommandError> {
        self.sender.submit(now, command)
    }

    fn handle_packet(&mut self, now: Nanos, header: &Header) {
        if let Header::Link(packet) = header
            && packet.common.destination == self.node
        {
            self.sender.handle_link_packet(now, packet);
        }
        let Header::Control(control) = header else { return };
        let Common { source: node, incarnation: peer_incarnation, .. } = control.common();
        let answer = |incarnation, (transfer, segment), op, tries| sender::Answer {
            node,
            incarnation,
            op,
            transfer,
            segment,
            tries,
            peer_incarnation,
            notes: AnswerNotes::default(),
        };
        match control {
            Control::Ack(ack) => {
                let about = (ack.transfer, ack.segment);
                let answer = answer(ack.peer_incarnation, about, ack.op, ack.tries);
                self.sender.handle_ack(now, sender::Answer { notes: ack.into(), ..answer });
            }
            Control::Nack(nack) => {
                let about = (nack.transfer, nack.segment);
                let answer = answer(nack.peer_incarnation, about, nack.op, nack.tries);
                let answer = sender::Answer { notes: nack.into(), ..answer };
                self.sender.handle_nack(now, answer, nack.reason);
            }
            Control::SegmentDone(done) => {
                let about = (done.transfer, done.segment);
                let answer = answer(done.peer_incarnation, about, fpga_firmware::OpNumber::new(0), 0);
                self.sender.handle_segment_done(now, answer);
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Nanos) {
        self.sender.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.sender.poll_timeout()
    }

    fn poll_packet(&mut self, now: Nanos) -> Option<OutgoingPacket> {
        loop {
            if let Some(transmit) = &self.window {
                if let Some(again) = self.sender.poll_retransmission(now) {
                    return packet_of(&again, self.node, self.sender.incarnation(), 0);
                }
                if let Some(op) =
                    transmit.ops.as_slice().get(usize::from(self.sent)).filter(|_| transmit.tries == 1)
                {
                    self.sender.departed(now, *op);
                }
                let departure = packet_of(transmit, self.node, self.sender.incarnation(), self.sent);
                self.sent += 1;
                if departure.is_some() {
                    return departure;
                }
                self.window = None;
            }
            self.window = Some(self.sender.poll_transmit(now)?);
            self.sent = 0;
        }
    }

    fn poll_completion(&mut self) -> Option<CommandCompletion> {
        self.sender.poll_completion()
    }
}

impl SchemeReceiver for receiver::Receiver {
    fn handle_packet(
        &mut self,
        now: Nanos,
        header: &Header,
        payload: &[u8],
        memory: &mut (impl ReceiveMemory + ?Sized),
    ) {
        match header {
            Header::Data(header) => Self::handle_packet(self, now, header, payload, memory),
            Header::Control(Control::Arrived(arrived)) => self.handle_arrived(now, arrived),
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Nanos) {
        Self::handle_timeout(self, now);
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        Self::poll_timeout(self)
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.poll_output().map(|output| match *output {
            receiver::Output::Send(control) => Action::Send(Header::Control(control)),
            receiver::Output::Event(event) => Action::Event(event),
        })
    }

    fn access_mut(&mut self) -> &mut AccessTable {
        Self::access_mut(self)
    }
}
