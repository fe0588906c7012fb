//! `ni_events` and `ni_faults` against a model of the shares of the ring (docs/protocol/interface.md, 10.5).

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use fpga_firmware::event::{self, Event, EventKind, FaultReason};
use fpga_firmware::generated::{EVENT_RING_ENTRIES_MIN, ni};
use fpga_ni_tests::{Model, start};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;

const MEMORY: usize = 0x1_0000;
const ERRORS_FROM: u64 = 0x8000;
/// Notice slots of a ring without shares.
const UNLIMITED: u32 = 0x1_ffff;
const LOG_ENTRIES: usize = 64;

/// Reporting state of the faults of one reason.
#[derive(Default)]
struct Reported {
    number: Option<u32>,
    more: u32,
    last: Option<Event>,
}

/// Event ring and fault log, one operation at a time.
#[derive(Default)]
struct Ring {
    now: u64,
    enabled: bool,
    base: u64,
    size: u32,
    consumed: u32,
    produced: u32,
    overflows: u32,
    unreported: u32,
    dropped: u32,
    dropping: Option<u32>,
    sequence: u32,
    interrupt: u32,
    faults: HashMap<u8, Reported>,
    log: Vec<Event>,
    memory: Vec<u8>,
}

const fn is_taken(number: u32, consumed: u32) -> bool {
    consumed.wrapping_sub(number) <= u32::MAX / 2
}

impl Ring {
    fn new() -> Self {
        Self { memory: vec![0; MEMORY], ..Self::default() }
    }

    fn restart(&mut self) {
        (self.consumed, self.produced, self.overflows, self.unreported) = (0, 0, 0, 0);
        (self.dropped, self.dropping, self.sequence) = (0, None, 0);
        self.faults.clear();
    }

    fn enable(&mut self, on: bool) {
        if on && !self.enabled {
            self.restart();
        }
        self.enabled = on;
    }

    fn write(&mut self, register: u32, value: u32) -> bool {
        match register {
            ni::EVENT_RING_BASE_LOW if value.is_multiple_of(64) && !self.enabled => {
                self.base = self.base >> 32 << 32 | u64::from(value);
            }
            ni::EVENT_RING_BASE_HIGH if !self.enabled => {
                self.base = self.base & 0xffff_ffff | u64::from(value) << 32;
            }
            ni::EVENT_RING_SIZE if value.is_power_of_two() && value <= 0x1_0000 && !self.enabled => {
                self.size = value;
            }
            ni::EVENT_CONSUMED
                if self.produced.wrapping_sub(value) <= self.produced.wrapping_sub(self.consumed) =>
            {
                self.consumed = value;
                self.report_lost();
                self.report_counted();
            }
            ni::EVENT_INTERRUPT => self.interrupt = value & 0xf01,
            _ => return false,
        }
        true
    }

    fn has_space(&self) -> bool {
        self.produced.wrapping_sub(self.consumed) < self.size
    }

    fn has_table_credit(&self) -> bool {
        self.size < EVENT_RING_ENTRIES_MIN || self.produced.wrapping_sub(self.consumed) < self.size / 4
    }

    fn notice_slots(&self) -> u32 {
        if !self.enabled || self.size < EVENT_RING_ENTRIES_MIN {
            return UNLIMITED;
        }
        (self.size / 2).saturating_sub(self.produced.wrapping_sub(self.consumed))
    }

    fn post(&mut self, event: Event) {
        if !self.enabled {
            return;
        }
        let is_of_table = matches!(
            event.kind,
            EventKind::Registered
                | EventKind::Packet
                | EventKind::Completed
                | EventKind::Expired
                | EventKind::Escaped
                | EventKind::EscapeReleased
        );
        if !is_of_table {
            return self.put(event);
        }
        let is_dropping = self.dropping.is_some_and(|number| !is_taken(number, self.consumed));
        if !is_dropping && self.has_table_credit() {
            return self.put(event);
        }
        let count = self.dropped;
        self.dropped += 1;
        if !is_dropping {
            self.dropping = Some(self.produced.wrapping_add(1));
            self.put(Event { count, time: event.time, ..Event::new(EventKind::Dropped) });
        }
    }

    /// Writes an event, or loses it if the ring is full.
    fn put(&mut self, event: Event) {
        if self.has_space() {
            return self.write_event(event);
        }
        self.overflows += 1;
        if self.unreported == 0 {
            let mut fault = Event { count: 1, time: self.now, ..Event::new(EventKind::Fault) };
            fault.reason = FaultReason::EventLost.value();
            self.log.push(fault);
        }
        self.unreported += 1;
    }

    fn report_lost(&mut self) {
        if self.enabled && self.unreported > 0 && self.has_space() {
            let count = std::mem::take(&mut self.unreported);
            let mut event = Event { count, time: self.now, ..Event::new(EventKind::Fault) };
            event.reason = FaultReason::EventLost.value();
            self.write_event(event);
        }
    }

    fn write_event(&mut self, event: Event) {
        self.sequence = event::next_sequence(self.sequence);
        let entry = u64::from(self.produced & (self.size - 1));
        let address = self.base + entry * event::SIZE as u64;
        self.produced = self.produced.wrapping_add(1);
        if address >= ERRORS_FROM {
            let mut fault = Event::new(EventKind::Fault);
            fault.reason = FaultReason::EventWrite.value();
            (fault.time, fault.address, fault.length) =
                (self.now, fpga_registers::CardAddr::new(address), 64);
            self.log.push(fault);
            return;
        }
        let at = usize::try_from(address).unwrap();
        let bytes = Event { sequence: self.sequence, ..event }.encode();
        self.memory[at..at + event::SIZE].copy_from_slice(&bytes);
    }

    fn fault(&mut self, event: Event) {
        self.log.push(event);
        if !self.enabled {
            return;
        }
        let reported = self.faults.entry(event.reason).or_default();
        if reported.number.is_some_and(|number| !is_taken(number, self.consumed)) {
            reported.more += 1;
            reported.last = Some(event);
            return;
        }
        reported.number = Some(self.produced.wrapping_add(1));
        self.post(event);
    }

    fn report_counted(&mut self) {
        for reason in 1..=9 {
            let (consumed, number) = (self.consumed, self.produced.wrapping_add(1));
            let Some(reported) = self.faults.get_mut(&reason).filter(|_| self.enabled) else { continue };
            let is_unconsumed = reported.number.is_some_and(|number| !is_taken(number, consumed));
            if reported.more == 0 || is_unconsumed {
                continue;
            }
            let generation = std::mem::take(&mut reported.more) - 1;
            reported.number = Some(number);
            let event = Event { generation, ..reported.last.unwrap() };
            self.put(event);
        }
    }

    fn state(&self) -> String {
        let line = self.interrupt >> 8;
        let raised = self.interrupt & 1 != 0 && self.produced != self.consumed;
        format!(
            "r {:x} {:x} {:x} {:x} {:x} {:x} {:x} {:x} {:x} {:x} {:x}",
            self.base,
            self.size,
            self.consumed,
            self.produced,
            self.produced,
            self.overflows,
            self.dropped,
            self.interrupt,
            self.notice_slots(),
            u32::from(raised) << line,
            u32::from(!self.log.is_empty()),
        )
    }

    /// Words 0 to 13 of the window of the fault log, and COUNT.
    fn log_window(&self, index: usize) -> String {
        let mut words = vec![index as u64; 1];
        match self.log.iter().rev().take(LOG_ENTRIES).nth(index) {
            None => words.extend([0; 13]),
            Some(fault) => {
                let low = |value: u64| value & 0xffff_ffff;
                words.extend([1, fault.reason.into(), fault.index.into(), fault.node.get().into()]);
                words.extend([fault.transfer.get(), fault.segment, fault.count].map(u64::from));
                for value in [fault.address.get(), fault.length, fault.time] {
                    words.extend([low(value), value >> 32]);
                }
            }
        }
        words.push(self.log.len() as u64);
        words.iter().fold("l".to_owned(), |text, word| format!("{text} {word:x}"))
    }
}

/// Operations for the module, and what the model expects of each output line.
struct Script {
    ring: Ring,
    text: String,
    expected: Vec<String>,
    /// Waits after each operation. Without it, events arrive at full rate, and the ring never becomes full.
    settles: bool,
}

impl Script {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn settle(&mut self) {
        self.line("s");
    }

    fn write(&mut self, register: u32, value: u32) -> bool {
        let taken = self.ring.write(register, value);
        self.line(&format!("w {register:x} {value:x}"));
        self.expected.push(format!("w {}", u32::from(taken)));
        if self.settles {
            self.settle();
        }
        taken
    }

    fn offer(&mut self, event: Event) {
        let bytes = event.encode();
        let kind = if event.kind == EventKind::Fault { 'f' } else { 'e' };
        if kind == 'f' {
            self.ring.fault(event);
        } else {
            self.ring.post(event);
        }
        let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        });
        self.line(&format!("{kind} {hex}"));
        if self.settles {
            self.settle();
        }
    }

    fn compare(&mut self) {
        self.settle();
        self.line("r");
        self.expected.push(self.ring.state());
    }

    /// Sets up a ring of `size` entries at `base`; `false` if the ring is in use.
    fn set_up(&mut self, base: u64, size: u32) {
        self.line("n 0");
        self.ring.enable(false);
        self.settle();
        for (register, value) in [
            (ni::EVENT_RING_BASE_LOW, base & 0xffff_ffff),
            (ni::EVENT_RING_BASE_HIGH, base >> 32),
            (ni::EVENT_RING_SIZE, size.into()),
            (ni::EVENT_INTERRUPT, 0x1_0301),
        ] {
            self.write(register, u32::try_from(value).unwrap());
        }
        self.line("n 1");
        self.ring.enable(true);
        self.compare();
    }
}

const KINDS: [EventKind; 9] = [
    EventKind::Ack,
    EventKind::Registered,
    EventKind::Packet,
    EventKind::Completed,
    EventKind::Escaped,
    EventKind::EscapeReleased,
    EventKind::Expired,
    EventKind::Notice,
    EventKind::WindowFree,
];

const REASONS: [FaultReason; 4] =
    [FaultReason::Violation, FaultReason::BadPacket, FaultReason::BadSetting, FaultReason::MemoryFault];

fn random_fault(rng: &mut Pcg64) -> Event {
    loop {
        let event = random_event(rng);
        if event.kind == EventKind::Fault {
            return event;
        }
    }
}

fn random_event(rng: &mut Pcg64) -> Event {
    let kind = if rng.next_u32().is_multiple_of(5) {
        EventKind::Fault
    } else {
        KINDS[rng.next_u32() as usize % KINDS.len()]
    };
    let mut event = Event::new(kind);
    if kind == EventKind::Fault {
        event.reason = REASONS[rng.next_u32() as usize % REASONS.len()].value();
    }
    event.index = u16::try_from(rng.next_u32() >> 16).unwrap();
    event.node = fpga_firmware::NodeId::new(rng.next_u32());
    event.transfer = fpga_firmware::TransferId::new(rng.next_u32());
    (event.segment, event.count, event.length, event.time) =
        (rng.next_u32(), rng.next_u32(), rng.next_u64(), rng.next_u64());
    event
}

fn random_script(seed: u64, settles: bool) -> Script {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut script = Script { ring: Ring::new(), text: String::new(), expected: Vec::new(), settles };
    let sizes: &[u32] = if settles { &[16, 32, 64, 128] } else { &[64, 128, 256] };
    for round in 0..12 {
        let size = sizes[rng.next_u32() as usize % sizes.len()];
        // Some rings extend into the memory that answers with errors. Their faults come later than those of the events behind them, unless
        // each event is waited for.
        let base = if settles && round % 4 == 3 {
            ERRORS_FROM - 64 * u64::from(size.div_ceil(2))
        } else {
            0x400 * round
        };
        script.set_up(base, size);
        for step in 0..30_u64 {
            script.ring.now = 1000 * u64::from(rng.next_u32());
            let now = script.ring.now;
            script.line(&format!("t {now:x}"));
            for _ in 0..rng.next_u32() % 24 {
                let held = script.ring.produced.wrapping_sub(script.ring.consumed);
                // Space for the fault below and those that were counted.
                if settles || held + 8 < size {
                    script.offer(random_event(&mut rng));
                }
            }
            script.compare();
            let held = script.ring.produced.wrapping_sub(script.ring.consumed);
            // Space for all reports at once: the running number of a report that is lost depends on the time at which it is lost.
            let count = if held < 8 { held } else { 8 + rng.next_u32() % (held - 7) };
            let some = script.ring.consumed.wrapping_add(count);
            match rng.next_u32() % 12 {
                0 => drop(script.write(ni::EVENT_CONSUMED, script.ring.produced + 1)),
                1 => drop(script.write(ni::EVENT_CONSUMED, script.ring.consumed.wrapping_sub(1))),
                2 => drop(script.write(ni::EVENT_RING_SIZE, 64)),
                3 => drop(script.write(ni::EVENT_RING_BASE_LOW, 64)),
                4 if step % 3 == 0 => {
                    script.line("c");
                    script.ring.restart();
                }
                5 => {}
                _ => drop(script.write(ni::EVENT_CONSUMED, some)),
            }
            // In the cycle after the write.
            if !settles {
                let fault = random_fault(&mut rng);
                script.offer(fault);
            }
            script.compare();
        }
    }
    for index in [0, 1, 2, 30, 62, 63, 64, 1000] {
        script.line(&format!("l {index:x}"));
        script.expected.push(script.ring.log_window(index));
    }
    script.line(&format!("m 0 {MEMORY:x}"));
    let memory = std::mem::take(&mut script.ring.memory);
    let mut text = "m ".to_owned();
    memory.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
    script.expected.push(text);
    script
}

fn build(bus: usize) -> Option<PathBuf> {
    let model = Model {
        name: &format!("events_{bus}"),
        top: "events_bench",
        files: &[
            "ni_fifo.sv",
            "ni_arbiter.sv",
            "ni_write.sv",
            "ni_events.sv",
            "ni_faults.sv",
            "../../../tests/rtl/sv/events_bench.sv",
        ],
        parameters: &[("BUS", bus as u64)],
        driver: "events.cpp",
    };
    model.build().unwrap()
}

/// Executes the script, and compares the outputs.
fn run(program: &std::path::Path, bus: usize, seed: u32, percent: usize, script: Script) {
    let arguments = [bus / 8, seed as usize, percent, MEMORY, usize::try_from(ERRORS_FROM).unwrap()]
        .map(|n| n.to_string());
    let mut child = start(program, seed, &arguments.each_ref().map(String::as_str)).unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = script.text.clone();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "bus {bus}, seed {seed}: {}", output.status);
    let found = String::from_utf8(output.stdout).unwrap();
    for (number, (found, expected)) in found.lines().zip(&script.expected).enumerate() {
        assert!(
            found == expected,
            "bus {bus}, seed {seed}, output {number}: {found:.300}, expected {expected:.300}"
        );
    }
    assert_eq!(found.lines().count(), script.expected.len(), "bus {bus}, seed {seed}");
}

fn compare(bus: usize, settles: bool) {
    let Some(program) = build(bus) else { return };
    for seed in 1..6_u32 {
        let script = random_script(seed.into(), settles);
        let percent = [100, 60, 30, 90, 10][seed as usize - 1];
        run(&program, bus, seed, percent, script);
    }
}

#[test]
fn event_ring_at_full_rate_matches_model() {
    compare(512, false);
    compare(64, false);
}

#[test]
fn event_ring_overflow_matches_model() {
    compare(512, true);
}

/// Responses to events from before a restart of the ring do not count.
#[test]
fn event_ring_restart_with_writes_in_flight_counts_from_zero() {
    let Some(program) = build(512) else { return };
    let new = || Script { ring: Ring::new(), text: String::new(), expected: Vec::new(), settles: false };
    for (seed, restart) in (1..40).zip(["c", "n 0\nn 1"].into_iter().cycle()) {
        let mut script = new();
        script.set_up(0, 64);
        let mut rng = Pcg64::seed_from_u64(seed.into());
        for _ in 0..1 + seed % 7 {
            script.offer(random_event(&mut rng));
        }
        script.line(restart);
        script.ring.restart();
        for _ in 0..2 {
            script.offer(Event { kind: EventKind::Ack, reason: 0, ..random_event(&mut rng) });
        }
        script.compare();
        script.line("m 0 80");
        let entries = &script.ring.memory[..2 * event::SIZE];
        let text = entries.iter().fold("m ".to_owned(), |text, byte| format!("{text}{byte:02x}"));
        script.expected.push(text);
        run(&program, 512, seed, 20, script);
    }
}
