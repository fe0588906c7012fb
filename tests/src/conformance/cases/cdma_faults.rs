//! The copy engine's errors: one copy at a time, and in the middle of a ring's chain.

use fpga_card::fault_plan::{FaultEntry, FaultName};
use fpga_driver::{
    CardAddr, Cdma, CdmaError, CdmaRing, CdmaRingOptions, CdmaSegment, DescriptorPath, NetworkInterface,
    OpenOptions, WaitOptions,
    errors::{CdmaRingError, CopyFault, FaultCause},
};
use fpga_firmware::generated::BlockType;

use super::cdma::{FROM, RING, TO, engine, read, write};
use super::{Case, CaseContext, Verdict, case};
use crate::bytes;
use crate::conformance::case_context::{HANG_TIMEOUT, Opened, long_wait};
use crate::conformance::faults::{AfterFault, ExpectedError, FaultRow, MemoryOutcome, row};
use crate::conformance::{Capability, Skip};
use crate::fault_injecting::ReplacedRegister;

const CARD: &[Capability] = &[Capability::CardFaults];

pub(super) const CASES: &[Case] = &[
    case("fault.cdma_slave_error", CARD, cdma_slave_error),
    case("fault.cdma_decode_error", CARD, cdma_decode_error),
    case("fault.cdma_hangs", CARD, cdma_hangs),
    case("fault.cdma_ring_internal_error", CARD, |context| {
        in_chain(context, "cdma_ring_internal_error", "internal", 1)
    }),
    case("fault.cdma_ring_slave_error", CARD, |context| {
        in_chain(context, "cdma_ring_slave_error", "slave", 1)
    }),
    case("fault.cdma_ring_decode_error", CARD, |context| {
        in_chain(context, "cdma_ring_decode_error", "decode", 1)
    }),
    case("fault.cdma_ring_descriptor_slave_error", CARD, |context| {
        in_chain(context, "cdma_ring_descriptor_slave_error", "sg_slave", 1)
    }),
    case("fault.cdma_ring_descriptor_decode_error", CARD, |context| {
        in_chain(context, "cdma_ring_descriptor_decode_error", "sg_decode", 1)
    }),
    case("fault.cdma_ring_stale_descriptor", CARD, |context| {
        in_chain(context, "cdma_ring_stale_descriptor", "sg_internal", 2)
    }),
    case("fault.cdma_ring_extra_start", CARD, |context| {
        in_chain(context, "cdma_ring_extra_start", "sg_internal", 1)
    }),
    case("fault.cdma_ring_hangs", CARD, ring_hangs),
    case("fault.cdma_ring_descriptors_lost", &[], descriptors_lost),
];

/// Number of copies in a chain, and bytes of each: two descriptors of a ring with 12 bits of length.
const COPIES: usize = 6;
const LENGTH: usize = 5000;
const LENGTH_BITS: u8 = 12;
const FIRST_DESCRIPTOR: u64 = 4096 - 64;
/// Descriptor that fails, and the copy that it belongs to.
const FAILING: u64 = 5;
const FAILING_COPY: usize = 2;

/// Bytes that the driver copies at a time when there is no ring, and bytes that the simulated engine moves at a time.
const CHUNK_BYTES: u64 = 4 << 20;
const ENGINE_STEP_BYTES: u64 = 64 << 10;

/// Errors of the copy engine in a copy of two full chunks and a short one, each with the number of bytes copied before it. The engine works
/// after each error.
fn cdma_error(
    context: &CaseContext<'_>,
    name: &str,
    from: CardAddr,
    faults: &[(Option<FaultEntry>, u64)],
) -> Verdict {
    const COPY_BYTES: u64 = 2 * CHUNK_BYTES + 4096;
    let row = row(name);
    let probe = context.open();
    let block = probe.card.info().identity.as_ref().and_then(|identity| identity.block(BlockType::Cdma).ok());
    let at = block.map(|block| block.base());
    probe.close();
    let Some(at) = at else { return Err(Skip("the identity block names no copy engine".to_owned())) };
    // Without the network interface the driver does not know where memory ends, so that the card has to report the error.
    let opened = context.open_with(OpenOptions::default().network_interface(NetworkInterface::Ignored));
    let mut cdma = opened.card.cdma_at(at).expect("the copy engine");
    let to = CardAddr::new(16 << 20);
    let assert_works = |cdma: &mut Cdma, seed| {
        let data = bytes(seed, 70_001);
        write(&opened, 0x30_0001, &data);
        cdma.copy(opened.at(0x30_0001), opened.at(0x50_0003), 70_001).expect("the next copy succeeds");
        assert!(read(&opened, 0x50_0003, 70_001) == data, "the next copy's data is correct");
    };
    for (fault, copied) in faults {
        context.set_faults(fault.clone());
        let error = cdma.copy(from, to, COPY_BYTES).expect_err("the copy fails");
        assert_eq!(ExpectedError::of_cdma(&error.kind).as_slice(), row.errors, "{error}");
        let CdmaError::Copy { segment, done, cause: CopyFault::Status(status) } = &error.kind else {
            panic!("{error}")
        };
        assert_eq!((*segment, *done), (CdmaSegment::new(from, to, COPY_BYTES), *copied), "{error}");
        assert!(status.has_error(), "{error}");
        assert!(error.to_string().contains("can be used again"), "{error}");
        context.set_faults([]);
        assert!(cdma.status().is_ok_and(|status| !status.has_error()), "the engine was reset");
        assert_eq!((row.memory, row.after), (MemoryOutcome::Returned, AfterFault::Channel));
        assert_works(&mut cdma, *copied);
    }
    // The engine also works for its next owner.
    drop(cdma);
    let mut cdma = opened.card.cdma_at(at).expect("the copy engine");
    assert_works(&mut cdma, 1);
    drop(cdma);
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

fn cdma_slave_error(context: &mut CaseContext<'_>) -> Verdict {
    // In the first chunk, at the start of the second, and in the last.
    let faults = [
        (1, 0),
        (CHUNK_BYTES / ENGINE_STEP_BYTES, CHUNK_BYTES),
        (2 * CHUNK_BYTES / ENGINE_STEP_BYTES, 2 * CHUNK_BYTES),
    ]
    .map(|(skip, copied)| {
        let error = Some("slave".to_owned());
        (Some(FaultEntry { error, skip, ..FaultEntry::new(FaultName::CdmaError) }), copied)
    });
    cdma_error(context, "cdma_slave_error", CardAddr::new(1 << 20), &faults)
}

fn cdma_decode_error(context: &mut CaseContext<'_>) -> Verdict {
    // An address that the engine can issue, beyond the built-in card's memory and windows.
    cdma_error(context, "cdma_decode_error", CardAddr::new(1 << 40), &[(None, 0)])
}

/// Fault: from its `skip`th move of data on, the engine gets no response.
fn stall(skip: u64) -> FaultEntry {
    FaultEntry { skip, ..FaultEntry::new(FaultName::CdmaStall) }
}

/// A copy that never ends is reported as stuck, and the card works after a reset.
fn cdma_hangs(context: &mut CaseContext<'_>) -> Verdict {
    let row = row("cdma_hangs");
    let opened = context.open_to_hang();
    let mut cdma = engine(&opened)?;
    context.set_faults([stall(0)]);
    let error = if context.real_time() {
        cdma.copy_with_timeout(opened.at(FROM), opened.at(TO), LENGTH as u64, HANG_TIMEOUT)
    } else {
        cdma.copy(opened.at(FROM), opened.at(TO), LENGTH as u64)
    };
    let error = error.expect_err("the copy cannot complete");
    assert_eq!(ExpectedError::of_cdma(&error.kind).as_slice(), row.errors, "{error}");
    context.set_faults([]);
    if !context.real_time() {
        // Each takes seconds of real time.
        let again =
            cdma.copy(opened.at(FROM), opened.at(TO), LENGTH as u64).expect_err("the engine is still busy");
        assert_eq!(ExpectedError::of_cdma(&again.kind).as_slice(), row.errors, "{again}");
    }
    drop(cdma);
    opened.assert_pool(0, 0);
    opened.close();
    reset_and_copy(context, row)
}

/// Resets the bus and checks that the engine copies afterwards.
fn reset_and_copy(context: &CaseContext<'_>, row: &FaultRow) -> Verdict {
    assert_eq!((row.memory, row.after), (MemoryOutcome::Unstopped, AfterFault::Reset));
    context.reset();
    let opened = context.open();
    let data = bytes(9, LENGTH);
    write(&opened, FROM, &data);
    engine(&opened)?
        .copy(opened.at(FROM), opened.at(TO), LENGTH as u64)
        .expect("the copy after the reset succeeds");
    assert!(read(&opened, TO, LENGTH) == data);
    opened.close();
    Ok(())
}

/// Prepares a ring with its descriptors written by DMA or through the bypass BAR (`bypass`), and the source data in the card. `None`: the
/// card has no such path.
fn prepared(opened: &Opened, bypass: bool, data: &[Vec<u8>]) -> Result<Option<CdmaRing<usize>>, Skip> {
    let cdma = engine(opened)?;
    for (n, data) in data.iter().enumerate() {
        write(opened, FROM + ((n as u64) << 16), data);
        write(opened, TO + ((n as u64) << 16), &[0xEE; LENGTH]);
    }
    let path = if bypass {
        DescriptorPath::bypass(CardAddr::ZERO)
    } else {
        DescriptorPath::channel(opened.card.h2c(0).expect("an H2C channel"))
    };
    let options = CdmaRingOptions::new(opened.at(RING)).descriptors(32).copies(32).length_bits(LENGTH_BITS);
    match cdma.into_ring(path, options) {
        Ok(ring) => Ok(Some(ring)),
        Err(refused) if matches!(refused.error.kind, CdmaRingError::NoBypass { .. }) => Ok(None),
        Err(refused) => panic!("{refused}"),
    }
}

fn copy(ring: &mut CdmaRing<usize>, opened: &Opened, n: usize) -> fpga_driver::Ticket {
    let offset = (n as u64) << 16;
    ring.copy(opened.at(FROM + offset), opened.at(TO + offset), LENGTH as u64, n).expect("accepted")
}

/// Every copy completes once, in order. The copies before the failing one are done; the copies after it are not started.
fn in_chain(context: &CaseContext<'_>, name: &str, error: &str, times: u64) -> Verdict {
    let row = row(name);
    for bypass in [true, false] {
        let label = format!("{name}, {}", if bypass { "bypass" } else { "by DMA" });
        let opened = context.open();
        let data: Vec<_> = (0..COPIES).map(|n| bytes(n as u64, LENGTH)).collect();
        let Some(mut ring) = prepared(&opened, bypass, &data)? else { continue };
        context.set_faults([FaultEntry {
            error: Some(error.to_owned()),
            skip: FAILING,
            times: Some(times),
            ..FaultEntry::new(FaultName::CdmaError)
        }]);
        let tickets: Vec<_> = (0..COPIES).map(|n| copy(&mut ring, &opened, n)).collect();
        let mut errors = Vec::new();
        for (n, ticket) in tickets.into_iter().enumerate() {
            let done = ring.wait(ticket, long_wait()).unwrap_or_else(|error| panic!("{label}: {error}"));
            assert_eq!((done.ticket, done.payload), (ticket, n), "{label}");
            let Err(fault) = done.outcome else {
                assert!(
                    n < FAILING_COPY || row.errors.is_empty(),
                    "{label}: copy {n} succeeded after the failing one"
                );
                assert_eq!(done.outcome, Ok(LENGTH as u64), "{label}");
                continue;
            };
            errors.extend(ExpectedError::of_cdma_cause(&fault.kind.cause));
            match &fault.kind.cause {
                FaultCause::Status(status) => {
                    assert_eq!(n, FAILING_COPY, "{label}: {fault}");
                    assert_eq!(status.into_bits() & 0x770, bit(error), "{label}: {fault}");
                    let position = fault.kind.position.expect("the fault names the descriptor");
                    let at = |start| opened.at(start + ((n as u64) << 16) + FIRST_DESCRIPTOR);
                    assert_eq!(
                        (position.source, position.destination),
                        (at(FROM), at(TO)),
                        "{label}: {fault}"
                    );
                    assert_eq!(position.bytes_done, FIRST_DESCRIPTOR, "{label}: {fault}");
                    assert_eq!(u64::from(position.descriptor), FAILING, "{label}: {fault}");
                }
                cause => {
                    assert!(n > FAILING_COPY, "{label}: {fault}");
                    assert_eq!(*cause, FaultCause::EarlierFault, "{label}: {fault}");
                }
            }
        }
        assert_eq!(errors, row.errors, "{label}");
        assert_eq!(ring.in_flight(), 0, "{label}");
        let retried = u64::from(error == "sg_internal");
        assert_eq!(ring.overruns(), retried, "{label}: each overrun costs one reset");
        context.set_faults([]);
        let done = if row.errors.is_empty() { COPIES } else { FAILING_COPY };
        for (n, data) in data.iter().enumerate() {
            let found = read(&opened, TO + ((n as u64) << 16), LENGTH);
            if n < done {
                assert!(found == *data, "{label}: copy {n} completed without its data");
            } else if n > done {
                assert!(found.iter().all(|byte| *byte == 0xEE), "{label}: copy {n} did not start");
            }
        }
        assert_eq!((row.memory, row.after), (MemoryOutcome::Returned, AfterFault::Channel));
        // More copies than the ring has descriptors, so that it wraps around past the failed one.
        for round in 0..4 {
            let tickets: Vec<_> = (0..COPIES).map(|n| copy(&mut ring, &opened, n)).collect();
            for ticket in tickets {
                let done = ring.wait(ticket, long_wait()).unwrap_or_else(|error| panic!("{label}: {error}"));
                assert_eq!(done.outcome, Ok(LENGTH as u64), "{label}: round {round}");
            }
        }
        drop(ring);
        assert!(read(&opened, TO + ((COPIES as u64 - 1) << 16), LENGTH) == data[COPIES - 1], "{label}");
        opened.assert_pool(0, 0);
        opened.close();
    }
    Ok(())
}

/// Bit of the status register (PG034, CDMASR).
fn bit(error: &str) -> u32 {
    match error {
        "internal" => 1 << 4,
        "slave" => 1 << 5,
        "decode" => 1 << 6,
        "sg_internal" => 1 << 8,
        "sg_slave" => 1 << 9,
        "sg_decode" => 1 << 10,
        _ => 0,
    }
}

/// Descriptors written through the bypass BAR do not read back: the driver does not start the engine on them.
fn descriptors_lost(context: &mut CaseContext<'_>) -> Verdict {
    let row = row("cdma_ring_descriptors_lost");
    let opened = context.open();
    let data = [bytes(1, LENGTH)];
    let Some(mut ring) = prepared(&opened, true, &data)? else {
        return Err(Skip("the card has no bypass BAR".to_owned()));
    };
    let bypass = opened.card.info().roles.bypass.expect("the bypass BAR that the ring uses").index;
    // The length of the second descriptor, the last one of the copy.
    let at = opened.at(RING).get() + 64 + 0x18;
    opened.injector.replace(vec![ReplacedRegister { bar: bypass, at, value: 0 }]);
    let ticket = copy(&mut ring, &opened, 0);
    let done = ring.wait(ticket, long_wait()).expect("the copy has completed");
    let fault = done.outcome.expect_err("the upload fails");
    assert_eq!(
        (done.payload, ExpectedError::of_cdma_cause(&fault.kind.cause).as_slice()),
        (0, row.errors),
        "{fault}"
    );
    assert_eq!((row.memory, row.after), (MemoryOutcome::Returned, AfterFault::Channel));
    opened.injector.restore();
    assert!(read(&opened, TO, LENGTH).iter().all(|byte| *byte == 0xEE), "no copy was started");
    let again = copy(&mut ring, &opened, 0);
    assert_eq!(ring.wait(again, long_wait()).expect("the copy completes").outcome, Ok(LENGTH as u64));
    drop(ring);
    assert!(read(&opened, TO, LENGTH) == data[0]);
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// An engine that hangs completes nothing and shows no error: a wait times out, and an abort finds that the engine does not stop.
fn ring_hangs(context: &mut CaseContext<'_>) -> Verdict {
    let row = row("cdma_ring_hangs");
    for bypass in [true, false] {
        let opened = context.open_to_hang();
        let data: Vec<_> = (0..COPIES).map(|n| bytes(n as u64, LENGTH)).collect();
        let Some(mut ring) = prepared(&opened, bypass, &data)? else { continue };
        context.set_faults([stall(FAILING)]);
        let tickets: Vec<_> = (0..COPIES).map(|n| copy(&mut ring, &opened, n)).collect();
        let before =
            ring.wait(tickets[FAILING_COPY - 1], long_wait()).expect("copies before the hang complete");
        assert_eq!(before.outcome, Ok(LENGTH as u64));
        let short = WaitOptions::default().timeout(core::time::Duration::from_millis(50));
        let error = ring.wait(tickets[FAILING_COPY], short).expect_err("the wait times out");
        assert!(matches!(error.kind, CdmaRingError::TimedOut { .. }), "{error}");
        let error = ring.abort().expect_err("the engine does not stop");
        let CdmaRingError::Engine(stuck @ CdmaError::Stuck { .. }) = &error.kind else { panic!("{error}") };
        assert_eq!(ExpectedError::of_cdma(stuck).as_slice(), row.errors);
        for (n, ticket) in tickets.into_iter().enumerate().skip(FAILING_COPY) {
            let done = ring.wait(ticket, long_wait()).expect("the copy has a completion");
            let fault = done.outcome.expect_err("the copy failed");
            assert_eq!((done.payload, fault.kind.cause), (n, FaultCause::Wedged));
        }
        let refused = ring.copy(opened.at(FROM), opened.at(TO), 1, 3).expect_err("the ring cannot be used");
        assert!(
            matches!(refused.error.kind, CdmaRingError::Engine(CdmaError::Stuck { .. }))
                && refused.payload == 3,
            "{refused}"
        );
        assert_eq!((ring.poll(), ring.abort()), (Err(error.clone()), Err(error)));
        context.set_faults([]);
        drop(ring);
        opened.assert_pool(0, 0);
        opened.close();
        reset_and_copy(context, row)?;
        if context.real_time() {
            // Each takes seconds of real time.
            break;
        }
    }
    Ok(())
}
