//! The protocol engine's message receiver and the simulated `ni_message_receive`, with the same commands in the same order.
//!
//! Outputs are compared in the order of each port. Of one expiry of timers, the answers of different messages may have any order: the module
//! visits its contexts in the order of their indices, the engine in that of their deadlines.

#![expect(clippy::panic, reason = "a difference ends the test")]

use std::path::Path;

use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_firmware::wire::{AnswerBody, Message, MessageAnswer};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{EntryView, MemoryWindow};
use fpga_protocol::scheme::messages::{Receiver, ReceiverConfig, ReceiverCounters};
use fpga_protocol::scheme::traits::{Action, Header, SchemeReceiver as _};

use super::packets::header;
use crate::simulation::{COUNTERS, Cycles, Found, Memory, ShowInput, Simulation, entry_words, installed};

/// Bytes of an answer without its checksum.
const ANSWER_BYTES: usize = 40;

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

/// Both receivers. A difference panics.
pub(crate) struct Lockstep {
    pub(crate) receiver: Receiver,
    config: ReceiverConfig,
    memory: Memory,
    now: u64,
    /// Counters before the last reset; answers by kind: refusals, and all others.
    former: [u64; COUNTERS],
    refusals: u64,
    answers: u64,
    /// Contexts in use after the last event, and their maximum.
    occupancy: u32,
    high_water: u32,
    /// Answers to the last input.
    pub(crate) last_answers: Vec<MessageAnswer>,
    module: Simulation<Input>,
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
        let mut lockstep = Self {
            receiver: Receiver::new(config).unwrap(),
            config,
            memory: Memory::default(),
            now: 0,
            former: [0; COUNTERS],
            refusals: 0,
            answers: 0,
            occupancy: 0,
            high_water: 0,
            last_answers: Vec::new(),
            module: Simulation::start(program, seed, percent, scheme, ANSWER_BYTES),
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
        self.last_answers.clear();
        match input {
            Input::Packet { now, message, payload } => {
                self.module.send_packet(&header(&message, payload.len()), now, &payload);
                let header = Header::Message(message);
                self.receiver.handle_packet(Nanos::new(now), &header, &payload, &mut self.memory);
                if self.receiver.poll_timeout().is_some_and(|due| due.get() <= self.now) {
                    // More requests follow at once.
                    self.time_out();
                } else if std::mem::take(&mut self.memory.is_refused) {
                    // The engine ends the message at once, the module after the response.
                    self.sync();
                }
            }
            Input::Time(now) => {
                self.sync();
                self.now = now;
                self.module.send_time(now);
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
                (self.refusals, self.answers) = (0, 0);
                (self.occupancy, self.high_water) = (0, 0);
                // Memory windows stay (docs/protocol/interface.md 10.7).
                let windows = self.receiver.access().clone();
                self.receiver = Receiver::new(self.config).unwrap();
                *self.receiver.access_mut() = windows;
                self.module.send(b"X");
                self.check_command(&Found::Command { failed: false });
            }
            Input::Latch(index) => {
                self.module.send_latch(b'L', index);
                let entry = self.receiver.entry(index, Nanos::new(self.now));
                let flags = |entry: &EntryView| 1 | u32::from(entry.notify) << 3 | entry.scheme.value() << 8;
                let words = entry_words(index, entry, flags);
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
        self.compare(true);
    }

    fn send_settings(&mut self, timeouts: bool) {
        let config = self.config;
        let times = [Nanos::ZERO, config.silence, config.lifetime];
        let identity = (config.node.get(), config.incarnation.get());
        self.module.send_settings(identity, false, times, timeouts);
    }

    /// Moves the engine's outputs to the queues of the ports.
    fn collect(&mut self) {
        self.module.expect_writes(&mut self.memory);
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
                    bytes.extend(&buffer[..ANSWER_BYTES]);
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
            self.module.expect(found);
        }
    }

    /// Waits until the module is idle, and compares all outputs, counters and levels.
    pub(crate) fn sync(&mut self) {
        self.compare(false);
    }

    /// Like [`Self::sync`]; `sorts`: the answers of different messages may have any order.
    fn compare(&mut self, sorts: bool) {
        self.collect();
        self.module.send(b"Y");
        let live = u32::try_from(self.receiver.live()).unwrap();
        let levels = [live, self.high_water, 0, 0, installed(self.receiver.access())];
        let expected = Found::Sync { counts: self.counts(), levels };
        if sorts {
            self.module.check_command_sorted(&expected, message_of);
        } else {
            self.module.check_command(&expected);
        }
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

    /// Compares all contexts.
    pub(crate) fn compare_contexts(&mut self) {
        for index in 0..self.config.contexts {
            self.input(Input::Latch(u16::try_from(index).unwrap()));
        }
    }
}

impl ShowInput for Input {
    fn show(&self) -> String {
        match self {
            Self::Packet { now, message, payload } => {
                format!("at {now}: {message:?}, {} bytes", payload.len())
            }
            other => format!("{other:?}"),
        }
    }
}

/// Number of the node of the receiver.
pub(crate) const RECEIVER: NodeId = NodeId::new(2);
