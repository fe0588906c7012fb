//! The copy engine (CDMA) inside the card.

use core::time::Duration;

use fpga_driver::{
    CardAddr, Cdma, CdmaError, CdmaRing, CdmaRingOptions, DescriptorPath, Error, ResourceError, WaitMode,
    WaitOptions, errors::CdmaRingError,
};
use fpga_pci::Backend as _;

use rand_core::Rng;
use rand_pcg::Pcg64;

use super::{Case, CaseContext, Verdict, case};
use crate::bytes;
use crate::conformance::Skip;
use crate::conformance::builds::NO_REALIGNMENT;
use crate::conformance::case_context::{Opened, long_wait};

pub(super) const CASES: &[Case] = &[
    case("cdma.copies", &[], copies),
    case("cdma.invalid_requests", &[], invalid_requests),
    case("cdma.bounced", &[], bounced),
    case("cdma.ring.descriptors_by_bypass", &[], |context| ring(context, true, WaitMode::Poll)),
    case("cdma.ring.descriptors_by_dma", &[], |context| ring(context, false, WaitMode::Poll)),
    case("interrupts.user", &[], |context| ring(context, true, WaitMode::Interrupt)),
];

/// Card addresses of the copies' sources and destinations, and of the ring's descriptors.
pub(super) const FROM: u64 = 0;
pub(super) const TO: u64 = 4 << 20;
pub(super) const RING: u64 = 8 << 20;
/// Maximum time of a copy: a twentieth of the time after which the driver takes a copy without a time limit for stuck.
const COPY_SPAN: Duration = Duration::from_millis(50);

pub(super) fn engine(opened: &Opened) -> Result<Cdma, Skip> {
    opened.needs(9 << 20)?;
    opened.card.cdma().map_err(|error| match error.kind {
        ResourceError::Absent { .. } => Skip(error.to_string()),
        _ => panic!("{error}"),
    })
}

pub(super) fn write(opened: &Opened, offset: u64, data: &[u8]) {
    let mut h2c = opened.card.h2c(0).expect("an H2C channel");
    let buffer = opened.card.buffer_from(data).expect("DMA memory");
    h2c.write_with(buffer, opened.at(offset), long_wait()).expect("the write succeeds");
}

pub(super) fn read(opened: &Opened, offset: u64, length: usize) -> Vec<u8> {
    let mut c2h = opened.card.c2h(0).expect("a C2H channel");
    let buffer = opened.card.buffer(length).expect("DMA memory");
    let buffer = c2h.read_with(buffer, opened.at(offset), long_wait()).expect("the read succeeds");
    buffer.to_vec()
}

fn copies(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let mut cdma = engine(&opened)?;
    let paced = context.bytes_within(&opened, COPY_SPAN);
    for (seed, (length, from, to)) in
        [(64, 0, 0), (1, 3, 5), (4096, 64, 128), (100_001, 7, 9), (1 << 20, 0, 64)].into_iter().enumerate()
    {
        let length = paced.min(length);
        let data = bytes(seed as u64, length);
        write(&opened, FROM + from, &data);
        write(&opened, TO + to - to.min(1), &vec![0xEE; length + 2]);
        let copied = cdma.copy(opened.at(FROM + from), opened.at(TO + to), length as u64);
        copied.unwrap_or_else(|error| panic!("{length} bytes: {error}"));
        let around = read(&opened, TO + to - to.min(1), length + 2);
        let before = usize::try_from(to.min(1)).unwrap_or(0);
        assert!(around[before..before + length] == data, "{length} bytes");
        let guard = around[..before].iter().chain(&around[before + length..]);
        assert!(
            guard.copied().all(|byte| byte == 0xEE),
            "{length} bytes: memory behind the destination is unchanged"
        );
    }
    random_copies(&opened, &mut cdma, paced);
    drop(cdma);
    opened.close();
    Ok(())
}

/// Random copies of at most `max_length` bytes within an array of bytes, overlapping and empty ones included: card memory matches the array.
fn random_copies(opened: &Opened, cdma: &mut Cdma, max_length: usize) {
    const ARRAY: usize = 1 << 20;
    let mut rng = Pcg64::new(1, 0x0A02_BDBF_7BB3_C0A7_AC28_FA16_A64A_BF96);
    let mut below = |end: usize| usize::try_from(rng.next_u64() % end as u64).unwrap_or(0);
    for round in 0..8 {
        let mut array = bytes(round, ARRAY);
        write(opened, FROM, &array);
        for n in 0..32 {
            let (from, to) = (below(ARRAY), below(ARRAY));
            let longest = if below(2) == 0 { 130 } else { max_length.min(200_000) };
            let length = below(longest).min(ARRAY - from.max(to));
            let at = |offset: usize| opened.at(FROM + offset as u64);
            let copied = cdma.copy(at(from), at(to), length as u64);
            if from.abs_diff(to) < length {
                assert!(
                    matches!(copied, Err(Error { kind: CdmaError::Overlap { .. }, .. })),
                    "{round}, {n}: {copied:?}"
                );
            } else {
                assert_eq!(copied, Ok(()), "{round}, {n}: {length} bytes from {from} to {to}");
                array.copy_within(from..from + length, to);
            }
        }
        assert!(read(opened, FROM, ARRAY) == array, "round {round}");
    }
}

/// Copies that an engine without DRE cannot do go through host memory: on the backend's own card, which may have a DRE, and on a build
/// without one, where the backend has it.
fn bounced(context: &mut CaseContext<'_>) -> Verdict {
    bounced_on(context)?;
    context.on(&NO_REALIGNMENT, bounced_on)
}

fn bounced_on(context: &CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let mut cdma = engine(&opened)?;
    for (seed, (length, from, to)) in
        [(1, 63, 64), (64, 3, 3), (65, 1, 2), (4097, 62, 62), (100_001, 7, 9)].into_iter().enumerate()
    {
        let data = bytes(seed as u64, length);
        write(&opened, FROM + from, &data);
        write(&opened, TO, &vec![0xEE; length + 128]);
        let lent = (opened.card.h2c(0).expect("an H2C channel"), opened.card.c2h(0).expect("a C2H channel"));
        cdma.set_bounce_channels(64, lent.0, lent.1).unwrap_or_else(|refused| panic!("{refused}"));
        let copied = cdma.copy(opened.at(FROM + from), opened.at(TO + to), length as u64);
        copied.unwrap_or_else(|error| panic!("{length} bytes: {error}"));
        drop(cdma.take_bounce_channels().expect("lent"));
        let there = read(&opened, TO, length + 128);
        let before = usize::try_from(to).unwrap_or(0);
        assert!(there[before..before + length] == data, "{length} bytes from {from} to {to}");
        let beside = there[..before].iter().chain(&there[before + length..]);
        assert!(
            beside.copied().all(|byte| byte == 0xEE),
            "{length} bytes from {from} to {to}: memory beside the destination is unchanged"
        );
    }
    drop(cdma);
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// Ranges that cannot be copied are refused before the card sees them.
fn invalid_requests(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let mut cdma = engine(&opened)?;
    let Some(ni) = &opened.card.info().ni else {
        return Err(Skip("the end of the card's memory is unknown".to_owned()));
    };
    let (start, length) = (ni.memory.start.get(), ni.memory.length);
    let (end, behind_windows) = (start + length, ni.windows.address(ni.windows.count, 0).get());
    let at = |offset| opened.at(FROM + offset).get();
    let before = opened.injector.traffic();
    let mut refused = |from, to, length| {
        let refused = cdma.copy(CardAddr::new(from), CardAddr::new(to), length);
        refused.expect_err("a range that cannot be copied")
    };
    for (from, to, length) in [
        (at(0), end - 99, 100),
        (end - 99, at(0), 100),
        (end, at(0), 1),
        (at(0), behind_windows, 1),
        (start, start + length / 2, length),
    ] {
        let error = refused(from, to, length);
        assert!(matches!(error.kind, CdmaError::CardMemory { .. }), "{error}");
        assert!(error.to_string().contains(&format!("{} CDMA", opened.injector.name())), "{error}");
    }
    for (from, to, length) in [
        (u64::MAX, at(0), 2),
        (at(0), u64::MAX - 5, 100),
        (at(0), at(1), u64::MAX),
        (at(8), at(1 << 20), u64::MAX),
    ] {
        let error = refused(from, to, length);
        assert!(
            matches!(error.kind, CdmaError::AddressRange { .. } | CdmaError::CardMemory { .. }),
            "{error}"
        );
    }
    for (from, to, length) in
        [(0, 0, 1), (100, 100, 50), (100, 101, 2), (101, 100, 2), (0, 99, 100), (99, 0, 100)]
    {
        let error = refused(at(from), at(to), length);
        assert!(matches!(error.kind, CdmaError::Overlap { .. }), "{error}");
    }
    assert_eq!(opened.injector.traffic(), before, "no register was touched");
    assert!(matches!(opened.card.cdma(), Err(Error { kind: ResourceError::InUse { .. }, .. })));
    // Adjacent ranges do not overlap, and memory ends after its last byte.
    cdma.copy(opened.at(FROM), opened.at(FROM + 100), 100)
        .expect("the engine is unaffected by the refused copies");
    cdma.copy(CardAddr::new(end - 100), opened.at(TO), 100).expect("the last bytes of memory");
    drop(cdma);
    opened.close();
    Ok(())
}

/// Copies through a ring, several in flight, with either wait mode: the engine's interrupt is user interrupt 0.
fn ring(context: &mut CaseContext<'_>, bypass: bool, wait: WaitMode) -> Verdict {
    const LENGTH: usize = 10_001;
    let opened = context.open();
    let cdma = engine(&opened)?;
    let options = CdmaRingOptions::new(opened.at(RING)).descriptors(32).copies(32);
    let options = if wait == WaitMode::Interrupt {
        opened.interrupts()?;
        options.user_interrupt(0)
    } else {
        options
    };
    let data: Vec<_> = (0..16).map(|n| bytes(n, LENGTH)).collect();
    for (n, data) in data.iter().enumerate() {
        write(&opened, FROM + (n << 16) as u64, data);
    }
    let path = if bypass {
        DescriptorPath::bypass(CardAddr::ZERO)
    } else {
        DescriptorPath::channel(opened.card.h2c(0).expect("an H2C channel"))
    };
    let mut ring: CdmaRing<usize> = match cdma.into_ring(path, options) {
        Ok(ring) => ring,
        Err(refused) => match &refused.error.kind {
            CdmaRingError::NoBypass { .. } | CdmaRingError::NoInterrupt => {
                return Err(Skip(refused.error.to_string()));
            }
            _ => panic!("{refused}"),
        },
    };
    let interrupts = opened.injector.traffic().interrupts;
    for round in 0..3 {
        let mut last = None;
        for n in 0..data.len() {
            let (from, to) = (opened.at(FROM + (n << 16) as u64), opened.at(TO + (n << 16) as u64 + round));
            last = Some(ring.copy(from, to, LENGTH as u64, n).expect("accepted"));
        }
        let last = last.expect("submitted");
        let done = ring
            .wait(last, WaitOptions::default().timeout(crate::TIMEOUT).mode(wait))
            .expect("the copy completes");
        assert_eq!((done.outcome, done.payload), (Ok(LENGTH as u64), data.len() - 1));
        for n in 0..data.len() - 1 {
            let done = ring.next_completion().expect("copies complete in order");
            assert_eq!((done.outcome, done.payload), (Ok(LENGTH as u64), n));
        }
    }
    assert_eq!(ring.in_flight(), 0);
    // A lost interrupt costs only a sleep, so that it shows only in the count. In real time the copies may be done before any thread
    // sleeps.
    let woken = opened.injector.traffic().interrupts - interrupts;
    assert!(wait != WaitMode::Interrupt || context.real_time() || woken > 0, "interrupts woke the waits");
    drop(ring);
    for (n, data) in data.iter().enumerate() {
        assert!(read(&opened, TO + (n << 16) as u64 + 2, LENGTH) == *data, "copy {n}");
    }
    opened.close();
    Ok(())
}
