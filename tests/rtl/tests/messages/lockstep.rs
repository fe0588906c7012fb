//! The protocol engine's message receiver and the simulated `ni_message_receive`, with the same commands in the same order.
//!
//! Outputs are compared in the order of each port. Of one expiry of timers, the answers of different messages may have any order: the module
//! visits its contexts in the order of their indices, the engine in that of their deadlines.

#![expect(clippy::panic, reason = "a difference ends the test")]

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufWriter, Read, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver as Channel, Sender, channel};
use std::time::Duration;

use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_firmware::wire::{AnswerBody, Message, MessageAnswer};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{MemoryFault, MemoryWindow, ReceiveMemory};
use fpga_protocol::scheme::messages::{Receiver, ReceiverConfig, ReceiverCounters};
use fpga_protocol::scheme::traits::{Action, Header, SchemeReceiver as _};
use fpga_registers::CardAddr;
use fpga_registers::cast::{high32, low32};

use super::packets::header;

/// Addresses that refuse writes.
pub(crate) const BAD: std::ops::RangeInclusive<u64> = 0xBAD_0000..=0xBAD_FFFF;

/// Commands that a failure shows.
const SHOWN: usize = 24;

/// Longest time without an output.
const TIMEOUT: Duration = Duration::from_secs(60);

/// One input of both receivers.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Packet {
        now: u64,
        message: Message,
        payload: Vec<u8>,
    },
    /// The time passes; due timeouts follow.
    Time(u64),
    Timeouts {
        silence: u64,
        lifetime: u64,
    },
    Identity(Incarnation),
    NoticeSlots(u32),
    Install {
        index: u16,
        window: MemoryWindow,
    },
    Remove(u16),
    /// CONTROL.RESET: all tables are empty.
    Clear,
    Latch(u16),
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
    refused: bool,
}

impl ReceiveMemory for Memory {
    fn write(&mut self, at: CardAddr, bytes: &[u8]) -> Result<(), MemoryFault> {
        let length = bytes.len() as u64;
        if at.get() + length > *BAD.start() && at.get() <= *BAD.end() {
            self.refused = true;
            return Err(MemoryFault { address: at, length });
        }
        self.writes.push((at.get(), bytes.to_vec()));
        Ok(())
    }
}

/// Both receivers. A difference panics.
pub(crate) struct Lockstep {
    pub(crate) receiver: Receiver,
    config: ReceiverConfig,
    memory: Memory,
    now: u64,
    /// Counters before the last reset; answers by kind: refusals, and all others.
    former: [u64; 13],
    refusals: u64,
    answers: u64,
    /// Contexts in use after the last event, and their maximum.
    occupancy: u32,
    high_water: u32,
    /// Answers to the last input.
    pub(crate) last_answers: Vec<MessageAnswer>,
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

/// Message of an answer: its number, sender and incarnation.
fn message_of(found: &Found) -> Vec<u8> {
    match found {
        Found::Answer(bytes) => [&bytes[17..25], &bytes[9..13]].concat(),
        _ => Vec::new(),
    }
}

impl Lockstep {
    /// Starts the simulation. `percent`: share of the cycles in which a port is ready; 0 changes it at random. `scheme`: arguments of the bench.
    pub(crate) fn new(
        program: &Path,
        config: ReceiverConfig,
        scheme: &[String],
        seed: u32,
        percent: u32,
    ) -> Self {
        let mut arguments =
            vec![seed.to_string(), percent.to_string(), BAD.start().to_string(), BAD.end().to_string()];
        arguments.extend_from_slice(scheme);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut child = fpga_ni_tests::start(program, seed, &arguments).unwrap();
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
            refusals: 0,
            answers: 0,
            occupancy: 0,
            high_water: 0,
            last_answers: Vec::new(),
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
        self.last_answers.clear();
        match input {
            Input::Packet { now, message, payload } => {
                let mut bytes = vec![b'P'];
                bytes.extend(header(&message, payload.len()));
                bytes.extend(now.to_le_bytes());
                bytes.extend(u16::try_from(payload.len()).unwrap().to_le_bytes());
                bytes.extend(&payload);
                self.send(&bytes);
                let header = Header::Message(message);
                self.receiver.handle_packet(Nanos::new(now), &header, &payload, &mut self.memory);
                if self.receiver.poll_timeout().is_some_and(|due| due.get() <= self.now) {
                    // More requests follow at once.
                    self.time_out();
                } else if std::mem::take(&mut self.memory.refused) {
                    // The engine ends the message at once, the module after the response.
                    self.sync();
                }
            }
            Input::Time(now) => {
                self.sync();
                self.now = now;
                self.send(&[&b"T"[..], &now.to_le_bytes()].concat());
                self.time_out();
            }
            Input::Timeouts { silence, lifetime } => {
                self.sync();
                self.config.silence = Nanos::new(silence);
                self.config.lifetime = Nanos::new(lifetime);
                self.config.tombstone = Nanos::new(silence + lifetime);
                let ReceiverConfig { silence, tombstone, lifetime, .. } = self.config;
                self.receiver.set_timeouts(silence, tombstone, lifetime);
                self.send_settings(true);
                self.time_out();
            }
            Input::Identity(incarnation) => {
                self.config.incarnation = incarnation;
                self.receiver.set_identity(self.config.node, incarnation);
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
                bytes.push(u8::try_from(permissions.bits()).unwrap());
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
                (self.refusals, self.answers) = (0, 0);
                (self.occupancy, self.high_water) = (0, 0);
                // Memory windows stay (docs/protocol/interface.md 10.7).
                let windows = self.receiver.access().clone();
                self.receiver = Receiver::new(self.config).unwrap();
                *self.receiver.access_mut() = windows;
                self.send(b"X");
                self.check_command(&Found::Command { failed: false });
            }
            Input::Latch(index) => {
                self.send(&[&b"L"[..], &index.to_le_bytes()].concat());
                let words = self.context_words(index);
                self.check_command(&Found::Shadow(words));
            }
        }
        self.collect();
    }

    /// Handles due timeouts in both receivers, and compares their outputs.
    fn time_out(&mut self) {
        let now = Nanos::new(self.now);
        if self.receiver.poll_timeout().is_some_and(|due| due <= now) {
            self.receiver.handle_timeout(now);
        }
        self.collect();
        let mut answers: Vec<(usize, Found)> = self.expected[0].drain(..).collect();
        answers.sort_by_key(|(_, found)| message_of(found));
        self.expected[0] = answers.into();
        self.compare(true);
    }

    fn send_settings(&mut self, timeouts: bool) {
        let config = self.config;
        let mut bytes = vec![b'S'];
        bytes.extend(config.node.get().to_le_bytes());
        bytes.extend(config.incarnation.get().to_le_bytes());
        bytes.push(0);
        for time in [Nanos::ZERO, config.silence, config.lifetime] {
            bytes.extend(time.get().to_le_bytes());
        }
        bytes.push(timeouts.into());
        self.send(&bytes);
    }

    /// Moves the engine's outputs to the queues of the ports.
    fn collect(&mut self) {
        let number = self.inputs.len().saturating_sub(1);
        for (address, data) in self.memory.writes.drain(..) {
            self.expected[3].push_back((number, Found::Write { address, data }));
        }
        while let Some(action) = self.receiver.poll_action() {
            let found = match action {
                Action::Send(Header::Message(message)) => {
                    let Message::Answer(answer) = message else { panic!("{message:?}") };
                    self.last_answers.push(answer);
                    let refused = matches!(answer.body, AnswerBody::Refused(..));
                    self.refusals += u64::from(refused);
                    self.answers += u64::from(!refused);
                    let mut buffer = [0; 64];
                    let length = message.encode(&[], &mut buffer).unwrap() - 4;
                    let mut bytes = vec![u8::try_from(length).unwrap()];
                    bytes.extend(&buffer[..40]);
                    Found::Answer(bytes)
                }
                Action::Event(event @ Event { kind: EventKind::Fault, .. }) => {
                    Found::Fault(event.encode().to_vec())
                }
                Action::Event(event) => {
                    match event.kind {
                        EventKind::Registered => self.occupancy += 1,
                        EventKind::Completed | EventKind::Expired => self.occupancy -= 1,
                        _ => {}
                    }
                    self.high_water = self.high_water.max(self.occupancy);
                    Found::Event(event.encode().to_vec())
                }
                other => panic!("unknown output {other:?}"),
            };
            self.expected[port(&found).unwrap()].push_back((number, found));
        }
    }

    /// Waits until the module is idle, and compares all outputs, counters and levels.
    pub(crate) fn sync(&mut self) {
        self.collect();
        self.compare(false);
    }

    /// Like [`Self::sync`]; `sorts`: the answers of different messages may have any order.
    fn compare(&mut self, sorts: bool) {
        self.send(b"Y");
        let access = self.receiver.access();
        let windows = (0..access.capacity()).map(|index| u32::from(access.get(index).is_some())).sum();
        let live = u32::try_from(self.receiver.live()).unwrap();
        let levels = [live, self.high_water, 0, 0, windows];
        let expected = Found::Sync { counts: self.counts(), levels };
        if sorts {
            let mut answers = self.receive_until(&expected, true);
            answers.sort_by_key(message_of);
            answers.into_iter().for_each(|answer| self.check(&answer));
        } else {
            self.receive_until(&expected, false);
        }
        if let Some((number, lost)) = self.expected.iter().flatten().next().cloned() {
            self.fail(&format!("input {number}: {} is missing", show(&lost)));
        }
    }

    /// Compares everything up to the next result of a command with the engine.
    fn check_command(&mut self, expected: &Found) {
        self.collect();
        self.receive_until(expected, false);
    }

    /// Compares all outputs up to the result of a command, and that with `expected`. `keeps`: returns the answers instead.
    fn receive_until(&mut self, expected: &Found, keeps: bool) -> Vec<Found> {
        if let Some(pipe) = &mut self.commands {
            let _ = pipe.flush();
        }
        let mut answers = Vec::new();
        loop {
            let Ok((found, cycles)) = self.found.recv_timeout(TIMEOUT) else {
                self.fail(&format!("no output instead of {}", show(expected)));
            };
            self.cycles = self.cycles.max(cycles);
            match port(&found) {
                None if found != *expected => {
                    self.fail(&format!("expected {}\n   found {}", show(expected), show(&found)));
                }
                None => return answers,
                Some(0) if keeps => answers.push(found),
                Some(_) => self.check(&found),
            }
        }
    }

    /// Compares an output with the next one of its port.
    fn check(&mut self, found: &Found) {
        match port(found).and_then(|port| self.expected[port].pop_front()) {
            Some((_, same)) if same == *found => {}
            Some((number, other)) => {
                self.fail(&format!("input {number}: expected {}\n   found {}", show(&other), show(found)));
            }
            None => self.fail(&format!("unexpected {}", show(found))),
        }
    }

    /// Counters of the contract that the receiver keeps, in the order of the driver.
    fn counts(&self) -> [u64; 13] {
        let ReceiverCounters {
            duplicates,
            begun,
            complete,
            busy,
            bad_packets,
            violations,
            delayed_duplicates,
            abandoned,
            ..
        } = *self.receiver.counters();
        let mut counts = [
            duplicates,
            begun,
            complete,
            0,
            0,
            busy,
            bad_packets,
            violations,
            delayed_duplicates,
            abandoned,
            self.refusals,
            self.answers,
            0,
        ];
        counts.iter_mut().zip(self.former).for_each(|(count, former)| *count += former);
        counts
    }

    fn context_words(&self, index: u16) -> Vec<u8> {
        let mut words = [0u32; 24];
        words[0] = index.into();
        if let Some(entry) = self.receiver.entry(index, Nanos::new(self.now)).filter(|entry| entry.valid) {
            words[1] = 1 | u32::from(entry.notify) << 3 | entry.scheme.value() << 8;
            words[2] = entry.generation;
            words[3] = entry.source.get();
            words[4] = entry.incarnation.get();
            words[5] = entry.transfer.get();
            words[6] = entry.segment;
            words[7] = entry.segment_count;
            [words[8], words[9]] = halves(entry.base.get());
            words[10] = entry.length;
            words[11] = entry.expected.into();
            words[12] = u32::try_from(entry.age.get() / 1000).unwrap_or(u32::MAX);
            words[13] = entry.first;
            [words[14], words[15]] = halves(entry.transfer_length);
            words[16..].copy_from_slice(&entry.mask);
        }
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Compares all contexts.
    pub(crate) fn compare_contexts(&mut self) {
        for index in 0..self.config.contexts {
            self.input(Input::Latch(u16::try_from(index).unwrap()));
        }
    }

    fn fail(&mut self, difference: &str) -> ! {
        let mut text = format!("{}: {difference}\nlast inputs:\n", self.name);
        let first = self.inputs.len().saturating_sub(SHOWN);
        for (number, input) in self.inputs.iter().enumerate().skip(first) {
            let _ = match input {
                Input::Packet { now, message, payload } => {
                    writeln!(text, "{number}: at {now}: {message:?}, {} bytes", payload.len())
                }
                other => writeln!(text, "{number}: {other:?}"),
            };
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

fn halves(value: u64) -> [u32; 2] {
    [low32(value), high32(value)]
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

/// Reads the outputs of the driver until it ends.
fn read_outputs(mut output: impl Read, sender: &Sender<(Found, Cycles)>) -> Option<()> {
    fn take<const N: usize>(output: &mut impl Read) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        output.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }
    let output = &mut output;
    loop {
        let mut cycles = 0;
        let found = match take::<1>(output)?[0] {
            b'A' => Found::Answer(take::<41>(output)?.to_vec()),
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

/// Number of the node of the receiver.
pub(crate) const RECEIVER: NodeId = NodeId::new(2);
