//! A receiver in simulation: inputs to it, and its outputs beside those that the protocol engine predicts.

#![expect(clippy::panic, reason = "a difference ends the test")]

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufReader, BufWriter, Read, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use fpga_firmware::generated::Permissions;
use fpga_firmware::ids::NodeId;
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{AccessTable, EntryView, MemoryFault, MemoryWindow, ReceiveMemory};
use fpga_registers::CardAddr;
use fpga_registers::cast::{high32, low32};

/// Addresses that refuse writes.
pub(crate) const BAD: std::ops::RangeInclusive<u64> = 0xBAD_0000..=0xBAD_FFFF;

/// Number of inputs that a failure shows.
const SHOWN: usize = 24;

/// Longest time without an output.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Number of counters that the driver reports.
pub(crate) const COUNTERS: usize = 13;

/// One output of the module, or the same one as the engine predicts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Length without checksum, and the bytes.
    Answer(Vec<u8>),
    Event(Vec<u8>),
    Fault(Vec<u8>),
    Write {
        address: u64,
        data: Vec<u8>,
    },
    Command {
        failed: bool,
    },
    Shadow(Vec<u8>),
    Sync {
        counts: [u64; COUNTERS],
        levels: [u32; 5],
    },
}

/// Cycles of the simulation up to a synchronisation.
pub(crate) type Cycles = u64;

/// An input that a failure shows.
pub(crate) trait ShowInput {
    /// One line of text.
    fn show(&self) -> String;
}

/// Card memory of the engine's receiver.
#[derive(Default)]
pub(crate) struct Memory {
    /// Addresses and data of the writes since the last [`Simulation::expect_writes`].
    writes: Vec<(u64, Vec<u8>)>,
    /// Whether a write was refused.
    pub(crate) is_refused: bool,
}

impl ReceiveMemory for Memory {
    fn write(&mut self, at: CardAddr, bytes: &[u8]) -> Result<(), MemoryFault> {
        let length = bytes.len() as u64;
        if at.get() + length > *BAD.start() && at.get() <= *BAD.end() {
            self.is_refused = true;
            return Err(MemoryFault { address: at, length });
        }
        self.writes.push((at.get(), bytes.to_vec()));
        Ok(())
    }
}

/// The simulated module with the inputs so far. A difference panics.
pub(crate) struct Simulation<I: ShowInput> {
    inputs: Vec<I>,
    /// Outputs that the engine predicts, with the number of the input; per port.
    expected: [VecDeque<(usize, Found)>; 4],
    child: Child,
    commands: Option<BufWriter<ChildStdin>>,
    found: Receiver<(Found, Cycles)>,
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

impl<I: ShowInput> Simulation<I> {
    /// Starts the simulation. `percent`: share of the cycles in which a port is ready; 0 changes it at random. `more`: further arguments of
    /// the program. `answer_bytes`: bytes of an answer in its output.
    pub(crate) fn start(
        program: &Path,
        seed: u32,
        percent: u32,
        more: &[String],
        answer_bytes: usize,
    ) -> Self {
        let mut arguments =
            vec![seed.to_string(), percent.to_string(), BAD.start().to_string(), BAD.end().to_string()];
        arguments.extend_from_slice(more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut child = fpga_ni_tests::start(program, seed, &arguments).unwrap();
        let commands = child.stdin.take().map(|pipe| BufWriter::with_capacity(1 << 16, pipe));
        let output = BufReader::with_capacity(1 << 16, child.stdout.take().unwrap());
        let (sender, found) = channel();
        std::thread::spawn(move || read_outputs(output, answer_bytes, &sender));
        Self {
            inputs: Vec::new(),
            expected: Default::default(),
            child,
            commands,
            found,
            cycles: 0,
            name: format!("seed {seed}"),
        }
    }

    /// Records the input that the next bytes belong to.
    pub(crate) fn note_input(&mut self, input: I) {
        self.inputs.push(input);
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let sent = self.commands.as_mut().is_some_and(|pipe| pipe.write_all(bytes).is_ok());
        if !sent {
            self.fail("the simulation has ended");
        }
    }

    /// Sends a packet: header, time of its arrival and payload.
    pub(crate) fn send_packet(&mut self, header: &[u8], now: u64, payload: &[u8]) {
        let length = u16::try_from(payload.len()).unwrap().to_le_bytes();
        self.send(&[&b"P"[..], header, &now.to_le_bytes(), &length, payload].concat());
    }

    pub(crate) fn send_time(&mut self, now: u64) {
        self.send(&[&b"T"[..], &now.to_le_bytes()].concat());
    }

    pub(crate) fn send_notice_slots(&mut self, slots: u32) {
        self.send(&[&b"N"[..], &slots.to_le_bytes()].concat());
    }

    /// Sends a command that latches the entry `index` of the table `kind`.
    pub(crate) fn send_latch(&mut self, kind: u8, index: u16) {
        self.send(&[&[kind][..], &index.to_le_bytes()].concat());
    }

    /// Sends identity, PACKET_EVENTS and timeouts; `timeouts`: they have changed.
    pub(crate) fn send_settings(
        &mut self,
        (node, incarnation): (u32, u32),
        packet_events: bool,
        times: [Nanos; 3],
        timeouts: bool,
    ) {
        let mut bytes = vec![b'S'];
        bytes.extend(node.to_le_bytes());
        bytes.extend(incarnation.to_le_bytes());
        bytes.push(packet_events.into());
        times.iter().for_each(|time| bytes.extend(time.get().to_le_bytes()));
        bytes.push(timeouts.into());
        self.send(&bytes);
    }

    /// Installs a memory window in the module and in the engine's table. Returns the result of the command.
    pub(crate) fn install(&mut self, access: &mut AccessTable, index: u16, window: MemoryWindow) -> Found {
        let MemoryWindow { source, base, length, key, permissions } = window;
        let mut bytes = vec![b'W'];
        bytes.extend(index.to_le_bytes());
        bytes.extend(source.get().to_le_bytes());
        [base.get(), length, key].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.push(u8::try_from(permissions.bits()).unwrap());
        self.send(&bytes);
        Found::Command { failed: access.install(index.into(), window).is_err() }
    }

    /// Removes a memory window from both. Returns the result of the command.
    pub(crate) fn remove(&mut self, access: &mut AccessTable, index: u16) -> Found {
        self.send(&[&b"R"[..], &index.to_le_bytes()].concat());
        Found::Command { failed: access.remove(index.into()).is_err() }
    }

    /// Expects an output of the last input.
    pub(crate) fn expect(&mut self, found: Found) {
        let number = self.inputs.len().saturating_sub(1);
        self.expected[port(&found).unwrap()].push_back((number, found));
    }

    /// Expects the writes of the engine's receiver.
    pub(crate) fn expect_writes(&mut self, memory: &mut Memory) {
        for (address, data) in memory.writes.drain(..) {
            self.expect(Found::Write { address, data });
        }
    }

    /// Compares all outputs up to the result of a command, and that with `expected`.
    pub(crate) fn check_command(&mut self, expected: &Found) {
        self.receive_until(expected, false);
    }

    /// Like [`Self::check_command`], but answers with different `key`s may have any order.
    pub(crate) fn check_command_sorted(&mut self, expected: &Found, key: fn(&Found) -> Vec<u8>) {
        self.expected[0].make_contiguous().sort_by_key(|(_, found)| key(found));
        let mut answers = self.receive_until(expected, true);
        answers.sort_by_key(key);
        answers.iter().for_each(|answer| self.check(answer));
    }

    /// Fails if an expected output has not come.
    pub(crate) fn check_nothing_missing(&mut self) {
        if let Some((number, missing)) = self.expected.iter().flatten().next().cloned() {
            self.fail(&format!("input {number}: {} is missing", show(&missing)));
        }
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

    fn fail(&mut self, difference: &str) -> ! {
        let mut text = format!("{}: {difference}\nlast inputs:\n", self.name);
        let first = self.inputs.len().saturating_sub(SHOWN);
        for (number, input) in self.inputs.iter().enumerate().skip(first) {
            let _ = writeln!(text, "{number}: {}", input.show());
        }
        let _ = self.child.kill();
        panic!("{text}");
    }
}

impl<I: ShowInput> Drop for Simulation<I> {
    fn drop(&mut self) {
        self.commands = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Number of installed memory windows.
pub(crate) fn installed(access: &AccessTable) -> u32 {
    (0..access.capacity()).map(|index| u32::from(access.get(index).is_some())).sum()
}

/// Shadow words of block `registry` for an entry or context; `flags`: word 1 of a valid one.
pub(crate) fn entry_words(index: u16, entry: Option<EntryView>, flags: fn(&EntryView) -> u32) -> Vec<u8> {
    let mut words = [0u32; 24];
    words[0] = index.into();
    if let Some(entry) = entry.filter(|entry| entry.valid) {
        words[1] = flags(&entry);
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
    bytes_of(&words)
}

pub(crate) fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub(crate) fn halves(value: u64) -> [u32; 2] {
    [low32(value), high32(value)]
}

pub(crate) fn micros(age: Nanos) -> u32 {
    u32::try_from(age.get() / 1000).unwrap_or(u32::MAX)
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

/// Visits every order of `items[from..]`.
pub(crate) fn orders(items: &mut [u16], from: usize, visit: &mut impl FnMut(&[u16])) {
    if from == items.len() {
        visit(items);
        return;
    }
    for at in from..items.len() {
        items.swap(from, at);
        orders(items, from + 1, visit);
        items.swap(from, at);
    }
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
fn read_outputs(mut output: impl Read, answer_bytes: usize, sender: &Sender<(Found, Cycles)>) -> Option<()> {
    fn take<const N: usize>(output: &mut impl Read) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        output.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }
    let output = &mut output;
    loop {
        let mut cycles = 0;
        let found = match take::<1>(output)?[0] {
            b'A' => {
                let mut bytes = vec![0; 1 + answer_bytes];
                output.read_exact(&mut bytes).ok()?;
                Found::Answer(bytes)
            }
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
                let (mut counts, mut levels) = ([0; COUNTERS], [0; 5]);
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
