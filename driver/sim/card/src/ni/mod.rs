//! Network interface: the contract `map/ni.yaml`, implemented with the receiver state machines of the protocol engine.
//!
//! Behaviour that the contract does not specify:
//!
//! * A commit while the NI is disabled is ignored, and the window stays free.
//! * A refused window is reported by a fault event and then freed like a sent one.
//! * Packets smaller than this build's packet size may be sent.
//! * Events wait in a queue of the NI. They are dropped at the moment of writing if the ring is full, without taking a sequence number;
//!   one `EventLost` event reports the count as soon as there is space.
//! * Packets of other nodes never fill the ring, in any scheme: faults of one reason share an event, events of tables are dropped in time,
//!   a transfer whose notice has no entry is refused, and answers to packets or requests of another incarnation are dropped.
//!
//! This file has the interface's state and its steps. Packets from the network (`receive.rs`), registers, events, frames, tables, transmit
//! windows and faults have their own files.

mod events;
mod faults;
mod frames;
mod link;
mod link_settings;
mod parameters;
mod receive;
mod registers;
mod scheme;
mod settings;
mod tables;
mod transmit;

use crate::description::CardDescription;
use crate::fault_log::{FaultKind, Unit};
use crate::host::HostPort;
use crate::link::EngineContext;
use crate::space::{COMMIT_OFFSET, CardSpace, PAYLOAD_OFFSET, payload_size, window_stride};
use crate::work::Work;
use events::EventRing;
use faults::{Fault, FaultBlock};
use fpga_firmware::event::{Event, EventKind, FaultReason};
use fpga_firmware::generated::{Capabilities, Scheme, ni};
use fpga_firmware::identity;
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_protocol::receiver::{MemoryFault, Output, ReceiveMemory, ReceiverConfigError};
use fpga_protocol::scheme::traits::Header;
use fpga_protocol::time::Nanos;
use fpga_registers::CardAddr;
use frames::FrameQueue;
use link::LinkUnit;
use scheme::{ActiveSchemes, NodeAction};
use tables::{EscapeShadow, MemoryShadow, RateShadow, RegistryShadow, SendingShadow};
use transmit::{Transmit, TransmitStep};

use settings::Settings;

/// Build parameters that the host can read.
#[derive(Debug)]
struct NiBuild {
    identity: Vec<u32>,
    packet_size_log2: u8,
    mask_bits: u16,
    registry_entries: u16,
    escape_slots: u16,
    memory_windows: u16,
    sending_contexts: u16,
    commands: u16,
    windows: u8,
    window_base: u64,
    window_stride: u64,
    payload_size: u64,
    memory_base: u64,
    memory_size: u64,
    node_id: u32,
    capabilities: Capabilities,
}

/// The network interface.
#[derive(Debug)]
pub(crate) struct Ni {
    build: NiBuild,
    settings: Settings,
    exchange: ActiveSchemes,
    transmit: Transmit,
    events: EventRing,
    faults: FaultBlock,
    frames: FrameQueue,
    registry_shadow: RegistryShadow,
    escape_shadow: EscapeShadow,
    memory_shadow: MemoryShadow,
    sending_shadow: SendingShadow,
    rate_shadow: RateShadow,
    link: LinkUnit,
    received: u32,
    bad_crc: u32,
    bad_packet: u32,
    trimmed: u32,
    /// Payload bytes written to memory since the card was made.
    written: u64,
    /// Number of unanswered capability requests to other nodes.
    asked: u32,
    /// Time at which the receiver's timers were last served.
    timers_served: Option<Nanos>,
    now: Nanos,
}

impl NiBuild {
    fn new(description: &CardDescription) -> Self {
        let ni = &description.ni;
        let mut capabilities =
            Capabilities::PACKET_EVENTS.with(Capabilities::FAULT_LOG).with(Capabilities::LINK_FEEDBACK);
        if ni.commands > 0 {
            capabilities = capabilities.with(Capabilities::COMMANDS).with(Capabilities::MIXED);
        }
        if ni.event_push {
            capabilities = capabilities.with(Capabilities::EVENT_PUSH);
        }
        let mut words = identity::encode(1, capabilities, &identity::usual_blocks());
        for (place, word) in [(1, ni.version_override), (2, ni.checksum_override)] {
            if let (Some(place), Some(word)) = (words.get_mut(place), word) {
                *place = word;
            }
        }
        Self {
            identity: words,
            packet_size_log2: u8::try_from(ni.packet_size.trailing_zeros()).unwrap_or(0),
            mask_bits: ni.mask_bits,
            registry_entries: ni.registry_entries,
            escape_slots: ni.escape_slots,
            memory_windows: ni.memory_windows,
            sending_contexts: ni.sending_contexts,
            commands: ni.commands,
            windows: ni.windows,
            window_base: ni.window_base,
            window_stride: window_stride(ni.packet_size, ni.mask_bits),
            payload_size: payload_size(ni.packet_size, ni.mask_bits),
            memory_base: description.memory.base,
            memory_size: description.memory.size,
            node_id: ni.node_id,
            capabilities,
        }
    }

    /// Schemes that software can choose, as bits.
    fn schemes(&self) -> u32 {
        let all = Scheme::ALL.iter().fold(0, |bits, scheme| bits | 1 << scheme.value());
        if self.commands > 0 { all } else { 1 << Scheme::Registry.value() }
    }
}

impl Ni {
    /// Number of independent engines: transmitter, event writer, timers.
    pub(crate) const ENGINES: u32 = 3;

    /// # Errors
    /// Only for a description that was not validated.
    pub(crate) fn new(description: &CardDescription) -> Result<Self, ReceiverConfigError> {
        let build = NiBuild::new(description);
        let settings = Settings::new(build.node_id);
        let exchange = ActiveSchemes::registry(&build, &settings)?;
        let packet_size = usize::try_from(description.ni.packet_size).unwrap_or(0);
        Ok(Self {
            settings,
            exchange,
            transmit: Transmit::new(build.windows, build.packet_size_log2, build.payload_size),
            events: EventRing::new(description.ni.event_push),
            faults: FaultBlock::new(),
            frames: FrameQueue::new(packet_size),
            registry_shadow: RegistryShadow::default(),
            escape_shadow: EscapeShadow::default(),
            memory_shadow: MemoryShadow::new(),
            sending_shadow: SendingShadow::default(),
            rate_shadow: RateShadow::default(),
            link: LinkUnit::default(),
            received: 0,
            bad_crc: 0,
            bad_packet: 0,
            trimmed: 0,
            written: 0,
            asked: 0,
            timers_served: None,
            now: Nanos::ZERO,
            build,
        })
    }

    /// Hardware reset.
    pub(crate) fn reset(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        self.settings = Settings::new(self.build.node_id);
        self.rebuild(false);
        self.transmit.reset();
        self.events.reset(self.now);
        self.faults.reset();
        self.frames.clear();
        self.registry_shadow = RegistryShadow::default();
        self.escape_shadow = EscapeShadow::default();
        self.memory_shadow = MemoryShadow::new();
        self.sending_shadow = SendingShadow::default();
        self.rate_shadow = RateShadow::default();
        self.link = LinkUnit::default();
        (self.received, self.bad_crc, self.bad_packet, self.trimmed, self.asked) = (0, 0, 0, 0, 0);
        self.timers_served = None;
    }

    /// Starts again with the schemes of the settings; memory windows stay if `kept`. Returns whether this build supports them.
    fn rebuild(&mut self, kept: bool) -> bool {
        let access = kept.then(|| self.exchange.access());
        let built = ActiveSchemes::new(&self.build, &self.settings, access);
        built.map(|exchange| self.exchange = exchange).is_some()
    }

    /// CONTROL.RESET: registry, escape buffer, tombstones, event counts and windows; settings and memory windows stay.
    fn clear(&mut self, space: &mut CardSpace) {
        self.rebuild(true);
        self.link = LinkUnit::default();
        self.link.rebuild(&self.settings);
        self.transmit.reset();
        self.events.restart();
        self.frames.clear();
        space.take_committed();
        (self.received, self.bad_crc, self.bad_packet, self.trimmed, self.asked) = (0, 0, 0, 0, 0);
        self.timers_served = None;
    }

    fn apply_settings(&mut self) {
        self.exchange.apply(&self.settings);
    }

    pub(crate) const fn node_id(&self) -> u32 {
        self.settings.node_id
    }

    /// Payload bytes written to memory so far.
    pub(crate) const fn written(&self) -> u64 {
        self.written
    }

    const fn enabled(&self) -> bool {
        self.settings.control & ni::control::ENABLE != 0
    }

    pub(crate) const fn interrupt_lines(&self) -> u32 {
        self.events.interrupt_lines()
    }

    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.exchange.poll_timeout()
    }

    /// Returns the next unit of an engine, with its amount of data. The time of packets is the port's.
    pub(crate) fn next_unit(&self, engine: u32) -> Work {
        if engine == 1 { self.events.next_unit() } else { Work::Instant }
    }

    /// Engines that would find nothing to do in [`step`](Self::step), one bit each.
    pub(crate) fn idle_engines(&self, now: Nanos, space: &CardSpace) -> u32 {
        let transmitter = !space.has_committed()
            && matches!(self.exchange, ActiveSchemes::Registry(_))
            && !(self.transmit.transmitting() && self.frames.has_space());
        let events = matches!(self.events.next_unit(), Work::Instant);
        let timers = self.exchange.poll_timeout().is_none_or(|deadline| deadline > now)
            || self.timers_served == Some(now);
        u32::from(transmitter) | u32::from(events) << 1 | u32::from(timers) << 2
    }

    /// Returns whether frames wait for the network port.
    pub(crate) fn has_frames(&self) -> bool {
        self.frames.is_waiting()
    }

    /// Returns whether the transmitter may queue a frame.
    pub(crate) fn has_frame_space(&self) -> bool {
        self.frames.has_space()
    }

    pub(crate) fn take_frame(&mut self) -> Option<Vec<u8>> {
        self.frames.take()
    }

    pub(crate) fn spare_frame(&mut self) -> Vec<u8> {
        self.frames.spare()
    }

    pub(crate) fn recycle_frame(&mut self, frame: Vec<u8>) {
        self.frames.recycle(frame);
    }

    /// Records a fault in the NI's log and, as an event, in the ring.
    fn fault(&mut self, fault: Fault, event: Option<Event>) {
        let time = self.events.since_reset(self.now);
        self.faults.push(Fault { time, ..fault });
        if matches!(fault.reason, FaultReason::EventLost | FaultReason::EventWrite) {
            // The ring reports lost events itself once there is space. An event about an event that could not be written could not be
            // written either.
            return;
        }
        let event = event.unwrap_or_else(|| {
            let mut event = Event::new(EventKind::Fault);
            event.reason = fault.reason.value();
            event.index = u16::try_from(fault.window).unwrap_or(u16::MAX);
            event.node = NodeId::new(fault.node);
            event.transfer = fpga_firmware::ids::TransferId::new(fault.transfer);
            event.segment = fault.segment;
            event.count = fault.detail;
            event.address = CardAddr::new(fault.address);
            event.length = fault.length;
            event
        });
        self.events.report(self.now, event);
    }

    fn bad_setting(&mut self, register: u32) {
        self.fault(Fault { detail: register, ..Fault::new(FaultReason::BadSetting) }, None);
    }

    /// Lets engine `engine` do one unit of work.
    pub(crate) fn step(&mut self, engine: u32, lanes: &mut EngineContext<'_, dyn HostPort>) -> bool {
        self.now = lanes.now;
        match engine {
            0 => self.step_transmit(lanes),
            1 => match self.events.step(lanes) {
                None => false,
                Some(fault) => {
                    if let Some(fault) = fault {
                        self.fault(fault, None);
                    }
                    true
                }
            },
            _ => self.step_timers(lanes),
        }
    }

    fn step_transmit(&mut self, lanes: &mut EngineContext<'_, dyn HostPort>) -> bool {
        if lanes.space.has_committed() {
            let committed = lanes.space.take_committed();
            if self.enabled() {
                let mut busy = 0_u32;
                self.transmit.commit(committed, lanes.space, |window| busy |= 1 << window);
                for window in (0..32).filter(|window| busy >> window & 1 != 0) {
                    self.fault(Fault { window, ..Fault::new(FaultReason::WindowBusy) }, None);
                }
            }
        }
        if !self.enabled() {
            return false;
        }
        let source = NodeId::new(self.settings.node_id);
        let incarnation = Incarnation::new(self.settings.incarnation);
        let before = (self.frames.sent, self.frames.payload_bytes);
        // Windows first; messages first if both have packets and messages are next in turn.
        let messages_first = match &mut self.exchange {
            ActiveSchemes::Both(_, node) => std::mem::take(&mut node.has_turn),
            _ => false,
        };
        let mut sent = TransmitStep::Idle;
        if messages_first {
            sent = self.send_message(lanes.space);
        }
        if matches!(sent, TransmitStep::Idle) {
            let kinds = self.exchange.windows_may_hold();
            let counts = &mut self.link.counts;
            // With pacing, frames wait for the port.
            let host = &mut *lanes.upstream.host;
            let network = (!lanes.paced).then_some(host);
            let sender = (source, incarnation);
            sent = self.transmit.step(lanes.space, &mut self.frames, counts, sender, kinds, network);
            if let (false, ActiveSchemes::Both(_, node)) =
                (matches!(sent, TransmitStep::Idle), &mut self.exchange)
            {
                node.has_turn = true;
            }
        }
        let sent = match sent {
            TransmitStep::Idle if !messages_first => self.send_message(lanes.space),
            TransmitStep::Command(window, header) => {
                let default = Scheme::try_from(self.settings.scheme).ok();
                if let Some(node) = self.exchange.messages_mut()
                    && let Err(refusal) = node.command(self.now, &header, default, lanes.space)
                {
                    self.events.post(self.now, refusal);
                }
                TransmitStep::Freed(window)
            }
            sent => sent,
        };
        lanes.upstream.counters.frames_sent += u64::from(self.frames.sent.wrapping_sub(before.0));
        lanes.upstream.counters.buffered_payload_bytes += self.frames.payload_bytes.wrapping_sub(before.1);
        match sent {
            TransmitStep::Idle | TransmitStep::Command(..) => return false,
            TransmitStep::More => {}
            TransmitStep::Freed(window) => self.window_free(window),
            TransmitStep::Refused(window, fault) => {
                lanes.upstream.faults.push(
                    FaultKind::Network,
                    Unit::Ni,
                    window.into(),
                    fault.reason.value().into(),
                );
                self.fault(fault, None);
                self.window_free(window);
            }
        }
        true
    }

    /// Sends the next packet of a message, if there is one.
    fn send_message(&mut self, space: &CardSpace) -> TransmitStep {
        let Some(node) = self.exchange.messages_mut().filter(|_| self.frames.has_space()) else {
            return TransmitStep::Idle;
        };
        match node.transmit(self.now, space, &mut self.frames, &mut self.link.counts) {
            None => TransmitStep::Idle,
            Some(None) => TransmitStep::More,
            Some(Some(fault)) => {
                self.fault(fault, None);
                TransmitStep::More
            }
        }
    }

    fn window_free(&mut self, window: u8) {
        let mut event = Event::new(EventKind::WindowFree);
        event.index = window.into();
        event.count = self.transmit.freed();
        self.events.post(self.now, event);
    }

    fn step_timers(&mut self, lanes: &mut EngineContext<'_, dyn HostPort>) -> bool {
        let due = self.exchange.poll_timeout().is_some_and(|deadline| deadline <= self.now);
        // Once per point in time: a timer may fire early, and must not keep the card busy.
        if !due || self.timers_served == Some(self.now) {
            return false;
        }
        self.timers_served = Some(self.now);
        self.exchange.handle_timeout(self.now);
        let outputs = self.drain();
        lanes.upstream.counters.frames_sent += outputs.frames;
        // A timer without visible effect does not count as work.
        outputs.any
    }

    /// Sends the receiver's packets and reports its events.
    fn drain(&mut self) -> Drained {
        let before = self.frames.sent;
        let mut any = false;
        loop {
            let events = &self.events;
            let Some(node) = self.exchange.messages_mut() else { break };
            let Some(word) = node.poll(|| events.has_table_credit()) else { break };
            any = true;
            match word {
                NodeAction::Send(Header::Message(message)) => {
                    let _ = self.frames.send(0, |buffer| message.encode(&[], buffer));
                }
                NodeAction::Send(_) => {}
                NodeAction::Event(event) => self.report(event),
            }
        }
        while let ActiveSchemes::Registry(receiver) | ActiveSchemes::Both(receiver, _) = &mut self.exchange
            && let Some(output) = receiver.poll_output()
        {
            any = true;
            match *output {
                Output::Send(ref control) => {
                    // The receiver's answers can always be encoded; a failure counts as a lost packet.
                    let _ = self.frames.send_control(control);
                }
                Output::Event(event) => self.report(event),
                _ => {}
            }
        }
        Drained { frames: self.frames.sent.wrapping_sub(before).into(), any }
    }

    /// Reports an event of sender or receiver; a fault event is logged as a fault.
    fn report(&mut self, event: Event) {
        match event.fault_reason() {
            Some(reason) => {
                let fault = Fault {
                    node: event.node.get(),
                    transfer: event.transfer.get(),
                    segment: event.segment,
                    address: event.address.get(),
                    length: event.length,
                    ..Fault::new(reason)
                };
                self.fault(fault, Some(event));
            }
            None => self.events.post(self.now, event),
        }
    }
}

/// Output of the receiver.
struct Drained {
    frames: u64,
    any: bool,
}

/// Card memory for writes of the receiver: excludes the transmit windows; a write is all or nothing.
struct ReceivePort<'a> {
    space: &'a mut CardSpace,
    /// Counter of the bytes written.
    written: &'a mut u64,
}

impl ReceiveMemory for ReceivePort<'_> {
    fn write(&mut self, at: CardAddr, bytes: &[u8]) -> Result<(), MemoryFault> {
        let fault = MemoryFault { address: at, length: bytes.len() as u64 };
        if !self.space.is_memory(at, bytes.len() as u64) {
            return Err(fault);
        }
        self.space.write(at, bytes).map_err(|_| fault)?;
        *self.written += bytes.len() as u64;
        Ok(())
    }
}

const _: () = assert!(COMMIT_OFFSET + 4 <= PAYLOAD_OFFSET, "the commit word lies before the payload");
const _: () =
    assert!(fpga_firmware::window::MAX_HEADER_BLOCK as u64 <= COMMIT_OFFSET, "and after the header block");
