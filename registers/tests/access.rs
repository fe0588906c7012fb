//! Typed access over a backend, the catalogue, addresses.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::convert::Infallible;

use fpga_registers::catalog::{BarRole, CardLayout};
use fpga_registers::xdma::ChannelBlock;
use fpga_registers::{BarOffset, CardAddr, Iova, RegisterIo};

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
fn register_absurd_base_saturates() {
    let io = Recorder::default();
    ChannelBlock::CONTROL.read(&io, BarOffset::new(u64::MAX - 1)).unwrap();
    assert_eq!(*io.log.borrow(), [('r', u64::MAX, 0)]);
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
