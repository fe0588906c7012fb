//! The protocol engine's receiver and the simulated `ni_receive`, with the same commands in the same order.

#![expect(clippy::panic, reason = "a difference ends the test")]

use std::path::Path;

use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_firmware::wire::{Arrived, DataHeader, Flags};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{EntryView, MemoryWindow, Output, Receiver, ReceiverConfig, ReceiverCounters};

use crate::simulation::{
    COUNTERS, Cycles, Found, Memory, ShowInput, Simulation, bytes_of, entry_words, halves, installed, micros,
};

/// Bytes of an answer without its checksum.
const ANSWER_BYTES: usize = 36;

/// One input of both receivers.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// A DATA or START packet, whole or trimmed.
    Packet {
        now: u64,
        header: DataHeader,
        payload: Vec<u8>,
    },
    Arrived {
        now: u64,
        arrived: Arrived,
    },
    /// The time passes; due timeouts follow.
    Time(u64),
    Timeouts {
        escape: u64,
        registry: u64,
        lifetime: u64,
    },
    Identity {
        node: NodeId,
        incarnation: Incarnation,
    },
    PacketEvents(bool),
    NoticeSlots(u32),
    Install {
        index: u16,
        window: MemoryWindow,
    },
    Remove(u16),
    /// CONTROL.RESET: all tables are empty.
    Clear,
    LatchEntry(u16),
    LatchSlot(u16),
    LatchWindow(u16),
}

/// Both receivers. Outputs are compared in the order of each port; a difference panics.
pub(crate) struct Lockstep {
    pub(crate) receiver: Receiver,
    config: ReceiverConfig,
    memory: Memory,
    now: u64,
    /// Counters before the last reset.
    former: [u64; COUNTERS],
    module: Simulation<Input>,
}

impl Lockstep {
    /// Starts the simulation. `percent`: share of the cycles in which a port is ready; 0 changes it at random.
    pub(crate) fn new(program: &Path, config: ReceiverConfig, seed: u32, percent: u32) -> Self {
        let mut lockstep = Self {
            receiver: Receiver::new(config).unwrap(),
            config,
            memory: Memory::default(),
            now: 0,
            former: [0; COUNTERS],
            module: Simulation::start(program, seed, percent, &[], ANSWER_BYTES),
        };
        lockstep.send_settings(false);
        lockstep
    }

    /// Cycles of the simulation.
    pub(crate) const fn cycles(&self) -> Cycles {
        self.module.cycles
    }

    /// Gives both receivers one input.
    pub(crate) fn input(&mut self, input: Input) {
        self.module.note_input(input.clone());
        match input {
            Input::Packet { now, header, payload } => {
                self.module.send_packet(&encode(&header, payload.len()), now, &payload);
                let now = Nanos::new(now);
                if header.common.flags.contains(Flags::TRIMMED) {
                    self.receiver.handle_trimmed(now, &header, &mut self.memory);
                } else {
                    self.receiver.handle_packet(now, &header, &payload, &mut self.memory);
                }
            }
            Input::Arrived { now, arrived } => {
                self.module.send_packet(&encode_arrived(&arrived), now, &[]);
                self.receiver.handle_arrived(Nanos::new(now), &arrived);
            }
            Input::Time(now) => {
                self.now = now;
                self.module.send_time(now);
                self.time_out();
            }
            Input::Timeouts { escape, registry, lifetime } => {
                let [escape, registry, lifetime] = [escape, registry, lifetime].map(Nanos::new);
                self.config.escape_timeout = escape;
                self.config.registry_timeout = registry;
                self.config.packet_lifetime = lifetime;
                self.receiver.set_timeouts(escape, registry, lifetime);
                self.send_settings(true);
                self.time_out();
            }
            Input::Identity { node, incarnation } => {
                self.config.node = node;
                self.config.incarnation = incarnation;
                self.receiver.set_identity(node, incarnation);
                self.send_settings(false);
            }
            Input::PacketEvents(on) => {
                self.config.packet_events = on;
                self.receiver.set_packet_events(on);
                self.send_settings(false);
            }
            Input::NoticeSlots(slots) => {
                self.receiver.set_notice_slots(slots);
                self.module.send_notice_slots(slots);
            }
            Input::Install { index, window } => {
                let result = self.module.install(self.receiver.access_mut(), index, window);
                self.check_command(&result);
            }
            Input::Remove(index) => {
                let result = self.module.remove(self.receiver.access_mut(), index);
                self.check_command(&result);
            }
            Input::Clear => {
                self.former = self.counts();
                // Memory windows stay (docs/protocol/interface.md 10.7).
                let windows = self.receiver.access().clone();
                self.receiver = Receiver::new(self.config).unwrap();
                *self.receiver.access_mut() = windows;
                self.module.send(b"X");
                self.check_command(&Found::Command { failed: false });
            }
            Input::LatchEntry(index) => {
                self.module.send_latch(b'L', index);
                let entry = self.receiver.entry(index, Nanos::new(self.now));
                let flags =
                    |entry: &EntryView| 1 | u32::from(entry.silent) << 2 | u32::from(entry.notify) << 3;
                let words = entry_words(index, entry, flags);
                self.check_command(&Found::Shadow(words));
            }
            Input::LatchSlot(index) => {
                self.module.send_latch(b'K', index);
                let words = self.slot_words(index);
                self.check_command(&Found::Shadow(words));
            }
            Input::LatchWindow(index) => {
                self.module.send_latch(b'M', index);
                let words = self.window_words(index);
                self.check_command(&Found::Shadow(words));
            }
        }
        self.collect();
    }

    fn time_out(&mut self) {
        let now = Nanos::new(self.now);
        if self.receiver.poll_timeout().is_some_and(|due| due <= now) {
            self.receiver.handle_timeout(now);
        }
    }

    fn send_settings(&mut self, timeouts: bool) {
        let config = self.config;
        let times = [config.escape_timeout, config.registry_timeout, config.packet_lifetime];
        let identity = (config.node.get(), config.incarnation.get());
        self.module.send_settings(identity, config.packet_events, times, timeouts);
    }

    /// Moves the engine's outputs to the queues of the ports.
    fn collect(&mut self) {
        self.module.expect_writes(&mut self.memory);
        while let Some(output) = self.receiver.poll_output() {
            let found = match output {
                Output::Send(control) => {
                    let mut buffer = [0; 64];
                    let length = control.encode(&mut buffer).unwrap() - 4;
                    buffer[length..].fill(0);
                    let mut bytes = vec![u8::try_from(length).unwrap()];
                    bytes.extend(&buffer[..ANSWER_BYTES]);
                    Found::Answer(bytes)
                }
                Output::Event(event @ Event { kind: EventKind::Fault, .. }) => {
                    Found::Fault(event.encode().to_vec())
                }
                Output::Event(event) => Found::Event(event.encode().to_vec()),
                other => panic!("unknown output {other:?}"),
            };
            self.module.expect(found);
        }
    }

    /// Waits until the module is idle, and compares all outputs, counters and levels.
    pub(crate) fn sync(&mut self) {
        self.module.send(b"Y");
        let levels = [
            self.receiver.registry_occupancy(),
            self.receiver.counters().registry_high_water,
            self.receiver.escape_occupancy().into(),
            self.receiver.counters().escape_high_water.into(),
            installed(self.receiver.access()),
        ];
        let expected = Found::Sync { counts: self.counts(), levels };
        self.check_command(&expected);
        self.module.check_nothing_missing();
    }

    /// Compares everything up to the next result of a command with the engine.
    fn check_command(&mut self, expected: &Found) {
        self.collect();
        self.module.check_command(expected);
    }

    /// Counters of the contract that the receiver keeps, in the order of the driver.
    fn counts(&self) -> [u64; COUNTERS] {
        let ReceiverCounters {
            duplicates,
            registrations,
            completions,
            escape_hits,
            escape_dropped,
            registry_full,
            bad_packets,
            violations,
            tombstone_hits,
            expired,
            nacks,
            acks,
            trimmed,
            ..
        } = *self.receiver.counters();
        let mut counts = [
            duplicates,
            registrations,
            completions,
            escape_hits,
            escape_dropped,
            registry_full,
            bad_packets,
            violations,
            tombstone_hits,
            expired,
            nacks,
            acks,
            trimmed,
        ];
        counts.iter_mut().zip(self.former).for_each(|(count, former)| *count += former);
        counts
    }

    fn slot_words(&self, index: u16) -> Vec<u8> {
        let mut words = [0u32; 11];
        words[0] = index.into();
        if let Some(slot) = self.receiver.escaped(index, Nanos::new(self.now)) {
            words[1] = 1;
            words[2] = slot.header.common.source.get();
            words[3] = slot.header.common.incarnation.get();
            words[4] = slot.header.transfer.get();
            words[5] = slot.header.segment;
            [words[6], words[7]] = halves(slot.header.address.get());
            words[8] = u32::try_from(slot.length).unwrap();
            words[9] = micros(slot.age);
            words[10] = slot.header.op.get();
        }
        bytes_of(&words)
    }

    fn window_words(&self, index: u16) -> Vec<u8> {
        let mut bytes = vec![0; 33];
        if let Some(window) = self.receiver.access().get(index.into()) {
            bytes[..4].copy_from_slice(&window.source.get().to_le_bytes());
            bytes[4..12].copy_from_slice(&window.base.get().to_le_bytes());
            bytes[12..20].copy_from_slice(&window.length.to_le_bytes());
            bytes[20..28].copy_from_slice(&window.key.to_le_bytes());
            bytes[28] = byte(window.permissions.bits());
            bytes[32] = 1;
        }
        bytes
    }

    /// Compares all registry entries and escape slots.
    pub(crate) fn compare_tables(&mut self) {
        for entry in 0..self.config.registry_entries {
            self.input(Input::LatchEntry(u16::try_from(entry).unwrap()));
        }
        for slot in 0..self.config.escape_slots {
            self.input(Input::LatchSlot(slot));
        }
    }
}

impl ShowInput for Input {
    fn show(&self) -> String {
        format!("{self:?}")
    }
}

/// Value of a bit set of at most 8 bits.
fn byte(bits: u32) -> u8 {
    u8::try_from(bits).unwrap()
}

/// Header of a DATA or START packet as bytes, without the checks of the encoder: the receiver does not rely on them.
fn encode(header: &DataHeader, payload_length: usize) -> [u8; 88] {
    let mut bytes = [0; 88];
    let common = &header.common;
    let mut put = |offset: usize, value: &[u8]| bytes[offset..offset + value.len()].copy_from_slice(value);
    put(0, &[4, if header.start.is_some() { 2 } else { 1 }, byte(common.flags.bits().into()), common.path]);
    put(4, &common.source.get().to_le_bytes());
    put(8, &common.destination.get().to_le_bytes());
    put(12, &common.incarnation.get().to_le_bytes());
    put(16, &header.transfer.get().to_le_bytes());
    put(20, &header.oldest_live.get().to_le_bytes());
    put(24, &header.segment.to_le_bytes());
    put(28, &header.segment_count.to_le_bytes());
    put(32, &header.address.get().to_le_bytes());
    put(40, &header.key.to_le_bytes());
    put(48, &header.op.get().to_le_bytes());
    put(52, &u16::try_from(payload_length).unwrap().to_le_bytes());
    put(54, &[header.tries, header.packet_size_log2]);
    if let Some(start) = &header.start {
        put(56, &start.base.get().to_le_bytes());
        put(64, &start.segment_length.to_le_bytes());
        put(68, &start.packets.to_le_bytes());
        put(72, &start.transfer_base.get().to_le_bytes());
        put(80, &start.transfer_length.to_le_bytes());
    }
    bytes
}

fn encode_arrived(arrived: &Arrived) -> [u8; 88] {
    let mut bytes = [0; 88];
    let common = &arrived.common;
    let mut put = |offset: usize, value: &[u8]| bytes[offset..offset + value.len()].copy_from_slice(value);
    put(0, &[4, 6, byte(common.flags.bits().into()), common.path]);
    put(4, &common.source.get().to_le_bytes());
    put(8, &common.destination.get().to_le_bytes());
    put(12, &common.incarnation.get().to_le_bytes());
    put(16, &arrived.transfer.get().to_le_bytes());
    put(24, &arrived.address.get().to_le_bytes());
    put(32, &arrived.length.to_le_bytes());
    put(40, &arrived.key.to_le_bytes());
    bytes
}
