//! Polls of the hosts, and checks of what they report.

use fpga_driver::CardAddr;
use fpga_protocol::Nanos;
use fpga_sim::SimNetwork;

use super::{IDLE_POLL, QUIET_POLL, World};
use crate::coverage::Coverage;
use crate::model::{Checked, Memory, Transfer, Violation, check};
use crate::plan::{Notice, Plan};
use crate::schedule::Outages;

impl World<'_> {
    /// Polls a host, and checks what it reports.
    pub(super) fn poll(&mut self, number: usize) -> Checked {
        let node = &mut self.nodes[number];
        let Some(open) = &mut node.open else { return Ok(()) };
        let mut work = open
            .end
            .poll()
            .map_err(|error| Violation(format!("endpoint of node {number} failed: {error}")))?;
        while let Some(done) = open.end.next_completion() {
            work += 1;
            let trouble_of = self
                .transfers
                .iter()
                .position(|transfer| transfer.from == number && transfer.ticket == Some(done.ticket));
            let index =
                trouble_of.ok_or_else(|| Violation(format!("completion of no transfer: {done:?}")))?;
            self.trace.add(&[2, self.network.now().get(), index as u64, u64::from(done.result.is_ok())]);
            completed(
                self.plan,
                &self.network,
                &self.outages,
                &mut self.transfers[index],
                &done,
                &mut self.coverage,
            )?;
            if done.result.is_ok() {
                freeze(self.plan, &self.network, &mut self.transfers, index, &mut self.coverage);
            }
        }
        while let Some(notice) = open.end.next_notification() {
            work += 1;
            self.trace.add(&[3, self.network.now().get(), notice.address.get(), notice.length]);
            let found = self.transfers.iter_mut().find(|transfer| {
                transfer.to == number
                    && transfer.address == notice.address.get()
                    && transfer.length == notice.length
                    && transfer.from as u64 + 1 == u64::from(notice.node.get())
            });
            let transfer = found.ok_or_else(|| {
                Violation(format!("notification of no transfer at node {number}: {notice:?}"))
            })?;
            transfer.notified += 1;
            let is_expected = transfer.notified == 1
                && transfer.notice != Notice::None
                && transfer.memory != Memory::Forbidden
                && transfer.lives.1 == node.life;
            check(is_expected, || format!("wrong or second notification of {transfer:?}: {notice:?}"))?;
            consume(&self.network, transfer, "notified")?;
        }
        while let Some(done) = open.end.next_read() {
            work += 1;
            self.trace.add(&[4, self.network.now().get(), u64::from(done.result.is_ok())]);
            let mut excuse =
                self.outages.trouble(self.plan, (number, number), Nanos::ZERO, self.network.now());
            // The owner or the reader may refuse what the other one sends.
            excuse.is_restarted |= self.plan.other_packet_size.or(self.plan.clock_back).is_some();
            self.reads.completed(
                &self.network,
                number,
                &done,
                &excuse,
                &mut self.transfers,
                &mut self.coverage,
            )?;
        }
        node.idle_polls = if work > 0 { 0 } else { node.idle_polls.saturating_add(1) };
        let longest = if node.idle_polls < 8 {
            self.plan.cards.poll
        } else {
            let idle = self.plan.cards.poll.saturating_mul(1 << (node.idle_polls / 8).min(10));
            idle.min(if self.is_quiet { QUIET_POLL } else { IDLE_POLL })
        };
        node.next_poll = self.network.now().saturating_add(Nanos::new(1 + self.polls.below(longest.get())));
        Ok(())
    }
}

/// Records the memory of transfers of earlier incarnations of the sender: a receiver that has accepted a later one writes nothing of them
/// (docs/protocol/incarnations.md).
fn freeze(
    plan: &Plan,
    network: &SimNetwork,
    transfers: &mut [Transfer],
    index: usize,
    coverage: &mut Coverage,
) {
    let (former, [later, ..]) = transfers.split_at_mut(index) else { return };
    // A transfer without data begins no operation.
    if plan.clock_back == Some(later.from) || later.length == 0 {
        return;
    }
    for earlier in former {
        let is_open = earlier.memory == Memory::Open && earlier.frozen.is_none();
        let is_former = (earlier.from, earlier.to, earlier.scheme) == (later.from, later.to, later.scheme);
        if is_open && is_former && earlier.lives.0 < later.lives.0 {
            let mut bytes = vec![0; usize::try_from(earlier.length).unwrap_or(0)];
            let address = CardAddr::new(earlier.address);
            network.with_card(later.to, |card| card.peek(address, &mut bytes));
            earlier.frozen = Some(bytes);
            coverage.count("former transfers frozen", 1);
        }
    }
}

/// Checks and records a completion.
fn completed(
    plan: &Plan,
    network: &SimNetwork,
    outages: &Outages,
    transfer: &mut Transfer,
    done: &fpga_rdma::SendCompletion,
    coverage: &mut Coverage,
) -> Checked {
    let trouble = outages.trouble(plan, (transfer.from, transfer.to), transfer.submitted, network.now());
    transfer
        .check_result(done.result, &trouble)
        .map_err(|Violation(text)| Violation(format!("at {} ns: {text}", network.now().get())))?;
    check(done.length == transfer.length, || format!("wrong length: {done:?} of {transfer:?}"))?;
    transfer.ticket = None;
    transfer.result = Some(done.result);
    match done.result {
        Ok(()) => {
            coverage.count("ended Ok", 1);
            consume(network, transfer, "completed")
        }
        Err(error) => {
            let text = format!("{error:?}");
            let name = text.split(' ').next().unwrap_or_default();
            coverage.count(&format!("ended {name}"), 1);
            Ok(())
        }
    }
}

/// Compares the data of a complete transfer, and replaces it.
fn consume(network: &SimNetwork, transfer: &mut Transfer, event: &str) -> Checked {
    if transfer.memory != Memory::Open {
        return Ok(());
    }
    let mut bytes = vec![0; usize::try_from(transfer.length).unwrap_or(0)];
    let address = CardAddr::new(transfer.address);
    network.with_card(transfer.to, |card| card.peek(address, &mut bytes));
    let wrong = bytes.iter().zip(transfer.data()).position(|(found, expected)| *found != expected);
    check(wrong.is_none(), || format!("{event} before byte {wrong:?} has arrived: {transfer:?}"))?;
    network.with_card(transfer.to, |card| card.poke(address, &transfer.marks()));
    transfer.memory = Memory::Consumed;
    Ok(())
}
