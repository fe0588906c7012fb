//! Delivery of interrupts to the host: the legacy line, MSI, MSI-X, and the selection of the method.

use crate::support::*;
use crate::xdma::{DESCRIPTORS, H2C0, START_INTERRUPT, chain};
use fpga_card::{CardDescription, InterruptMethod};

/// Start value without Run: clears Run, keeps the rest.
const STOPPED: u32 = START_INTERRUPT & !1;

fn testbed(set: impl FnOnce(&mut CardDescription)) -> CardTestbed {
    let mut description = small();
    set(&mut description);
    let mut testbed = CardTestbed::with(description);
    testbed.card.disable_msix();
    // Channel 0 in both registers, as drivers do it.
    testbed.write(DMA, 0x90, 0x00F8_3E1E);
    testbed.write(DMA, 0x2014, 1);
    testbed
}

/// Runs one transfer, up to the point where an interrupt is due.
fn transfer(testbed: &mut CardTestbed) {
    chain(testbed, &[16], STOP | COMPLETED);
    testbed.write(DMA, 0x04, STOPPED);
    testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
    testbed.run();
}

fn set_word(testbed: &mut CardTestbed, at: u16, value: u16) {
    testbed.card.config_write(at, &value.to_le_bytes());
}

fn status(testbed: &mut CardTestbed) -> u16 {
    let mut bytes = [0; 2];
    testbed.card.config_read(0x06, &mut bytes);
    u16::from_le_bytes(bytes)
}

#[test]
fn intx_is_level() {
    let mut testbed = testbed(|_| ());
    assert_eq!(testbed.card.config().interrupt_method(), InterruptMethod::Line);
    transfer(&mut testbed);
    assert!(testbed.host.line && testbed.card.line_asserted());
    assert_eq!(status(&mut testbed) & 1 << 3, 1 << 3, "interrupt status (PCI 6.2.3)");
    // The vendor's handler: read the requests, mask, flush; later clear and unmask.
    assert_eq!(testbed.read(DMA, 0x2044), 1);
    testbed.write(DMA, 0x2018, 1);
    assert!(!testbed.host.line, "masked at the block");
    assert_eq!(testbed.read(DMA, 0x204C), 1, "but pending");
    testbed.write(DMA, 0x2014, 1);
    assert!(testbed.host.line, "a level that is still there comes back");
    testbed.write(DMA, 0x2018, 1);
    assert_eq!(testbed.read(DMA, 0x44), 0b110);
    testbed.write(DMA, 0x04, STOPPED);
    testbed.write(DMA, 0x2014, 1);
    testbed.run();
    assert!(!testbed.host.line);
    assert_eq!((testbed.host.rises, status(&mut testbed) & 1 << 3), (2, 0));
    // Clearing the status by a read also lowers the line.
    transfer(&mut testbed);
    assert!(testbed.host.line);
    testbed.read(DMA, 0x44);
    assert!(!testbed.card.line_asserted(), "immediately for a poll");
    testbed.run();
    assert!(!testbed.host.line, "with the next step for a notification");
    assert!(testbed.host.interrupts.is_empty() && testbed.host.messages.is_empty());
}

#[test]
fn intx_follows_command_register_without_bus_master() {
    let mut testbed = testbed(|_| ());
    transfer(&mut testbed);
    set_word(&mut testbed, 0x04, 0x0406);
    testbed.run();
    assert!(!testbed.host.line, "INTx disable");
    assert_eq!(status(&mut testbed) & 1 << 3, 1 << 3, "the status bit does not care");
    set_word(&mut testbed, 0x04, 0x0002);
    testbed.run();
    assert!(testbed.host.line, "its messages are not memory writes");
    testbed.card.config_write(0x44, &[3]);
    testbed.run();
    assert!(!testbed.host.line, "a sleeping function is silent");
    testbed.card.config_write(0x44, &[0]);
    testbed.run();
    assert!(testbed.host.line);
    testbed.card.reset();
    testbed.run();
    assert!(!testbed.host.line, "a reset lowers it");
    let mut quirky = self::testbed(|description| description.quirks.intx_disable_ignored = true);
    set_word(&mut quirky, 0x04, 0x0406);
    transfer(&mut quirky);
    assert!(quirky.host.line, "as some cores have it");
}

#[test]
fn intx_vector_selects_pin() {
    // Pin INTC: requests must carry vector 2 (PG195: the two low bits).
    let mut testbed = testbed(|description| description.interrupts.pin = 3);
    transfer(&mut testbed);
    assert!(!testbed.host.line, "vector 0 is INTA, which this function does not have");
    testbed.write(DMA, 0x20A0, 0x0202_0202);
    assert!(testbed.host.line);
    testbed.write(DMA, 0x20A0, 0x0606_0606);
    assert!(testbed.host.line, "higher bits do not count");
    let mut none = self::testbed(|description| description.interrupts.pin = 0);
    transfer(&mut none);
    assert!(!none.host.line);
}

#[test]
fn msi_vector_is_modulo_enabled_count() {
    // Multiple message enable, and the messages of vectors 0 to 5 (PCIe 7.7.1.2: low bits of the data).
    for (enable, expected) in [(0, [0, 0, 0]), (1, [1, 0, 1]), (2, [1, 2, 1]), (3, [1, 2, 5]), (5, [1, 2, 5])]
    {
        for (vector, expected) in [1, 2, 5].into_iter().zip(expected) {
            let mut testbed = testbed(|_| ());
            set_word(&mut testbed, 0x4A, 1 | enable << 4);
            assert_eq!(testbed.read(DMA, 0x3014), 1, "MSI, as the card's own register says");
            testbed.write(DMA, 0x20A0, vector);
            transfer(&mut testbed);
            assert_eq!(testbed.host.messages, [expected], "vector {vector}, {} enabled", 1 << enable);
            assert!(!testbed.host.line && testbed.host.interrupts.is_empty());
        }
    }
    // A number above the function's maximum is limited to it.
    let mut testbed = testbed(|description| description.interrupts.msi_vectors = 2);
    set_word(&mut testbed, 0x4A, 1 | 5 << 4);
    testbed.write(DMA, 0x20A0, 3);
    transfer(&mut testbed);
    assert_eq!(testbed.host.messages, [1]);
}

#[test]
fn msi_mask_holds_messages() {
    let mut testbed = testbed(|description| description.interrupts.msi_masking = true);
    set_word(&mut testbed, 0x4A, 1 | 5 << 4);
    testbed.write(DMA, 0x20A0, 4);
    testbed.card.config_write(0x58, &(1_u32 << 4).to_le_bytes());
    transfer(&mut testbed);
    let pending = |testbed: &mut CardTestbed| {
        let mut bytes = [0; 4];
        testbed.card.config_read(0x5C, &mut bytes);
        u32::from_le_bytes(bytes)
    };
    assert!(testbed.host.messages.is_empty());
    assert_eq!(pending(&mut testbed), 1 << 4);
    testbed.card.config_write(0x58, &[0; 4]);
    testbed.run();
    assert_eq!(pending(&mut testbed), 0);
    assert_eq!(testbed.host.messages, [4]);
}

#[test]
fn messages_wait_for_bus_master() {
    for msix in [false, true] {
        let mut testbed = testbed(|_| ());
        if msix {
            testbed.card.enable_msix(32);
        } else {
            set_word(&mut testbed, 0x4A, 1);
        }
        // An interrupt without DMA: the mask of an asserted source.
        transfer(&mut testbed);
        testbed.write(DMA, 0x2018, 1);
        let before = testbed.host.messages.len() + testbed.host.interrupts.len();
        testbed.card.set_command(true, false);
        testbed.write(DMA, 0x2014, 1);
        testbed.run();
        assert_eq!(testbed.host.messages.len() + testbed.host.interrupts.len(), before);
        testbed.card.set_command(true, true);
        testbed.run();
        assert_eq!(testbed.host.messages.len() + testbed.host.interrupts.len(), before + 1);
    }
}

#[test]
fn msix_overrides_msi_and_intx() {
    let mut testbed = testbed(|_| ());
    transfer(&mut testbed);
    assert!(testbed.host.line);
    set_word(&mut testbed, 0x4A, 1);
    testbed.run();
    assert!(!testbed.host.line, "a function that sends messages has no line (PCIe 7.7.1.2)");
    assert_eq!(testbed.host.messages, [0], "an asserted interrupt is reported again");
    assert_eq!(status(&mut testbed) & 1 << 3, 0);
    testbed.card.enable_msix(32);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x3014), 3);
    assert_eq!((testbed.host.messages.len(), testbed.host.interrupts.as_slice()), (1, &[0][..]));
    transfer(&mut testbed);
    assert_eq!((testbed.host.messages.len(), testbed.host.interrupts.len()), (1, 2));
    testbed.card.disable_msix();
    testbed.run();
    assert_eq!(testbed.host.messages.len(), 2, "back to MSI");
    set_word(&mut testbed, 0x4A, 0);
    testbed.run();
    assert!(testbed.host.line, "and to the line");
}

#[test]
fn msix_entry_is_masked_individually() {
    let mut testbed = testbed(|_| ());
    testbed.card.enable_msix(0);
    testbed.write(DMA, 0x20A0, 0x0000_0003);
    transfer(&mut testbed);
    assert!(testbed.host.interrupts.is_empty());
    assert_eq!(testbed.read(DMA, 0x8FE0), 1 << 3);
    testbed.card.set_msix_masked(0, 3, false);
    testbed.run();
    assert!(testbed.host.interrupts.is_empty(), "the others");
    testbed.card.set_msix_masked(3, 1, false);
    testbed.run();
    assert_eq!(testbed.host.interrupts, [3]);
    testbed.card.set_msix_masked(3, u16::MAX, true);
    transfer(&mut testbed);
    assert_eq!(testbed.host.interrupts, [3]);
}
