//! Data: every built-in card with every interrupt method, runs of any length, the performance ring, fixed addresses, credits, streams.

use super::{DATA, Driver, MAX_RUN_DESCRIPTORS, METHODS, Method, RESULTS, RING};
use crate::foreign_drivers::{GuestMachine, gather, pages, scatter};
use crate::support::*;
use fpga_card::{BarRole, CardDescription};

#[test]
fn vendor_every_board_probe_use_remove_by_every_method() {
    for builtin in CardDescription::builtins().filter(|builtin| builtin.name != "quirky") {
        let description = CardDescription::builtin(builtin.name).expect("built in");
        if description.xdma.stream {
            // Stream channels have no addresses; see `streams`.
            continue;
        }
        let base = description.memory.base;
        let mut machine = GuestMachine::new(description.clone());
        for method in METHODS {
            // If MSI-X is requested but missing, it uses the line.
            let method = match method {
                Method::Msix if description.interrupts.msix_vectors == 0 => Method::Line,
                other => other,
            };
            let mut driver = Driver::load(machine, method);
            let seen = (driver.guest.bar(BarRole::User), driver.guest.bar(BarRole::Bypass));
            assert_eq!((driver.user, driver.bypass), seen, "{}: BARs by position", builtin.name);
            let engines = usize::from(description.xdma.h2c_channels);
            assert_eq!(driver.engines.len(), engines + usize::from(description.xdma.c2h_channels));
            driver.guest.host.map(DATA, 0x4_0000);
            for (round, (offset, length)) in
                [(0, 64), (1, 1), (0, 4096), (4095, 2), (513, 9001), (7, 65_536 - 7)].into_iter().enumerate()
            {
                let segments = pages(DATA, offset, length);
                let data = pattern(length as usize, round as u32 + 1);
                scatter(&mut driver.guest.host, &segments, &data);
                let card = base + 3 * round as u64;
                driver.run(round % engines, &segments, card);
                scatter(&mut driver.guest.host, &segments, &vec![0; length as usize]);
                driver.run(engines + round % engines.min(driver.engines.len() - engines), &segments, card);
                let back = gather(&mut driver.guest.host, &segments);
                assert_eq!(back, data, "{} by {method:?}: {length} bytes at {offset}", builtin.name);
            }
            assert!(
                driver.guest.card.faults().is_empty(),
                "{}: {:?}",
                builtin.name,
                driver.guest.card.faults()
            );
            machine = driver.unload();
        }
    }
}

/// The driver requests a vector for every channel and each of 16 user interrupts, even in poll mode. It cannot drive a card with MSI-X and
/// fewer vectors.
#[test]
fn vendor_too_few_vectors_is_refused() {
    for (file, text) in [
        ("eight-vectors", include_str!("../../../../../../tests/cards/eight-vectors.yaml")),
        ("two-vectors", include_str!("../../../../../../tests/cards/two-vectors.yaml")),
    ] {
        let description = CardDescription::parse(std::path::Path::new(file), text).expect(file);
        let mut machine = GuestMachine::new(description);
        for method in METHODS {
            machine = match (Driver::probe(machine, method), method) {
                (Err(machine), Method::Msix | Method::Poll) => *machine,
                (Ok(driver), Method::Msi | Method::Line) => driver.unload(),
                (_, method) => panic!("{file} by {method:?}"),
            };
        }
    }
}

#[test]
fn vendor_runs_of_any_length_and_start() {
    for method in [Method::Poll, Method::Msix, Method::Line] {
        let mut driver = Driver::load(GuestMachine::new(small()), method);
        driver.guest.host.map(DATA, 4096 * (MAX_RUN_DESCRIPTORS as usize + 1));
        // Starts at every kind of position in a block and in a page of 128.
        for count in [1, 2, 62, 1, 63, 64, 65, 1, 127, 128, 129, 300, 1] {
            let segments = pages(DATA, 0, 4096 * count);
            let data = pattern(4096 * count as usize, count as u32);
            scatter(&mut driver.guest.host, &segments, &data);
            driver.run(1, &segments, 0x10_0000);
            assert_eq!(driver.guest.card.faults().len(), 0);
            let mut seen = vec![0; data.len()];
            driver.guest.card.peek(fpga_registers::CardAddr::new(0x10_0000), &mut seen).expect("memory");
            assert!(seen == data, "{count} descriptors by {method:?}");
        }
        // All of them at the same time.
        driver.engines[0].next = 0;
        let segments = pages(DATA, 0, 4096 * MAX_RUN_DESCRIPTORS);
        driver.run(0, &segments, 0);
        driver.engines[4].next = 0;
        driver.run(4, &segments, 0);
        assert_eq!(driver.guest.card.counters().descriptors, 944 + 2 * MAX_RUN_DESCRIPTORS);
    }
}

#[test]
fn vendor_performance_ring_runs_until_stopped() {
    for method in [Method::Msix, Method::Line] {
        let mut driver = Driver::load(GuestMachine::new(small()), method);
        driver.guest.host.map(DATA, 0x1000);
        let (ring, base) = (RING, driver.engines[0].base);
        // No Stop, no Completed, no adjacency: the last one links to the first.
        for index in 0..128 {
            let next = ring + 32 * ((index + 1) % 128);
            driver.guest.host.descriptor(ring + 32 * index, MAGIC, 4096, DATA, 0, next);
        }
        driver.write(base + 0x90, 0x00F8_3E5E);
        driver.write(base + 0xC0, 1 << 1);
        driver.read(base);
        driver.write(base + 0xC0, 1 << 2 | 1);
        driver.read(base);
        for (at, value) in
            [(0x4080, ring as u32), (0x4084, (ring >> 32) as u32), (0x4088, 0), (0x04, driver.start)]
        {
            driver.write(base + at, value);
        }
        assert_eq!(driver.read(base + 0x40), 1, "busy, and nothing else");
        let first = driver.read(base + 0x48);
        assert!(driver.read(base + 0x48) > first, "it continues without software");
        let cycles = driver.read(base + 0xC4);
        let beats = driver.read(base + 0xCC);
        assert!(cycles > 0 && beats > 0 && beats.is_multiple_of(64), "{cycles} cycles, {beats} beats");
        for at in [0xC8, 0xD0, 0xD4, 0xD8] {
            assert_eq!(driver.read(base + at), 0, "upper halves, and registers that newer cores do not have");
        }
        driver.write(base + 0x04, driver.start & !1);
        assert_eq!(driver.read(base + 0x40), 0, "idle; the idle bit is not enabled");
        let host = &driver.guest.host;
        assert!(host.interrupts.is_empty() && !host.line, "nothing was flagged");
    }
}

/// Fixed card addresses, as the driver's address mode does it: set once, alignments read again, then runs as usual. The engine moves whole
/// beats to or from one address; a length or address that is not whole beats is refused with its status bit.
#[test]
fn vendor_fixed_address_mode() {
    for method in [Method::Poll, Method::Msix, Method::Line] {
        let mut driver = Driver::load(GuestMachine::new(small()), method);
        driver.guest.host.map(DATA, 0x2000);
        let to_card = 0;
        let base = driver.engines[to_card].base;
        driver.write(base + 0x08, 1 << 25);
        let alignments = driver.read(base + 0x4C);
        assert_eq!((alignments >> 16 & 0xFF, alignments >> 8 & 0xFF), (64, 64), "whole beats");
        driver.start |= 1 << 25;
        let data = pattern(256, 5);
        driver.guest.host.put(DATA, &data);
        driver.run(to_card, &[(DATA, 256)], 0x4000);
        let mut seen = [0; 128];
        driver.guest.card.peek(fpga_registers::CardAddr::new(0x4000), &mut seen).expect("memory");
        assert_eq!(seen[..64], data[192..], "the last beat stays");
        assert_eq!(seen[64..], [0; 64], "and nothing lies behind it");
        assert!(driver.guest.card.faults().is_empty());
        // Off again: addresses increment as before.
        driver.start &= !(1 << 25);
        driver.write(base + 0x0C, 1 << 25);
        driver.run(to_card, &[(DATA + 3, 99)], 0x5001);
        driver.guest.card.peek(fpga_registers::CardAddr::new(0x5001), &mut seen[..99]).expect("memory");
        assert_eq!(seen[..99], data[3..102], "{method:?}");
    }
}

/// Credits as the driver grants them if configured to: before the start, as many as the run has descriptors.
#[test]
fn vendor_credits_granted_before_start() {
    let mut driver = Driver::load(GuestMachine::new(small()), Method::Msix);
    let (engine, base) = (4, driver.engines[4].base);
    driver.guest.host.map(DATA, 4096 * 8);
    driver.write(0x6024, 1 << 16);
    for count in [1_u64, 5, 8] {
        driver.write(base + 0x408C, count as u32);
        assert_eq!(driver.read(base + 0x408C), count as u32);
        driver.run(engine, &pages(DATA, 0, 4096 * count), 0);
        driver.write(base + 0x408C, 0);
        assert_eq!(driver.read(base + 0x408C), 0, "used up, and cleared with Run");
    }
    driver.write(0x6028, 1 << 16);
    assert_eq!(driver.read(0x6020), 0);
    driver.run(engine, &pages(DATA, 0, 4096), 0);
}

/// Receives are posted first, as in the vendor's streaming test. The sent data returns through the loopback, and the lengths are those of
/// the results, not of the descriptors.
#[test]
fn vendor_stream_results() {
    for method in [Method::Poll, Method::Msix] {
        let description = CardDescription::builtin("us-plus-x8-stream").expect("built in");
        let mut driver = Driver::load(GuestMachine::new(description), method);
        driver.guest.host.map(DATA, 0x2_0000);
        driver.guest.host.map(RESULTS, 0x1000);
        for (round, length) in [1024, 64, 1, 4096, 9000, 32_000].into_iter().enumerate() {
            let (sender, receiver) = (round % 2, 2 + round % 2);
            let sent = pages(DATA, 0, length);
            let received = pages(DATA + 0x1_0000, 0, length);
            let data = pattern(length as usize, round as u32 + 1);
            scatter(&mut driver.guest.host, &sent, &data);
            driver.guest.host.put(RESULTS, &[0; 0x1000]);
            let firsts = [driver.begin(receiver, &received, RESULTS), driver.begin(sender, &sent, 0x1234)];
            let mut vectors = std::mem::take(&mut driver.guest.host.interrupts);
            vectors.sort_unstable();
            if method == Method::Msix {
                assert_eq!(vectors, [sender as u16, receiver as u16]);
            }
            for (engine, first) in [receiver, sender].into_iter().zip(firsts) {
                if method == Method::Msix {
                    driver.guest.host.interrupts.push(engine as u16);
                }
                driver.serve(engine, sent.len() as u32);
                driver.end(engine, first, sent.len() as u64);
            }
            let results: Vec<_> = (0..received.len() as u64)
                .map(|index| {
                    let at = RESULTS + 32 * index;
                    (driver.guest.host.get_word(at), driver.guest.host.get_word(at + 4))
                })
                .collect();
            let total: u32 = results.iter().map(|(_, length)| length).sum();
            assert_eq!(u64::from(total), length);
            let last = results.len() - 1;
            for (index, (status, _)) in results.iter().enumerate() {
                assert_eq!(*status, 0x52B4_0000 | u32::from(index == last), "the last one has the end");
            }
            assert!(gather(&mut driver.guest.host, &received) == data, "{length} bytes by {method:?}");
        }
        driver.unload();
    }
}

/// A read that ends with its packet (`dma_from_device -e`): descriptors for the whole buffer, each with a completion. When one of them has
/// the end of the packet, the driver clears Run with the rest still posted, frees the buffer and starts a new run for the next read.
/// `stream.stop_drops_empty` decides whether that read gets the next packet.
#[test]
fn vendor_stream_read_ends_with_packet() {
    for drops in [true, false] {
        let mut description = CardDescription::builtin("us-plus-x8-stream").expect("built in");
        assert!(description.stream.stop_drops_empty, "as the driver needs it");
        description.stream.stop_drops_empty = drops;
        let mut driver = Driver::load(GuestMachine::new(description), Method::Msix);
        let (receiver, base) = (2, driver.engines[2].base);
        driver.guest.host.map(DATA, 0x1_0000);
        driver.guest.host.map(RESULTS, 0x1000);
        for round in 0..3_u64 {
            let buffer = DATA + 0x4000 * round;
            let segments: Vec<_> = (0..3).map(|page| (buffer + 4096 * page, 4096)).collect();
            driver.guest.host.put(RESULTS, &[0; 96]);
            let first = driver.begin_each_reporting(receiver, &segments, RESULTS);
            let packet = pattern(1000, round as u32 + 1);
            driver.guest.card.push_stream(0, &packet, true);
            driver.guest.work();
            let result = (driver.guest.host.get_word(RESULTS), driver.guest.host.get_word(RESULTS + 4));
            if !drops && round > 0 {
                // The packet went to the buffer of the previous read, which the read no longer owns.
                assert_eq!(result, (0, 0));
                assert!(driver.guest.host.get(DATA + 0x1000, 1000) == pattern(1000, 2));
                break;
            }
            assert_eq!(result, (0x52B4_0001, 1000), "packet {round}");
            assert!(driver.guest.host.get(buffer, 1000) == packet, "packet {round}");
            assert_eq!(std::mem::take(&mut driver.guest.host.interrupts), [2]);
            let enable = driver.enable;
            driver.write(base + 0x98, enable);
            assert_eq!(driver.read(base + 0x44), 0b101, "busy with the next buffer, one completed");
            assert_eq!(driver.read(base + 0x48), 1);
            let start = driver.start;
            driver.write(base + 0x04, start & !1);
            driver.write(base + 0x94, enable);
            driver.end(receiver, first, 3);
            assert_eq!(driver.read(base + 0x40) & 1, u32::from(!drops));
        }
    }
}
