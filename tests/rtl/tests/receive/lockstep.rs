//! The protocol engine's receiver and the simulated `ni_receive`, with the same commands in the same order.

#![expect(clippy::panic, reason = "a difference ends the test")]

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver as Channel, channel};
use std::time::Duration;

use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::generated::Permissions;
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_firmware::wire::{Arrived, DataHeader, Flags};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{
    MemoryFault, MemoryWindow, Output, ReceiveMemory, Receiver, ReceiverConfig, ReceiverCounters,
};
use fpga_registers::CardAddr;
use fpga_registers::cast::{high32, low32};

/// Addresses that refuse writes.
pub(crate) const BAD: std::ops::RangeInclusive<u64> = 0xBAD_0000..=0xBAD_FFFF;

/// Commands that a failure shows.
const SHOWN: usize = 24;

/// Longest time without an output.
const TIMEOUT: Duration = Duration::from_secs(60);

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

/// One output of the module, or the same one as the engine predicts it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Answer(Vec<u8>),
    Event(Vec<u8>),
    Fault(Vec<u8>),
    Write { address: u64, data: Vec<u8> },
    Command { failed: bool },
    Shadow(Vec<u8>),
    Sync { counts: [u64; 13], levels: [u32; 5] },
}

/// Cycles of the simulation up to a synchronisation.
type Cycles = u64;

#[derive(Default)]
struct Memory {
    writes: Vec<(u64, Vec<u8>)>,
}

impl ReceiveMemory for Memory {
    fn write(&mut self, at: CardAddr, bytes: &[u8]) -> Result<(), MemoryFault> {
        let length = bytes.len() as u64;
        if at.get() + length > *BAD.start() && at.get() <= *BAD.end() {
            return Err(MemoryFault { address: at, length });
        }
        self.writes.push((at.get(), bytes.to_vec()));
        Ok(())
    }
}

/// Both receivers. Outputs are compared in the order of each port; a difference panics.
pub(crate) struct Lockstep {
    pub(crate) receiver: Receiver,
    config: ReceiverConfig,
    memory: Memory,
    now: u64,
    /// Counters before the last reset.
    former: [u64; 13],
    inputs: Vec<Input>,
    /// Outputs that the engine predicts, with the number of the input; per port.
    expected: [VecDeque<(usize, Found)>; 4],
    child: Child,
    commands: Option<BufWriter<ChildStdin>>,
    found: Channel<(Found, Cycles)>,
    /// Cycles of the simulation.
    pub(crate) cycles: Cycles,
    name: String,
}

/// Ports: answers, events, faults, and writes; results of commands are synchronous.
const fn port(found: &Found) -> Option<usize> {
    match found {
        Found::Answer(_) => Some(0),
        Found::Event(_) => Some(1),
        Found::Fault(_) => Some(2),
        Found::Write { .. } => Some(3),
        _ => None,
    }
}

impl Lockstep {
    /// Starts the simulation. `percent`: share of the cycles in which a port is ready; 0 changes it at random.
    pub(crate) fn new(program: &Path, config: ReceiverConfig, seed: u32, percent: u32) -> Self {
        let arguments =
            [seed.to_string(), percent.to_string(), BAD.start().to_string(), BAD.end().to_string()];
        let mut child =
            fpga_ni_tests::start(program, seed, &arguments.each_ref().map(String::as_str)).unwrap();
        let commands = child.stdin.take().map(|pipe| BufWriter::with_capacity(1 << 16, pipe));
        let output = std::io::BufReader::with_capacity(1 << 16, child.stdout.take().unwrap());
        let (sender, found) = channel();
        std::thread::spawn(move || read_outputs(output, &sender));
        let mut lockstep = Self {
            receiver: Receiver::new(config).unwrap(),
            config,
            memory: Memory::default(),
            now: 0,
            former: [0; 13],
            inputs: Vec::new(),
            expected: Default::default(),
            child,
            commands,
            found,
            cycles: 0,
            name: format!("seed {seed}"),
        };
        lockstep.send_settings(false);
        lockstep
    }

    fn send(&mut self, bytes: &[u8]) {
        let sent = self.commands.as_mut().is_some_and(|pipe| pipe.write_all(bytes).is_ok());
        if !sent {
            self.fail("the simulation has ended");
        }
    }

    /// Gives both receivers one input.
    pub(crate) fn input(&mut self, input: Input) {
        self.inputs.push(input.clone());
        match input {
            Input::Packet { now, header, payload } => {
                let mut bytes = vec![b'P'];
                bytes.extend(encode(&header, payload.len()));
                bytes.extend(now.to_le_bytes());
                bytes.extend(u16::try_from(payload.len()).unwrap().to_le_bytes());
                bytes.extend(&payload);
                self.send(&bytes);
                let now = Nanos::new(now);
                if header.common.flags.contains(Flags::TRIMMED) {
                    self.receiver.handle_trimmed(now, &header, &mut self.memory);
                } else {
                    self.receiver.handle_packet(now, &header, &payload, &mut self.memory);
                }
            }
            Input::Arrived { now, arrived } => {
                let mut bytes = vec![b'P'];
                bytes.extend(encode_arrived(&arrived));
                bytes.extend(now.to_le_bytes());
                bytes.extend([0; 2]);
                self.send(&bytes);
                self.receiver.handle_arrived(Nanos::new(now), &arrived);
            }
            Input::Time(now) => {
                self.now = now;
                self.send(&[&b"T"[..], &now.to_le_bytes()].concat());
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
                self.send(&[&b"N"[..], &slots.to_le_bytes()].concat());
            }
            Input::Install { index, window } => {
                let MemoryWindow { source, base, length, key, permissions } = window;
                let mut bytes = vec![b'W'];
                bytes.extend(index.to_le_bytes());
                bytes.extend(source.get().to_le_bytes());
                [base.get(), length, key].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
                bytes.push(byte(permissions.bits()));
                self.send(&bytes);
                let failed = self.receiver.access_mut().install(index.into(), window).is_err();
                self.check_command(&Found::Command { failed });
            }
            Input::Remove(index) => {
                self.send(&[&b"R"[..], &index.to_le_bytes()].concat());
                let failed = self.receiver.access_mut().remove(index.into()).is_err();
                self.check_command(&Found::Command { failed });
            }
            Input::Clear => {
                self.former = self.counts();
                // Memory windows stay (docs/protocol/interface.md 10.7).
                let windows = self.receiver.access().clone();
                self.receiver = Receiver::new(self.config).unwrap();
                *self.receiver.access_mut() = windows;
                self.send(b"X");
                self.check_command(&Found::Command { failed: false });
            }
            Input::LatchEntry(index) => {
                self.send(&[&b"L"[..], &index.to_le_bytes()].concat());
                let words = self.entry_words(index);
                self.check_command(&Found::Shadow(words));
            }
            Input::LatchSlot(index) => {
                self.send(&[&b"K"[..], &index.to_le_bytes()].concat());
                let words = self.slot_words(index);
                self.check_command(&Found::Shadow(words));
            }
            Input::LatchWindow(index) => {
                self.send(&[&b"M"[..], &index.to_le_bytes()].concat());
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
        let mut bytes = vec![b'S'];
        bytes.extend(config.node.get().to_le_bytes());
        bytes.extend(config.incarnation.get().to_le_bytes());
        bytes.push(config.packet_events.into());
        for time in [config.escape_timeout, config.registry_timeout, config.packet_lifetime] {
            bytes.extend(time.get().to_le_bytes());
        }
        bytes.push(timeouts.into());
        self.send(&bytes);
    }

    /// Moves the engine's outputs to the queues of the ports.
    fn collect(&mut self) {
        let number = self.inputs.len() - 1;
        for (address, data) in self.memory.writes.drain(..) {
            self.expected[3].push_back((number, Found::Write { address, data }));
        }
        while let Some(output) = self.receiver.poll_output() {
            let found = match output {
                Output::Send(control) => {
                    let mut buffer = [0; 64];
                    let length = control.encode(&mut buffer).unwrap() - 4;
                    buffer[length..].fill(0);
                    let mut bytes = vec![u8::try_from(length).unwrap()];
                    bytes.extend(&buffer[..36]);
                    Found::Answer(bytes)
                }
                Output::Event(event @ Event { kind: EventKind::Fault, .. }) => {
                    Found::Fault(event.encode().to_vec())
                }
                Output::Event(event) => Found::Event(event.encode().to_vec()),
                other => panic!("unknown output {other:?}"),
            };
            self.expected[port(&found).unwrap()].push_back((number, found));
        }
    }

    /// Waits until the module is idle, and compares all outputs, counters and levels.
    pub(crate) fn sync(&mut self) {
        self.send(b"Y");
        let levels = [
            self.receiver.registry_occupancy(),
            self.receiver.counters().registry_high_water,
            self.receiver.escape_occupancy().into(),
            self.receiver.counters().escape_high_water.into(),
            self.windows(),
        ];
        let expected = Found::Sync { counts: self.counts(), levels };
        self.check_command(&expected);
        if let Some((number, lost)) = self.expected.iter().flatten().next().cloned() {
            self.fail(&format!("input {number}: {} is missing", show(&lost)));
        }
    }

    /// Number of installed memory windows.
    fn windows(&self) -> u32 {
        let access = self.receiver.access();
        (0..access.capacity()).map(|index| u32::from(access.get(index).is_some())).sum()
    }

    /// Compares everything up to the next result of a command with the engine.
    fn check_command(&mut self, expected: &Found) {
        if let Some(pipe) = &mut self.commands {
            let _ = pipe.flush();
        }
        self.collect();
        loop {
            let Ok((found, cycles)) = self.found.recv_timeout(TIMEOUT) else {
                self.fail(&format!("no output instead of {}", show(expected)));
            };
            self.cycles = self.cycles.max(cycles);
            let Some(port) = port(&found) else {
                if found != *expected {
                    self.fail(&format!("expected {}\n   found {}", show(expected), show(&found)));
                }
                return;
            };
            match self.expected[port].pop_front() {
                Some((_, same)) if same == found => {}
                Some((number, other)) => {
                    self.fail(&format!(
                        "input {number}: expected {}\n   found {}",
                        show(&other),
                        show(&found)
                    ));
                }
                None => self.fail(&format!("unexpected {}", show(&found))),
            }
        }
    }

    /// Counters of the contract that the receiver keeps, in the order of the driver.
    fn counts(&self) -> [u64; 13] {
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

    fn entry_words(&self, index: u16) -> Vec<u8> {
        let mut words = [0u32; 24];
        words[0] = index.into();
        if let Some(entry) = self.receiver.entry(index, Nanos::new(self.now)).filter(|entry| entry.valid) {
            words[1] = 1 | u32::from(entry.silent) << 2 | u32::from(entry.notify) << 3;
            words[2] = entry.generation;
            words[3] = entry.source.get();
            words[4] = entry.incarnation.get();
            words[5] = entry.transfer.get();
            words[6] = entry.segment;
            words[7] = entry.segment_count;
            [words[8], words[9]] = halves(entry.base.get());
            words[10] = entry.length;
            words[11] = entry.expected.into();
            words[12] = micros(entry.age);
            words[13] = entry.first;
            [words[14], words[15]] = halves(entry.transfer_length);
            words[16..].copy_from_slice(&entry.mask);
        }
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
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
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
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

    fn fail(&mut self, difference: &str) -> ! {
        let mut text = format!("{}: {difference}\nlast inputs:\n", self.name);
        let first = self.inputs.len().saturating_sub(SHOWN);
        for (number, input) in self.inputs.iter().enumerate().skip(first) {
            let _ = writeln!(text, "{number}: {input:?}");
        }
        let _ = self.child.kill();
        panic!("{text}");
    }
}

impl Drop for Lockstep {
    fn drop(&mut self) {
        self.commands = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Value of a bit set of at most 8 bits.
fn byte(bits: u32) -> u8 {
    u8::try_from(bits).unwrap()
}

fn halves(value: u64) -> [u32; 2] {
    [low32(value), high32(value)]
}

fn micros(age: Nanos) -> u32 {
    u32::try_from(age.get() / 1000).unwrap_or(u32::MAX)
}

fn show(found: &Found) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match found {
        Found::Answer(bytes) => format!("answer {}", hex(bytes)),
        Found::Event(bytes) => format!("event {}", hex(bytes)),
        Found::Fault(bytes) => format!("fault {}", hex(bytes)),
        Found::Write { address, data } => format!("write at {address:#x}: {}", hex(data)),
        Found::Shadow(bytes) => format!("shadow {}", hex(bytes)),
        other => format!("{other:?}"),
    }
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

/// Reads the outputs of the driver until it ends.
fn read_outputs(
    mut output: impl std::io::Read,
    sender: &std::sync::mpsc::Sender<(Found, Cycles)>,
) -> Option<()> {
    fn take<const N: usize>(output: &mut impl std::io::Read) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        output.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }
    let output = &mut output;
    loop {
        let mut cycles = 0;
        let found = match take::<1>(output)?[0] {
            b'A' => Found::Answer(take::<37>(output)?.to_vec()),
            b'E' => Found::Event(take::<64>(output)?.to_vec()),
            b'F' => Found::Fault(take::<64>(output)?.to_vec()),
            b'D' => {
                let address = u64::from_le_bytes(take(output)?);
                let mut data = vec![0; u16::from_le_bytes(take(output)?).into()];
                output.read_exact(&mut data).ok()?;
                Found::Write { address, data }
            }
            b'C' => Found::Command { failed: take::<1>(output)?[0] != 0 },
            b'L' => Found::Shadow(take::<96>(output)?.to_vec()),
            b'K' => Found::Shadow(take::<44>(output)?.to_vec()),
            b'M' => Found::Shadow(take::<33>(output)?.to_vec()),
            b'Y' => {
                let (mut counts, mut levels) = ([0; 13], [0; 5]);
                for count in &mut counts {
                    *count = u64::from_le_bytes(take(output)?);
                }
                for level in &mut levels {
                    *level = u32::from_le_bytes(take(output)?);
                }
                cycles = u64::from_le_bytes(take(output)?);
                Found::Sync { counts, levels }
            }
            _ => return None,
        };
        sender.send((found, cycles)).ok()?;
    }
}

/// A window for every node.
pub(crate) fn open_window(base: u64, length: u64, key: u64) -> MemoryWindow {
    MemoryWindow {
        source: NodeId::ANY,
        base: CardAddr::new(base),
        length,
        key,
        permissions: Permissions::WRITE,
    }
}
