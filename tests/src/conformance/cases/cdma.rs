//! The copy engine inside the card.

use fpga_driver::{
    Cdma, CdmaError, CdmaRing, CdmaRingError, CdmaRingOptions, DescriptorPath, ResourceError, WaitMode,
    WaitOptions,
};

use super::{Bench, Case, Verdict, case};
use crate::bytes;
use crate::conformance::Skip;
use crate::conformance::bench::{Opened, patient};
use crate::conformance::builds::NO_REALIGNMENT;

pub(super) const CASES: &[Case] = &[
    case("cdma.copies", &[], copies),
    case("cdma.what_cannot_be", &[], what_cannot_be),
    case("cdma.bounced", &[], bounced),
    case("cdma.ring.descriptors_by_bypass", &[], |bench| ring(bench, true, WaitMode::Poll)),
    case("cdma.ring.descriptors_by_dma", &[], |bench| ring(bench, false, WaitMode::Poll)),
    case("interrupts.user", &[], |bench| ring(bench, true, WaitMode::Interrupt)),
];

/// Where copies come from and go to, and where the ring's descriptors lie.
pub(super) const FROM: u64 = 0;
pub(super) const TO: u64 = 4 << 20;
pub(super) const RING: u64 = 8 << 20;

pub(super) fn engine(opened: &Opened) -> Result<Cdma, Skip> {
    opened.needs(9 << 20)?;
    opened.card.cdma().map_err(|error| match error {
        ResourceError::Absent { .. } => Skip(error.to_string()),
        error => panic!("{error}"),
    })
}

pub(super) fn write(opened: &Opened, offset: u64, data: &[u8]) {
    let mut h2c = opened.card.h2c(0).expect("an H2C channel");
    let buffer = opened.card.buffer_from(data).expect("DMA memory");
    h2c.write_with(buffer, opened.at(offset), patient()).expect("it arrives");
}

pub(super) fn read(opened: &Opened, offset: u64, length: usize) -> Vec<u8> {
    let mut c2h = opened.card.c2h(0).expect("a C2H channel");
    let buffer = opened.card.buffer(length).expect("DMA memory");
    let buffer = c2h.read_with(buffer, opened.at(offset), patient()).expect("it comes");
    buffer.to_vec()
}

fn copies(bench: &mut Bench<'_>) -> Verdict {
    let opened = bench.open();
    let mut cdma = engine(&opened)?;
    for (seed, (length, from, to)) in
        [(64, 0, 0), (1, 3, 5), (4096, 64, 128), (100_001, 7, 9), (1 << 20, 0, 64)].into_iter().enumerate()
    {
        let data = bytes(seed as u64, length);
        write(&opened, FROM + from, &data);
        write(&opened, TO + to - to.min(1), &vec![0xEE; length + 2]);
        let copied = cdma.copy(opened.at(FROM + from), opened.at(TO + to), length as u64);
        copied.unwrap_or_else(|error| panic!("{length} bytes: {error}"));
        let around = read(&opened, TO + to - to.min(1), length + 2);
        let before = usize::try_from(to.min(1)).unwrap_or(0);
        assert!(around[before..before + length] == data, "{length} bytes");
        let guard = around[..before].iter().chain(&around[before + length..]);
        assert!(guard.copied().all(|byte| byte == 0xEE), "{length} bytes: beyond its end");
    }
    drop(cdma);
    opened.close();
    Ok(())
}

/// What an engine without data realignment cannot move goes through the host: on the card that is there, which may be able to, and on
/// one that is not, where there can be one.
fn bounced(bench: &mut Bench<'_>) -> Verdict {
    bounced_on(bench)?;
    bench.on(&NO_REALIGNMENT, bounced_on)
}

fn bounced_on(bench: &Bench<'_>) -> Verdict {
    let opened = bench.open();
    let mut cdma = engine(&opened)?;
    for (seed, (length, from, to)) in
        [(1, 63, 64), (64, 3, 3), (65, 1, 2), (4097, 62, 62), (100_001, 7, 9)].into_iter().enumerate()
    {
        let data = bytes(seed as u64, length);
        write(&opened, FROM + from, &data);
        write(&opened, TO, &vec![0xEE; length + 128]);
        let lent = (opened.card.h2c(0).expect("an H2C channel"), opened.card.c2h(0).expect("a C2H channel"));
        cdma.bounce_through(64, lent.0, lent.1).unwrap_or_else(|refused| panic!("{refused}"));
        let copied = cdma.copy(opened.at(FROM + from), opened.at(TO + to), length as u64);
        copied.unwrap_or_else(|error| panic!("{length} bytes: {error}"));
        drop(cdma.end_bounce().expect("lent"));
        let there = read(&opened, TO, length + 128);
        let before = usize::try_from(to).unwrap_or(0);
        assert!(there[before..before + length] == data, "{length} bytes from {from} to {to}");
        let beside = there[..before].iter().chain(&there[before + length..]);
        assert!(beside.copied().all(|byte| byte == 0xEE), "{length} bytes from {from} to {to}: beside them");
    }
    drop(cdma);
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

fn what_cannot_be(bench: &mut Bench<'_>) -> Verdict {
    let opened = bench.open();
    let mut cdma = engine(&opened)?;
    let refused = cdma.copy(opened.at(FROM), opened.at(FROM + 10), 100);
    assert!(matches!(refused, Err(CdmaError::Overlap { .. })), "{refused:?}");
    let end = fpga_driver::CardAddr::new(u64::MAX - 10);
    let refused = cdma.copy(opened.at(FROM), end, 100);
    assert!(
        matches!(refused, Err(CdmaError::AddressRange { .. } | CdmaError::CardMemory { .. })),
        "{refused:?}"
    );
    assert!(matches!(opened.card.cdma(), Err(ResourceError::InUse { .. })));
    cdma.copy(opened.at(FROM), opened.at(TO), 100).expect("the engine saw nothing of it");
    drop(cdma);
    opened.close();
    Ok(())
}

/// Copies through a ring, several in flight; by interrupt: the engine's line is user interrupt 0.
fn ring(bench: &mut Bench<'_>, bypass: bool, wait: WaitMode) -> Verdict {
    const LENGTH: usize = 10_001;
    let opened = bench.open();
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
        DescriptorPath::bypass(fpga_driver::CardAddr::ZERO)
    } else {
        DescriptorPath::channel(opened.card.h2c(0).expect("an H2C channel"))
    };
    let mut ring: CdmaRing<usize> = match cdma.into_ring(path, options) {
        Ok(ring) => ring,
        Err(refused) => match refused.error {
            error @ (CdmaRingError::NoBypass { .. } | CdmaRingError::NoInterrupt { .. }) => {
                return Err(Skip(error.to_string()));
            }
            error => panic!("{error}"),
        },
    };
    let interrupts = opened.seam.traffic().interrupts;
    for round in 0..3 {
        let mut last = None;
        for n in 0..data.len() {
            let (from, to) = (opened.at(FROM + (n << 16) as u64), opened.at(TO + (n << 16) as u64 + round));
            last = Some(ring.copy(from, to, LENGTH as u64, n).expect("accepted"));
        }
        let last = last.expect("submitted");
        let done =
            ring.wait(last, WaitOptions::default().timeout(crate::PATIENCE).mode(wait)).expect("it ends");
        assert_eq!((done.outcome, done.payload), (Ok(LENGTH as u64), data.len() - 1));
        for n in 0..data.len() - 1 {
            let done = ring.next_completion().expect("they end in order");
            assert_eq!((done.outcome, done.payload), (Ok(LENGTH as u64), n));
        }
    }
    assert_eq!(ring.in_flight(), 0);
    // A lost interrupt costs a sleep and nothing else, so who does not count it does not see it. In real time the copies may be done
    // before anybody sleeps.
    let woken = opened.seam.traffic().interrupts - interrupts;
    assert!(wait != WaitMode::Interrupt || bench.real_time() || woken > 0, "nobody was woken");
    drop(ring);
    for (n, data) in data.iter().enumerate() {
        assert!(read(&opened, TO + (n << 16) as u64 + 2, LENGTH) == *data, "copy {n}");
    }
    opened.close();
    Ok(())
}
