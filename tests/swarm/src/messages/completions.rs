//! Checks of completions.

use fpga_messages::{Completion, CompletionKind};

use super::model::{ENDED, check_buffer};
use super::plan::{Call, End};
use super::process::{READABLE_DATA, WRITABLE};
use super::{World, kind_of};
use crate::model::{Checked, Violation, check, data_byte};

impl World<'_> {
    /// Checks the completions of a process. Returns their number.
    pub(super) fn take_completions(&mut self, node: usize) -> Result<usize, Violation> {
        let mut count = 0;
        while let Some(process) = &mut self.nodes[node].process
            && let Some(done) = process.messenger.next_completion()
        {
            count += 1;
            self.trace.add(&[2, self.network.now().get(), node as u64, u64::from(done.result.is_ok())]);
            self.trace.add(&[done.token.context, done.length, done.immediate.unwrap_or(0)]);
            let checked = match done.kind {
                CompletionKind::RemoteWrite | CompletionKind::RemoteRead => self.accessed(node, &done),
                _ => self.completed(node, &done),
            };
            let now = self.network.now().get();
            checked.map_err(|Violation(text)| Violation(format!("at {now} ns, node {node}: {text}")))?;
        }
        Ok(count)
    }

    /// Checks the report of an access to a node's memory.
    fn accessed(&mut self, node: usize, done: &Completion) -> Checked {
        self.coverage.count("messages accesses reported", 1);
        let Some(number) = done.immediate else {
            return check(self.work.reports_access, || format!("report of an access: {done:?}"));
        };
        let life = self.nodes[node].life;
        let found = self.requests.iter_mut().find(|request| {
            matches!(request.call, Call::Write { to, is_immediate: true, .. } if to == node)
                && request.number as u64 == number
        });
        let request = found.ok_or_else(|| Violation(format!("report of no write: {done:?}")))?;
        request.reports += 1;
        let is_expected = request.reports == 1 && request.lives.1 == life && done.result.is_ok();
        check(is_expected, || format!("wrong or second report of {request:?}: {done:?}"))
    }

    /// Checks and records the completion of a request.
    fn completed(&mut self, node: usize, done: &Completion) -> Checked {
        let index = usize::try_from(done.token.context).unwrap_or(usize::MAX);
        let life = self.nodes[node].life;
        let request = self.requests.get(index);
        let request = request.filter(|request| request.call.node() == node && request.lives.0 == life);
        let request =
            request.ok_or_else(|| Violation(format!("completion of no request: {done:?}")))?.clone();
        let now = self.network.now();
        let peer = request.other().unwrap_or(node);
        let since = request.submitted;
        let trouble = self.outages.trouble(self.plan, (node, peer), since, now);
        let whole = self.outages.trouble(self.plan, (node, peer), fpga_protocol::Nanos::ZERO, now);
        request.check_result(done, &trouble, &whole, self.is_excused(node, request.other()))?;
        self.requests[index].result = Some(done.result.clone());
        let name = done.result.as_ref().err().map_or_else(|| "Ok".to_owned(), kind_of);
        self.coverage.count(&format!("messages {:?} {name}", done.kind), 1);
        let Some(process) = &self.nodes[node].process else { return Ok(()) };
        let (memory, length) = (&process.memory, request.call.length());
        match request.call {
            Call::Receive { .. } => self.received(node, index, done)?,
            Call::Send { end: End::Matched, to, .. } if done.result.is_ok() => {
                self.must_be_received(index, to)?
            }
            Call::Write { to, offset, .. } if done.result.is_ok() => {
                let owner = &self.nodes[to];
                if owner.life == request.lives.1
                    && request.frozen.is_none()
                    && let Some(process) = &owner.process
                {
                    let found = process.memory.read(WRITABLE + offset, length);
                    check_buffer(&found, &request.data(), false, &request)?;
                    // The owner uses the memory.
                    process.memory.fill(WRITABLE + offset, length, ENDED);
                }
            }
            Call::Read { to, offset, .. } => {
                let data: Vec<u8> =
                    (0..length).map(|at| data_byte(READABLE_DATA + to, offset + at)).collect();
                check_buffer(&memory.read(request.address, length), &data, done.result.is_err(), &request)?;
            }
            Call::Add { counter, to, fetches: true, .. } if done.result.is_ok() => {
                let value = memory.read(request.address, 8);
                let value = value.try_into().map_or(0, u64::from_le_bytes);
                let (life, kind) = (request.lives.1, "a value of a counter was fetched twice");
                let is_new = self.fetched.insert((to, life, counter, value));
                check(is_new, || format!("{kind}: {value}: {request:?}"))?;
            }
            _ => {}
        }
        // The application uses the memory for something else.
        if let Some(process) = &self.nodes[node].process {
            process.memory.fill(request.address, length, ENDED);
        }
        Ok(())
    }

    /// Checks the completion of a receive.
    fn received(&mut self, node: usize, index: usize, done: &Completion) -> Checked {
        let receive = self.requests[index].clone();
        let Some(process) = &self.nodes[node].process else { return Ok(()) };
        let found = process.memory.read(receive.address, receive.call.length());
        let is_message = matches!(done.result, Ok(()) | Err(fpga_messages::Failure::Truncated));
        if !is_message {
            // The message of a failed receive is not known: any part of one may be there.
            return Ok(());
        }
        let sender = done.source.map_or(usize::MAX, |peer| peer.0 as usize);
        let position = self.requests.iter().position(|request| {
            matches!(request.call, Call::Send { from, to, .. } if (from, to) == (sender, node))
                && Some(request.number as u64) == done.immediate
        });
        let position = position.ok_or_else(|| Violation(format!("no such message was sent: {done:?}")))?;
        let message = &mut self.requests[position];
        let Call::Send { tag, .. } = message.call else { return Ok(()) };
        let is_expected = message.partner.is_none()
            && receive.accepts(sender, tag)
            && (done.is_tagged, done.tag) == (tag.is_some(), tag.unwrap_or(0));
        check(is_expected, || format!("wrong or second message {message:?} for {receive:?}: {done:?}"))?;
        message.partner = Some(index);
        let (sent, space) = (message.call.length(), receive.call.length());
        let is_cut = sent > space;
        let lengths = (done.length, done.cut, done.result.is_err());
        check(lengths == (sent.min(space), sent.saturating_sub(space), is_cut), || {
            format!("wrong length of {message:?} for {receive:?}: {done:?}")
        })?;
        let data = message.data();
        check_buffer(&found, data.get(..found.len()).unwrap_or(&data), false, &receive)?;
        self.requests[index].partner = Some(position);
        Ok(())
    }

    /// Checks that a message whose sender knows that it has matched is in the memory of its receiver.
    fn must_be_received(&mut self, index: usize, to: usize) -> Checked {
        self.take_completions(to)?;
        let request = &self.requests[index];
        let is_there = request.partner.is_some() || self.nodes[to].life != request.lives.1;
        check(is_there || self.nodes[to].process.is_none(), || format!("not received yet: {request:?}"))
    }
}
