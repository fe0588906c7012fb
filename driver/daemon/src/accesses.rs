//! Accesses of one view to the shared card.
//!
//! An access of a view's channel becomes a transfer of the owner, and the view's other channels work meanwhile. Several transfers of one
//! descriptor are in flight: writes return before they are over, except the last one, which waits for all of them; reads are started ahead.
//! The next descriptor of a channel begins after the last one has ended, so their order is kept.
//!
//! Other accesses (of the copy engine, of addresses that do not increment) block the view until they are over.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fpga_driver::{CardAddr, Direction};
use fpga_pci::lock;
use fpga_sim::{AxiAccess, Design, DesignError, DesignPoll, StreamBytes, Unit};

use crate::card::SharedCard;
use crate::lane::{BUFFER, Lane, TransferRefused};
use crate::stream_in::Received;
use crate::stream_out::StreamRefused;

/// Maximum number of transfers of one channel of a view in flight.
const MAX_TRANSFERS: usize = 4;
/// Number of channels per direction (PG195).
const CHANNELS: usize = 4;
/// Duration of a wait for the card in which the view looks without a pause.
const MAX_SPIN: Duration = Duration::from_micros(200);
/// Divisor of the time waited, and maximum of the pauses after that.
const PAUSE_DIVISOR: u32 = 8;
const MAX_PAUSE: Duration = Duration::from_millis(1);

/// A transfer in flight, or done.
#[derive(Debug)]
struct Part {
    lane: usize,
    slot: usize,
    at: CardAddr,
    length: usize,
}

/// A channel of the view.
#[derive(Debug, Default)]
struct ChannelAccesses {
    parts: VecDeque<Part>,
    /// Data of a write for which there was no free slot.
    unsent: Option<(CardAddr, Vec<u8>)>,
    /// Bytes of the descriptor beyond the access in progress.
    rest: u32,
    /// An access has no response since then.
    waits_since: Option<Instant>,
}

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

impl From<TransferRefused> for DesignError {
    fn from(_: TransferRefused) -> Self {
        Self::Slave
    }
}

/// Starts a transfer on the channel of the card with the most free slots, of those the first from number `first` on.
fn start(
    lanes: &[Mutex<Lane>],
    first: usize,
    has_transfers: bool,
    at: CardAddr,
    length: usize,
    from: Option<&[u8]>,
) -> Result<Option<Part>, DesignError> {
    if lanes.is_empty() {
        return Err(DesignError::Decode);
    }
    let mut best = (0, 0);
    for (number, lane) in lanes.iter().enumerate().cycle().skip(first % lanes.len()).take(lanes.len()) {
        let free = lock(lane).free_slots(has_transfers);
        if free > best.0 {
            best = (free, number);
        }
    }
    let (1.., number) = best else { return Ok(None) };
    let Some(lane) = lanes.get(number) else { return Ok(None) };
    // One lock at a time. Another view may have taken the slots meanwhile.
    let slot = lock(lane).start(at, length, from)?;
    Ok(slot.map(|slot| Part { lane: number, slot, at, length }))
}

impl ChannelAccesses {
    /// Drops all transfers: those in flight end without a view.
    fn abandon(&mut self, lanes: &[Mutex<Lane>]) {
        for part in self.parts.drain(..) {
            if let Some(lane) = lanes.get(part.lane) {
                lock(lane).abandon(part.slot);
            }
        }
        (self.unsent, self.waits_since) = (None, None);
    }

    /// Notes the result of an access: `None` without one.
    fn answer(&mut self, result: Option<Result<(), DesignError>>) -> Result<(), DesignError> {
        match result {
            None => {
                self.waits_since.get_or_insert_with(Instant::now);
                Err(DesignError::Pending)
            }
            Some(result) => {
                self.waits_since = None;
                result
            }
        }
    }

    /// Begins a write. Its result, as of [`write_result`](Self::write_result).
    fn write(
        &mut self,
        lanes: &[Mutex<Lane>],
        first: usize,
        at: CardAddr,
        from: &[u8],
    ) -> Option<Result<(), DesignError>> {
        match start(lanes, first, !self.parts.is_empty(), at, from.len(), Some(from)) {
            Ok(Some(part)) => self.parts.push_back(part),
            Ok(None) => self.unsent = Some((at, from.to_vec())),
            Err(error) => return self.failed(lanes, error),
        }
        self.write_result(lanes, first)
    }

    /// Result of the write in progress: the first part's if it has failed.
    fn write_result(&mut self, lanes: &[Mutex<Lane>], first: usize) -> Option<Result<(), DesignError>> {
        if let Some((at, data)) = &self.unsent {
            match start(lanes, first, !self.parts.is_empty(), *at, data.len(), Some(data)) {
                Ok(None) => {}
                Ok(Some(part)) => {
                    self.parts.push_back(part);
                    self.unsent = None;
                }
                Err(error) => return self.failed(lanes, error),
            }
        }
        while let Some(part) = self.parts.front()
            && let Some(lane) = lanes.get(part.lane)
            && let Some(result) = { lock(lane).take(part.slot, &mut []) }
        {
            self.parts.pop_front();
            if let Err(refused) = result {
                return self.failed(lanes, refused.into());
            }
        }
        let is_over = if self.rest == 0 { self.parts.is_empty() } else { self.parts.len() < MAX_TRANSFERS };
        (is_over && self.unsent.is_none()).then_some(Ok(()))
    }

    fn failed(&mut self, lanes: &[Mutex<Lane>], error: DesignError) -> Option<Result<(), DesignError>> {
        self.abandon(lanes);
        Some(Err(error))
    }

    /// Result of the read in progress, and transfers for those after it.
    fn read_result(
        &mut self,
        lanes: &[Mutex<Lane>],
        first: usize,
        at: CardAddr,
        into: &mut [u8],
    ) -> Option<Result<(), DesignError>> {
        if self.parts.front().is_some_and(|part| (part.at, part.length) != (at, into.len())) {
            // The descriptor that was read ahead was abandoned.
            self.abandon(lanes);
        }
        let mut next =
            self.parts.back().map_or(at.get(), |part| part.at.get().wrapping_add(part.length as u64));
        let end = at.get().wrapping_add(into.len() as u64).wrapping_add(self.rest.into());
        while self.parts.len() < MAX_TRANSFERS {
            let left = usize::try_from(end.wrapping_sub(next)).unwrap_or(usize::MAX);
            let length = if self.parts.is_empty() { into.len() } else { left.min(BUFFER) };
            if length == 0 {
                break;
            }
            match start(lanes, first, !self.parts.is_empty(), CardAddr::new(next), length, None) {
                Ok(Some(part)) => self.parts.push_back(part),
                Ok(None) => break,
                // Reported when its turn comes.
                Err(_) if !self.parts.is_empty() => break,
                Err(error) => return self.failed(lanes, error),
            }
            next = next.wrapping_add(length as u64);
        }
        let part = self.parts.front()?;
        let result = lock(lanes.get(part.lane)?).take(part.slot, into)?;
        self.parts.pop_front();
        match result {
            Ok(()) => Some(Ok(())),
            Err(refused) => self.failed(lanes, refused.into()),
        }
    }

    /// Polls the card's channels that have transfers of this one. Returns whether the access in progress has a result or can go on.
    fn poll(&mut self, lanes: &[Mutex<Lane>], timeout: Duration) -> bool {
        for (number, lane) in lanes.iter().enumerate() {
            if self.parts.iter().any(|part| part.lane == number) {
                lock(lane).poll(timeout);
            }
        }
        let Some(part) = self.parts.front() else {
            // Transfers of views that have ended may be in all slots.
            return lanes.iter().any(|lane| {
                let mut lane = lock(lane);
                lane.poll(timeout);
                lane.free_slots(false) > 0
            });
        };
        let result = |part: &Part| lanes.get(part.lane).and_then(|lane| lock(lane).result(part.slot));
        match result(part) {
            None => false,
            Some(Err(_)) => true,
            // The last write of a descriptor waits for all.
            Some(Ok(())) => self.rest != 0 || self.parts.iter().all(|part| result(part).is_some()),
        }
    }
}

impl ViewAccesses {
    pub(crate) fn new(card: Arc<SharedCard>, client: u64) -> Self {
        Self { card, client, streams: Mutex::default(), h2c: Mutex::default(), c2h: Mutex::default() }
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

    /// Calls `act` with a channel of the view, its direction's channels of the card, and its number; `None` if the access blocks.
    fn channel<T>(
        &self,
        access: AxiAccess,
        act: impl FnOnce(&mut ChannelAccesses, &[Mutex<Lane>], usize) -> T,
    ) -> Option<T> {
        let (direction, channels, number) = match access.unit {
            Unit::H2c(number) => (Direction::H2c, &self.h2c, number),
            Unit::C2h(number) => (Direction::C2h, &self.c2h, number),
            _ => return None,
        };
        if access.fixed.is_some() {
            return None;
        }
        let number = usize::from(number);
        let mut channels = lock(channels);
        channels.get_mut(number).map(|channel| act(channel, self.lanes(direction), number))
    }

    /// Makes one transfer, and waits for it: of `from`, or into `into`.
    fn transfer(
        &self,
        direction: Direction,
        at: CardAddr,
        from: Option<&[u8]>,
        into: &mut [u8],
    ) -> Result<(), DesignError> {
        let (lanes, timeout) = (self.lanes(direction), self.card.timeout());
        let length = from.map_or(into.len(), <[u8]>::len);
        let began = Instant::now();
        let part = loop {
            if let Some(part) = start(lanes, 0, false, at, length, from)? {
                break part;
            }
            lanes.iter().for_each(|lane| lock(lane).poll(timeout));
            std::thread::sleep(pause(began));
        };
        let lane = lanes.get(part.lane).ok_or(DesignError::Decode)?;
        loop {
            let result = {
                let mut lane = lock(lane);
                lane.poll(timeout);
                lane.take(part.slot, into)
            };
            if let Some(result) = result {
                return Ok(result?);
            }
            std::thread::sleep(pause(began));
        }
    }
}

impl Design for ViewAccesses {
    fn read(&self, access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError> {
        for Chunk { at, offset, length } in Chunks::of(access, into.len()) {
            let into = into.get_mut(offset..offset + length).ok_or(DesignError::Slave)?;
            self.transfer(Direction::C2h, at, None, into)?;
        }
        Ok(())
    }

    fn write(&self, access: AxiAccess, from: &[u8]) -> Result<(), DesignError> {
        for Chunk { at, offset, length } in Chunks::of(access, from.len()) {
            let from = from.get(offset..offset + length).ok_or(DesignError::Slave)?;
            self.transfer(Direction::H2c, at, Some(from), &mut [])?;
        }
        Ok(())
    }

    fn read_part(&self, access: AxiAccess, rest: u32, into: &mut [u8]) -> Result<(), DesignError> {
        let begun = self.channel(access, |channel, lanes, number| {
            channel.rest = rest;
            let result = channel.read_result(lanes, number, access.at, into);
            channel.answer(result)
        });
        begun.unwrap_or_else(|| self.read(access, into))
    }

    fn write_part(&self, access: AxiAccess, rest: u32, from: &[u8]) -> Result<(), DesignError> {
        let begun = self.channel(access, |channel, lanes, number| {
            channel.rest = rest;
            let result = channel.write(lanes, number, access.at, from);
            channel.answer(result)
        });
        begun.unwrap_or_else(|| self.write(access, from))
    }

    fn outcome(&self, access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError> {
        let outcome = self.channel(access, |channel, lanes, number| {
            let result = match access.unit {
                Unit::C2h(_) => channel.read_result(lanes, number, access.at, into),
                _ => channel.write_result(lanes, number),
            };
            channel.answer(result)
        });
        outcome.unwrap_or(Err(DesignError::Slave))
    }

    fn poll(&self) -> DesignPoll {
        let timeout = self.card.timeout();
        let mut polled = self.poll_streams();
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
        self.card.end_streams(self.client, false);
        *lock(&self.streams) = Default::default();
    }
}

impl Drop for ViewAccesses {
    fn drop(&mut self) {
        self.end();
    }
}

/// Parts of an access that fit into a slot.
struct Chunks {
    access: AxiAccess,
    offset: usize,
    end: usize,
}

struct Chunk {
    at: CardAddr,
    offset: usize,
    length: usize,
}

impl Chunks {
    const fn of(access: AxiAccess, length: usize) -> Self {
        Self { access, offset: 0, end: length }
    }
}

impl Iterator for Chunks {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        // With a fixed address, every beat is a transfer of its own.
        let beat = self.access.fixed.and_then(|width| usize::try_from(width).ok());
        let length = (self.end - self.offset).min(beat.unwrap_or(BUFFER).clamp(1, BUFFER));
        let advance = if beat.is_some() { 0 } else { self.offset as u64 };
        let at = CardAddr::new(self.access.at.get().wrapping_add(advance));
        let chunk = Chunk { at, offset: self.offset, length };
        self.offset += length;
        (length > 0).then_some(chunk)
    }
}
