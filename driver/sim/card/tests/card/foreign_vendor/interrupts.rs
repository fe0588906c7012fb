//! Everything besides data: shared interrupts, a failing run, register checks, every number of channels.

use super::{DATA, Driver, Engine, METHODS, Method};
use crate::foreign_drivers::GuestMachine;
use crate::support::*;

#[test]
fn vendor_user_interrupts_reach_vectors() {
    for method in [Method::Msix, Method::Msi, Method::Line] {
        let mut driver = Driver::load(GuestMachine::new(small()), method);
        let user = driver.user.expect("a user BAR");
        let cdma = 0x1000;
        // A copy inside the card, interrupt on completion: its line is user interrupt 0.
        driver.guest.write(user, cdma, 1 << 12);
        for (at, value) in [(0x18, 0), (0x1C, 0), (0x20, 0x1000), (0x24, 0), (0x28, 64)] {
            driver.guest.write(user, cdma + at, value);
        }
        assert_eq!(driver.requests(), (1, 0));
        let vector = driver.engines.len() as u16;
        match method {
            Method::Msix => assert_eq!(driver.guest.host.interrupts, [vector]),
            Method::Msi => assert_eq!(driver.guest.host.messages, [0]),
            _ => assert!(driver.guest.host.line, "and stays until the source is cleared"),
        }
        driver.guest.write(user, cdma + 4, 1 << 12);
        assert_eq!(driver.requests(), (0, 0));
        assert!(!driver.guest.host.line);
    }
}

/// Lines that user logic holds, any of the sixteen: each reaches its vector, or the shared handler, and stays high until it is lowered.
#[test]
fn vendor_user_logic_raises_any_line() {
    for method in [Method::Msix, Method::Msi, Method::Line] {
        let mut driver = Driver::load(GuestMachine::new(small()), method);
        let first = driver.engines.len() as u16;
        for line in 0..16_u8 {
            let level = |driver: &mut Driver, on| {
                let GuestMachine { card, host, .. } = &mut driver.guest;
                assert!(card.set_user_interrupt(line, on, host));
            };
            level(&mut driver, true);
            let host = &mut driver.guest.host;
            match method {
                Method::Msix => {
                    assert_eq!(std::mem::take(&mut host.interrupts), [first + u16::from(line)]);
                }
                Method::Msi => assert_eq!(std::mem::take(&mut host.messages), [0]),
                _ => assert!(host.line),
            }
            assert_eq!(driver.requests(), (1 << line, 0));
            // The handler masks it, an application serves it, and it is unmasked: it requests again as long as it is held high.
            driver.write(0x200C, 1 << line);
            assert_eq!((driver.requests(), driver.guest.host.line), ((0, 0), false));
            assert_eq!(driver.read(0x2048), 1 << line);
            level(&mut driver, false);
            driver.write(0x2008, 1 << line);
            let host = &driver.guest.host;
            assert!(
                host.interrupts.is_empty() && host.messages.is_empty() && !host.line,
                "{method:?}: {line}"
            );
        }
        let GuestMachine { card, host, .. } = &mut driver.guest;
        assert!(!card.set_user_interrupt(16, true, host), "there are sixteen");
        // A reset of the core does not affect user logic; reloading the FPGA does.
        card.set_user_interrupt(5, true, host);
        card.reset();
        card.set_command(true, true);
        assert_eq!(driver.read(0x2048), 1 << 5);
        driver.guest.card.reprogram();
        driver.guest.card.set_command(true, true);
        assert_eq!(driver.read(0x2048), 0);
    }
}

/// Several engines and a user interrupt at the same time on one line, or one message: the handler masks all requests, and each engine is
/// served and unmasked in turn. Unmasking one that is not served raises the line again.
#[test]
fn vendor_one_handler_serves_all_requests() {
    for (method, h2c, c2h) in [Method::Msi, Method::Line]
        .into_iter()
        .flat_map(|method| [(method, 1, 1), (method, 2, 1), (method, 2, 2)])
    {
        let mut description = small();
        (description.xdma.h2c_channels, description.xdma.c2h_channels) = (h2c, c2h);
        let mut driver = Driver::load(GuestMachine::new(description), method);
        driver.guest.host.map(DATA, 0x1000);
        let count = driver.engines.len();
        let all = (1 << count) - 1;
        for order in 0..count {
            for engine in 0..count {
                driver.begin(engine, &[(DATA, 64)], 0x1000);
            }
            let user = driver.user.expect("a user BAR");
            driver.guest.write(user, 0x1000, 1 << 12);
            for (at, value) in [(0x18, 0), (0x1C, 0), (0x20, 0x1000), (0x24, 0), (0x28, 64)] {
                driver.guest.write(user, 0x1000 + at, value);
            }
            let asserted = |driver: &Driver| method == Method::Line && driver.guest.host.line;
            assert_eq!(asserted(&driver), method == Method::Line);
            assert_eq!(driver.read(0x2044), all, "all request");
            driver.write(0x2018, all);
            assert_eq!(driver.read(0x2040), 1, "and the user's, which the handler leaves to others");
            assert_eq!(asserted(&driver), method == Method::Line, "so the line stays");
            driver.guest.write(user, 0x1004, 1 << 12);
            assert!(!asserted(&driver), "masked, or cleared");
            assert_eq!(driver.read(0x204C), all, "a masked interrupt is pending");
            for place in 0..count {
                let engine = (order + place) % count;
                let Engine { base, number, .. } = driver.engines[engine];
                // If unmasked before it is served, it requests again; the others stay masked.
                driver.write(0x2014, 1 << number);
                assert_eq!((asserted(&driver), driver.read(0x2044)), (method == Method::Line, 1 << number));
                assert_eq!(driver.read(base + 0x44), 0b110);
                let start = driver.start;
                driver.write(base + 0x04, start & !1);
                assert_eq!(driver.read(base + 0x48), 1);
                assert_eq!((asserted(&driver), driver.read(0x2044)), (false, 0), "served");
            }
            assert_eq!(driver.requests(), (0, 0));
            driver.guest.host.messages.clear();
        }
        driver.unload();
    }
}

/// A transfer that fails: the driver's reads to find the cause, its stop, and success of the next run.
#[test]
fn vendor_failed_run_is_stopped_and_next_works() {
    for method in [Method::Msix, Method::Line] {
        let mut driver = Driver::load(GuestMachine::new(small()), method);
        driver.guest.host.map(DATA, 0x1000);
        let Engine { base, number, .. } = driver.engines[0];
        let bit = 1 << number;
        // The second page is not mapped.
        let first = driver.begin(0, &[(DATA, 64), (0x7_0000_0000, 64), (DATA, 64)], 0x1000);
        if method == Method::Line {
            assert_eq!(driver.read(0x2044), bit);
            driver.write(0x2018, bit);
            driver.read(0x2040);
        } else {
            assert_eq!(std::mem::take(&mut driver.guest.host.interrupts), [number as u16]);
            let enable = driver.enable;
            driver.write(base + 0x98, enable);
            driver.read(0x204C);
        }
        let status = driver.read(base + 0x44);
        assert_eq!(status & 0x3E00, 1 << 9, "the host does not support this read: {status:#x}");
        assert_eq!(status & 1, 0, "not busy");
        assert_eq!(driver.read(base + 0x48), 1, "one was done");
        let (start, enable) = (driver.start, driver.enable);
        driver.write(base + 0x04, start & !1);
        if method == Method::Line {
            driver.write(0x2014, bit);
        } else {
            driver.write(base + 0x94, enable);
        }
        driver.end(0, first, 3);
        assert!(!driver.guest.host.line && driver.guest.host.interrupts.is_empty());
        driver.run(0, &[(DATA, 64)], 0x1000);
    }
}

#[test]
fn vendor_register_pokes_work() {
    let mut driver = Driver::load(GuestMachine::new(small()), Method::Poll);
    for value in [0, 1, 0, 1] {
        driver.write(0x301C, value);
        assert_eq!(driver.read(0x301C), value);
    }
    assert_eq!((driver.read(0x3008), driver.read(0x300C)), (0, 2), "payload 128, read requests 512");
    assert_eq!(driver.read(0x3014), 2);
    for channel in 4..8 {
        assert_eq!(driver.read(0x100 * channel), 0, "no such channel");
    }
    // Fixed addresses are a mode of the channel; the alignment register is read again.
    driver.write(0x08, 1 << 25);
    assert_eq!(driver.read(0x4C), 0x0040_4040, "addresses and lengths in whole beats");
    driver.write(0x0C, 1 << 25);
    assert_eq!(driver.read(0x4C), 0x0001_0140);
    // Descriptors written through the bypass BAR: words of any width.
    let bypass = driver.bypass.expect("a bypass BAR");
    for (at, width) in [(0, 1), (3, 2), (9, 4), (17, 8), (31, 3)] {
        let bytes = pattern(width, at as u32 + 1);
        driver.guest.card.bar_write(bypass, at, &bytes, &mut driver.guest.host);
        let mut back = vec![0; width];
        driver.guest.card.bar_read(bypass, at, &mut back);
        assert_eq!(back, bytes);
    }
}

#[test]
fn vendor_every_channel_count_has_bits_and_vectors() {
    for (h2c, c2h) in (1..=4).flat_map(|h2c| (1..=4).map(move |c2h| (h2c, c2h))) {
        let mut description = small();
        (description.xdma.h2c_channels, description.xdma.c2h_channels) = (h2c, c2h);
        let mut machine = GuestMachine::new(description);
        for method in METHODS {
            let mut driver = Driver::load(machine, method);
            assert_eq!(driver.engines.len(), usize::from(h2c + c2h));
            driver.guest.host.map(DATA, 0x2000);
            for engine in 0..driver.engines.len() {
                driver.run(engine, &[(DATA + 3, 100), (DATA + 0x1001, 77)], 0x1000);
            }
            assert!(driver.guest.card.faults().is_empty(), "{h2c} + {c2h} by {method:?}");
            machine = driver.unload();
        }
    }
}
