//! Typed access over a backend, the catalogue, addresses.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::convert::Infallible;

use fpga_registers::catalog::{BarRole, Block, CardLayout};
use fpga_registers::xdma::{
    ChannelBlock, ChannelControl, ChannelStatus, Direction, IrqBlock, channel_base, msix,
};
use fpga_registers::{AccessKind, BarOffset, CardAddr, Iova, Reg, RegisterIo, Rw};

/// Answers every read with the same word and records all accesses.
#[derive(Default)]
struct Recorder {
    answer: u32,
    log: RefCell<Vec<(char, u64, u32)>>,
}

impl RegisterIo for Recorder {
    type Error = Infallible;

    fn read32(&self, at: BarOffset) -> Result<u32, Infallible> {
        self.log.borrow_mut().push(('r', at.get(), self.answer));
        Ok(self.answer)
    }

    fn write32(&self, at: BarOffset, value: u32) -> Result<(), Infallible> {
        self.log.borrow_mut().push(('w', at.get(), value));
        Ok(())
    }
}

#[test]
fn register_access_reaches_offset_with_value() {
    let io = Recorder { answer: 0x0000_0007, ..Recorder::default() };
    let base = channel_base(Direction::C2h, 2);
    let run = ChannelControl::new().with_run(true);
    ChannelBlock::CONTROL_SET.write(&io, base, run).unwrap();
    assert!(ChannelBlock::STATUS.read(&io, base).unwrap().descriptor_stopped());
    assert!(ChannelBlock::STATUS_RC.read_and_clear(&io, base).unwrap().descriptor_completed());
    ChannelBlock::STATUS.write(&io, base, ChannelStatus::new().with_descriptor_stopped(true)).unwrap();
    assert_eq!(ChannelBlock::COMPLETED.read(&io, base).unwrap(), 7);
    // Through a reference and as a trait object as well.
    let object: &dyn RegisterIo<Error = Infallible> = &io;
    ChannelBlock::POLL_ADDRESS_LOW.write(object, base, 0x1000).unwrap();
    assert_eq!(
        *io.log.borrow(),
        [
            ('w', 0x1208, 1),
            ('r', 0x1240, 7),
            ('r', 0x1244, 7),
            ('w', 0x1240, 2),
            ('r', 0x1248, 7),
            ('w', 0x1288, 0x1000),
        ]
    );
}

#[test]
fn register_absurd_base_saturates() {
    let io = Recorder::default();
    ChannelBlock::CONTROL.read(&io, BarOffset::new(u64::MAX - 1)).unwrap();
    assert_eq!(*io.log.borrow(), [('r', u64::MAX, 0)]);
}

#[test]
fn register_knows_name_and_access() {
    assert_eq!(ChannelBlock::STATUS.offset(), 0x40);
    assert_eq!(ChannelBlock::STATUS.access(), AccessKind::ReadWrite1Clear);
    assert_eq!(ChannelBlock::STATUS.address(BarOffset::new(0x1100)), BarOffset::new(0x1140));
    assert_eq!(format!("{:?}", ChannelBlock::STATUS_RC), "Reg(0x44 RC)");
    assert_eq!(Reg::<Rw<u32>>::at(0x60).offset(), 0x60);
    assert_eq!(IrqBlock::USER_VECTORS.map(Reg::offset), [0x80, 0x84, 0x88, 0x8C]);
    assert_eq!(IrqBlock::CHANNEL_VECTORS.map(Reg::offset), [0xA0, 0xA4]);
    assert_eq!(size_of::<msix::MsixBlock>(), 0x1000);
}

#[test]
fn access_kind_states_permitted_accesses() {
    use AccessKind::{ReadClears, ReadOnly, ReadWrite, ReadWrite1Clear, Write1Clear, Write1Set, WriteOnly};
    // Kind, readable, writable, read side effect.
    let table = [
        (ReadOnly, true, false, false),
        (ReadWrite, true, true, false),
        (WriteOnly, false, true, false),
        (Write1Set, false, true, false),
        (Write1Clear, false, true, false),
        (ReadWrite1Clear, true, true, false),
        (ReadClears, true, false, true),
    ];
    for (kind, readable, writable, effect) in table {
        assert_eq!(
            (kind.is_readable(), kind.is_writable(), kind.read_has_side_effect()),
            (readable, writable, effect)
        );
    }
}

#[test]
fn catalogue_lists_each_register_once() {
    for h2c in 0..=4 {
        for c2h in 0..=4 {
            let card = CardLayout::new(h2c, c2h).with_cdma(BarOffset::new(0x1000));
            let names: BTreeSet<String> =
                card.registers().map(|register| register.name().to_string()).collect();
            let places: BTreeSet<_> = card
                .registers()
                .map(|register| (register.bar() == BarRole::User, register.address()))
                .collect();
            // 20 per channel, 5 per descriptor block, 17 irq, 11 config, 7 common, 32 vectors of 4, 1 pending, 11 cdma.
            let expected = usize::from(h2c + c2h) * (20 + 5) + 17 + 11 + 7 + 32 * 4 + 1 + 11;
            assert_eq!(card.registers().count(), expected);
            assert_eq!((names.len(), places.len()), (expected, expected));
            let in_order =
                card.registers().map(|register| (register.bar() == BarRole::User, register.address()));
            assert!(in_order.is_sorted());
            for register in card.registers() {
                let found = card.find(&register.name().to_string()).unwrap();
                assert_eq!((found.block(), found.offset()), (register.block(), register.offset()));
            }
        }
    }
}

#[test]
fn catalogue_finds_registers_by_exact_name() {
    let card = CardLayout::new(2, 1).with_cdma(BarOffset::new(0x1000));
    let place = |name: &str| card.find(name).map(|register| register.address().get());
    assert_eq!(place("h2c0.control"), Some(0x0004));
    assert_eq!(place("h2c1.control"), Some(0x0104));
    assert_eq!(place("c2h0.status_rc"), Some(0x1044));
    assert_eq!(place("h2c1_sgdma.credits"), Some(0x418C));
    assert_eq!(place("sgdma.credit_mode"), Some(0x6020));
    assert_eq!(place("irq.user_enable"), Some(0x2004));
    assert_eq!(place("config.system_id"), Some(0x3010));
    assert_eq!(place("msix31.control"), Some(0x81FC));
    assert_eq!(place("pba.pending"), Some(0x8FE0));
    assert_eq!(place("cdma.sr"), Some(0x1004));
    for absent in
        ["", ".", "h2c2.control", "c2h1.control", "h2c0.controls", "h2c0.contro", "H2C0.control", "cdma.sr "]
    {
        assert_eq!(place(absent), None, "{absent:?}");
    }
    assert!(CardLayout::new(1, 1).find("cdma.sr").is_none());
    // Channels above the maximum of the logic are not listed.
    assert_eq!(
        CardLayout::new(200, 0).blocks().filter(|block| matches!(block, Block::Channel(..))).count(),
        4
    );
}

#[test]
fn catalogue_only_clear_on_read_status_has_side_effect() {
    let card = CardLayout::new(4, 4).with_cdma(BarOffset::ZERO);
    for register in card.registers() {
        let name = register.name().to_string();
        assert_eq!(register.read_has_side_effect(), name.ends_with(".status_rc"), "{name}");
    }
}

#[test]
fn address_arithmetic_is_checked() {
    let address = Iova::new(0x1_0000_0020);
    assert_eq!(address.to_string(), "0x100000020");
    assert_eq!(address.to_low_high(), (0x20, 1));
    assert_eq!(Iova::from_low_high(0x20, 1), address);
    assert_eq!(address.checked_add(0x20), Some(Iova::new(0x1_0000_0040)));
    assert_eq!(Iova::new(u64::MAX).checked_add(1), None);
    assert_eq!(CardAddr::ZERO.checked_sub(1), None);
    assert_eq!(address.checked_sub(0x20), Some(Iova::new(0x1_0000_0000)));
    assert_eq!(address.distance_from(Iova::new(0x1_0000_0000)), Some(0x20));
    assert_eq!(Iova::ZERO.distance_from(address), None);
    assert!(address.is_aligned_to(32) && !address.is_aligned_to(64) && !address.is_aligned_to(0));
}
