//! Maps as users write them: valid ones and their content, invalid ones and their error messages.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use fpga_register_map::{AccessError, MapError, NameError, Problem, RegisterMap, Registers};
use fpga_registers::{AccessKind, BarOffset, RegisterIo};
use proptest::prelude::*;

const MAP: &str = "\
schema_version: 1
name: scaler
doc: Scales a stream.
enums:
  - name: Mode
    variants:
      - {name: idle, value: 0}
      - {name: run, value: 1}
      - {name: drain, value: 2}
blocks:
  - name: scaler
    offset: 0x1000
    size: 0x100
    registers:
      - name: control
        offset: 0
        reset: 1
        doc: Starts and stops.
        fields:
          - {name: start, bits: 0, access: w1s}
          - {name: mode, bits: 2:1, enum: Mode}
          - {name: done, bits: 3, access: rc}
      - {name: gain, offset: 0x10, count: 4, stride: 8}
      - {name: cycles, offset: 0x40, width: 64, access: ro, reset: 0x100000002}
      - {name: events, offset: 0x50, access: rw1c, fields: [{name: late, bits: 4}, {name: lost, bits: 5}]}
      - {name: queue, offset: 0x54, access: rc}
      - {name: key, offset: 0x58, access: wo, fields: [{name: low, bits: 15:0}, {name: high, bits: 31:16}]}
      - {name: window, offset: 0x5c, fields: [{name: first, bits: 11:0}, {name: last, bits: 27:16, access: ro}]}
      - {name: mode, offset: 0x60, enum: Mode}
  - {name: second, offset: 0x2000, like: scaler, registers: [{name: extra, offset: 0x80}]}
  - {name: lane, offset: 0x3000, size: 16, count: 3, registers: [{name: level, offset: 4, access: ro}]}
";

fn parse(text: &str) -> Result<RegisterMap, MapError> {
    RegisterMap::parse(Path::new("m.yaml"), text)
}

#[test]
fn map_arrays_pairs_and_likes_are_laid_out() {
    let map = parse(MAP).unwrap();
    assert_eq!((map.name(), map.doc()), ("scaler", "Scales a stream."));
    let at = |name: &str| map.find(name).unwrap().register.address.get();
    for (name, address) in [
        ("scaler.control", 0x1000),
        ("scaler.gain[0]", 0x1010),
        ("SCALER.Gain[3]", 0x1028),
        ("scaler.cycles_low", 0x1040),
        ("scaler.cycles_high", 0x1044),
        ("second.gain[1]", 0x2018),
        ("second.extra", 0x2080),
        ("lane[2].level", 0x3024),
    ] {
        assert_eq!(at(name), address, "{name}");
    }
    assert_eq!(map.registers().len(), 12 * 2 + 1 + 3);
    assert!(map.registers().is_sorted_by_key(|register| register.address));
    let control = map.find("scaler.control").unwrap().register;
    assert_eq!((control.access, control.reset), (AccessKind::ReadWrite, Some(1)));
    assert_eq!(map.doc_of(control), "Starts and stops.");
    assert!(map.read_has_side_effect(control), "a field of it is clear-on-read");
    assert!(map.read_has_side_effect(map.find("scaler.queue").unwrap().register));
    let high = map.find("scaler.cycles_high").unwrap().register;
    assert_eq!((high.reset, map.read_has_side_effect(high)), (Some(1), false));
    let mode = map.find("second.control.mode").unwrap();
    assert_eq!(mode.to_string(), "second.control.mode");
    assert_eq!(map.values(mode).unwrap().name_of(2), Some("drain"));
    assert_eq!(map.values(map.find("scaler.mode").unwrap()).unwrap().number_of("RUN"), Some(1));
}

#[test]
fn map_errors_have_position() {
    let mut differences = String::new();
    let head = "schema_version: 1\nname: x\n";
    let blocks = |blocks: &str| format!("{head}blocks:\n{blocks}");
    let block = |registers: &str| blocks(&format!("- name: b\n  offset: 0\n  registers:\n{registers}"));
    for (text, place, parts) in [
        ("".to_owned(), "m.yaml:1:1", &["missing key `schema_version`"][..]),
        ("blocks: [{".to_owned(), "m.yaml:2:1", &["key `blocks[0]`", "did not find expected node content"]),
        (blocks("- {name: b, offset: 0}\n---\nname: y\n"), "m.yaml:1:1", &["more than one document"]),
        (
            "schema_version: 2\nname: x\nblocks: []".to_owned(),
            "m.yaml:1:17",
            &["`schema_version`", "version 2 is not supported; known: 1"],
        ),
        (format!("{head}blocs: []\n"), "m.yaml:3:1", &["unknown key `blocs`", "expected one of", "`blocks`"]),
        (
            format!("{head}blocks: 5\n"),
            "m.yaml:3:9",
            &["m.yaml:3:9: key `blocks`: found 5, expected a list, such as [a, b]"],
        ),
        (
            blocks("- {name: b, offset: -4}\n"),
            "m.yaml:4:21",
            &["key `blocks[0].offset`", "a whole number from 0 to"],
        ),
        (blocks("- {name: b, offset: 2}\n"), "m.yaml:4:21", &["block b", "0x2 is not a multiple of 4"]),
        (blocks("- {name: 3b, offset: 0}\n"), "m.yaml:4:10", &["\"3b\" is not a name", "letters, digits"]),
        (
            blocks("- {name: b, offset: 0}\n- {name: B, offset: 8}\n"),
            "m.yaml:5:10",
            &["block B", "two entries have this name"],
        ),
        (
            blocks("- {name: b, offset: 0, like: ccc}\n- {name: cc, offset: 8}\n"),
            "m.yaml:4:30",
            &["block ccc does not exist", "did you mean cc?"],
        ),
        (
            blocks(
                "- {name: a, offset: 0, like: b}\n- {name: b, offset: 8, like: c}\n- {name: c, offset: 16, like: a}\n",
            ),
            "m.yaml:6:31",
            &["block c", "a is like b is like c is like a"],
        ),
        (blocks("- {name: a, offset: 0, like: a}\n"), "m.yaml:4:30", &["a is like a"]),
        (
            blocks("- {name: a, offset: 0, size: 64}\n- {name: b, offset: 32, size: 64}\n"),
            "m.yaml:5:21",
            &["overlaps block a at 0x20"],
        ),
        (
            blocks("- {name: a, offset: 0, size: 64, count: 4, stride: 32}\n"),
            "m.yaml:4:52",
            &["count 4 with a stride of 32 bytes", "at least 64"],
        ),
        (blocks("- {name: a, offset: 0, count: 0}\n"), "m.yaml:4:31", &["a count of at least 1"]),
        (blocks("- {name: a, offset: 0, stride: 8}\n"), "m.yaml:4:32", &["a stride without a count"]),
        (
            blocks("- {name: a, offset: 0xfffffffffffffffc, size: 64}\n"),
            "m.yaml:4:21",
            &["the maximum size of a BAR"],
        ),
        (
            block("  - {name: r, offset: 6}\n"),
            "m.yaml:7:23",
            &["key `blocks[0].registers[0].offset`", "b.r: 0x6"],
        ),
        (block("  - {name: r, offset: 0, ofset: 6}\n"), "m.yaml:7", &["unknown key `ofset`", "`offset`"]),
        (
            block("  - {name: r, offset: 0, access: rx}\n"),
            "m.yaml:7:34",
            &["unknown value `rx`", "`ro`", "`rw1c`"],
        ),
        (
            block("  - {name: r, offset: 0, width: 16}\n"),
            "m.yaml:7:33",
            &["width 16 is not possible; permitted: 32, or 64"],
        ),
        (
            block("  - {name: r, offset: 0, width: 64, count: 2}\n"),
            "m.yaml:7:33",
            &["width 64", "without `fields`"],
        ),
        (
            block("  - {name: r, offset: 0, count: 2, stride: 2}\n"),
            "m.yaml:7:44",
            &["multiple of 4 and at least 4"],
        ),
        (block("  - {name: r, offset: 0, stride: 4}\n"), "m.yaml:7:34", &["stride without a count"]),
        (
            block("  - {name: r, offset: 0, count: 4000000000}\n"),
            "m.yaml:7:3",
            &["more than 262144 registers"],
        ),
        (
            block("  - {name: r, offset: 0, reset: 0x100000000}\n"),
            "m.yaml:7:33",
            &["does not fit into 32 bits", "0xffffffff"],
        ),
        (
            block("  - {name: r, offset: 0}\n  - {name: s, offset: 0}\n"),
            "m.yaml:8:23",
            &["b.s: it overlaps b.r at 0x0"],
        ),
        (
            block("  - {name: r, offset: 0, count: 3}\n  - {name: s, offset: 8}\n"),
            "m.yaml:8:23",
            &["overlaps b.r[2] at 0x8"],
        ),
        (
            block("  - {name: r, offset: 0}\n  - {name: R, offset: 4}\n"),
            "m.yaml:8:12",
            &["b.R", "two entries have this name"],
        ),
        (
            block("  - {name: r, offset: 0, width: 64}\n  - {name: r_low, offset: 8}\n"),
            "m.yaml:8:12",
            &["b.r_low", "two entries have this name"],
        ),
        (
            blocks("- {name: b, offset: 0, size: 8, registers: [{name: r, offset: 8}]}\n"),
            "m.yaml:4:63",
            &["ends at 0xc, beyond 0x8, the size of its block"],
        ),
        (
            block("  - {name: r, offset: 0, enum: Mod}\n"),
            "m.yaml:7:32",
            &["enum Mod does not exist; list it under `enums`"],
        ),
        (
            block("  - name: r\n    offset: 0\n    fields: [{name: f, bits: 40}]\n"),
            "m.yaml:9:30",
            &["one bit, such as 5"],
        ),
        (
            block("  - name: r\n    offset: 0\n    fields: [{name: f, bits: 1:2}]\n"),
            "m.yaml:9:30",
            &["\"high:low\""],
        ),
        (
            block("  - name: r\n    offset: 0\n    fields: [{name: f, bits: 3:0}, {name: g, bits: 3}]\n"),
            "m.yaml:9:52",
            &["b.r.g: it shares bits with field f"],
        ),
        (
            block(
                "  - name: r\n    offset: 0\n    access: ro\n    fields: [{name: f, bits: 3, access: rw}]\n",
            ),
            "m.yaml:10:41",
            &["the field is rw, its register is ro"],
        ),
        (
            format!(
                "{head}enums: [{{name: E, variants: [{{name: a, value: 1}}, {{name: b, value: 1}}]}}]\nblocks: []\n"
            ),
            "m.yaml:3:68",
            &["enum E, b: a already has this value"],
        ),
        (
            format!(
                "{head}enums: [{{name: E, variants: [{{name: big, value: 4}}]}}]\nblocks: [{{name: b, offset: 0, registers: [{{name: r, offset: 0, fields: [{{name: f, bits: 1:0, enum: E}}]}}]}}]\n"
            ),
            "m.yaml:4:100",
            &["b.r.f: big of enum E is 0x4, which does not fit into 2 bits"],
        ),
    ] {
        let error = match parse(&text) {
            Ok(_) => "no error".to_owned(),
            Err(error) => error.to_string(),
        };
        let there = error.starts_with(&format!("register map {place}"));
        if !there || !parts.iter().all(|part| error.contains(part)) {
            let _ = writeln!(differences, "{text}\n{place}: {parts:?}\n{error}\n");
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn text_of_nested_brackets_or_aliases_is_refused_at_once() {
    let brackets = format!("schema_version: 1\nx: {}", "[".repeat(900_000));
    let mut aliases = "schema_version: 1\nx: &a0 [x, x, x]\n".to_owned();
    for level in 1..100 {
        let _ = writeln!(aliases, "a{level}: &a{level} [*a{0}, *a{0}, *a{0}]", level - 1);
    }
    for (text, part) in [(brackets, "1024"), (aliases, "aliases")] {
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains("m.yaml") && error.contains(part), "{error}");
    }
}

#[test]
fn map_read_and_write_registers_share_offset() {
    let text = "schema_version: 1\nname: x\nblocks: [{name: b, offset: 0, registers: [{name: status, offset: 0, access: ro}, {name: command, offset: 0, access: wo}]}]";
    let map = parse(text).unwrap();
    assert_eq!(
        map.find("b.status").unwrap().register.address,
        map.find("b.command").unwrap().register.address
    );
}

#[test]
fn map_unreadable_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("missing.yaml");
    let said = RegisterMap::load(&path).unwrap_err().to_string();
    assert!(said.contains("missing.yaml") && said.contains("check the path"), "{said}");
    let said = RegisterMap::load(dir.path()).unwrap_err().to_string();
    assert!(said.contains("this is a directory; name a regular file"), "{said}");
    std::fs::write(&path, [0xFF, 0xFE, 0]).unwrap();
    let said = RegisterMap::load(&path).unwrap_err().to_string();
    assert!(said.contains("UTF-8"), "{said}");
    let endless = RegisterMap::load(Path::new("/dev/zero")).unwrap_err();
    assert!(
        matches!(endless, MapError::Read(_)) && endless.to_string().contains("character device"),
        "{endless}"
    );
}

/// YAML anchors, aliases and merge keys are expanded.
#[test]
fn map_anchors_and_aliases_are_expanded() {
    let text = include_str!("../../../tests/fuzz/corpus/register_map/aliases");
    let map = parse(text).unwrap();
    let fields = |name: &str| map.fields(map.find(name).unwrap().register);
    assert_eq!((fields("b.r").len(), fields("b.r")), (2, fields("b.s")));
    assert_eq!(fields("b.t"), &fields("b.r")[1..]);
    // Excessive repetition is reported with its position.
    let said = parse(&text.replace("[*whole]", "[*whole, *whole]")).unwrap_err().to_string();
    assert!(said.contains("b.t.mode") && said.contains("two entries have this name"), "{said}");
}

#[test]
fn map_endless_like_chain_is_refused() {
    let mut text =
        "schema_version: 1\nname: x\nblocks:\n- {name: b0, offset: 0, registers: [{name: r0, offset: 0}]}\n"
            .to_owned();
    for n in 1..3000_u64 {
        let _ = writeln!(
            text,
            "- {{name: b{n}, offset: {}, like: b{}, registers: [{{name: r{n}, offset: {}}}]}}",
            n << 20,
            n - 1,
            4 * n
        );
    }
    let error = parse(&text).unwrap_err();
    assert!(matches!(&error, MapError::Invalid { problem: Problem::TooMany(_), .. }), "{error}");
}

#[test]
fn map_wrong_name_suggests_similar() {
    let map = parse(MAP).unwrap();
    for (name, part) in [
        ("scaler.cntrol", "did you mean scaler.control?"),
        ("control", "did you mean scaler.control or second.control?"),
        ("scaler.gain", "there are scaler.gain[0] to scaler.gain[3]"),
        ("scaler.gain[4]", "there are scaler.gain[0] to scaler.gain[3]"),
        ("lane.level", "there are lane[0].level to lane[2].level"),
        ("scaler.control.moed", "did you mean scaler.control.mode?"),
        ("scaler.controll.mode", "did you mean scaler.control?"),
        ("scaler.gian[1]", "did you mean scaler.gain[0]?"),
        ("frobnicate", "map scaler has no register frobnicate"),
        ("", "no register"),
        ("scaler.", "no register"),
        ("scaler.control.", "no register"),
    ] {
        let error = map.find(name).unwrap_err().to_string();
        assert!(error.contains(part), "{name}: {error}");
    }
}

/// Words that record every access.
#[derive(Default)]
struct Words {
    words: RefCell<BTreeMap<u64, u32>>,
    log: RefCell<Vec<(char, u64, u32)>>,
}

impl RegisterIo for Words {
    type Error = String;

    fn read32(&self, at: BarOffset) -> Result<u32, String> {
        if at.get() == 0x1060 {
            return Err("the bus is on fire".to_owned());
        }
        let value = self.words.borrow().get(&at.get()).copied().unwrap_or(0);
        self.log.borrow_mut().push(('r', at.get(), value));
        Ok(value)
    }

    fn write32(&self, at: BarOffset, value: u32) -> Result<(), String> {
        self.words.borrow_mut().insert(at.get(), value);
        self.log.borrow_mut().push(('w', at.get(), value));
        Ok(())
    }
}

#[test]
fn map_registers_are_accessed_by_name() {
    let map = parse(MAP).unwrap();
    let io = Words::default();
    let registers = Registers::new(&map, &io);
    registers.write("scaler.gain[2]", 7).unwrap();
    assert_eq!(registers.read("scaler.gain[2]").unwrap(), 7);
    // The rest of a register is kept, except bits that only the card sets.
    io.words.borrow_mut().insert(0x105c, 0xF123_4ABC);
    registers.set("scaler.window.first", "0x005").unwrap();
    assert_eq!(io.words.borrow()[&0x105c], 0xF000_4005);
    // For write-one bits, the other bits are not changed, and no read is needed.
    io.log.borrow_mut().clear();
    registers.write("scaler.events.lost", 1).unwrap();
    assert_eq!(*io.log.borrow(), [('w', 0x1050, 1 << 5)]);
    io.log.borrow_mut().clear();
    assert_eq!(registers.take("scaler.queue").unwrap(), 0);
    for (name, text, part) in [
        ("scaler.cycles_low", "1", "is RO: only the card sets it"),
        ("scaler.window.last", "1", "is RO: only the card sets it"),
        ("scaler.key.low", "1", "is WO: the rest of its register cannot be read"),
        ("scaler.control.mode", "run", "write the whole register"),
        ("scaler.window.first", "0x1000", "it has 12 bits, so the maximum is 0xfff"),
        ("scaler.window.first", "4294967296", "it has 12 bits"),
        ("scaler.gain[0]", "0x1_0000_0000", "it has 32 bits"),
        ("scaler.mode", "walk", "its values are idle, run, drain"),
        ("scaler.gain[0]", "-1", "is neither a number nor the name of a value"),
        ("scaler.gain[0]", "0x", "is neither a number"),
        ("scaler.gain[0]", "+1", "is neither a number"),
    ] {
        let error = registers.set(name, text).unwrap_err().to_string();
        assert!(error.starts_with(name) && error.contains(part), "{name} {text}: {error}");
    }
    for (name, part) in [
        ("scaler.control", "read it with `take`"),
        ("scaler.control.mode", "read it with `take`"),
        ("scaler.queue", "read it with `take`"),
        ("scaler.key", "is WO: it cannot be read"),
    ] {
        let error = registers.read(name).unwrap_err().to_string();
        assert!(error.contains(part), "{name}: {error}");
    }
    assert_eq!(io.log.borrow().len(), 1, "a refused access reaches no register: {:?}", io.log.borrow());
    let error = registers.read("scaler.mode").unwrap_err();
    assert!(matches!(&error, AccessError::Io { name, .. } if name == "scaler.mode"), "{error}");
    assert_eq!(error.to_string(), "scaler.mode: the bus is on fire");
    assert!(matches!(registers.read("x"), Err(AccessError::Name(NameError::Unknown { .. }))));
}

proptest! {
    /// Random blocks and registers: the map matches a list of all words.
    #[test]
    fn map_random_layout_matches_list(
        blocks in prop::collection::vec((0_u64..64, 1_u32..4, prop::collection::vec((0_u32..32, 1_u32..4), 0..6)), 0..5),
    ) {
        let mut text = "schema_version: 1\nname: x\nblocks:\n".to_owned();
        let mut words: Vec<(u64, String)> = Vec::new();
        for (b, (at, count, registers)) in blocks.iter().enumerate() {
            let (base, stride) = (at * 64, 256);
            let _ = writeln!(text, "- {{name: b{b}, offset: {base}, count: {count}, stride: {stride}, registers: [");
            for (r, (offset, elements)) in registers.iter().enumerate() {
                let _ = writeln!(text, "    {{name: r{r}, offset: {}, count: {elements}}},", 4 * offset);
                for i in 0..*count {
                    for j in 0..*elements {
                        words.push((base + u64::from(i) * stride + u64::from(4 * (offset + j)), format!("b{b}[{i}].r{r}[{j}]")));
                    }
                }
            }
            text.push_str("]}\n");
        }
        if blocks.is_empty() {
            text.push_str("  []\n");
        }
        let mut places: Vec<u64> = words.iter().map(|(at, _)| *at).collect();
        places.sort_unstable();
        let overlap = places.windows(2).any(|pair| pair[0] == pair[1]);
        match parse(&text) {
            Ok(map) => {
                prop_assert!(!overlap, "{text}");
                prop_assert_eq!(map.registers().len(), words.len());
                for (at, name) in words {
                    prop_assert_eq!(map.find(&name).unwrap().register.address.get(), at);
                }
            }
            Err(MapError::Invalid { problem: Problem::Overlap { .. }, .. }) => prop_assert!(overlap, "{text}"),
            Err(error) => panic!("{error}\n{text}"),
        }
    }

    #[test]
    fn map_any_text_does_not_panic(text in ".*", at in 0_usize..MAP.len(), cut in 0_usize..20) {
        let _ = parse(&text);
        // A map with a part removed, and one with text inserted.
        if let (Some(before), Some(after)) = (MAP.get(..at), MAP.get((at + cut).min(MAP.len())..)) {
            let _ = parse(&format!("{before}{after}"));
            let _ = parse(&format!("{before}{text}{after}"));
        }
    }
}
