//! Submission of transfers, and their cancellation.

use fpga_driver::CardAddr;
use fpga_rdma::{SendError, SendNotify, SendOptions};

use super::{World, end_limit};
use crate::model::{Checked, Memory, Transfer, Violation, check, data};
use crate::plan::{Action, Aim, Notice, PLANNED_LENGTH, SOURCES, Send, WINDOW_LENGTH, WINDOW_STRIDE};
use crate::schedule::Stage as _;

/// Distance of the memory of transfers after the world has healed.
const PROBE_STRIDE: u64 = 0x400;
/// First number of their data.
const PROBE_DATA: usize = 1 << 16;

impl World<'_> {
    /// Submits the actions that wait, as far as there is space. Those of one node stay in order.
    pub(super) fn submit_waiting(&mut self) -> Checked {
        let mut blocked = vec![false; self.plan.nodes];
        for index in std::mem::take(&mut self.waiting) {
            let plan = self.plan;
            let action = &plan.actions[index];
            let node = match &action.item {
                Action::Send(send) => send.from,
                Action::Read(read) => read.reader,
            };
            let is_accepted = !blocked[node]
                && self.nodes[node].is_running()
                && match &action.item {
                    Action::Send(send) => self.submit(action.number, send)?,
                    Action::Read(read) => self.reads.submit(
                        &self.network,
                        &mut self.nodes,
                        read,
                        &mut self.transfers,
                        &mut self.coverage,
                    )?,
                };
            if !is_accepted {
                blocked[node] = true;
                self.waiting.push(index);
            }
        }
        Ok(())
    }

    /// Submits a transfer. Returns whether it was accepted.
    pub(super) fn submit(&mut self, number: usize, send: &Send) -> Result<bool, Violation> {
        let to = &self.nodes[send.to];
        let windows = if send.aim == Aim::FirstWindow { &to.first_windows } else { &to.windows };
        let Some(mut window) = windows.get(send.window).copied() else { return Ok(true) };
        let (mut offset, mut length) = (send.offset, send.length);
        match send.aim {
            Aim::WrongKey => window.key ^= 1,
            Aim::Beyond => {
                // Behind the window, where the next one has not begun.
                (offset, length) = (WINDOW_LENGTH + send.offset % 0x1000, length.min(0x4000));
                window.length = WINDOW_STRIDE;
            }
            Aim::Window | Aim::FirstWindow => {}
        }
        let is_wrong = match send.aim {
            Aim::Window => false,
            Aim::FirstWindow => to.life > 0,
            Aim::WrongKey | Aim::Beyond => true,
        };
        let is_unsupported = self.plan.limited == Some(send.to) && send.scheme != self.plan.cards.schemes[0];
        let from = &self.nodes[send.from];
        let (lives, now) = ((from.life, to.life), self.network.now());
        // Once: a transfer without space in a table is submitted at every turn.
        let is_new = self.prepared.insert((number, from.life));
        if is_new {
            from.poke(&self.network, send.source, &data(number, length));
        }
        let mut options =
            SendOptions::default().scheme(send.scheme).priority(send.priority).notify(match send.notice {
                Notice::Receiver => SendNotify::Receiver,
                Notice::Sender => SendNotify::Sender,
                Notice::None => SendNotify::None,
            });
        options.deadline = send.deadline;
        let Some(open) = &mut self.nodes[send.from].open else { return Ok(false) };
        let sent = match &open.host {
            Some((source, area)) if send.from_host => {
                let at = send.source - SOURCES;
                let place = usize::try_from(at).unwrap_or(usize::MAX);
                if is_new && let Err(error) = area.memory().write(place, &data(number, length)) {
                    return Err(Violation(format!("host memory: {error}")));
                }
                open.end.send_from_host(*source, at, &window, (offset, length), options)
            }
            _ => open.end.send(CardAddr::new(send.source), &window, offset, length, options),
        };
        let ticket = match sent {
            Ok(ticket) => ticket,
            Err(error) if error.kind.is_full() => {
                let kind =
                    if matches!(error.kind, SendError::Full { .. }) { "transfers" } else { "destinations" };
                self.coverage.count(&format!("table {kind} full"), 1);
                return Ok(false);
            }
            Err(error) => return Err(Violation(format!("transfer refused at submission: {error}"))),
        };
        if let Some(span) = send.cancel {
            self.cancels.push((now.saturating_add(span), self.transfers.len()));
        }
        self.coverage.count(&format!("sent by {:?}", send.scheme), 1);
        self.transfers.push(Transfer {
            number,
            data_offset: 0,
            from: send.from,
            to: send.to,
            lives,
            address: window.address.get() + offset,
            length,
            notice: if length == 0 { Notice::None } else { send.notice },
            submitted: now,
            ticket: Some(ticket),
            result: None,
            notified: 0,
            memory: if is_wrong || is_unsupported {
                Memory::Forbidden
            } else if self.nodes[send.to].is_removed {
                Memory::Lost
            } else {
                Memory::Open
            },
            frozen: None,
            scheme: send.scheme,
            is_cancelled: false,
            has_deadline: send.deadline.is_some(),
            is_wrong,
            is_unsupported,
            mismatch: self.plan.mismatch(send.from, send.to),
            is_probe: false,
        });
        Ok(true)
    }

    /// Sends from every node to the next one by every scheme.
    pub(super) fn probe(&mut self) -> Checked {
        let (plan, mut number) = (self.plan, PROBE_DATA);
        for scheme in &plan.cards.schemes {
            for from in 0..plan.nodes {
                let slot = (number - PROBE_DATA) / plan.nodes;
                let to = (from + 1) % plan.nodes;
                let is_limited = plan.limited.is_some_and(|limited| limited == from || limited == to);
                if is_limited && *scheme != plan.cards.schemes[0] || plan.mismatch(from, to).is_some() {
                    number += 1;
                    continue;
                }
                let send = Send {
                    from,
                    to,
                    source: SOURCES + PROBE_STRIDE * slot as u64,
                    window: 0,
                    offset: PLANNED_LENGTH + PROBE_STRIDE * slot as u64,
                    length: (1 + u64::from(plan.cards.packet_size) * 2).min(PROBE_STRIDE - 9),
                    aim: Aim::Window,
                    scheme: *scheme,
                    notice: Notice::Receiver,
                    priority: 0,
                    deadline: None,
                    from_host: false,
                    cancel: None,
                };
                let limit = self.now().saturating_add(end_limit(plan));
                while !self.submit(number, &send)? {
                    self.turn(limit)?;
                    check(self.now() < limit, || {
                        "a transfer is not accepted after the world has healed".to_owned()
                    })?;
                }
                if let Some(transfer) = self.transfers.last_mut() {
                    transfer.is_probe = true;
                }
                number += 1;
            }
        }
        Ok(())
    }

    pub(super) fn cancel(&mut self, transfer: usize) {
        let transfer = &mut self.transfers[transfer];
        let node = &mut self.nodes[transfer.from];
        if let (true, Some(open), Some(ticket)) = (node.pauses == 0, &mut node.open, transfer.ticket) {
            transfer.is_cancelled |= open.end.cancel(ticket);
            self.coverage.count("world cancel", 1);
        }
    }
}
