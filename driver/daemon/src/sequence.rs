//! An access whose transfers are made in order on one channel of the card: of the copy engine, or of a channel with a fixed address.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use fpga_driver::{CardAddr, Direction};
use fpga_pci::lock;
use fpga_sim::{AxiAccess, DesignError};

use crate::lane::{BUFFER, Lane};
use crate::transfer::{MAX_TRANSFERS, Part, Start};

/// An access in progress.
#[derive(Debug)]
pub(crate) struct Sequence {
    direction: Direction,
    at: CardAddr,
    /// Bytes of a transfer.
    step: usize,
    /// Every transfer has the same address.
    is_fixed: bool,
    chain: u64,
    /// Data of a write, or room for that of a read.
    data: Vec<u8>,
    /// Bytes whose transfers were started, and have ended.
    started: usize,
    ended: usize,
    parts: VecDeque<Part>,
    /// Channel of the card, from the first transfer on.
    lane: Option<usize>,
    result: Option<Result<(), DesignError>>,
}

impl Sequence {
    /// A write of `data` (H2C), or a read of as many bytes (C2H).
    pub(crate) fn new(direction: Direction, access: AxiAccess, chain: u64, data: Vec<u8>) -> Self {
        // With a fixed address, every beat is a transfer of its own.
        let beat = access.fixed.and_then(|width| usize::try_from(width).ok());
        Self {
            direction,
            at: access.at,
            step: beat.unwrap_or(BUFFER).clamp(1, BUFFER),
            is_fixed: beat.is_some(),
            chain,
            data,
            started: 0,
            ended: 0,
            parts: VecDeque::with_capacity(MAX_TRANSFERS),
            lane: None,
            result: None,
        }
    }

    pub(crate) const fn direction(&self) -> Direction {
        self.direction
    }

    /// Continues the transfers. Returns the result once all have ended, or one has failed.
    pub(crate) fn progress(
        &mut self,
        lanes: &[Mutex<Lane>],
        timeout: Duration,
    ) -> Option<Result<(), DesignError>> {
        if self.result.is_none() {
            self.result = self.transfer(lanes, timeout).transpose();
            if matches!(self.result, Some(Err(_))) {
                self.abandon(lanes);
            }
        }
        self.result
    }

    fn transfer(&mut self, lanes: &[Mutex<Lane>], timeout: Duration) -> Result<Option<()>, DesignError> {
        match self.lane.and_then(|lane| lanes.get(lane)) {
            Some(lane) => lock(lane).poll(timeout),
            None => lanes.iter().for_each(|lane| lock(lane).poll(timeout)),
        }
        while let Some(part) = self.parts.front()
            && let Some(lane) = lanes.get(part.lane)
        {
            let into = match self.direction {
                Direction::H2c => None,
                Direction::C2h => self.data.get_mut(self.ended..self.ended + part.length),
            };
            let Some(result) = lock(lane).take(part.slot, into.unwrap_or_default()) else { break };
            self.ended += part.length;
            self.parts.pop_front();
            result?;
        }
        while self.started < self.data.len() && self.parts.len() < MAX_TRANSFERS {
            let length = self.step.min(self.data.len() - self.started);
            let advance = if self.is_fixed { 0 } else { self.started as u64 };
            let bytes = self.data.get(self.started..self.started + length);
            let start = Start {
                first: 0,
                lane: self.lane,
                has_transfers: !self.parts.is_empty(),
                chain: self.chain,
                at: CardAddr::new(self.at.get().wrapping_add(advance)),
                length,
                from: bytes.filter(|_| self.direction == Direction::H2c),
                ends: true,
            };
            let Some(part) = start.on(lanes)? else { break };
            self.lane = Some(part.lane);
            self.started += length;
            self.parts.push_back(part);
        }
        Ok((self.ended == self.data.len()).then_some(()))
    }

    /// Copies the data of a read that has ended.
    pub(crate) fn read(&self, into: &mut [u8]) {
        if self.direction == Direction::C2h {
            for (byte, read) in into.iter_mut().zip(&self.data) {
                *byte = *read;
            }
        }
    }

    /// Drops all transfers: those in flight end without a view.
    pub(crate) fn abandon(&mut self, lanes: &[Mutex<Lane>]) {
        for part in self.parts.drain(..) {
            if let Some(lane) = lanes.get(part.lane) {
                lock(lane).abandon(part.slot);
            }
        }
    }
}
