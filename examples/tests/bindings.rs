//! Bindings that the build generates from `odd-names.yaml`, a map with everything that a map can say, compile and work.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;

use fpga_registers::{BarOffset, RegisterIo};

include!(concat!(env!("OUT_DIR"), "/odd_names.rs"));

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
