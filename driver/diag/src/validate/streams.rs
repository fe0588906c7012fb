//! Tests of AXI4-Stream channels: packets sent and received.
//!
//! A C2H channel without arriving data stays busy until the card is reset (see [`stream`](fpga_driver::stream)). Therefore these tests run only
//! on request, and last. One packet is sent and one is received at a time; with a loopback it is the same packet.

use super::context::{ResultRecorder, TestContext, skip_reason};
use super::pattern::Pattern;
use super::problem::{TestError, Verdict};
use fpga_driver::ChannelName;
use fpga_driver::ResourceError;
use fpga_driver::WaitOptions;
use fpga_driver::{Advice, Error};
use fpga_driver::{
    C2hStream, H2cStream,
    stream::{C2hStreamOptions, StreamError},
};
use fpga_driver::{Card, CardAddr, Direction};

/// Lengths of the packets in bytes: a single byte, beats and parts of beats, pages.
const LENGTHS: [usize; 7] = [1, 63, 64, 65, 4096, 5000, 30_000];
/// Maximum length in bytes of a packet from another source.
const MAX_PACKET_BYTES: usize = 1 << 20;

pub(super) fn run(context: &mut TestContext<'_>, recorder: &mut ResultRecorder<'_>) {
    if context.card.info().xdma.stream {
        recorder.test(context, "streams.packets", |context| packets(context));
    }
}

/// Source of the packets of a C2H channel.
enum LoopbackKind {
    Loopback,
    Source { shortest: usize, longest: usize },
    Nothing { wedged: bool },
    Held,
}

fn packets(context: &TestContext<'_>) -> Result<Verdict, TestError> {
    if !context.options.streams {
        return Ok(Verdict::skip(
            "a C2H stream channel that receives no data stays busy until the card is reset: request the test (--streams) if every C2H \
             channel has a loopback or a packet source"
                .to_owned(),
        ));
    }
    let mut words = Vec::new();
    let (mut passed, mut quiet) = (0, false);
    for name in context.channels(Direction::C2h) {
        match one(context, name)? {
            LoopbackKind::Loopback => {
                passed += 1;
                words.push(format!(
                    "{name}: loopback, {} packets of 1 to 30000 bytes returned unchanged",
                    LENGTHS.len()
                ));
            }
            LoopbackKind::Source { shortest, longest } => {
                passed += 1;
                words.push(format!(
                    "{name}: a source, {} packets of {shortest} to {longest} bytes",
                    LENGTHS.len()
                ));
            }
            LoopbackKind::Nothing { wedged } => {
                quiet |= wedged;
                let state = if wedged { ", and it stays busy" } else { "" };
                words.push(format!("{name}: no data arrives{state}"));
            }
            LoopbackKind::Held => words.push(format!("{name}: in use, not tested")),
        }
    }
    let words = words.join("; ");
    Ok(match (passed, quiet) {
        (0, false) if words.is_empty() => skip_reason("every C2H channel"),
        (_, true) => Verdict::warn(words).advise(Advice::ResetHungEngine),
        (0, false) => Verdict::skip(words),
        _ => Verdict::pass(words),
    })
}

/// Returns a taken channel; `None` for a channel that has another owner.
fn free<T>(taken: Result<T, Error<ResourceError>>) -> Result<Option<T>, TestError> {
    match taken {
        Ok(channel) => Ok(Some(channel)),
        Err(Error {
            kind:
                ResourceError::InUse { .. }
                | ResourceError::OtherClient { .. }
                | ResourceError::NoSuchChannel { .. },
            ..
        }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn one(context: &TestContext<'_>, name: ChannelName) -> Result<LoopbackKind, TestError> {
    let card: &Card = context.card;
    // Only single buffers are posted, in batch mode: where packets arrive, the channel is idle afterwards.
    let options = C2hStreamOptions::default().buffers(2).run_mode(fpga_driver::RunMode::Batch);
    let Some(mut rx) = free(card.c2h_stream_with(name.number, options))? else {
        return Ok(LoopbackKind::Held);
    };
    let mut tx = free(card.h2c_stream(name.number))?;
    let wait = WaitOptions::default().timeout(context.options.timeout);
    let (mut equal, mut shortest, mut longest) = (true, usize::MAX, 0);
    for (seed, length) in LENGTHS.into_iter().enumerate() {
        let mut expected = vec![0; length];
        Pattern::Random.fill(context.options.seed, CardAddr::new(seed as u64), &mut expected);
        let sent = card.buffer_from(&expected).map_err(TestError::from)?;
        if let Some(tx) = &mut tx {
            tx.submit(sent).map_err(|refused| refused.error.map(StreamError::Submit))?;
            tx.poll().map_err(|error| error.map(StreamError::from))?;
        }
        let buffer = card.buffer(MAX_PACKET_BYTES).map_err(TestError::from)?;
        let received = match rx.receive_with(buffer, wait) {
            Ok(buffer) => buffer,
            Err(failed) if failed.error.is_timeout() => return nothing(&mut rx, tx),
            Err(failed) => return Err(failed.error.into()),
        };
        equal &= received.to_vec() == expected;
        (shortest, longest) = (shortest.min(received.len()), longest.max(received.len()));
    }
    Ok(if equal { LoopbackKind::Loopback } else { LoopbackKind::Source { shortest, longest } })
}

/// Stops a channel that received nothing, if possible.
fn nothing(rx: &mut C2hStream, tx: Option<H2cStream>) -> Result<LoopbackKind, TestError> {
    drop(tx);
    match rx.abort() {
        Ok(_) => Ok(LoopbackKind::Nothing { wedged: false }),
        Err(Error { kind: StreamError::Channel(fpga_driver::ChannelError::Wedged { .. }), .. }) => {
            Ok(LoopbackKind::Nothing { wedged: true })
        }
        Err(error) => Err(error.into()),
    }
}
