//! End of a world: everything has ended, tables are empty, memory holds what was delivered.

use fpga_protocol::Nanos;

use super::{World, end_limit};
use crate::model::{Checked, Outcome, Transfer, UNTOUCHED, Violation, check};
use crate::node::Node;
use crate::plan::{Notice, TARGETS, WINDOW_LENGTH, WINDOW_STRIDE};
use crate::schedule::Stage as _;

impl World<'_> {
    pub(super) fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
            || self.reads.is_busy()
            || self.transfers.iter().any(|transfer| transfer.ticket.is_some())
            || self.nodes.iter().any(|node| node.open.as_ref().is_some_and(|open| !open.end.is_idle()))
    }

    /// Waits until everything has ended.
    pub(super) fn end(&mut self, phase: &str) -> Checked {
        let limit = self.now().saturating_add(end_limit(self.plan));
        while self.is_busy() {
            self.turn(limit)?;
            check(self.now() < limit, || {
                let open: Vec<_> =
                    self.transfers.iter().filter(|transfer| transfer.ticket.is_some()).collect();
                format!(
                    "{phase}: not ended {} ms after the world has healed: {} actions wait, {:?}, {:?}",
                    end_limit(self.plan).get() / 1_000_000,
                    self.waiting.len(),
                    open,
                    self.reads
                )
            })?;
        }
        Ok(())
    }

    /// Waits until the receivers' timers have expired, and checks that all tables are empty.
    pub(super) fn rest(&mut self) -> Checked {
        // Packets in flight, then the timers; messages are remembered for one more packet lifetime.
        let span = Nanos::from(self.plan.registry_timeout()).saturating_add(Nanos::from_millis(60));
        let limit = self.now().saturating_add(span).saturating_add(self.plan.longest_way());
        self.is_quiet = true;
        while self.now() < limit {
            self.turn(limit)?;
        }
        self.is_quiet = false;
        // The last events.
        for number in 0..self.nodes.len() {
            self.network.advance(Nanos::from_micros(20));
            self.poll(number)?;
        }
        self.nodes.iter_mut().try_for_each(Node::check_tables)
    }

    /// Checks all memory and all reports, and closes the nodes.
    pub(super) fn close(mut self) -> Result<Outcome, Violation> {
        for node in &self.nodes {
            node.count(&mut self.coverage);
            self.check_memory(node)?;
        }
        for transfer in &self.transfers {
            let is_due = transfer.result == Some(Ok(()))
                && transfer.notice == Notice::Receiver
                && transfer.lives.1 == self.nodes[transfer.to].life;
            check(!is_due || transfer.notified == 1, || format!("no notification of {transfer:?}"))?;
        }
        let time = self.now();
        for node in &mut self.nodes {
            node.close();
        }
        for node in &self.nodes {
            let (mapped, refused) =
                (self.network.mapped_bytes(node.number), self.network.refused_accesses(node.number));
            check(mapped == 0, || {
                format!("node {}: {mapped} bytes of host memory stay mapped", node.number)
            })?;
            check(node.was_removed || (refused.reads, refused.writes) == (0, 0), || {
                format!(
                    "node {}: the card has accessed host memory that is not mapped: {refused:?}",
                    node.number
                )
            })?;
        }
        let (frames, coverage) = self.wires.finish();
        self.trace.add(&[frames.hash(), frames.events]);
        self.coverage.join(&coverage);
        Ok(Outcome { trace: self.trace, coverage: self.coverage, time })
    }

    pub(super) fn check_memory(&self, node: &Node) -> Checked {
        let length = WINDOW_STRIDE * self.plan.cards.open_windows as u64;
        let bytes = node.peek(&self.network, TARGETS, length);
        let range = |address: u64, length: u64| {
            let start = usize::try_from(address - TARGETS).unwrap_or(usize::MAX);
            bytes.get(start..start + usize::try_from(length).unwrap_or(0)).unwrap_or_default()
        };
        let mut transfers: Vec<&Transfer> =
            self.transfers.iter().filter(|transfer| transfer.to == node.number).collect();
        transfers.sort_by_key(|transfer| transfer.address);
        let mut end = TARGETS;
        let untouched = |from: u64, to: u64| {
            let found = range(from, to.saturating_sub(from)).iter().position(|byte| *byte != UNTOUCHED);
            check(found.is_none(), || {
                format!(
                    "node {}: byte {:#x} was written by no transfer",
                    node.number,
                    from + found.unwrap_or(0) as u64
                )
            })
        };
        for transfer in transfers {
            // Transfers behind windows overlap.
            if transfer.is_wrong && (transfer.address - TARGETS) % WINDOW_STRIDE >= WINDOW_LENGTH {
                continue;
            }
            untouched(end, transfer.address)?;
            transfer.check_memory(range(transfer.address, transfer.length))?;
            end = end.max(transfer.address + transfer.length);
        }
        untouched(end, TARGETS + length)
    }
}
