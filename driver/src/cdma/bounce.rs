//! Bounce buffers for CDMA builds without data realignment (DRE): bytes that the engine cannot move go through host memory.
//!
//! Such an engine requires source and destination addresses that are multiples of its data width; lengths are free (PG034, "Unaligned
//! Transfers"). If both addresses of a copy have the same offset within a beat, the engine can move all but the first bytes, up to the next
//! beat. If the offsets differ, it can move nothing. The other bytes go to the host and back by DMA, which reaches exactly the bytes of the
//! copy. The engine could instead rewrite the bytes in front of a destination with their old content, but concurrent writes to them would
//! be lost.

use core::time::Duration;
use fpga_pci::Waited;
use std::sync::Arc;

use fpga_registers::CardAddr;
use fpga_ring::cdma_ring::CopyEntry;

use super::Cdma;
use super::error::{CdmaError, CdmaRingError, CopyFault};
use super::ring::CdmaRing;
use crate::channel::{C2hChannel, H2cChannel, WaitOptions};
use crate::error::{Error, Refused};
use crate::shared::Shared;
use fpga_pci::poll_until;

/// Number of bytes that go through the host at a time.
const CHUNK: u64 = 256 << 10;

/// One channel for each direction, and the data width that makes them necessary.
#[derive(Debug)]
pub(super) struct BounceChannels {
    pub(super) data_bytes: u32,
    h2c: Box<H2cChannel>,
    c2h: Box<C2hChannel>,
}

/// Returns the number of bytes at the start of a copy that an engine with a data path of `data_bytes` cannot move.
fn unaligned_prefix_length(segment: &CopyEntry, data_bytes: u32) -> u64 {
    let into = |address: CardAddr| address.get() % u64::from(data_bytes.max(1));
    let (source, destination) = (into(segment.source), into(segment.destination));
    match source {
        _ if source != destination => segment.length,
        0 => 0,
        source => segment.length.min(u64::from(data_bytes) - source),
    }
}

/// Returns the rest of a segment after its first `bytes`.
const fn remainder(segment: &CopyEntry, bytes: u64) -> CopyEntry {
    CopyEntry {
        source: CardAddr::new(segment.source.get().wrapping_add(bytes)),
        destination: CardAddr::new(segment.destination.get().wrapping_add(bytes)),
        length: segment.length - bytes,
    }
}

impl BounceChannels {
    /// Moves a segment through the host in chunks, each within the time that `left` returns. The error has the number of bytes that were
    /// certainly moved, and the reason.
    fn copy_through_host(
        &mut self,
        card: &Shared,
        segment: &CopyEntry,
        left: impl Fn() -> Option<Duration>,
    ) -> Result<(), (u64, String)> {
        let mut done = 0;
        while done < segment.length {
            let part = remainder(segment, done);
            let length = part.length.min(CHUNK);
            let failed = |reason: String| (done, reason);
            let options =
                || left().map_or_else(WaitOptions::default, |left| WaitOptions::default().timeout(left));
            let buffer = usize::try_from(length).unwrap_or(usize::MAX);
            let buffer = card.pool.allocate(buffer).map_err(|error| failed(error.to_string()))?;
            let read = self.c2h.read_with(buffer, part.source, options());
            let buffer = read.map_err(|error| failed(error.to_string()))?;
            let written = self.h2c.write_with(buffer, part.destination, options());
            written.map_err(|error| failed(error.to_string()))?;
            done += length;
        }
        Ok(())
    }
}

impl Cdma {
    /// Declares that the engine was built without data realignment (DRE) and with a data path of `data_bytes`, and lends it one channel for
    /// each direction. They carry the bytes that the engine cannot move itself: the first bytes of a copy whose addresses have the same
    /// offset within a beat, or a whole copy whose offsets differ. Such bytes go through host memory; no other bytes are touched. A ring
    /// takes the channels over and returns them with the engine.
    ///
    /// # Errors
    /// [`CdmaError::BounceChannels`], with the channels: `data_bytes` is not a width that builds have, or a channel belongs to another card or has
    /// transfers in flight.
    #[expect(clippy::type_complexity, reason = "a name for the type would hide what is returned")]
    pub fn set_bounce_channels(
        &mut self,
        data_bytes: u32,
        h2c: H2cChannel,
        c2h: C2hChannel,
    ) -> Result<(), Box<Refused<(H2cChannel, C2hChannel), Error<CdmaError>>>> {
        let reason = if !data_bytes.is_power_of_two() || !(4..=128).contains(&data_bytes) {
            "the data path of a build has a power of two of bytes, from 4 to 128"
        } else if !h2c.0.is_of(&self.card) || !c2h.0.is_of(&self.card) {
            "the channels are another card's"
        } else if h2c.in_flight() != 0 || c2h.in_flight() != 0 {
            "a channel has transfers in flight; wait for them first"
        } else {
            self.bounce = Some(BounceChannels { data_bytes, h2c: Box::new(h2c), c2h: Box::new(c2h) });
            return Ok(());
        };
        let error = Error::new(CdmaError::BounceChannels { reason }, self.place());
        Err(Box::new(Refused { error, payload: (h2c, c2h) }))
    }

    /// Returns the lent channels. From now on, copies that the engine cannot move are refused, or end in the engine's error.
    pub fn take_bounce_channels(&mut self) -> Option<(H2cChannel, C2hChannel)> {
        self.bounce.take().map(|bounce| (*bounce.h2c, *bounce.c2h))
    }

    /// Moves the bytes that the engine cannot move, if channels were lent. Returns their number.
    pub(super) fn bounce(&mut self, whole: &CopyEntry, limit: Option<(u64, u64)>) -> Result<u64, CdmaError> {
        let Some(bounce) = &mut self.bounce else { return Ok(0) };
        let length = unaligned_prefix_length(whole, bounce.data_bytes);
        let card = Arc::clone(&self.card);
        let passed = |began: u64| card.backend.now().saturating_sub(began);
        let left = || limit.map(|(began, limit)| Duration::from_nanos(limit.saturating_sub(passed(began))));
        let carried = bounce.copy_through_host(&card, &CopyEntry { length, ..*whole }, left);
        carried.map(|()| length).map_err(|(done, reason)| {
            let cause = match limit {
                Some((began, limit)) if passed(began) >= limit => {
                    CopyFault::TimedOut { waited: Waited::new(&*card.backend, passed(began)) }
                }
                _ => CopyFault::Bounce(reason),
            };
            CdmaError::Copy { segment: *whole, done, cause }
        })
    }
}

impl<T> CdmaRing<T> {
    /// Moves the bytes of these segments that the engine cannot move, if channels were lent. Returns the remaining segments and the number
    /// of bytes moved; `None` if the engine can move everything.
    ///
    /// Waits for earlier submissions first. All segments before the last affected one also go through the host, because a later segment may
    /// read what an earlier one wrote.
    pub(super) fn bounce(
        &mut self,
        segments: &[CopyEntry],
    ) -> Result<Option<(Vec<CopyEntry>, u64)>, CdmaRingError> {
        let Some(data_bytes) = self.cdma.bounce.as_ref().map(|bounce| bounce.data_bytes) else {
            return Ok(None);
        };
        let cannot = |segment: &CopyEntry| unaligned_prefix_length(segment, data_bytes);
        let Some(last) = segments.iter().rposition(|segment| cannot(segment) != 0) else { return Ok(None) };
        self.ring.admits(segments).map_err(CdmaRingError::of)?;
        self.wait_for_all()?;
        let mut moved = 0;
        let mut rest = Vec::with_capacity(segments.len() - last);
        for (number, segment) in segments.iter().enumerate() {
            let length = match number.cmp(&last) {
                core::cmp::Ordering::Less => segment.length,
                core::cmp::Ordering::Equal => cannot(segment),
                core::cmp::Ordering::Greater => 0,
            };
            let card = Arc::clone(&self.cdma.card);
            if let Some(bounce) = &mut self.cdma.bounce {
                let part = CopyEntry { length, ..*segment };
                bounce.copy_through_host(&card, &part, || None).map_err(|(done, reason)| {
                    CdmaError::Copy { segment: *segment, done, cause: CopyFault::Bounce(reason) }
                })?;
            }
            moved += length;
            rest.push(remainder(segment, length));
        }
        rest.retain(|segment| segment.length != 0);
        Ok(Some((rest, moved)))
    }

    /// Waits until everything submitted has ended.
    fn wait_for_all(&mut self) -> Result<(), CdmaRingError> {
        let backend = Arc::clone(&self.cdma.card.backend);
        while self.ring.operations() != 0 {
            let before = self.ring.ended();
            let ended = poll_until(&*backend, self.cdma.card.idle_timeout(), |_| {
                self.poll_ring()?;
                Ok::<_, CdmaRingError>((self.ring.ended() != before).then_some(()))
            })?;
            ended.map_err(|waited| CdmaRingError::Earlier(self.timed_out(waited).into()))?;
        }
        Ok(())
    }
}
