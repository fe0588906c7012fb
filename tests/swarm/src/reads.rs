//! Reads of a world: requests and their completions.

use fpga_driver::CardAddr;

use fpga_rdma::{ReadCompletion, ReadError, ReadTicket, SendError, SendOptions};
use fpga_sim::SimNetwork;

use crate::coverage::Coverage;
use crate::model::{Checked, Memory, Transfer, Trouble, UNTOUCHED, Violation, check};
use crate::node::{Node, READABLE_DATA};
use crate::plan::{Notice, Read};

/// A read in progress.
#[derive(Debug)]
struct Pending {
    reader: usize,
    ticket: ReadTicket,
    /// Position of the answer among the transfers.
    answer: usize,
}

/// Reads in progress.
#[derive(Debug, Default)]
pub(crate) struct Reads(Vec<Pending>);

impl Reads {
    pub(crate) const fn is_busy(&self) -> bool {
        !self.0.is_empty()
    }

    /// Forgets the reads of a node that has stopped.
    pub(crate) fn abandon(&mut self, node: usize) {
        self.0.retain(|read| read.reader != node);
    }

    /// Submits a read. Returns whether it was accepted.
    pub(crate) fn submit(
        &mut self,
        network: &SimNetwork,
        nodes: &mut [Node],
        read: &Read,
        transfers: &mut Vec<Transfer>,
        coverage: &mut Coverage,
    ) -> Result<bool, Violation> {
        let lives = (nodes[read.owner].life, nodes[read.reader].life);
        let Some(Some(source)) = nodes[read.owner].readables.get(read.reader).copied() else {
            return Ok(true);
        };
        let Some(open) = &mut nodes[read.reader].open else { return Ok(false) };
        let options = SendOptions::default().scheme(read.scheme).deadline(read.deadline);
        let ticket = match open.end.read(&source, read.offset, CardAddr::new(read.to), read.length, options) {
            Ok(ticket) => ticket,
            Err(error) => match error.kind {
                ReadError::Full
                | ReadError::Send(SendError::Full { .. } | SendError::Destinations { .. })
                | ReadError::Endpoint(fpga_rdma::EndpointError::RegionsFull { .. }) => {
                    coverage.count("table reads full", 1);
                    return Ok(false);
                }
                _ => return Err(Violation(format!("read refused at submission: {error}"))),
            },
        };
        coverage.count("reads", 1);
        self.0.push(Pending { reader: read.reader, ticket, answer: transfers.len() });
        transfers.push(Transfer {
            number: READABLE_DATA + read.owner,
            data_offset: read.offset,
            from: read.owner,
            to: read.reader,
            lives,
            address: read.to,
            length: read.length,
            notice: Notice::None,
            submitted: network.now(),
            ticket: None,
            result: None,
            notified: 0,
            memory: Memory::Open,
            frozen: None,
            scheme: read.scheme,
            is_cancelled: false,
            has_deadline: true,
            is_wrong: false,
            is_unsupported: false,
            mismatch: None,
            is_probe: false,
        });
        Ok(true)
    }

    /// Checks the completion of a read.
    pub(crate) fn completed(
        &mut self,
        network: &SimNetwork,
        reader: usize,
        done: &ReadCompletion,
        trouble: &Trouble,
        transfers: &mut [Transfer],
        coverage: &mut Coverage,
    ) -> Checked {
        let position = self.0.iter().position(|read| (read.reader, read.ticket) == (reader, done.ticket));
        let position = position.ok_or_else(|| Violation(format!("completion of no read: {done:?}")))?;
        let read = self.0.swap_remove(position);
        let answer = &mut transfers[read.answer];
        let is_excused = trouble.is_restarted || trouble.silence > 0 || trouble.is_harsh;
        check(done.result.is_ok() || is_excused, || {
            format!("read failed without a cause: {done:?}, {trouble:?}, {answer:?}")
        })?;
        coverage.count(if done.result.is_ok() { "reads ended Ok" } else { "reads failed" }, 1);
        // Data that was read: that of the owner, at the offset.
        let mut bytes = vec![0; usize::try_from(answer.length).unwrap_or(0)];
        let address = CardAddr::new(answer.address);
        network.with_card(reader, |card| card.peek(address, &mut bytes));
        for (position, (found, data)) in bytes.iter().zip(answer.data()).enumerate() {
            let is_allowed = *found == data || done.result.is_err() && *found == UNTOUCHED;
            check(is_allowed, || format!("byte {position} of a read is {found:#x}: {done:?}, {answer:?}"))?;
        }
        // The window is closed: nothing may be written any more.
        network.with_card(reader, |card| card.poke(address, &answer.marks()));
        answer.memory = Memory::Consumed;
        Ok(())
    }
}
