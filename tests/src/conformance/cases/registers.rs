//! Registers: identifiers, aliases of masks, and invalid accesses.

use fpga_driver::BarOffset;
use fpga_pci::{Backend, MmioError, config};
use fpga_registers::pci::{command, header};
use fpga_registers::xdma::{
    CONFIG_BASE, ChannelBlock, ConfigBlock, IRQ_BASE, IrqBlock, Target, UserMask, channel_base,
};

use super::{Case, CaseContext, Verdict, case};

pub(super) const CASES: &[Case] = &[
    case("registers.identifiers", &[], identifiers),
    case("registers.aliases", &[], aliases),
    case("registers.invalid_accesses", &[], invalid_accesses),
    case("registers.narrow_writes", &[], narrow_writes),
    case("registers.decoding_off", &[], decoding_off),
];

fn identifiers(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let bar = opened.card.dma_bar();
    for name in opened.card.info().xdma.channels() {
        let id = ChannelBlock::IDENTIFIER.read(bar, channel_base(name.direction, name.number)).expect("read");
        assert!(id.is(Target::channel(name.direction)) && id.channel() == name.number, "{name}: {id:?}");
    }
    assert!(IrqBlock::IDENTIFIER.read(bar, IRQ_BASE).expect("read").is(Target::Irq));
    assert!(ConfigBlock::IDENTIFIER.read(bar, CONFIG_BASE).expect("read").is(Target::Config));
    // The same words, read by other methods.
    let at = ConfigBlock::IDENTIFIER.address(CONFIG_BASE);
    let word = bar.read32(at).expect("read");
    let mut block = [0; 8];
    bar.read_block(at, &mut block).expect("a block");
    assert_eq!(word.to_le_bytes(), block[..4]);
    let slice = bar.slice(CONFIG_BASE, 0x100).expect("inside the BAR");
    let inside = BarOffset::new(at.get() - CONFIG_BASE.get());
    assert_eq!(slice.read32(inside).expect("read"), word);
    opened.close();
    Ok(())
}

/// PG195, interrupt block: a mask, and aliases that set and clear its bits.
fn aliases(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let bar = opened.card.dma_bar();
    let mask = || IrqBlock::USER_ENABLE.read(bar, IRQ_BASE).expect("read").into_bits();
    let bits = UserMask::from_bits;
    // Without interrupts enabled in configuration space nothing is sent, whatever the state of the lines.
    IrqBlock::USER_ENABLE.write(bar, IRQ_BASE, bits(0)).expect("write");
    assert_eq!(mask(), 0);
    IrqBlock::USER_ENABLE_SET.write(bar, IRQ_BASE, bits(0b0101)).expect("write");
    let held = mask();
    assert_eq!(held & !0b0101, 0, "bits outside the written mask are clear: {held:#x}");
    if held == 0 {
        return Err(super::super::Skip("the design has no user interrupts".to_owned()));
    }
    IrqBlock::USER_ENABLE_CLEAR.write(bar, IRQ_BASE, bits(0b0001)).expect("write");
    assert_eq!(mask(), held & !0b0001);
    IrqBlock::USER_ENABLE.write(bar, IRQ_BASE, bits(0)).expect("write");
    assert_eq!(mask(), 0);
    opened.close();
    Ok(())
}

/// Accesses outside the BAR or across its words do not reach the card.
fn invalid_accesses(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let bar = opened.card.dma_bar();
    let before = opened.injector.traffic();
    for at in [bar.size(), bar.size() - 2, u64::MAX, u64::MAX - 3] {
        let at = BarOffset::new(at);
        let refused = |error| matches!(error, MmioError::OutOfRange { .. } | MmioError::Misaligned { .. });
        assert!(bar.read32(at).is_err_and(refused), "{at}");
        assert!(bar.write32(at, 0).is_err_and(refused), "{at}");
    }
    assert!(matches!(bar.read32(BarOffset::new(2)), Err(MmioError::Misaligned { .. })));
    assert!(matches!(bar.read64(BarOffset::new(4)), Err(MmioError::Misaligned { .. })));
    assert!(bar.slice(BarOffset::new(bar.size()), 4).is_err());
    // The driver or the card may refuse them; no refused access may count as made or change anything.
    assert!(opened.injector.traffic().writes - before.writes <= 4);
    assert!(IrqBlock::IDENTIFIER.read(bar, IRQ_BASE).expect("the card answers").is(Target::Irq));
    opened.close();
    Ok(())
}

/// Writes of one and two bytes change those bytes of a word alone, through the window onto card memory.
fn narrow_writes(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let Some(window) = opened.card.info().roles.bypass.map(|bar| bar.index) else {
        return Err(super::super::Skip("the card has no bypass BAR".to_owned()));
    };
    let bar = opened.injector.open_bar(window).expect("the bypass BAR");
    let start = opened.scratch.start.get();
    if start.saturating_add(8) > bar.size() {
        return Err(super::super::Skip("the bypass BAR does not reach the memory of the test".to_owned()));
    }
    let at = |offset: u64| BarOffset::new(start + offset);
    let mut expected = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];
    bar.write_block(at(0), &expected).expect("a write");
    let mut value = 0xA0;
    for width in [1, 2] {
        for offset in (0..8).step_by(width) {
            let from: Vec<u8> = (0..width)
                .map(|_| {
                    value += 1;
                    value
                })
                .collect();
            bar.write_narrow(at(offset as u64), &from).expect("a narrow write");
            expected[offset..offset + width].copy_from_slice(&from);
            let mut found = [0; 8];
            bar.read_block(at(0), &mut found).expect("a read");
            assert_eq!(found, expected, "{width} bytes at {offset}");
        }
    }
    for (offset, from) in [(1, vec![0; 2]), (0, vec![0; 3])] {
        assert!(bar.write_narrow(at(offset), &from).is_err(), "{from:?} at {offset}");
    }
    opened.close();
    Ok(())
}

/// A function whose memory decoding is off does not answer: no register has a value, and the read is an error, not a crash.
fn decoding_off(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let bar = opened.card.dma_bar().clone();
    let before = config::read_u16(&*opened.injector, header::COMMAND).expect("read");
    let off = before & !command::MEMORY_SPACE;
    opened.injector.config_write(header::COMMAND, &off.to_le_bytes()).expect("write");
    let at = IrqBlock::IDENTIFIER.address(IRQ_BASE);
    assert!(matches!(bar.read32(at), Err(MmioError::Gone { .. })), "{:?}", bar.read32(at));
    // Writes are posted: reporting the missing function is allowed and not required.
    let written = bar.write32(at, 0);
    assert!(matches!(written, Ok(()) | Err(MmioError::Gone { .. })), "{written:?}");
    opened.injector.config_write(header::COMMAND, &before.to_le_bytes()).expect("write");
    drop(bar);
    opened.close();
    let opened = context.open();
    assert!(IrqBlock::IDENTIFIER.read(opened.card.dma_bar(), IRQ_BASE).expect("read").is(Target::Irq));
    opened.close();
    Ok(())
}
