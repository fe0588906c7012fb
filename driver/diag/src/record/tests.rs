//! Tests of the log's text format and of replays.

use std::sync::Mutex;
use std::time::Duration;

use fpga_sim::SimNetwork;
use proptest::prelude::*;

use super::log::{Entry, HEAD, LineProblem, Log, LogError, Value};
use super::replay::{Replay, ReplayError, replay};
use super::*;

#[derive(Default)]
struct Seen(Mutex<Vec<Access>>);

impl Observer for Seen {
    fn accessed(&self, access: &Access) {
        self.0.lock().unwrap().push(access.clone());
    }
}

fn text(seen: &Seen) -> String {
    let seen = seen.0.lock().unwrap();
    let start = seen.first().map_or(0, |access| access.time);
    let lines: Vec<String> =
        seen.iter().map(|access| format!("{}  # a note\n", Entry::of(access, start))).collect();
    format!("# a comment\n\n{HEAD}\n{}", lines.concat())
}

fn log(lines: &str) -> Log {
    Log::parse(&format!("{HEAD}\n{lines}")).unwrap()
}

#[test]
fn recorder_every_access_is_recorded_as_text() {
    let network = SimNetwork::builder().cards(1).build().unwrap();
    let seen = Arc::new(Seen::default());
    let card = Recorder::new(network.backend(0), Arc::clone(&seen) as Arc<dyn Observer>);
    let (dma, bypass) = (card.open_bar(1).unwrap(), card.open_bar(2).unwrap());
    let at = BarOffset::new;
    assert_eq!(dma.read32(at(0x3000)).unwrap(), 0x1FC3_0006);
    dma.write32(at(0x88), 0x1234_0000).unwrap();
    bypass.write64(at(0x100), 0x1122_3344_5566_7788).unwrap();
    assert_eq!(bypass.read64(at(0x100)).unwrap(), 0x1122_3344_5566_7788);
    let mut block = [0; 8];
    bypass.read_block(at(0x100), &mut block).unwrap();
    bypass.write_block(at(0x200), &block).unwrap();
    card.pause(Duration::from_micros(5));
    // A slice of a BAR has its own offsets; the log has the BAR's offsets.
    dma.slice(at(0x3000), 16).unwrap().read32(at(0)).unwrap();
    dma.read32(at(0x1_0000)).unwrap_err();
    network.fail(0, fpga_sim::CardFailure::Gone);
    dma.read32(at(0)).unwrap_err();
    let text = text(&seen);
    let lines: Vec<String> = text
        .lines()
        .skip(3)
        .map(|line| line.split("  #").next().unwrap().get(17..).unwrap().to_owned())
        .collect();
    assert_eq!(
        lines,
        [
            "read    bar1 0x3000 0x1fc30006",
            "write   bar1 0x0088 0x12340000",
            "write64 bar2 0x0100 0x1122334455667788",
            "read64  bar2 0x0100 0x1122334455667788",
            "read    bar2 0x0100 0x55667788",
            "read    bar2 0x0104 0x11223344",
            "write   bar2 0x0200 0x55667788",
            "write   bar2 0x0204 0x11223344",
            "read    bar1 0x3000 0x1fc30006",
            "read    bar1 0x0000 failed",
        ],
        "{text}"
    );
    let log = Log::parse(&text).unwrap();
    let times: Vec<Duration> = log.entries().iter().map(|entry| entry.time).collect();
    assert!(times.is_sorted() && times[8] - times[7] >= Duration::from_micros(5), "{times:?}");
    assert_eq!((log.entries()[0].line, log.entries()[9].line), (4, 13));
}

#[test]
fn recorder_narrow_writes_are_recorded_and_replayed() {
    let network = SimNetwork::builder().cards(2).build().unwrap();
    let seen = Arc::new(Seen::default());
    let card = Recorder::new(network.backend(0), Arc::clone(&seen) as Arc<dyn Observer>);
    let (bypass, at) = (card.open_bar(2).unwrap(), BarOffset::new);
    bypass.write32(at(0x100), 0).unwrap();
    bypass.write_narrow(at(0x101), &[0xAB]).unwrap();
    bypass.write_narrow(at(0x102), &[0xCD, 0xEF]).unwrap();
    assert!(
        bypass.write_narrow(at(0x101), &[0; 2]).is_err() && bypass.write_narrow(at(0x100), &[0; 3]).is_err()
    );
    assert_eq!(bypass.read32(at(0x100)).unwrap(), 0xEFCD_AB00);
    let text = text(&seen);
    assert!(
        text.contains("write8  bar2 0x0101 0xab ") && text.contains("write16 bar2 0x0102 0xefcd "),
        "{text}"
    );
    let log = Log::parse(
        &text
            .lines()
            .filter(|line| !line.contains("failed"))
            .map(|line| format!("{line}\n"))
            .collect::<String>(),
    );
    let done = replay(&*network.backend(1), &log.unwrap(), &Replay::default(), &mut || true).unwrap();
    assert_eq!((done.reads, done.writes, done.difference), (1, 3, None));
}

#[test]
fn replay_of_other_card_is_refused_before_access() {
    let network = SimNetwork::builder().cards(1).build().unwrap();
    let card = network.backend(0);
    let write = "0 write bar1 0x88 0x7777\n";
    let run = |line: &str| {
        replay(&*card, &log(&format!("{write}{line}")), &Replay::default(), &mut || true).unwrap_err()
    };
    let error = run("0 read bar1 0x10000 0");
    assert!(matches!(error, ReplayError::Outside { line: 3, bar: 1, size: 0x1_0000, .. }), "{error}");
    let error = run("0 read bar5 0 0");
    assert!(matches!(error, ReplayError::Bar { line: 3, .. }), "{error}");
    let error = run("0 read64 bar1 0xfffffffffffffff8 0");
    assert!(error.to_string().contains("line 3"), "{error}");
    assert_eq!(card.open_bar(1).unwrap().read32(BarOffset::new(0x88)).unwrap(), 0);
}

#[test]
fn log_invalid_text_is_refused_with_line() {
    for (text, line, part) in [
        ("", 1, "the text is empty"),
        ("# nothing\n\n", 2, "the text is empty"),
        ("{\"json\": 1}\n", 1, "is not a register log"),
        ("\nregister-log 2\n", 2, "version 2"),
        ("register-log\n", 1, "version  is not supported"),
        ("register-log 1\n0 read bar1 0x40\n", 2, "is not an access: write seconds"),
        ("register-log 1\n0 read bar1 0x40 1 2\n", 2, "is not an access: write seconds"),
        ("register-log 1\n\n# x\n-1 read bar1 0x40 1\n", 4, "\"-1\" is not a time"),
        ("register-log 1\n1.0000000001 read bar1 0x40 1\n", 2, "is not a time"),
        ("register-log 1\n1.+2 read bar1 0x40 1\n", 2, "is not a time"),
        ("register-log 1\n99999999999999999999 read bar1 0x40 1\n", 2, "is not a time"),
        ("register-log 1\n0 peek bar1 0x40 1\n", 2, "\"peek\" is not an access"),
        ("register-log 1\n0 read bar6 0x40 1\n", 2, "bar0 to bar5"),
        ("register-log 1\n0 read dma 0x40 1\n", 2, "bar0 to bar5"),
        ("register-log 1\n0 read bar1 0x41 1\n", 2, "a multiple of 4"),
        ("register-log 1\n0 read64 bar1 0x44 1\n", 2, "a multiple of 8"),
        ("register-log 1\n0 read bar1 +64 1\n", 2, "is not an offset"),
        (
            "register-log 1\n0 read bar1 0x40 0x100000000\n",
            2,
            "a number of 4 bytes, such as 0x1, or failed, or any",
        ),
        ("register-log 1\n0 write bar1 0x40 any\n", 2, "or failed"),
        ("register-log 1\n0 write bar1 0x40 0x\n", 2, "is not a value"),
    ] {
        let error = Log::parse(text).unwrap_err();
        assert!(matches!(error, LogError::Line { line: found, .. } if found == line), "{text:?}: {error}");
        assert!(error.to_string().contains(part), "{text:?}: {error}");
    }
    let long = format!("{HEAD}\n# {}\n", "x".repeat(70_000));
    assert!(matches!(Log::parse(&long), Err(LogError::Line { line: 2, problem: LineProblem::TooLong })));
    let bytes: &[u8] = b"register-log 1\n\xFF\n";
    let error = Log::read(bytes).unwrap_err();
    assert!(matches!(error, LogError::Line { line: 2, problem: LineProblem::NoText }), "{error}");
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let value = prop_oneof![any::<u64>().prop_map(Value::Number), Just(Value::Any), Just(Value::Failed)];
    let parts =
        (0_u64..1 << 40, 0_u32..1_000_000_000, any::<bool>(), 0_usize..4, 0_u8..6, any::<u64>(), value);
    parts.prop_map(|(seconds, nanos, read, width, bar, at, value)| {
        let width =
            [Width::Word, Width::Pair, Width::Byte, Width::Half][if read { width % 2 } else { width }];
        let way = if read { AccessDirection::Read } else { AccessDirection::Write };
        let value = match value {
            Value::Number(value) => Value::Number(value & u64::MAX >> (64 - 8 * width.bytes())),
            Value::Any if !read => Value::Failed,
            other => other,
        };
        let at = BarOffset::new(at & !(width.bytes() - 1));
        Entry { line: 2, time: Duration::new(seconds, nanos), direction: way, width, bar, at, value }
    })
}

proptest! {
    #[test]
    fn log_lines_round_trip(entry in any_entry()) {
        let log = Log::parse(&format!("{HEAD}\n{entry}")).unwrap();
        prop_assert_eq!(log.entries(), &[entry]);
    }

    #[test]
    fn log_any_text_does_not_panic(text in ".*", entry in any_entry(), cut in any::<prop::sample::Index>()) {
        let _ = Log::parse(&text);
        let line = entry.to_string();
        let _ = Log::parse(&format!("{HEAD}\n{}{text}", &line[..cut.index(line.len())]));
    }
}
