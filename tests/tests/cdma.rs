//! Copies inside the card: long copies, timeouts, builds of the engine. The conformance cases `cdma.*` and `fault.cdma_*` test the rest.
#![expect(clippy::cast_possible_truncation, reason = "lengths of tests")]
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use fpga_card::description::CardDescription;
use fpga_driver::errors::CopyFault;
use fpga_driver::{
    Advice, BarOffset, Card, CardAddr, Cdma, CdmaError, CdmaRingOptions, DescriptorPath, Error,
    NetworkInterface, OpenOptions, ResourceError,
};
use fpga_registers::cdma::CdmaBlock;
use fpga_sim::SimNetwork;
use fpga_tests::bytes;
use fpga_tests::cards::{described, network, open, open_with, peek, poke, with_channels};
use fpga_tests::fault_injecting::{FaultInjectingBackend, ReplacedRegister};

const MEMORY: u64 = 0x2_0000_0000;

fn at(offset: u64) -> CardAddr {
    CardAddr::new(offset)
}

fn opened() -> (SimNetwork, Card) {
    let network = network(with_channels(1, 1));
    let card = open(&network);
    (network, card)
}

/// Runs a copy that must arrive.
fn assert_works(network: &SimNetwork, cdma: &mut Cdma, seed: u64) {
    let data = bytes(seed, 70_001);
    poke(network, 0, at(0x30_0001), &data);
    cdma.copy(at(0x30_0001), at(0x50_0003), 70_001).unwrap();
    assert!(peek(network, 0, at(0x50_0003), 70_001) == data);
}

#[test]
fn cdma_zero_length_copy_completes_without_card() {
    let (network, card) = opened();
    let mut cdma = card.cdma().unwrap();
    poke(&network, 0, at(100), &[1; 100]);
    cdma.copy(at(0), at(100), 0).unwrap();
    cdma.copy(at(100), at(100), 0).unwrap();
    cdma.copy(at(MEMORY), at(0), 0).unwrap();
    assert_eq!(network.with_card(0, |card| card.counters().cdma_descriptors), Some(0));
    assert_eq!(peek(&network, 0, at(100), 100), [1; 100]);
}

#[test]
fn cdma_long_copy_is_cut() {
    let (network, card) = opened();
    let mut cdma = card.cdma().unwrap();
    let length = (64 << 20) + 12_345;
    let (from, to) = (0x1000_0001, 0x2000_0003);
    // Marks around every address at which a chunk may end.
    let marks: Vec<u64> = (0..=length >> 20).map(|mib| (mib << 20).min(length - 64)).collect();
    for &mark in &marks {
        poke(&network, 0, at(from + mark), &bytes(mark, 64));
    }
    poke(&network, 0, at(to + length), b"behind");
    cdma.copy(at(from), at(to), length).unwrap();
    for &mark in &marks {
        assert_eq!(peek(&network, 0, at(to + mark), 64), bytes(mark, 64), "at {mark:#x}");
    }
    assert_eq!(peek(&network, 0, at(to + length), 6), b"behind");
    let counted = network.with_card(0, |card| (card.counters().cdma_descriptors, card.counters().cdma_bytes));
    assert_eq!(counted, Some((length.div_ceil(4 << 20), length)), "chunks of 4 MiB");
}

#[test]
fn cdma_second_owner_is_refused() {
    let (network, card) = opened();
    let cdma = card.cdma().unwrap();
    assert!(matches!(card.cdma(), Err(Error { kind: ResourceError::InUse { .. }, .. })));
    assert!(matches!(
        card.clone().cdma_at(BarOffset::new(0x1000)),
        Err(Error { kind: ResourceError::InUse { .. }, .. })
    ));
    drop(cdma);
    assert_works(&network, &mut card.cdma().unwrap(), 2);
    // An endpoint uses the engine itself.
    let endpoint = fpga_rdma::Endpoint::open_with(&card, &fpga_tests::testbed::options(1)).unwrap();
    assert!(matches!(card.cdma(), Err(Error { kind: ResourceError::InUse { .. }, .. })));
    drop(endpoint);
    assert_works(&network, &mut card.cdma().unwrap(), 3);
}

#[test]
fn cdma_copy_ends_at_timeout() {
    let (network, card) = opened();
    let mut cdma = card.cdma().unwrap();
    let data = bytes(1, 9 << 20);
    poke(&network, 0, at(0x1000_0000), &data);
    // Card memory moves 17 GB/s, each byte twice: 4 MiB need some 500 microseconds.
    let mut seen = Vec::new();
    for micros in (0..40).map(|n| n * 40) {
        poke(&network, 0, at(0x1_0000_0000), &[0; 9 << 20]);
        let limit = Duration::from_micros(micros);
        match cdma.copy_with_timeout(at(0x1000_0000), at(0x1_0000_0000), 9 << 20, limit) {
            Ok(()) => seen.push(9 << 20),
            Err(Error {
                kind: CdmaError::Copy { cause: CopyFault::TimedOut { .. }, done, segment }, ..
            }) => {
                assert_eq!(segment.length, 9 << 20);
                assert!(done < segment.length);
                let all = usize::try_from(done).unwrap();
                assert!(peek(&network, 0, at(0x1_0000_0000), all) == data[..all]);
                seen.push(all);
            }
            Err(error) => panic!("{error}"),
        }
        // The engine was reset: it does not continue after the error is returned.
        let then = peek(&network, 0, at(0x1_0000_0000), 9 << 20);
        network.step_until_idle();
        assert!(peek(&network, 0, at(0x1_0000_0000), 9 << 20) == then);
        assert_works(&network, &mut cdma, micros);
    }
    assert!(seen.is_sorted(), "{seen:?}");
    seen.dedup();
    assert_eq!(seen, [0, 4 << 20, 8 << 20, 9 << 20], "the copy can stop after every chunk");
    assert!(peek(&network, 0, at(0x1_0000_0000), 9 << 20) == data);
}

#[test]
fn cdma_copy_stopped_by_caller_reports_progress() {
    let (network, card) = opened();
    let mut cdma = card.cdma().unwrap();
    let data = bytes(1, 9 << 20);
    poke(&network, 0, at(0x1000_0000), &data);
    let mut seen = Vec::new();
    let stopped = cdma.copy_with_progress(at(0x1000_0000), at(0x1_0000_0000), 9 << 20, None, &mut |done| {
        seen.push(done);
        if done < 8 << 20 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert!(
        matches!(
            stopped,
            Err(Error { kind: CdmaError::Copy { cause: CopyFault::Stopped, done: 0x80_0000, .. }, .. })
        ),
        "{stopped:?}"
    );
    assert_eq!(seen, [4 << 20, 8 << 20]);
    assert!(peek(&network, 0, at(0x1_0000_0000), 8 << 20) == data[..8 << 20]);
    assert_eq!(peek(&network, 0, at(0x1_0080_0000), 1 << 20), vec![0; 1 << 20]);
    assert_works(&network, &mut cdma, 1);
}

#[test]
fn cdma_without_dre_unaligned_copy_fails_typed() {
    let network = network(described("cdma: { dre: false, data_width: 512 }"));
    let card = open(&network);
    let mut cdma = card.cdma().unwrap();
    let data = bytes(1, 4096);
    poke(&network, 0, at(0x1000), &data);
    let error = cdma.copy(at(0x1001), at(0x8000), 100).unwrap_err();
    assert!(matches!(error.kind, CdmaError::Copy { cause: CopyFault::Status(_), done: 0, .. }), "{error}");
    cdma.copy(at(0x1000), at(0x8040), 4000).unwrap();
    assert!(peek(&network, 0, at(0x8040), 4000) == data[..4000]);
}

/// A card whose engine has no DRE and a data path of `bytes`, and the engine with a channel for each direction.
fn without_realignment(bytes: u32) -> (SimNetwork, Card, Cdma) {
    let network = network(described(&format!("cdma: {{ dre: false, data_width: {} }}", bytes * 8)));
    let card = open(&network);
    let mut cdma = card.cdma().unwrap();
    cdma.set_bounce_channels(bytes, card.h2c(0).unwrap(), card.c2h(0).unwrap()).unwrap();
    (network, card, cdma)
}

/// All offsets of both addresses in a beat, and all lengths around one and two beats: the bytes arrive, and the adjacent bytes stay.
#[test]
fn cdma_without_dre_bounce_copies_every_byte() {
    const SPAN: usize = 1024;
    for beat in [4_usize, 8, 64, 128] {
        let (network, card, mut cdma) = without_realignment(beat as u32);
        let places: Vec<usize> =
            if beat <= 8 { (0..beat).collect() } else { vec![0, 1, 3, beat / 2, beat - 1] };
        let lengths: Vec<usize> =
            [0, 1, 2, 3].into_iter().chain(beat - 2..=beat + 2).chain(2 * beat - 1..=2 * beat + 1).collect();
        let (from, to) = (0x10_0000, 0x20_0000);
        let source = bytes(beat as u64, SPAN);
        poke(&network, 0, at(from), &source);
        for (first, second, length) in places.iter().flat_map(|first| {
            let lengths = &lengths;
            places.iter().flat_map(move |second| lengths.iter().map(move |length| (*first, *second, *length)))
        }) {
            let what = format!("{beat} bytes wide: {length} from {first} to {second}");
            let before = bytes(7, SPAN);
            poke(&network, 0, at(to), &before);
            let beats = network.with_card(0, |card| card.counters().cdma_bytes).unwrap();
            cdma.copy(at(from + first as u64), at(to + (beat + second) as u64), length as u64).unwrap();
            let mut expected = before;
            expected[beat + second..][..length].copy_from_slice(&source[first..first + length]);
            assert!(peek(&network, 0, at(to), SPAN) == expected, "{what}");
            // The engine copies the part that it can.
            let by_the_engine = network.with_card(0, |card| card.counters().cdma_bytes).unwrap() - beats;
            let ahead = if first == second { ((beat - first) % beat).min(length) } else { length };
            assert_eq!(by_the_engine, (length - ahead) as u64, "{what}");
        }
        // More than one bounce chunk, and more than the engine copies at a time.
        for (first, second) in if beat == 64 { vec![(1, 1), (1, 2)] } else { Vec::new() } {
            let data = bytes(1, (4 << 20) + 99);
            poke(&network, 0, at(0x100_0000 + first), &data);
            cdma.copy(at(0x100_0000 + first), at(0x200_0000 + second), data.len() as u64).unwrap();
            assert!(peek(&network, 0, at(0x200_0000 + second), data.len()) == data);
        }
        assert!(card.h2c(0).is_err(), "the channel is in use by the engine");
        let (h2c, c2h) = cdma.take_bounce_channels().unwrap();
        drop((h2c, c2h));
        assert!(cdma.take_bounce_channels().is_none());
        assert!(matches!(
            cdma.copy(at(1), at(0x1001), 64),
            Err(Error { kind: CdmaError::Copy { cause: CopyFault::Status(_), .. }, .. })
        ));
        assert!(card.h2c(0).is_ok());
    }
}

#[test]
fn cdma_bounce_failure_is_reported() {
    let (network, card, mut cdma) = without_realignment(64);
    network.with_card(0, |card| card.poison(at(0x10_0000 + (300 << 10)), 64));
    let error = cdma.copy(at(0x10_0001), at(0x40_0002), 1 << 20).unwrap_err();
    let Error { kind: CdmaError::Copy { cause: CopyFault::Bounce(_), done, segment }, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!((*done, segment.length), (256 << 10, 1 << 20));
    assert!(error.to_string().contains("c2h0"), "{error}");
    network.with_card(0, |card| card.poison(at(0), 0));
    cdma.copy(at(0x10_0001), at(0x40_0002), 1 << 20).unwrap();
    // The timeout also holds for the path through the host.
    let error =
        cdma.copy_with_timeout(at(0x10_0001), at(0x80_0002), 4 << 20, Duration::from_nanos(300)).unwrap_err();
    assert!(matches!(error.kind, CdmaError::Copy { cause: CopyFault::TimedOut { .. }, .. }), "{error}");
    cdma.copy(at(0x10_0001), at(0x40_0002), 1000).unwrap();

    // Refused channels are returned.
    let other = open(&self::network(described("cdma: { dre: false }")));
    for (width, foreign) in [(0, false), (3, false), (256, false), (64, true)] {
        let (h2c, c2h) = cdma.take_bounce_channels().unwrap();
        let (h2c, c2h, kept) =
            if foreign { (other.h2c(0).unwrap(), c2h, Some(h2c)) } else { (h2c, c2h, None) };
        let refused = cdma.set_bounce_channels(width, h2c, c2h).unwrap_err();
        assert!(refused.to_string().contains("mock:0 CDMA"), "{refused}");
        let (h2c, c2h) = (kept.unwrap_or(refused.payload.0), refused.payload.1);
        cdma.set_bounce_channels(64, h2c, c2h).unwrap();
    }
    let (mut h2c, c2h) = cdma.take_bounce_channels().unwrap();
    let ticket = h2c.submit(card.buffer(64).unwrap(), at(0)).unwrap();
    let refused = cdma.set_bounce_channels(64, h2c, c2h).unwrap_err();
    assert!(refused.to_string().contains("in flight"), "{refused}");
    let mut h2c = refused.payload.0;
    assert!(h2c.wait(ticket, fpga_driver::WaitOptions::default()).is_ok());
}

#[test]
fn cdma_every_build_copies() {
    for sections in [
        "cdma: { address_width: 32 }\nmemory: { size: 0x10000000 }",
        "cdma: { address_width: 64, sg: false }",
        "cdma: { data_width: 32 }",
        "cdma: { address_width: 40 }",
    ] {
        let network = network(described(sections));
        let card = open(&network);
        assert_works(&network, &mut card.cdma().unwrap(), 7);
    }
}

#[test]
fn cdma_card_without_identity_needs_offset() {
    let network = network(with_channels(1, 1));
    let card = open_with(&network, OpenOptions::default().network_interface(NetworkInterface::Ignored));
    let error = card.cdma().unwrap_err();
    assert!(matches!(error.kind, ResourceError::Absent { .. }), "{error}");
    assert_eq!(error.advice(), Some(Advice::StateCdmaOffset), "{error}");
    for wrong in [0xFFFC, 0x1_0000, u64::MAX] {
        let error = card.cdma_at(BarOffset::new(wrong)).unwrap_err();
        assert!(matches!(error.kind, ResourceError::Cause(_)), "{error}");
    }
    assert_works(&network, &mut card.cdma_at(BarOffset::new(0x1000)).unwrap(), 4);
    // Without the identity block the driver does not know where memory ends: the bus reports the error.
    let mut cdma = card.cdma_at(BarOffset::new(0x1000)).unwrap();
    let error = cdma.copy(at(0), at(MEMORY), 64).unwrap_err();
    assert!(matches!(error.kind, CdmaError::Copy { cause: CopyFault::Status(_), .. }), "{error}");
    assert_works(&network, &mut cdma, 5);
}

/// Opens a card whose CDMA length register keeps `bits` bits.
fn with_length_bits(bits: u32, file: &str) -> (SimNetwork, Card) {
    let network = network(described(file));
    let offset = open(&network).info().cdma.unwrap();
    let register = CdmaBlock::BTT.address(offset);
    let backend = FaultInjectingBackend::new(network.backend(0), Vec::new());
    backend.narrow_register((0, register.get()), (1 << bits) - 1);
    (network, Card::from_backend(backend).unwrap())
}

#[test]
fn cdma_narrow_length_register_copies_all_bytes() {
    for bits in [8, 12, 15, 20, 22, 23, 26] {
        for length in [1, 255, 40_000, 40_001, 32_768, (9 << 20) + 5] {
            // The narrowest registers take one start per 128 bytes.
            if bits < 15 && length > 1 << 20 {
                continue;
            }
            for (file, from, to) in [
                ("cdma: { dre: true }", 0x1_0001, 0x200_0003),
                ("cdma: { dre: false }", 0x1_0000, 0x200_0040),
            ] {
                let (network, card) = with_length_bits(bits, file);
                let data = bytes(u64::from(bits), length as usize);
                poke(&network, 0, at(from), &data);
                poke(&network, 0, at(to + length), b"behind");
                let mut cdma = card.cdma().unwrap();
                cdma.copy(at(from), at(to), length).unwrap_or_else(|error| panic!("{bits} bits: {error}"));
                assert!(peek(&network, 0, at(to), length as usize) == data, "{bits} bits, {length} bytes");
                assert_eq!(peek(&network, 0, at(to + length), 6), b"behind");
            }
        }
    }
}

#[test]
fn cdma_ring_uses_length_that_copy_has_found() {
    let (network, card) = with_length_bits(15, "cdma: { dre: true }");
    let mut cdma = card.cdma().unwrap();
    assert_eq!(cdma.length_bits(), 23);
    cdma.copy(at(0x1_0000), at(0x200_0000), 40_000).unwrap();
    assert_eq!(cdma.length_bits(), 15);
    let options = CdmaRingOptions::new(at(0x10_0000));
    let ring = cdma.into_ring::<()>(DescriptorPath::bypass(at(0)), options).unwrap();
    assert_eq!(ring.max_descriptor_length(), 32_704);
    drop((ring, network));
}

#[test]
fn cdma_length_register_that_is_none_is_reported() {
    let network = network(described("cdma: { dre: true }"));
    let register = CdmaBlock::BTT.address(open(&network).info().cdma.unwrap());
    let replaced = ReplacedRegister { bar: 0, at: register.get(), value: 0x1234 };
    let card = Card::from_backend(FaultInjectingBackend::new(network.backend(0), vec![replaced])).unwrap();
    let error = card.cdma().unwrap().copy(at(0), at(0x10_0000), 0x4000).unwrap_err();
    assert!(
        matches!(
            error.kind,
            CdmaError::Copy {
                cause: CopyFault::LengthRegister { held: 0x1234, written: 0x4000 },
                done: 0,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn cdma_card_file_accepts_documented_length_bits_only() {
    for bits in [8, 15, 20, 22, 24, 27] {
        let text = format!("schema_version: 3\ncdma: {{ max_length_bits: {bits} }}");
        let error = CardDescription::parse(Path::new("test.yaml"), &text).unwrap_err().to_string();
        assert!(error.contains("cdma.max_length_bits"), "{error}");
    }
}
