//! Accesses of one view to the shared card.
//!
//! An access of a view's channel, or of its copy engine, becomes transfers of the owner, and the view's other engines work meanwhile. Several
//! transfers of one descriptor are in flight, and those of later descriptors ([`ChannelAccesses`]). Descriptors complete in their order.
//!
//! Other accesses block the view until they are over.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fpga_driver::Direction;
use fpga_pci::lock;
use fpga_sim::{AxiAccess, Design, DesignError, DesignPoll, StreamBytes, Unit};

use crate::card::SharedCard;
use crate::channel::ChannelAccesses;
use crate::lane::{CHAINS, Lane};
use crate::sequence::Sequence;
use crate::stream_in::Received;
use crate::stream_out::StreamRefused;

/// Number of channels per direction (PG195).
const CHANNELS: usize = 4;
/// Duration of a wait for the card in which the view looks without a pause.
const MAX_SPIN: Duration = Duration::from_micros(200);
/// Divisor of the time waited, and maximum of the pauses after that.
const PAUSE_DIVISOR: u32 = 8;
const MAX_PAUSE: Duration = Duration::from_millis(1);

/// The design behind a view.
#[derive(Debug)]
pub(crate) struct ViewAccesses {
    card: Arc<SharedCard>,
    /// Number of the view's client.
    client: u64,
    /// Times since which stream channels wait: H2C, C2H.
    streams: Mutex<[[Option<Instant>; CHANNELS]; 2]>,
    h2c: Mutex<[ChannelAccesses; CHANNELS]>,
    c2h: Mutex<[ChannelAccesses; CHANNELS]>,
    /// The copy engine.
    cdma: Mutex<ChannelAccesses>,
}

/// Pause after having waited since `since`.
fn pause(since: Instant) -> Duration {
    let waited = since.elapsed();
    if waited < MAX_SPIN { Duration::ZERO } else { (waited / PAUSE_DIVISOR).min(MAX_PAUSE) }
}

/// Combines `polled` with a channel that waits since `since`.
fn with(polled: DesignPoll, is_ready: bool, since: Instant) -> DesignPoll {
    match polled {
        _ if is_ready => DesignPoll::Responded,
        DesignPoll::Idle => DesignPoll::Waiting(pause(since)),
        DesignPoll::Waiting(other) => DesignPoll::Waiting(pause(since).min(other)),
        DesignPoll::Responded => DesignPoll::Responded,
    }
}

impl ViewAccesses {
    pub(crate) fn new(card: Arc<SharedCard>, client: u64) -> Self {
        let mut chain = client.wrapping_mul(CHAINS);
        let mut channel = || {
            chain += 1;
            ChannelAccesses::new(chain)
        };
        Self {
            card,
            client,
            streams: Mutex::default(),
            h2c: Mutex::new(std::array::from_fn(|_| channel())),
            c2h: Mutex::new(std::array::from_fn(|_| channel())),
            cdma: Mutex::new(channel()),
        }
    }

    /// Frees what the view's client has: it has ended.
    pub(crate) fn end(&self) {
        self.reset();
        self.card.end_streams(self.client, true);
    }

    /// Notes that a stream channel waits, or does not.
    fn set_waiting(&self, direction: Direction, number: u8, waits: bool) {
        let mut streams = lock(&self.streams);
        if let Some(since) = streams[usize::from(direction == Direction::C2h)].get_mut(usize::from(number)) {
            *since = waits.then(|| since.unwrap_or_else(Instant::now));
        }
    }

    /// Result of an access of a stream, which waits without one.
    fn stream_result<T>(
        &self,
        direction: Direction,
        number: u8,
        result: Result<Option<T>, StreamRefused>,
    ) -> Result<T, DesignError> {
        self.set_waiting(direction, number, matches!(result, Ok(None)));
        match result {
            Ok(Some(done)) => Ok(done),
            Ok(None) => Err(DesignError::Pending),
            Err(StreamRefused) => Err(DesignError::Slave),
        }
    }

    /// Polls the stream channels that wait.
    fn poll_streams(&self) -> DesignPoll {
        let waiting = *lock(&self.streams);
        let mut polled = DesignPoll::Idle;
        for (direction, channels) in [Direction::H2c, Direction::C2h].into_iter().zip(waiting) {
            for (number, since) in (0..).zip(channels) {
                let Some(since) = since else { continue };
                let is_ready = match direction {
                    Direction::H2c => self.card.out_port(number).is_none_or(|mut port| port.poll()),
                    Direction::C2h => self.card.in_port(number).is_none_or(|mut port| port.poll()),
                };
                polled = with(polled, is_ready, since);
            }
        }
        polled
    }

    fn lanes(&self, direction: Direction) -> &[Mutex<Lane>] {
        self.card.lanes(direction)
    }

    /// Calls `act` with a channel of the view, its direction's channels of the card, and its number; `None` for an access of another unit.
    fn channel<T>(
        &self,
        unit: Unit,
        act: impl FnOnce(&mut ChannelAccesses, &[Mutex<Lane>], usize) -> T,
    ) -> Option<T> {
        let (direction, channels, number) = match unit {
            Unit::H2c(number) => (Direction::H2c, &self.h2c, number),
            Unit::C2h(number) => (Direction::C2h, &self.c2h, number),
            _ => return None,
        };
        let number = usize::from(number);
        let mut channels = lock(channels);
        channels.get_mut(number).map(|channel| act(channel, self.lanes(direction), number))
    }

    /// Makes an access of the copy engine, or a blocking one: a write of `data` (H2C), or a read of as many bytes (C2H).
    fn sequence(
        &self,
        direction: Direction,
        access: AxiAccess,
        data: Vec<u8>,
        into: &mut [u8],
    ) -> Result<(), DesignError> {
        let (lanes, timeout) = (self.lanes(direction), self.card.timeout());
        let mut copy = lock(&self.cdma);
        let mut sequence = Sequence::new(direction, access, copy.chain(), data);
        if access.unit == Unit::Cdma {
            self.abandon_copy(&mut copy);
            let result = copy.begin_sequence(lanes, sequence, timeout, into);
            return copy.answer(result);
        }
        drop(copy);
        let began = Instant::now();
        loop {
            if let Some(result) = sequence.progress(lanes, timeout) {
                sequence.read(into);
                return result;
            }
            std::thread::sleep(pause(began));
        }
    }

    /// Drops the access of the copy engine that is in progress.
    fn abandon_copy(&self, copy: &mut ChannelAccesses) {
        if let Some(direction) = copy.sequence().map(Sequence::direction) {
            copy.abandon(self.lanes(direction));
        }
        copy.waits_since = None;
    }

    /// Result of the copy engine's access.
    fn copy_result(&self, into: &mut [u8]) -> Result<(), DesignError> {
        let mut copy = lock(&self.cdma);
        let direction = copy.sequence().map(Sequence::direction).ok_or(DesignError::Slave)?;
        let result = copy.sequence_result(self.lanes(direction), self.card.timeout(), into);
        copy.answer(result)
    }

    /// Polls the copy engine's access.
    fn poll_copy(&self, polled: DesignPoll) -> DesignPoll {
        let mut copy = lock(&self.cdma);
        let Some((since, direction)) = copy.waits_since.zip(copy.sequence().map(Sequence::direction)) else {
            return polled;
        };
        with(polled, copy.poll(self.lanes(direction), self.card.timeout()), since)
    }
}

impl Design for ViewAccesses {
    fn read(&self, access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError> {
        self.sequence(Direction::C2h, access, vec![0; into.len()], into)
    }

    fn write(&self, access: AxiAccess, from: &[u8]) -> Result<(), DesignError> {
        self.sequence(Direction::H2c, access, from.to_vec(), &mut [])
    }

    fn read_part(&self, access: AxiAccess, rest: u32, into: &mut [u8]) -> Result<(), DesignError> {
        let begun = self.channel(access.unit, |channel, lanes, number| {
            let result = if access.fixed.is_some() {
                let data = vec![0; into.len()];
                let sequence = Sequence::new(Direction::C2h, access, channel.chain(), data);
                channel.begin_sequence(lanes, sequence, self.card.timeout(), into)
            } else {
                channel.rest = rest;
                channel.read_result(lanes, number, access.at, into)
            };
            channel.answer(result)
        });
        begun.unwrap_or(Err(DesignError::Slave))
    }

    fn write_part(&self, access: AxiAccess, rest: u32, from: &[u8]) -> Result<(), DesignError> {
        let begun = self.channel(access.unit, |channel, lanes, number| {
            let result = if access.fixed.is_some() {
                let sequence = Sequence::new(Direction::H2c, access, channel.chain(), from.to_vec());
                channel.begin_sequence(lanes, sequence, self.card.timeout(), &mut [])
            } else {
                channel.rest = rest;
                channel.write(lanes, number, access.at, from)
            };
            channel.answer(result)
        });
        begun.unwrap_or(Err(DesignError::Slave))
    }

    fn outcome(&self, access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError> {
        if access.unit == Unit::Cdma {
            return self.copy_result(into);
        }
        let outcome = self.channel(access.unit, |channel, lanes, number| {
            let result = match access.unit {
                _ if channel.has_sequence() || access.fixed.is_some() => {
                    channel.sequence_result(lanes, self.card.timeout(), into)
                }
                Unit::C2h(_) => channel.read_result(lanes, number, access.at, into),
                _ => channel.write_result(lanes, number),
            };
            channel.answer(result)
        });
        outcome.unwrap_or(Err(DesignError::Slave))
    }

    fn accepts_ahead(&self, unit: Unit) -> bool {
        self.channel(unit, |channel, _, _| channel.accepts_ahead()).unwrap_or(false)
    }

    fn write_ahead(&self, access: AxiAccess, from: &[u8]) -> bool {
        let begun =
            self.channel(access.unit, |channel, lanes, _| channel.write_ahead(lanes, access.at, from));
        begun.unwrap_or(false)
    }

    fn read_ahead(&self, access: AxiAccess, length: usize) -> bool {
        let begun =
            self.channel(access.unit, |channel, lanes, _| channel.read_ahead(lanes, access.at, length));
        begun.unwrap_or(false)
    }

    fn drop_ahead(&self, unit: Unit) {
        self.channel(unit, |channel, lanes, _| channel.abandon(lanes));
    }

    fn poll(&self) -> DesignPoll {
        let timeout = self.card.timeout();
        let mut polled = self.poll_copy(self.poll_streams());
        for (direction, channels) in [(Direction::H2c, &self.h2c), (Direction::C2h, &self.c2h)] {
            let lanes = self.lanes(direction);
            for channel in &mut *lock(channels) {
                let Some(since) = channel.waits_since else { continue };
                polled = with(polled, channel.poll(lanes, timeout), since);
            }
        }
        polled
    }

    fn claim_stream(&self, unit: Unit, takes: bool) -> bool {
        let client = self.client;
        match unit {
            Unit::H2c(number) => self.card.out_port(number).is_none_or(|mut port| {
                if !takes {
                    port.release(client);
                }
                !takes || port.claim(client)
            }),
            Unit::C2h(number) => self.card.in_port(number).is_none_or(|mut port| {
                if !takes {
                    port.release(client);
                }
                !takes || port.claim(client)
            }),
            _ => true,
        }
    }

    fn send_stream(&self, channel: u8, from: &[u8], ends: bool) -> Result<(), DesignError> {
        let mut port = self.card.out_port(channel).ok_or(DesignError::Slave)?;
        let sent = port.send(self.client, from, ends).map(|is_taken| is_taken.then_some(()));
        self.stream_result(Direction::H2c, channel, sent)
    }

    fn stream_sent(&self, channel: u8) -> Result<(), DesignError> {
        let mut port = self.card.out_port(channel).ok_or(DesignError::Slave)?;
        let sent = port.result(self.client).map(|is_taken| is_taken.then_some(()));
        self.stream_result(Direction::H2c, channel, sent)
    }

    fn receive_stream(&self, channel: u8, into: &mut [u8]) -> Result<StreamBytes, DesignError> {
        let mut port = self.card.in_port(channel).ok_or(DesignError::Slave)?;
        let received = port.receive(self.client, into);
        let Received { count, ends } = self.stream_result(Direction::C2h, channel, received)?;
        Ok(StreamBytes { count, ends })
    }

    fn stop_stream(&self, channel: u8) {
        if let Some(mut port) = self.card.in_port(channel) {
            port.stop(self.client);
        }
        self.set_waiting(Direction::C2h, channel, false);
    }

    fn read_register(&self, offset: u64) -> u32 {
        self.card.read_register(offset)
    }

    fn write_register(&self, offset: u64, value: u32) {
        self.card.write_register(offset, value);
    }

    fn reset(&self) {
        for (direction, channels) in [(Direction::H2c, &self.h2c), (Direction::C2h, &self.c2h)] {
            lock(channels).iter_mut().for_each(|channel| channel.abandon(self.lanes(direction)));
        }
        self.abandon_copy(&mut lock(&self.cdma));
        self.card.end_streams(self.client, false);
        *lock(&self.streams) = Default::default();
    }
}

impl Drop for ViewAccesses {
    fn drop(&mut self) {
        self.end();
    }
}
