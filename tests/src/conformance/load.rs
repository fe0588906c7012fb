//! Load: mixed transfers without end (to be killed from outside), the check after that, and the rate of small transfers against a loop that
//! uses registers only.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fpga_driver::{
    Card, CardAddr, ChannelOptions, Direction, Iova, MemoryHandle, OpenOptions, RegisteredMemory, RunMode,
    ScatterGatherEntry, WaitMode,
};
use fpga_pci::Backend;
use fpga_pci::barrier;
use fpga_registers::xdma::{
    Adjacent, ChannelBlock, ChannelControl, ChannelInterrupts, ChannelStatus, Descriptor, DescriptorControl,
    SgdmaBlock, channel_base, sgdma_base,
};
use rand_core::Rng;
use rand_pcg::Pcg64;

use super::case_context::{Opened, long_wait};
use crate::bed::{Channel, TestSetup};
use crate::bytes;
use crate::fault_injecting::FaultInjectingBackend;

/// Error with display text.
type Failed = Box<dyn Error>;

fn opened(backend: Arc<dyn Backend>) -> Opened {
    Opened::on(FaultInjectingBackend::wrap(backend, None), OpenOptions::default())
}

/// Runs mixed transfers on every channel of the card, and copies inside it, until `stop` returns true: buffers, parts of registered memory,
/// lists, waits of every kind, cancels, aborts, channels that are dropped in the middle and taken again. Calls `begun` as soon as something
/// is in flight. Returns the number of transfers that succeeded.
///
/// # Errors
/// Any error that a healthy card does not cause.
pub fn stress(
    backend: Arc<dyn Backend>,
    seed: u64,
    begun: &mut dyn FnMut(),
    stop: &mut dyn FnMut() -> bool,
) -> Result<u64, Failed> {
    let opened = opened(backend);
    let card = &opened.card;
    let interrupts = card.enable_interrupts().is_ok();
    let mut rng = Pcg64::new(u128::from(seed), 0x0A02_BDBF_7BB3_C0A7_AC28_FA16_A64A_BF96);
    let names: Vec<_> = card.info().xdma.channels().collect();
    let space = (opened.scratch.length / names.len().max(1) as u64).min(1 << 20);
    let mut pairs = Vec::new();
    for (n, name) in names.iter().enumerate() {
        pairs.push(LoadedChannel::take(&opened, *name, n as u64 * space, space, false)?);
    }
    let mut begun = Some(begun);
    let (mut done, mut rounds) = (0, 0_u64);
    while !stop() {
        let at = usize::try_from(rng.next_u64()).unwrap_or(0) % pairs.len();
        if let Some(pair) = pairs.get_mut(at) {
            done += pair.round(card, &mut rng, interrupts)?;
        }
        if let Some(begun) = begun.take() {
            begun();
        }
        rounds += 1;
        if rounds.is_multiple_of(64) {
            // The channel is dropped with work in flight, and taken again, perhaps in the other run mode.
            let name = names.get(at).copied().ok_or("a channel")?;
            drop(pairs.swap_remove(at));
            let credits = rng.next_u64().is_multiple_of(2);
            let pair = LoadedChannel::take(&opened, name, at as u64 * space, space, credits);
            pairs
                .push(pair.or_else(|_| LoadedChannel::take(&opened, name, at as u64 * space, space, false))?);
            let last = pairs.len() - 1;
            pairs.swap(at, last);
            if let Ok(mut cdma) = card.cdma()
                && opened.needs(4 << 20).is_ok()
            {
                cdma.copy(opened.at(0), opened.at(opened.scratch.length / 2), 65_536)?;
            }
        }
    }
    Ok(done)
}

/// One channel under load.
struct LoadedChannel {
    channel: Channel,
    memory: MemoryHandle,
    start: u64,
    space: u64,
}

/// Bytes of registered memory.
const REGISTERED_LENGTH: usize = 64 << 10;

impl LoadedChannel {
    fn take(
        opened: &Opened,
        name: fpga_driver::ChannelName,
        offset: u64,
        space: u64,
        credits: bool,
    ) -> Result<Self, Failed> {
        let mode = if credits { RunMode::Credit } else { RunMode::Batch };
        let setup = TestSetup { direction: name.direction, mode, threaded: false };
        let mut channel = setup.take(&opened.card, name.number, setup.options())?;
        let memory = channel.register_memory(opened.card.registered_memory(REGISTERED_LENGTH)?)?;
        Ok(Self { channel, memory, start: opened.at(offset).get(), space })
    }

    /// Submits some transfers and waits for them in a random way, or not at all.
    fn round(&mut self, card: &Card, rng: &mut Pcg64, interrupts: bool) -> Result<u64, Failed> {
        let mut below = |end: u64| rng.next_u64() % end.max(1);
        let most = self.space.min(REGISTERED_LENGTH as u64);
        let mut last = None;
        for _ in 0..1 + below(24) {
            let longest = [64, 4096, most][usize::try_from(below(3)).unwrap_or(0)].min(most);
            let length = 1 + below(longest);
            let at = CardAddr::new(self.start + below(self.space - length + 1));
            let offset = usize::try_from(below(REGISTERED_LENGTH as u64 - length + 1)).unwrap_or(0);
            let bytes = usize::try_from(length).unwrap_or(1);
            let submitted = match below(3) {
                0 => self.channel.submit(card.buffer(bytes)?, at).map_err(|refused| refused.error),
                1 => self.channel.submit_at(self.memory, offset, bytes, at),
                _ => {
                    let entry = ScatterGatherEntry { memory: self.memory, offset, length: bytes, card: at };
                    self.channel.submit_list(&[entry])
                }
            };
            match submitted {
                Ok(ticket) => last = Some(ticket),
                Err(error) if error.is_full() => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.channel.poll()?;
        let wait = match below(4) {
            1 if interrupts => long_wait().mode(WaitMode::Interrupt),
            2 if interrupts => long_wait().mode(WaitMode::Hybrid { spin: Duration::from_micros(20) }),
            _ => long_wait(),
        };
        match (below(8), last) {
            (0, _) => drop(self.channel.abort()?),
            (1, Some(last)) => drop(self.channel.cancel(last)?),
            // The transfers stay in flight.
            (2, _) => {}
            (_, Some(last)) => self.channel.wait_ended(last, wait)?,
            (_, None) => {}
        }
        let mut done = 0;
        while let Some(ended) = self.channel.next_completion() {
            match ended.outcome {
                Ok(_) => done += 1,
                Err(fault) if fault.kind.cause == fpga_driver::errors::FaultCause::Aborted => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(done)
    }
}

/// Checks a card as the first start after a kill does: opens it, and moves checked data through every channel and the copy engine.
///
/// # Errors
/// Any unexpected result.
pub fn check_after_kill(backend: Arc<dyn Backend>) -> Result<String, Failed> {
    let began = Instant::now();
    let opened = opened(backend);
    let card = &opened.card;
    let names: Vec<_> = card.info().xdma.channels().collect();
    let length = usize::try_from(opened.scratch.length.min(100_001)).unwrap_or(1);
    let (from, to) = (opened.at(0), opened.at(opened.scratch.length / 2));
    let half = usize::try_from(opened.scratch.length / 2).unwrap_or(1).min(length);
    for (seed, name) in names.iter().enumerate().filter(|(_, name)| name.direction == Direction::H2c) {
        let data = bytes(seed as u64, half);
        card.h2c(name.number)?.write_with(card.buffer_from(&data)?, from, long_wait())?;
        for back in names.iter().filter(|name| name.direction == Direction::C2h) {
            let buffer = card.c2h(back.number)?.read_with(card.buffer(half)?, from, long_wait())?;
            if buffer.to_vec() != data {
                return Err(format!("{name} to {back}: data read back differs from the data written").into());
            }
        }
    }
    let mut copied = "no copy engine";
    if let Ok(mut cdma) = card.cdma() {
        cdma.copy(from, to, half as u64)?;
        let sent = card.c2h(0)?.read_with(card.buffer(half)?, from, long_wait())?;
        let buffer = card.c2h(0)?.read_with(card.buffer(half)?, to, long_wait())?;
        if buffer.to_vec() != sent.to_vec() {
            return Err("the copy engine's destination differs from its source".into());
        }
        copied = "copy engine works";
    }
    let stats = card.memory().stats();
    if (stats.in_use, stats.quarantined) != (0, 0) {
        return Err(format!("memory is still in use after closing: {stats:?}").into());
    }
    let count = names.len();
    opened.close();
    Ok(format!("opened, {count} channels work, {copied}, {} ms", began.elapsed().as_millis()))
}

/// Bytes of a transfer whose rate is measured.
const SMALL: usize = 4096;
/// Transfers in flight.
const DEPTH: usize = 64;

/// Two rates of one run on one card, in transfers of 4 KiB to the card per second.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    /// Rate of the driver, with 64 transfers in flight.
    pub driver: f64,
    /// Rate of a loop that makes five register reads and seven writes per transfer.
    pub registers: f64,
}

impl Rates {
    /// The driver's rate as a multiple of the loop's rate.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.driver / self.registers
    }
}

/// Measures both rates, each for `span`.
///
/// # Errors
/// Any failure of the measurement.
pub fn rates(backend: Arc<dyn Backend>, span: Duration) -> Result<Rates, Failed> {
    let opened = opened(backend);
    // Both run for a short time first, because the first run is slow.
    let warm = span / 10;
    driver_rate(&opened, warm)?;
    register_rate(&opened, warm)?;
    let rates = Rates { driver: driver_rate(&opened, span)?, registers: register_rate(&opened, span)? };
    opened.close();
    Ok(rates)
}

fn per_second(count: u64, took: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate for display")]
    let count = count as f64;
    count / took.as_secs_f64().max(1e-9)
}

fn driver_rate(opened: &Opened, span: Duration) -> Result<f64, Failed> {
    let depth = u32::try_from(DEPTH)?;
    let options = ChannelOptions::default().transfers(depth).descriptors(2 * depth);
    let mut channel = opened.card.h2c_with(0, options)?;
    let memory = channel.register_memory(opened.card.registered_memory(SMALL)?)?;
    let at = opened.at(0);
    let (began, mut last) = (Instant::now(), Instant::now());
    let (first, mut sent) = (channel.ended(), 0_u64);
    while last - began < span {
        while channel.submit_at(memory, 0, SMALL, at).is_ok() {
            sent += 1;
        }
        channel.poll()?;
        channel.relax();
        last = Instant::now();
    }
    let rate = per_second(channel.ended() - first, last - began);
    while channel.ended() - first < sent {
        channel.poll()?;
        channel.relax();
    }
    match channel.next_completion() {
        Some(failed) => {
            Err(failed.outcome.map_or_else(Into::into, |_| "a completion with an unknown ticket".into()))
        }
        None => Ok(rate),
    }
}

/// Drives a channel with status, counts and interrupt masks read from registers, and measures the rate.
fn register_rate(opened: &Opened, span: Duration) -> Result<f64, Failed> {
    const WRITEBACK: usize = 128;
    let bar = opened.card.dma_bar();
    let (base, sgdma) = (channel_base(Direction::H2c, 0), sgdma_base(Direction::H2c, 0));
    let area: RegisteredMemory = opened.card.registered_memory(2 * SMALL)?;
    let at = |offset: usize| Iova::new(area.iova().get() + offset as u64);
    let descriptor = Descriptor::h2c(at(SMALL), opened.at(0), u32::try_from(SMALL)?)?;
    let last = DescriptorControl::new().with_stop(true).with_completed(true).with_eop(true);
    let words = descriptor.with_control(last).to_words();
    area.memory().store_words(0, words)?;
    let (low, high) = at(WRITEBACK).to_low_high();
    ChannelBlock::POLL_ADDRESS_LOW.write(bar, base, low)?;
    ChannelBlock::POLL_ADDRESS_HIGH.write(bar, base, high)?;
    let stop = ChannelControl::new()
        .with_ie_descriptor_stopped(true)
        .with_ie_descriptor_completed(true)
        .with_poll_writeback(true);
    let (began, mut now, mut count) = (Instant::now(), Instant::now(), 0_u64);
    let (low, high) = at(0).to_low_high();
    while now - began < span {
        area.memory().store_u32(WRITEBACK, 0)?;
        barrier::descriptor_before_doorbell();
        ChannelBlock::IDENTIFIER.read(bar, base)?;
        ChannelBlock::STATUS.read(bar, base)?;
        ChannelBlock::CONTROL.write(bar, base, stop)?;
        ChannelBlock::STATUS.write(bar, base, ChannelStatus::from_bits(0x00FF_FFFE))?;
        SgdmaBlock::DESCRIPTOR_LOW.write(bar, sgdma, low)?;
        SgdmaBlock::DESCRIPTOR_HIGH.write(bar, sgdma, high)?;
        SgdmaBlock::ADJACENT.write(bar, sgdma, Adjacent::new())?;
        ChannelBlock::CONTROL.write(bar, base, stop.with_run(true))?;
        let limit = Instant::now() + crate::TIMEOUT;
        while area.memory().load_u32_acquire(WRITEBACK)? & 0x00FF_FFFF != 1 {
            opened.injector.relax();
            if Instant::now() > limit {
                return Err("the loop's transfer does not end".into());
            }
        }
        bar.read32(ChannelBlock::COMPLETED.address(base))?;
        ChannelBlock::STATUS.read(bar, base)?;
        ChannelBlock::INTERRUPT_ENABLE.write(bar, base, ChannelInterrupts::new())?;
        ChannelBlock::CONTROL.read(bar, base)?;
        count += 1;
        now = Instant::now();
    }
    ChannelBlock::CONTROL.write(bar, base, ChannelControl::new())?;
    ChannelBlock::POLL_ADDRESS_LOW.write(bar, base, 0)?;
    ChannelBlock::POLL_ADDRESS_HIGH.write(bar, base, 0)?;
    while ChannelBlock::STATUS.read(bar, base)?.busy() {
        opened.injector.relax();
    }
    Ok(per_second(count, now - began))
}
