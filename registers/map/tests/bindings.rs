//! The committed bindings match the generator, compile and work.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};

use fpga_register_map::bindings::{BindingsError, Options, write};
use fpga_registers::{BarOffset, RegisterIo};

include!("bindings/odd_names.rs");

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bindings")
}

fn options() -> Options {
    let mut options = Options::default();
    options.registers = "::fpga_registers".to_owned();
    options
}

/// Run with FPGA_WRITE_BINDINGS=1 after a change of the generator, and review the difference.
#[test]
fn bindings_committed_file_matches_generator() {
    let map = folder().join("odd-names.yaml");
    let dir = tempfile::tempdir().unwrap();
    let made = write(&map, dir.path(), &options()).unwrap();
    assert_eq!(made.file_name().unwrap(), "odd_names.rs");
    let text = std::fs::read_to_string(made).unwrap();
    let committed = folder().join("odd_names.rs");
    if std::env::var_os("FPGA_WRITE_BINDINGS").is_some() {
        std::fs::write(&committed, &text).unwrap();
    }
    let same = text == std::fs::read_to_string(committed).unwrap();
    assert!(same, "the bindings have changed: set FPGA_WRITE_BINDINGS=1 and run this again");
}

#[derive(Default)]
struct Words(RefCell<BTreeMap<u64, u32>>);

impl RegisterIo for Words {
    type Error = Infallible;

    fn read32(&self, at: BarOffset) -> Result<u32, Infallible> {
        Ok(self.0.borrow().get(&at.get()).copied().unwrap_or(0))
    }

    fn write32(&self, at: BarOffset, value: u32) -> Result<(), Infallible> {
        self.0.borrow_mut().insert(at.get(), value);
        Ok(())
    }
}

#[test]
fn bindings_registers_are_typed() {
    use odd_names::{Match, Speed, lanes, type_};
    let bar = Words::default();
    let word = |at: u64| bar.0.borrow().get(&at).copied();
    let value = type_::Self_::RESET.with_fn(5).unwrap().with_byte(0xAB).with_go(true);
    type_::SELF.write(&bar, type_::BASE, value).unwrap();
    assert_eq!(word(0x1000), Some(0xAB0B));
    let read = type_::SELF.read(&bar, type_::BASE).unwrap();
    assert_eq!((read.fn_(), read.byte(), read.word()), (5, 0xAB, 0));
    assert_eq!(type_::Self_::default().with_fn(8), None, "three bits hold 7 at most");
    assert_eq!(read.to_string(), "0x0000ab0b go fn=5 byte=171 word=0");
    assert_eq!(format!("{read:?}"), "Self_(0x0000ab0b go fn=5 byte=171 word=0)");
    // Enums, with numbers without a name.
    type_::OPTION.write(&bar, type_::BASE, type_::Option::default().with_value(Match::Halt)).unwrap();
    assert_eq!(type_::OPTION.read(&bar, type_::BASE).unwrap().value(), Ok(Match::Halt));
    bar.write32(BarOffset::new(0x1004), 9).unwrap();
    assert_eq!(type_::OPTION.read(&bar, type_::BASE).unwrap().value(), Err(9));
    assert_eq!(Match::LoopBack.value(), 1);
    assert_eq!(Match::name_of(1), Some("loopBack"));
    assert_eq!(Match::from_value(0), Some(Match::Self_));
    // Registers with a read side effect are not read implicitly.
    bar.write32(BarOffset::new(0x1008), 0x22).unwrap();
    let control = type_::AP_CTRL.read_and_clear(&bar, type_::BASE).unwrap();
    assert_eq!((control.done(), control.speed()), (true, Ok(Speed::Fast)));
    type_::AP_CTRL_WRITE.write(&bar, type_::BASE, control.with_speed(Speed::Slow)).unwrap();
    assert_eq!(word(0x1008), Some(0x12));
    // Arrays of registers and of blocks.
    type_::PLAIN[2].write(&bar, lanes::BASES[1], lanes::PLAIN_RESET).unwrap();
    assert_eq!(word(0x2200 + 12 + 16), Some(7));
    assert_eq!((lanes::BASES.len(), lanes::TOTAL_HIGH.offset()), (2, 0x44));
    let late = type_::Events::from_bits(1);
    type_::EVENTS.write(&bar, type_::BASE, late.with_late(true)).unwrap();
    type_::QUEUE.read_and_clear(&bar, type_::BASE).unwrap();
    for (register, at) in
        [(type_::KICK.offset(), 0x50), (type_::SET.offset(), 0x54), (type_::CLEAR.offset(), 0x58)]
    {
        assert_eq!(register, at);
    }
    type_::SET.write(&bar, type_::BASE, 1).unwrap();
}

#[test]
fn bindings_invalid_map_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |name: &str, text: &str| {
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        write(&file, dir.path(), &options()).unwrap_err()
    };
    let head = "schema_version: 1\nname: x\n";
    let error =
        refused("a.yaml", &format!("{head}blocks: [{{name: aB, offset: 0}}, {{name: a_b, offset: 4}}]"));
    assert!(matches!(&error, BindingsError::Collision { name, .. } if name == "a_b"), "{error}");
    assert!(error.to_string().contains("block aB and block a_b"), "{error}");
    let registers = "{name: high, offset: 0}, {name: low, offset: 4}, {name: HIGH_RESET, offset: 8}";
    let text = format!("{head}blocks: [{{name: b, offset: 0, registers: [{registers}]}}]")
        .replace("offset: 0}, {name: low", "offset: 0, reset: 1}, {name: low");
    let error = refused("a.yaml", &text);
    assert!(error.to_string().contains("`HIGH_RESET`"), "{error}");
    let fields = "{name: bits, bits: 1}";
    let error = refused(
        "a.yaml",
        &format!(
            "{head}blocks: [{{name: b, offset: 0, registers: [{{name: r, offset: 0, fields: [{fields}]}}]}}]"
        ),
    );
    assert!(error.to_string().contains("the register word and b.r.bits"), "{error}");
    let error = refused("a.yaml", "schema_version: 1\n");
    assert!(matches!(&error, BindingsError::Map(_)), "{error}");
    let error = refused("2 b.yaml", &format!("{head}blocks: []"));
    assert!(matches!(&error, BindingsError::FileName { .. }), "{error}");
    std::fs::write(dir.path().join("m.yaml"), format!("{head}blocks: []")).unwrap();
    let error = write(&dir.path().join("m.yaml"), &dir.path().join("missing"), &options()).unwrap_err();
    assert!(matches!(&error, BindingsError::Write { .. }), "{error}");
}
