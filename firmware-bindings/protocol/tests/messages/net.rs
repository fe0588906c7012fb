//! Nodes with any scheme on one network of bytes: every packet is encoded, impaired, checked and parsed.

use fpga_firmware::NodeId;
use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::generated::Permissions;
use fpga_firmware::wire::{MAX_PACKET_LENGTH, Message, Packet};
use fpga_netmodel::{ImpairedLink, Impairments};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{MemoryFault, MemoryWindow, ReceiveMemory};
use fpga_protocol::scheme::messages::Reads;
use fpga_protocol::scheme::traits::{Action, Header, OutgoingPacket, SchemeReceiver, SchemeSender};
use fpga_protocol::sender::{Command, CommandCompletion, Notify};
use fpga_registers::CardAddr;

/// Size of a node's memory in bytes; the window covers all of it.
pub(crate) const MEMORY: usize = 1 << 16;
pub(crate) const KEY: u64 = 0x1234_5678_9abc_def0;

/// A node's memory.
pub(crate) struct Memory(pub(crate) Vec<u8>);

impl ReceiveMemory for Memory {
    fn write(&mut self, at: CardAddr, bytes: &[u8]) -> Result<(), MemoryFault> {
        let fault = MemoryFault { address: at, length: bytes.len() as u64 };
        let start = usize::try_from(at.get()).map_err(|_| fault)?;
        self.0.get_mut(start..start + bytes.len()).ok_or(fault)?.copy_from_slice(bytes);
        Ok(())
    }
}

pub(crate) struct Node<S, R> {
    pub(crate) sender: S,
    pub(crate) receiver: R,
    pub(crate) reads: Option<Reads>,
    pub(crate) memory: Memory,
    pub(crate) completions: Vec<CommandCompletion>,
    pub(crate) events: Vec<Event>,
}

impl<S: SchemeSender, R: SchemeReceiver> Node<S, R> {
    pub(crate) fn new(sender: S, mut receiver: R) -> Self {
        let window = MemoryWindow {
            source: NodeId::ANY,
            base: CardAddr::new(0),
            length: MEMORY as u64,
            key: KEY,
            permissions: Permissions::ALL,
        };
        receiver.access_mut().install(0, window).unwrap();
        let memory = Memory(vec![0; MEMORY]);
        Self { sender, receiver, reads: None, memory, completions: Vec::new(), events: Vec::new() }
    }

    pub(crate) fn notices(&self) -> usize {
        self.events.iter().filter(|event| event.kind == EventKind::Notice).count()
    }
}

/// Additional operations for reads, which only message schemes have.
pub(crate) trait ReadSupport {
    fn reads_packet(&mut self, now: Nanos, header: &Header);
    fn reads_timeout(&mut self, now: Nanos);
}

/// Two nodes, 1 and 2.
pub(crate) struct Net<S, R> {
    pub(crate) now: Nanos,
    pub(crate) nodes: [Node<S, R>; 2],
    /// Links to node 1 and to node 2.
    links: [ImpairedLink<Vec<u8>>; 2],
    pub(crate) damaged: u64,
}

pub(crate) const fn node_id(at: usize) -> NodeId {
    NodeId::new(if at == 0 { 1 } else { 2 })
}

pub(crate) fn write(node: usize, from: u64, to: u64, length: u64) -> Command {
    Command {
        source: CardAddr::new(from),
        node: node_id(node),
        destination: CardAddr::new(to),
        length,
        key: KEY,
        notify: Notify::Receiver,
        deadline: None,
        priority: 0,
    }
}

impl<S: SchemeSender, R: SchemeReceiver> Net<S, R>
where
    Node<S, R>: ReadSupport,
{
    pub(crate) fn new(nodes: [Node<S, R>; 2], impairments: &Impairments, seed: u64) -> Self {
        let link = |seed| ImpairedLink::new(impairments.clone(), 1 << 14, seed).unwrap();
        Self { now: Nanos::ZERO, nodes, links: [link(seed), link(!seed)], damaged: 0 }
    }

    fn send(&mut self, departure: &OutgoingPacket, from: usize) {
        let start = usize::try_from(departure.source.get()).unwrap();
        let payload = &self.nodes[from].memory.0[start..start + departure.payload as usize];
        let mut buffer = vec![0; MAX_PACKET_LENGTH];
        let length = match &departure.header {
            Header::Data(header) => header.encode(payload, &mut buffer),
            Header::Control(control) => control.encode(&mut buffer),
            Header::Message(message) => message.encode(payload, &mut buffer),
            Header::Link(packet) => packet.encode(&mut buffer),
        }
        .unwrap();
        assert_eq!(length, departure.header.length() + payload.len());
        buffer.truncate(length);
        let to = if departure.header.common().destination == node_id(0) { 0 } else { 1 };
        self.links[to].offer(self.now, buffer).unwrap();
    }

    fn deliver(&mut self, to: usize, frame: &[u8]) {
        let (now, node) = (self.now, &mut self.nodes[to]);
        let (header, payload) = match Packet::parse(frame) {
            Ok(Packet::Data(data)) => (Header::Data(data.header()), data.payload()),
            Ok(Packet::Control(control)) => (Header::Control(control), &[][..]),
            Ok(Packet::Message(bytes)) => {
                let (message, payload) = bytes.read().unwrap();
                (Header::Message(message), payload)
            }
            Ok(Packet::Link(packet)) => (Header::Link(packet), &[][..]),
            Err(error) => {
                assert!(error.is_damage(), "{error}");
                self.damaged += 1;
                return;
            }
        };
        node.sender.handle_packet(now, &header);
        node.receiver.handle_packet(now, &header, payload, &mut node.memory);
        if matches!(header, Header::Message(Message::Answer(_) | Message::Read(_))) {
            node.reads_packet(now, &header);
        }
    }

    /// Processes everything that is due now.
    fn step(&mut self) {
        for at in 0..2 {
            while let Some(frame) = self.links[at].poll(self.now) {
                self.deliver(at, &frame);
                self.outputs(at);
            }
            let (now, node) = (self.now, &mut self.nodes[at]);
            if node.sender.poll_timeout().is_some_and(|due| due <= now) {
                node.sender.handle_timeout(now);
            }
            if node.receiver.poll_timeout().is_some_and(|due| due <= now) {
                node.receiver.handle_timeout(now);
            }
            node.reads_timeout(now);
            self.outputs(at);
        }
    }

    /// Processes a node's outputs after an input.
    fn outputs(&mut self, at: usize) {
        loop {
            let (now, node) = (self.now, &mut self.nodes[at]);
            let departure = match node.receiver.poll_action() {
                Some(Action::Send(header)) => {
                    Some(OutgoingPacket { header, source: CardAddr::new(0), payload: 0 })
                }
                Some(Action::Event(event)) => {
                    if let Some(reads) = &mut node.reads {
                        reads.handle_event(&event);
                    }
                    node.events.push(event);
                    continue;
                }
                None => node.reads.as_mut().and_then(|reads| reads.poll_packet(now)),
            };
            let Some(departure) = departure.or_else(|| node.sender.poll_packet(now)) else { break };
            self.send(&departure, at);
        }
        let node = &mut self.nodes[at];
        while let Some(completion) = node.sender.poll_completion() {
            node.completions.push(completion);
        }
    }

    /// Runs until `enough`, or until nothing can happen. Returns whether `enough` was reached.
    pub(crate) fn run(&mut self, mut enough: impl FnMut(&mut Self) -> bool) -> bool {
        for _ in 0..5_000_000 {
            self.step();
            if enough(self) {
                return true;
            }
            let links = self.links.iter().filter_map(ImpairedLink::poll_timeout);
            let sides = self.nodes.iter().flat_map(|node| {
                let reads = node.reads.as_ref().and_then(Reads::poll_timeout);
                [node.sender.poll_timeout(), node.receiver.poll_timeout(), reads]
            });
            let Some(next) = links.chain(sides.flatten()).min() else { return false };
            self.now = self.now.max(next);
        }
        panic!("no end in sight at {}", self.now)
    }

    /// Lets the packets in flight arrive.
    pub(crate) fn drain(&mut self) {
        self.run(|net| net.links.iter().all(ImpairedLink::is_empty));
    }
}
