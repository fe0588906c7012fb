//! Phases after the work: everything ends, and what was done is right.

use fpga_protocol::Nanos;

use super::matching::check_order;
use super::model::{ENDED, check_buffer};
use super::plan::{COUNTERS, Call, End, Get};
use super::process::WRITABLE;
use super::{World, end_limit};
use crate::model::{Checked, Outcome, UNTOUCHED, Violation, check};
use crate::schedule::Stage as _;

/// First number of the data of messages after the world has healed.
const PROBE_DATA: usize = 1 << 16;
/// Share of the give-up time, in thousandths, from which a silence excuses the end of a session.
const EXCUSE: u64 = 400;

impl Call {
    /// Other node, if there is only one.
    pub(super) const fn node_of_peer(&self) -> Option<usize> {
        match self {
            Self::Send { to, .. } | Self::Write { to, .. } | Self::Read { to, .. } | Self::Add { to, .. } => {
                Some(*to)
            }
            Self::Receive { from, .. } => *from,
            Self::Renew { .. } => None,
        }
    }
}

impl World<'_> {
    /// Whether the session of two nodes may have ended since the start; without `peer`: that with any node.
    pub(super) fn is_excused(&self, node: usize, peer: Option<usize>) -> bool {
        let plan = self.plan;
        // What is sent to a node of an earlier incarnation is given up: until then it may use the op table of a third node alone.
        let is_mismatched = match peer.filter(|_| plan.clock_back.is_none()) {
            Some(peer) => plan.mismatch(node, peer).is_some(),
            None => plan.other_packet_size.or(plan.clock_back).is_some(),
        };
        let peer = peer.unwrap_or(node);
        let trouble = self.outages.trouble(self.plan, (node, peer), Nanos::ZERO, self.network.now());
        is_mismatched || trouble.is_restarted || trouble.silence >= EXCUSE || trouble.is_harsh
    }

    fn is_busy(&self) -> bool {
        let processes = || self.nodes.iter().filter_map(|node| node.process.as_ref());
        let is_open = |index: &usize| self.requests[*index].result.is_none();
        !self.waiting.is_empty()
            || processes().any(|process| {
                process.messenger.in_progress() > 0
                    || !process.messenger.is_idle()
                    || process.messenger.unexpected() != (0, 0)
            })
            || self
                .nodes
                .iter()
                .any(|node| node.everything.iter().any(|index| !index.as_ref().is_some_and(is_open)))
    }

    /// Receives everything until all requests have ended, and cancels the receives that remain.
    pub(super) fn drain(&mut self, phase: &str) -> Checked {
        let limit = self.now().saturating_add(end_limit(self.plan));
        loop {
            self.receive_everything()?;
            if !self.is_busy() {
                break;
            }
            self.turn(limit)?;
            check(self.now() < limit, || {
                let open: Vec<_> = self.requests.iter().filter(|request| self.is_open(request)).collect();
                let states: Vec<_> = self
                    .nodes
                    .iter()
                    .filter_map(|node| node.process.as_ref())
                    .map(|process| (process.messenger.in_progress(), process.messenger.unexpected()))
                    .collect();
                format!(
                    "{phase}: not ended {} ms after the world has healed: {} calls wait, {states:?}, {open:?}",
                    end_limit(self.plan).get() / 1_000_000,
                    self.waiting.len(),
                )
            })?;
        }
        for index in 0..self.requests.len() {
            if self.is_open(&self.requests[index]) {
                self.cancel(index);
            }
        }
        for number in 0..self.nodes.len() {
            self.take_completions(number)?;
            self.nodes[number].everything = [None; 2];
        }
        let open = self.requests.iter().find(|request| self.is_open(request));
        check(open.is_none(), || format!("{phase}: no completion of {open:?}"))
    }

    /// Whether a request has no completion yet, although it must have one.
    fn is_open(&self, request: &super::model::Request) -> bool {
        let node = &self.nodes[request.call.node()];
        let is_injected = matches!(request.call, Call::Send { end: End::Injected, .. });
        request.result.is_none() && !is_injected && node.life == request.lives.0 && node.process.is_some()
    }

    /// Sends from every node to the next one, unless their session has ended.
    pub(super) fn probe(&mut self) -> Checked {
        let mut number = PROBE_DATA;
        for from in 0..self.plan.nodes {
            let to = (from + 1) % self.plan.nodes;
            if self.is_excused(from, Some(to)) {
                continue;
            }
            for (length, end) in [(10, End::Matched), (3000, End::Delivered), (40_000, End::Transmitted)] {
                let tag = Some(number as u64);
                let receive = Call::Receive {
                    node: to,
                    from: Some(from),
                    tag: Some((number as u64, 0)),
                    length,
                    cancel: None,
                    get: Get::One,
                };
                let send = Call::Send { from, to, tag, length, end };
                for call in [receive, send] {
                    let accepted = self.submit(number, &call, true)?;
                    check(accepted, || "a message is not accepted after the world has healed".to_owned())?;
                }
                number += 1;
            }
            self.coverage.count("messages probes", 1);
        }
        Ok(())
    }

    /// Waits until late packets have arrived.
    pub(super) fn rest(&mut self) -> Checked {
        let span = Nanos::from(self.plan.registry_timeout()).saturating_add(Nanos::from_millis(60));
        let limit = self.now().saturating_add(span).saturating_add(self.plan.longest_way());
        self.is_quiet = true;
        while self.now() < limit {
            self.turn(limit)?;
        }
        Ok(())
    }

    /// Checks all memory and all reports, and ends the processes.
    pub(super) fn close(mut self) -> Result<Outcome, Violation> {
        check_order(&self.requests, |from, to| !self.is_excused(from, Some(to)))?;
        for request in &self.requests {
            self.check_end(request)?;
        }
        for number in 0..self.nodes.len() {
            self.check_counters(number)?;
            let node = &self.nodes[number];
            let Some(process) = &node.process else { continue };
            process.check_pool(number)?;
            self.check_writable(number)?;
        }
        let time = self.network.now();
        for number in 0..self.nodes.len() {
            self.nodes[number].process = None;
            let (mapped, refused) =
                (self.network.mapped_bytes(number), self.network.refused_accesses(number));
            check(mapped == 0, || format!("node {number}: {mapped} bytes of host memory stay mapped"))?;
            check(self.nodes[number].was_removed || (refused.reads, refused.writes) == (0, 0), || {
                format!("node {number}: the card has accessed host memory that is not mapped: {refused:?}")
            })?;
        }
        let (frames, coverage) = self.wires.finish();
        self.trace.add(&[frames.hash(), frames.events]);
        self.coverage.join(&coverage);
        Ok(Outcome { trace: self.trace, coverage: self.coverage, time })
    }

    /// Checks a request after everything has ended.
    fn check_end(&self, request: &super::model::Request) -> Checked {
        let node = &self.nodes[request.call.node()];
        let is_excused = self.is_excused(request.call.node(), request.other());
        let is_sent = match request.call {
            Call::Send { end: End::Injected, .. } => request.result.is_none(),
            Call::Send { .. } => request.result == Some(Ok(())),
            _ => false,
        };
        check(!is_sent || is_excused || request.partner.is_some(), || {
            format!("sent, and not received: {request:?}")
        })?;
        let reports_due = matches!(request.call, Call::Write { is_immediate: true, .. })
            && request.result == Some(Ok(()))
            && !is_excused;
        check(!reports_due || request.reports == 1, || format!("no report of {request:?}"))?;
        if let Some(process) = &node.process
            && node.life == request.lives.0
        {
            let found = process.memory.read(request.address, request.call.length());
            let wrong = found.iter().position(|byte| *byte != ENDED);
            check(wrong.is_none(), || {
                format!("byte {wrong:?} of a buffer was written after the end of the request: {request:?}")
            })?;
        }
        Ok(())
    }

    /// Checks the memory of a node that others may write.
    fn check_writable(&self, number: usize) -> Checked {
        let node = &self.nodes[number];
        let Some(process) = &node.process else { return Ok(()) };
        let mut expected: Vec<Option<&super::model::Request>> = Vec::new();
        for request in &self.requests {
            let Call::Write { to, offset, length, is_wrong, .. } = request.call else { continue };
            if to != number || request.lives.1 != node.life {
                continue;
            }
            expected.push(Some(request));
            let found = process.memory.read(WRITABLE + offset, length);
            if let Some(frozen) = &request.frozen {
                check(found == *frozen, || {
                    format!("written after the memory was deregistered: {request:?}")
                })?;
            } else if is_wrong {
                check_buffer(&found, &[], false, request)?;
            } else if request.result == Some(Ok(())) {
                let wrong = found.iter().position(|byte| *byte != ENDED);
                check(wrong.is_none(), || format!("byte {wrong:?} was written again: {request:?}"))?;
            } else {
                check_buffer(&found, &request.data(), true, request)?;
            }
        }
        // Nothing else was written.
        let mut bytes = process.memory.read(WRITABLE, super::plan::WRITABLE_LENGTH);
        for request in expected.into_iter().flatten() {
            if let Call::Write { offset, length, .. } = request.call {
                let start = usize::try_from(offset).unwrap_or(0);
                let end = start + usize::try_from(length).unwrap_or(0);
                bytes.get_mut(start..end).unwrap_or_default().fill(UNTOUCHED);
            }
        }
        let wrong = bytes.iter().position(|byte| *byte != UNTOUCHED);
        check(wrong.is_none(), || format!("node {number}: byte {wrong:?} was written by no request"))
    }

    /// Checks that counters have counted every addition once.
    fn check_counters(&self, number: usize) -> Checked {
        let node = &self.nodes[number];
        let Some(process) = &node.process else { return Ok(()) };
        for counter in 0..COUNTERS {
            let additions = self.requests.iter().filter(|request| {
                matches!(request.call, Call::Add { to, counter: one, .. } if (to, one) == (number, counter))
                    && request.lives.1 == node.life
            });
            let (mut certain, mut possible) = (0, 0);
            for request in additions {
                possible += 1;
                certain += u64::from(request.result == Some(Ok(())));
            }
            let value = process.memory.counter(counter);
            check((certain..=possible).contains(&value), || {
                format!("node {number}: counter {counter} is {value} after {certain} to {possible} additions")
            })?;
        }
        Ok(())
    }
}
