//! Tests of the network interface: its identity, and a transfer to itself.

use core::time::Duration;
use fpga_driver::{Advice, CardRange, CdmaError, Direction, Error, NiInfo, ResourceError};

use fpga_firmware::generated::{PACKET_SIZE_LOG2_MAX, PACKET_SIZE_LOG2_MIN};
use fpga_firmware::identity::{Identity, IdentityReadError};
use fpga_protocol::sender::SendFailure;
use fpga_registers::xdma::{IRQ_BASE, IrqBlock};
use fpga_registers::{CardAddr, quantity};

use super::context::{ResultRecorder, TestContext, skip_reason};
use super::memory::{read, write};
use super::pattern::{Expected, GUARD, GUARD_BYTE, Pattern, compare};
use super::problem::{TestError, Verdict};
use fpga_rdma::{Endpoint, EndpointError, EndpointOptions, RESERVED_CARD_BYTES, SendOptions};

/// Length of the transfer in bytes: several segments, the last one not full.
const BYTES: usize = 40_003;
/// Offset in its half of scratch memory: packets are not aligned to their own size, but every copy is aligned for builds without data
/// realignment (1024 bits at most).
const OFFSET: u64 = 3 * 128;

pub(super) fn run(context: &mut TestContext<'_>, recorder: &mut ResultRecorder<'_>) {
    recorder.test(context, "ni.identity", |context| identity(context));
    recorder.test(context, "ni.loopback", |context| loopback(context));
}

fn absent() -> Verdict {
    Verdict::skip(
        "the card has no network interface of this project, or it was opened without one".to_owned(),
    )
}

fn identity(context: &TestContext<'_>) -> Result<Verdict, TestError> {
    let info = context.card.info();
    let (Some(identity), Some(ni), Some(bar)) = (&info.identity, &info.ni, context.card.user_bar()) else {
        return Ok(absent());
    };
    let again = match Identity::read(bar, bar.size()) {
        Ok(identity) => identity,
        Err(IdentityReadError::Access { error, .. }) if error.is_gone() => return Err(error.into()),
        Err(error) => {
            check_responding(context)?;
            return Ok(Verdict::fail(error.to_string()));
        }
    };
    let now = NiInfo::read(bar, &again)?;
    // Software may change the node id.
    let mut expected = ni.clone();
    expected.node = now.node;
    let same = again == *identity && now == expected;
    if !same {
        return Ok(Verdict::fail(
            "the identity block or the interface's capabilities have changed since the card was opened: another bitstream \
             was loaded; open the card again"
                .to_owned(),
        ));
    }
    let odd: Vec<&str> = [
        (ni.windows.count == 0, "no transmit window"),
        (ni.memory.length == 0, "no memory"),
        (ni.mask_bits == 0 || ni.mask_bits > 256, "mask width"),
        (!(PACKET_SIZE_LOG2_MIN..=PACKET_SIZE_LOG2_MAX).contains(&ni.packet_size_log2), "packet size"),
        (ni.registry_entries == 0, "no registry entry"),
    ]
    .into_iter()
    .filter_map(|(odd, name)| odd.then_some(name))
    .collect();
    Ok(if odd.is_empty() {
        Verdict::pass(format!(
            "node {}, build {:#x}, {} transmit windows, {} registry entries, {} blocks",
            now.node,
            identity.build(),
            ni.windows.count,
            ni.registry_entries,
            identity.blocks().len()
        ))
    } else {
        Verdict::fail(format!("impossible capabilities: {}; load another bitstream", odd.join(", ")))
    })
}

/// Transfers from the node to itself: transmit path, network, receive path, registry.
fn loopback(context: &TestContext<'_>) -> Result<Verdict, TestError> {
    if context.card.info().ni.is_none() {
        return Ok(absent());
    }
    let scratch = context.scratch()?;
    let Some((source, target, chain)) = test_ranges(scratch) else {
        return Ok(Verdict::skip(format!(
            "the scratch memory has {}; give 256 KiB for this test",
            quantity(scratch.length, "byte")
        )));
    };
    let mut data = vec![0; BYTES];
    Pattern::Random.fill(context.options.seed, source, &mut data);
    let mut expected = vec![GUARD_BYTE; BYTES + 2 * GUARD];
    let start = CardAddr::new(target.get() - GUARD as u64);
    {
        let host = context.host()?;
        let Some(mut h2c) = context.any(Direction::H2c)? else { return Ok(skip_reason("every H2C channel")) };
        write(&mut h2c, &host, source, &data)?;
        write(&mut h2c, &host, start, &expected)?;
    }
    let mut options = EndpointOptions::default();
    options.chain = Some(chain);
    options.give_up = options.give_up.min(context.options.timeout);
    match send(context, &options, source, target) {
        Ok(LoopbackOutcome::Arrived) => {}
        Ok(LoopbackOutcome::Lost) => {
            return Ok(Verdict::warn(
                "the network returned no packet: it does not return a node's packets to itself (usual behind a switch), or the link is down"
                    .to_owned(),
            )
            .advise(Advice::TestWithSecondCard));
        }
        Ok(LoopbackOutcome::Failed(why)) => return Ok(Verdict::fail(why)),
        Err(Error { kind: EndpointError::Cdma(Error { kind: CdmaError::NoScatterGather, .. }), .. }) => {
            return Ok(Verdict::skip(
                "the copy engine has no scatter-gather, which the interface needs (see cdma.scatter_gather)"
                    .to_owned(),
            ));
        }
        Err(Error {
            kind: EndpointError::Resource(Error { kind: ResourceError::InUse { what }, .. }),
            ..
        }) => {
            return Ok(skip_reason(what));
        }
        Err(error) => {
            check_responding(context)?;
            return Ok(Verdict::fail(error.to_string()));
        }
    }
    let host = context.host()?;
    let Some(mut c2h) = context.any(Direction::C2h)? else { return Ok(skip_reason("every C2H channel")) };
    if let Some(place) = expected.get_mut(GUARD..GUARD + BYTES) {
        place.copy_from_slice(&data);
    }
    let mut found = vec![0; expected.len()];
    read(&mut c2h, &host, start, &mut found)?;
    let expected = Expected { bytes: &expected, guard: GUARD, card: start };
    compare(|| format!("{BYTES} bytes from the node to itself"), &expected, &found)?;
    Ok(Verdict::pass(format!("{BYTES} bytes from the node to itself arrived byte for byte")))
}

/// Returns source, target and CDMA chain within scratch memory.
fn test_ranges(scratch: CardRange) -> Option<(CardAddr, CardAddr, CardAddr)> {
    let end = scratch.start.get().checked_add(scratch.length)?;
    let chain = end.checked_sub(RESERVED_CARD_BYTES)? & !0xFFF;
    let half = chain.checked_sub(scratch.start.get())? / 2 / 128 * 128;
    let source = scratch.start.get() + OFFSET;
    let target = scratch.start.get() + half + OFFSET;
    let needed = OFFSET + (BYTES + GUARD) as u64;
    (half >= needed).then(|| (CardAddr::new(source), CardAddr::new(target), CardAddr::new(chain)))
}

/// Outcome of the transfer.
enum LoopbackOutcome {
    Arrived,
    /// The network did not answer.
    Lost,
    /// The NI refused the transfer, or gave it up.
    Failed(String),
}

fn send(
    context: &TestContext<'_>,
    options: &EndpointOptions,
    source: CardAddr,
    target: CardAddr,
) -> Result<LoopbackOutcome, Error<EndpointError>> {
    let mut endpoint = Endpoint::open_with(context.card, options)?;
    let node = endpoint.node();
    let region = endpoint.open_region(node, CardRange::new(target, BYTES as u64))?;
    let began = context.now();
    let ticket = match endpoint.send(source, &region.remote, 0, BYTES as u64, SendOptions::default()) {
        Ok(ticket) => ticket,
        Err(error) => return Ok(LoopbackOutcome::Failed(error.to_string())),
    };
    // Longer than the give-up time.
    let timeout = options.give_up + context.options.timeout;
    let done = match endpoint.wait(ticket, timeout) {
        Ok(done) => done,
        Err(Error { kind: EndpointError::TimedOut { .. }, .. }) => return Ok(LoopbackOutcome::Lost),
        Err(error) => return Err(error),
    };
    let closed = endpoint.close_region(&region);
    match done.result {
        Ok(()) => {}
        Err(SendFailure::Unanswered { .. }) => return Ok(LoopbackOutcome::Lost),
        Err(error) => return Ok(LoopbackOutcome::Failed(error.to_string())),
    }
    let mut backoff = fpga_pci::Backoff::new();
    while endpoint.next_notification().is_none() {
        if Duration::from_nanos(context.now().saturating_sub(began)) > timeout * 2 {
            return Ok(LoopbackOutcome::Lost);
        }
        if endpoint.poll()? == 0 {
            context.card.back_off(&mut backoff);
        } else {
            backoff.reset();
        }
    }
    closed.map(|()| LoopbackOutcome::Arrived)
}

/// Checks that the card still answers: an endpoint error may be caused by its removal.
fn check_responding(context: &TestContext<'_>) -> Result<(), TestError> {
    match IrqBlock::IDENTIFIER.read(context.card.dma_bar(), IRQ_BASE)?.into_bits() {
        u32::MAX => Err(TestError::Gone),
        _ => Ok(()),
    }
}
