//! Delivery of interrupts to the host: the legacy line, MSI, MSI-X, and the selection of the method.

use crate::support::*;
use crate::xdma::{DESCRIPTORS, H2C0, START_INTERRUPT, chain};
use fpga_card::{CardDescription, InterruptMethod};

/// Start value without Run: clears Run, keeps the rest.
const STOPPED: u32 = START_INTERRUPT & !1;

fn bench(set: impl FnOnce(&mut CardDescription)) -> CardTestbed {
    let mut description = small();
    set(&mut description);
    let mut bench = CardTestbed::with(description);
    bench.card.disable_msix();
    // Channel 0 in both registers, as drivers do it.
    bench.write(DMA, 0x90, 0x00F8_3E1E);
    bench.write(DMA, 0x2014, 1);
    bench
}

/// Runs one transfer, up to the point where an interrupt is due.
fn transfer(bench: &mut CardTestbed) {
    chain(bench, &[16], STOP | COMPLETED);
    bench.write(DMA, 0x04, STOPPED);
    bench.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
    bench.run();
}

fn set_word(bench: &mut CardTestbed, at: u16, value: u16) {
    bench.card.config_write(at, &value.to_le_bytes());
}

fn status(bench: &mut CardTestbed) -> u16 {
    let mut bytes = [0; 2];
    bench.card.config_read(0x06, &mut bytes);
    u16::from_le_bytes(bytes)
}

#[test]
fn intx_is_level() {
    let mut bench = bench(|_| ());
    assert_eq!(bench.card.config().interrupt_method(), InterruptMethod::Line);
    transfer(&mut bench);
    assert!(bench.host.line && bench.card.line_asserted());
    assert_eq!(status(&mut bench) & 1 << 3, 1 << 3, "interrupt status (PCI 6.2.3)");
    // The vendor's handler: read the requests, mask, flush; later clear and unmask.
    assert_eq!(bench.read(DMA, 0x2044), 1);
    bench.write(DMA, 0x2018, 1);
    assert!(!bench.host.line, "masked at the block");
    assert_eq!(bench.read(DMA, 0x204C), 1, "but pending");
    bench.write(DMA, 0x2014, 1);
    assert!(bench.host.line, "a level that is still there comes back");
    bench.write(DMA, 0x2018, 1);
    assert_eq!(bench.read(DMA, 0x44), 0b110);
    bench.write(DMA, 0x04, STOPPED);
    bench.write(DMA, 0x2014, 1);
    bench.run();
    assert!(!bench.host.line);
    assert_eq!((bench.host.rises, status(&mut bench) & 1 << 3), (2, 0));
    // Clearing the status by a read also lowers the line.
    transfer(&mut bench);
    assert!(bench.host.line);
    bench.read(DMA, 0x44);
    assert!(!bench.card.line_asserted(), "immediately for a poll");
    bench.run();
    assert!(!bench.host.line, "with the next step for a notification");
    assert!(bench.host.interrupts.is_empty() && bench.host.messages.is_empty());
}

#[test]
fn intx_follows_command_register_without_bus_master() {
    let mut bench = bench(|_| ());
    transfer(&mut bench);
    set_word(&mut bench, 0x04, 0x0406);
    bench.run();
    assert!(!bench.host.line, "INTx disable");
    assert_eq!(status(&mut bench) & 1 << 3, 1 << 3, "the status bit does not care");
    set_word(&mut bench, 0x04, 0x0002);
    bench.run();
    assert!(bench.host.line, "its messages are not memory writes");
    bench.card.config_write(0x44, &[3]);
    bench.run();
    assert!(!bench.host.line, "a sleeping function is silent");
    bench.card.config_write(0x44, &[0]);
    bench.run();
    assert!(bench.host.line);
    bench.card.reset();
    bench.run();
    assert!(!bench.host.line, "a reset lowers it");
    let mut quirky = self::bench(|description| description.quirks.intx_disable_ignored = true);
    set_word(&mut quirky, 0x04, 0x0406);
    transfer(&mut quirky);
    assert!(quirky.host.line, "as some cores have it");
}

#[test]
fn intx_vector_selects_pin() {
    // Pin INTC: requests must carry vector 2 (PG195: the two low bits).
    let mut bench = bench(|description| description.interrupts.pin = 3);
    transfer(&mut bench);
    assert!(!bench.host.line, "vector 0 is INTA, which this function does not have");
    bench.write(DMA, 0x20A0, 0x0202_0202);
    assert!(bench.host.line);
    bench.write(DMA, 0x20A0, 0x0606_0606);
    assert!(bench.host.line, "higher bits do not count");
    let mut none = self::bench(|description| description.interrupts.pin = 0);
    transfer(&mut none);
    assert!(!none.host.line);
}

#[test]
fn msi_vector_is_modulo_enabled_count() {
    // Multiple message enable, and the messages of vectors 0 to 5 (PCIe 7.7.1.2: low bits of the data).
    for (enable, expected) in [(0, [0, 0, 0]), (1, [1, 0, 1]), (2, [1, 2, 1]), (3, [1, 2, 5]), (5, [1, 2, 5])]
    {
        for (vector, expected) in [1, 2, 5].into_iter().zip(expected) {
            let mut bench = bench(|_| ());
            set_word(&mut bench, 0x4A, 1 | enable << 4);
            assert_eq!(bench.read(DMA, 0x3014), 1, "MSI, as the card's own register says");
            bench.write(DMA, 0x20A0, vector);
            transfer(&mut bench);
            assert_eq!(bench.host.messages, [expected], "vector {vector}, {} enabled", 1 << enable);
            assert!(!bench.host.line && bench.host.interrupts.is_empty());
        }
    }
    // A number above the function's maximum is limited to it.
    let mut bench = bench(|description| description.interrupts.msi_vectors = 2);
    set_word(&mut bench, 0x4A, 1 | 5 << 4);
    bench.write(DMA, 0x20A0, 3);
    transfer(&mut bench);
    assert_eq!(bench.host.messages, [1]);
}

#[test]
fn msi_mask_holds_messages() {
    let mut bench = bench(|description| description.interrupts.msi_masking = true);
    set_word(&mut bench, 0x4A, 1 | 5 << 4);
    bench.write(DMA, 0x20A0, 4);
    bench.card.config_write(0x58, &(1_u32 << 4).to_le_bytes());
    transfer(&mut bench);
    let pending = |bench: &mut CardTestbed| {
        let mut bytes = [0; 4];
        bench.card.config_read(0x5C, &mut bytes);
        u32::from_le_bytes(bytes)
    };
    assert!(bench.host.messages.is_empty());
    assert_eq!(pending(&mut bench), 1 << 4);
    bench.card.config_write(0x58, &[0; 4]);
    bench.run();
    assert_eq!(pending(&mut bench), 0);
    assert_eq!(bench.host.messages, [4]);
}

#[test]
fn messages_wait_for_bus_master() {
    for msix in [false, true] {
        let mut bench = bench(|_| ());
        if msix {
            bench.card.enable_msix(32);
        } else {
            set_word(&mut bench, 0x4A, 1);
        }
        // An interrupt without DMA: the mask of an asserted source.
        transfer(&mut bench);
        bench.write(DMA, 0x2018, 1);
        let before = bench.host.messages.len() + bench.host.interrupts.len();
        bench.card.set_command(true, false);
        bench.write(DMA, 0x2014, 1);
        bench.run();
        assert_eq!(bench.host.messages.len() + bench.host.interrupts.len(), before);
        bench.card.set_command(true, true);
        bench.run();
        assert_eq!(bench.host.messages.len() + bench.host.interrupts.len(), before + 1);
    }
}

#[test]
fn msix_overrides_msi_and_intx() {
    let mut bench = bench(|_| ());
    transfer(&mut bench);
    assert!(bench.host.line);
    set_word(&mut bench, 0x4A, 1);
    bench.run();
    assert!(!bench.host.line, "a function that sends messages has no line (PCIe 7.7.1.2)");
    assert_eq!(bench.host.messages, [0], "an asserted interrupt is reported again");
    assert_eq!(status(&mut bench) & 1 << 3, 0);
    bench.card.enable_msix(32);
    bench.run();
    assert_eq!(bench.read(DMA, 0x3014), 3);
    assert_eq!((bench.host.messages.len(), bench.host.interrupts.as_slice()), (1, &[0][..]));
    transfer(&mut bench);
    assert_eq!((bench.host.messages.len(), bench.host.interrupts.len()), (1, 2));
    bench.card.disable_msix();
    bench.run();
    assert_eq!(bench.host.messages.len(), 2, "back to MSI");
    set_word(&mut bench, 0x4A, 0);
    bench.run();
    assert!(bench.host.line, "and to the line");
}

#[test]
fn msix_entry_is_masked_individually() {
    let mut bench = bench(|_| ());
    bench.card.enable_msix(0);
    bench.write(DMA, 0x20A0, 0x0000_0003);
    transfer(&mut bench);
    assert!(bench.host.interrupts.is_empty());
    assert_eq!(bench.read(DMA, 0x8FE0), 1 << 3);
    bench.card.set_msix_masked(0, 3, false);
    bench.run();
    assert!(bench.host.interrupts.is_empty(), "the others");
    bench.card.set_msix_masked(3, 1, false);
    bench.run();
    assert_eq!(bench.host.interrupts, [3]);
    bench.card.set_msix_masked(3, u16::MAX, true);
    transfer(&mut bench);
    assert_eq!(bench.host.interrupts, [3]);
}
