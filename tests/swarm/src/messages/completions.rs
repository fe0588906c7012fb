//! Checks of completions.

use fpga_messages::{Completion, CompletionKind, Failure};

use super::model::{ENDED, check_buffer};
use super::plan::{Call, End, Get};
use super::process::{READABLE_DATA, WRITABLE};
use super::{World, kind_of};
use crate::model::{Checked, UNTOUCHED, Violation, check, data_byte};

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
        let name = done.result.as_ref().err().map_or_else(|| "Ok".to_owned(), |failure| kind_of(failure));
        let kind = match request.get() {
            Get::One => kind_of(&done.kind),
            get => kind_of(&get),
        };
        self.coverage.count(&format!("messages {kind} {name}"), 1);
        let is_over = match request.get() {
            Get::Several(_) => done.is_last,
            Get::Claim(_) | Get::ClaimAndDrop(_) => request.partner.is_some() || done.result.is_err(),
            Get::One | Get::Look | Get::Drop => true,
        };
        if !is_over {
            return self.received(node, index, done);
        }
        self.requests[index].result = Some(done.result.clone());
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
        let request = &self.requests[index];
        let (get, mut space) = (request.get(), (0, request.call.length()));
        if matches!(get, Get::Several(_)) && done.address != 0 {
            let offset = done.address.wrapping_sub(request.address);
            let end = offset.saturating_add(done.length);
            let is_free = |(start, length): &(u64, u64)| end <= *start || start + length <= offset;
            check(end <= space.1 && request.parts.iter().all(is_free), || {
                format!("a message is not in a free part of its buffer: {request:?}: {done:?}")
            })?;
            space = (offset, space.1 - offset);
            self.requests[index].parts.push((offset, done.length));
        }
        // The message of a failed receive is not known: any part of one may be there.
        if matches!(done.result, Ok(()) | Err(Failure::Truncated)) {
            self.check_message(node, index, done, space)?;
        }
        let Get::Several(least) = get else { return Ok(()) };
        let (request, Some(process)) = (&self.requests[index], &self.nodes[node].process) else {
            return Ok(());
        };
        process.memory.fill(request.address + space.0, done.length, ENDED);
        if !done.is_last {
            return Ok(());
        }
        let found = process.memory.read(request.address, request.call.length());
        let mut expected = vec![UNTOUCHED; found.len()];
        for (start, length) in &request.parts {
            let [start, end] =
                [*start, start + length].map(|offset| usize::try_from(offset).unwrap_or(usize::MAX));
            expected.get_mut(start..end).unwrap_or_default().fill(ENDED);
        }
        check(found == expected, || format!("written beside the messages: {request:?}"))?;
        let used: u64 = request.parts.iter().map(|(_, length)| length).sum();
        let is_used_up = request.call.length() - used < least;
        check(is_used_up || !matches!(done.result, Ok(()) | Err(Failure::Truncated)), || {
            format!("a buffer is returned before it is used up: {request:?}")
        })
    }

    /// Checks a message, and its data at an offset of the receive's buffer with space for a number of bytes.
    fn check_message(
        &mut self,
        node: usize,
        index: usize,
        done: &Completion,
        (offset, space): (u64, u64),
    ) -> Checked {
        let receive = self.requests[index].clone();
        let Some(process) = &self.nodes[node].process else { return Ok(()) };
        let is_part = matches!(receive.get(), Get::Several(_));
        let is_claimed = receive.partner.is_some() && !is_part;
        // Behind the part is that of another message.
        let found = process.memory.read(receive.address + offset, if is_part { done.length } else { space });
        if is_claimed && matches!(receive.get(), Get::ClaimAndDrop(_)) {
            return check_buffer(&found, &[], false, &receive);
        }
        let sender = done.source.map_or(usize::MAX, |peer| peer.0 as usize);
        let position = self.requests.iter().position(|request| {
            matches!(request.call, Call::Send { from, to, .. } if (from, to) == (sender, node))
                && Some(request.number as u64) == done.immediate
        });
        let position = position.ok_or_else(|| Violation(format!("no such message was sent: {done:?}")))?;
        let message = &mut self.requests[position];
        let Call::Send { tag, .. } = message.call else { return Ok(()) };
        let is_expected = message.partner == is_claimed.then_some(index)
            && receive.accepts(sender, tag)
            && (done.is_tagged, done.tag) == (tag.is_some(), tag.unwrap_or(0));
        check(is_expected, || format!("wrong or second message {message:?} for {receive:?}: {done:?}"))?;
        if receive.get() != Get::Look {
            message.partner = Some(index);
        }
        let (sent, data) = (message.call.length(), message.data());
        let is_data = match receive.get() {
            Get::One | Get::Several(_) => true,
            Get::Claim(_) => is_claimed,
            Get::ClaimAndDrop(_) | Get::Look | Get::Drop => false,
        };
        let space = if is_data { space } else { u64::MAX };
        let lengths = (done.length, done.cut, done.result.is_err());
        check(lengths == (sent.min(space), sent.saturating_sub(space), sent > space), || {
            format!("wrong length of {message:?} for {receive:?}: {done:?}")
        })?;
        let data = if is_data { data.get(..found.len()).unwrap_or(&data) } else { &[] };
        check_buffer(&found, data, false, &receive)?;
        if receive.get() != Get::Look {
            self.requests[index].partner = Some(position);
        }
        if let (Get::Claim(wait) | Get::ClaimAndDrop(wait), false) = (receive.get(), is_claimed) {
            self.claims.push((self.network.now().saturating_add(wait), index));
        }
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
