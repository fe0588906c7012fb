//! Tests of the CDMA engine.

use fpga_driver::{Advice, Error};
use fpga_pci::Bar;
use fpga_registers::cdma::{BytesToTransfer, CdmaBlock, Cdmasr};
use fpga_registers::{BarOffset, CardAddr};

use super::context::{ResultRecorder, TestContext, skip_reason};
use super::memory::{read, write};
use super::pattern::{Expected, GUARD, GUARD_BYTE, Pattern, compare};
use super::problem::{TestError, Verdict};
use fpga_driver::Direction;
use fpga_driver::ResourceError;
use fpga_driver::errors::CopyFault;
use fpga_driver::{Cdma, CdmaError};
use fpga_pci::poll_until;

/// Lengths of aligned copies; all offsets are aligned for every data width (up to 1024 bits).
const ALIGNED: [usize; 4] = [128, 4096, 65_536, 512 << 10];
/// Maximum time for an engine to halt after an error, in nanoseconds.
const HALT_LIMIT_NS: u64 = 100_000_000;
/// Unaligned copies: length, source offset, destination offset.
const UNALIGNED: [(usize, usize, usize); 4] = [(1, 0, 0), (3, 1, 2), (4097, 5, 5), (65_535, 63, 1)];

pub(super) fn run(context: &mut TestContext<'_>, recorder: &mut ResultRecorder<'_>) {
    recorder.test(context, "cdma.copy", |context| with(context, copy));
    recorder.test(context, "cdma.unaligned", |context| with(context, unaligned));
    recorder.test(context, "cdma.refusals", |context| with(context, refusals));
    recorder.test(context, "cdma.error", |context| with(context, error_and_reset));
    recorder.test(context, "cdma.scatter_gather", |context| with(context, scatter_gather));
}

/// Takes the engine, if it exists and has no owner.
fn with(
    context: &TestContext<'_>,
    work: fn(&TestContext<'_>, &mut Cdma) -> Result<Verdict, TestError>,
) -> Result<Verdict, TestError> {
    match context.card.cdma() {
        Ok(mut cdma) => work(context, &mut cdma),
        Err(error) => match error.kind {
            ResourceError::InUse { .. } => Ok(skip_reason("the CDMA engine")),
            ResourceError::Absent { .. } => Ok(Verdict::skip(
                "the offset of a CDMA engine in the user BAR is unknown: the card has no identity block"
                    .to_owned(),
            )
            .advise(Advice::StateCdmaOffset)),
            _ => Err(error.into()),
        },
    }
}

/// Copies within scratch memory and compares the result, including guard bytes.
fn check(
    context: &TestContext<'_>,
    cdma: &mut Cdma,
    length: usize,
    from: usize,
    to: usize,
) -> Result<bool, TestError> {
    let Some(scratch) = context.scratch else { return Ok(false) };
    let half = scratch.length / 2 / 128 * 128;
    let needed = GUARD * 2 + from.max(to) + length + 128;
    if needed as u64 > half {
        return Ok(false);
    }
    let host = context.host()?;
    let (Some(mut h2c), Some(mut c2h)) = (context.any(Direction::H2c)?, context.any(Direction::C2h)?) else {
        return Ok(false);
    };
    // Both are inside scratch memory, so the sum is a valid address. The offset of 128 bytes leaves space for a guard and keeps aligned
    // copies aligned.
    let place = |base: u64, offset: usize| CardAddr::new(scratch.start.get() + base + 128 + offset as u64);
    let (source, target) = (place(0, from), place(half, to));
    let mut data = vec![0; length];
    Pattern::Random.fill(context.options.seed, source, &mut data);
    let mut expected = vec![GUARD_BYTE; length + 2 * GUARD];
    let start = CardAddr::new(target.get() - GUARD as u64);
    write(&mut h2c, &host, start, &expected)?;
    write(&mut h2c, &host, source, &data)?;
    cdma.copy(source, target, length as u64)?;
    if let Some(place) = expected.get_mut(GUARD..GUARD + length) {
        place.copy_from_slice(&data);
    }
    let mut found = vec![0; expected.len()];
    read(&mut c2h, &host, start, &mut found)?;
    let expected = Expected { bytes: &expected, guard: GUARD, card: start };
    compare(|| format!("CDMA copy of {length} bytes from {source} to {target}"), &expected, &found)?;
    Ok(true)
}

fn copy(context: &TestContext<'_>, cdma: &mut Cdma) -> Result<Verdict, TestError> {
    context.scratch()?;
    let mut longest = 0;
    for length in ALIGNED {
        match check(context, cdma, length, 0, 0) {
            Ok(true) => longest = length,
            Ok(false) => break,
            Err(TestError::Cdma(error @ Error { kind: CdmaError::Narrow { .. }, .. })) if longest > 0 => {
                return Ok(Verdict::warn(format!(
                    "copies of up to {longest} bytes work, longer ones do not: {error}"
                )));
            }
            Err(problem) => return Err(problem),
        }
    }
    Ok(if longest == 0 {
        Verdict::skip("the scratch memory is too short, or no channel is free for the check")
    } else {
        Verdict::pass(format!("copies of 128 to {longest} bytes arrived byte for byte"))
    })
}

fn unaligned(context: &TestContext<'_>, cdma: &mut Cdma) -> Result<Verdict, TestError> {
    context.scratch()?;
    let mut done = 0;
    for (length, from, to) in UNALIGNED {
        match check(context, cdma, length, from, to) {
            Ok(true) => done += 1,
            Ok(false) => break,
            Err(TestError::Cdma(Error {
                kind: CdmaError::Copy { cause: CopyFault::Status(status), .. },
                ..
            })) if status.dma_internal_error() => {
                let what = format!(
                    "{length} bytes at offsets {from} and {to} are refused ({status}): the engine was built without data realignment"
                );
                return Ok(Verdict::warn(what).advise(Advice::AlignOrLendChannels));
            }
            Err(TestError::Cdma(error @ Error { kind: CdmaError::Narrow { .. }, .. })) if done > 0 => {
                return Ok(Verdict::warn(format!("{done} unaligned copies work, others do not: {error}")));
            }
            Err(problem) => return Err(problem),
        }
    }
    Ok(if done == 0 {
        Verdict::skip("the scratch memory is too short, or no channel is free for the check")
    } else {
        Verdict::pass(format!("{done} copies at odd offsets arrived byte for byte"))
    })
}

/// Copies that the driver must refuse.
fn refusals(context: &TestContext<'_>, cdma: &mut Cdma) -> Result<Verdict, TestError> {
    let scratch = context.scratch()?;
    let onto = CardAddr::new(scratch.start.get() + 64);
    match cdma.copy(scratch.start, onto, 128) {
        Err(Error { kind: CdmaError::Overlap { .. }, .. }) => {}
        Ok(()) => {
            return Ok(Verdict::fail(
                "a copy onto an overlapping range was not refused: its result is undefined".to_owned(),
            ));
        }
        Err(error) => return Err(error.into()),
    }
    let past = CardAddr::new(u64::MAX - 63);
    match cdma.copy(past, scratch.start, 128) {
        Err(Error { kind: CdmaError::AddressRange { .. } | CdmaError::CardMemory { .. }, .. }) => {
            Ok(Verdict::pass("overlaps and addresses outside the card are refused"))
        }
        Ok(()) => Ok(Verdict::fail("a copy from outside the address space was not refused")),
        Err(error) => Err(error.into()),
    }
}

/// Provokes an error with a length of 0 (PG034: DMAIntErr), and the reset, which alone clears it.
fn error_and_reset(context: &TestContext<'_>, cdma: &mut Cdma) -> Result<Verdict, TestError> {
    let Some(registers) = registers(context)? else {
        return Ok(Verdict::skip("the offset of the engine's registers is unknown"));
    };
    cdma.reset()?;
    CdmaBlock::BTT.write(&registers, BarOffset::ZERO, BytesToTransfer::new())?;
    let mut status = Cdmasr::new();
    // An engine that does not halt is reported as a warning below.
    let _ = poll_until(&**context.card.backend(), context.limit().min(HALT_LIMIT_NS), |_| {
        status = cdma.status()?;
        Ok::<_, Error<CdmaError>>((status.has_error() && status.idle()).then_some(()))
    })?;
    cdma.reset()?;
    let after = cdma.status()?;
    if after.has_error() || !after.idle() {
        let what = format!("a reset does not clear the engine (status {after})");
        return Ok(Verdict::fail(what).advise(Advice::ResetHungEngine));
    }
    Ok(if status.has_error() {
        Verdict::pass(format!("a length of 0 halts the engine ({status}), a reset clears it"))
    } else {
        Verdict::warn(format!(
            "this engine reports no error for a length of 0 (status {status}), although PG034 requires one"
        ))
    })
}

/// Returns the engine's registers, as [`Card::cdma`](fpga_driver::Card::cdma) locates them.
fn registers(context: &TestContext<'_>) -> Result<Option<Bar>, TestError> {
    let (Some(at), Some(bar)) = (context.card.info().cdma, context.card.user_bar()) else { return Ok(None) };
    Ok(Some(bar.slice(at, u64::from(CdmaBlock::SIZE))?))
}

fn scatter_gather(_: &TestContext<'_>, cdma: &mut Cdma) -> Result<Verdict, TestError> {
    Ok(if cdma.status()?.sg_included() {
        Verdict::pass("built with scatter-gather")
    } else {
        Verdict::warn(
            "built without scatter-gather: single copies work, the network interface does not; load a bitstream with it"
                .to_owned(),
        )
    })
}
