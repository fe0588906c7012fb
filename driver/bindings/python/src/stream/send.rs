//! Sending packets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use fpga_driver::errors::ChannelFault;
use fpga_driver::{Error, SharedSlice, Ticket};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::card_state::CardState;
use crate::error::{Failure, with_block};
use crate::foreign::Foreign;
use crate::owned::{Close as _, Owned};
use crate::record::record;
use crate::wait::{self, Limit, Pause};

/// A sending stream, and results that no call has reported yet.
struct Sender {
    stream: fpga_driver::H2cStream,
    /// Faults of submitted packets.
    faults: VecDeque<Failure>,
    /// Packets of `send`, with their failures.
    sends: Vec<(Ticket, Option<Failure>)>,
}

impl Sender {
    /// Takes completions: releases buffers, and keeps faults.
    fn take_completions(&mut self) {
        while let Some(done) = self.stream.next_completion() {
            let Err(fault) = done.outcome else { continue };
            let failure = self.cause(*fault);
            match self.sends.iter_mut().find(|(ticket, _)| *ticket == done.ticket) {
                Some((_, ended)) => *ended = Some(failure),
                None => self.faults.push_back(failure),
            }
        }
    }

    /// Returns the failure of a packet: that of the channel, if the driver has ended the packet because of it.
    fn cause(&mut self, fault: Error<ChannelFault>) -> Failure {
        match (&fault.kind.cause, self.stream.poll()) {
            (cause, Err(lost)) if cause.is_loss() => lost.into(),
            _ => fault.into(),
        }
    }

    /// Waits for part of a turn until a packet, and so every earlier one, has ended. Returns whether it has.
    fn wait_part(&mut self, ticket: Ticket, limit: &mut Limit, pause: &Pause<'_>) -> Result<bool, Failure> {
        let waited = self.stream.wait_ended_unless(ticket, limit.options(), &mut || pause.is_due());
        self.take_completions();
        match waited.map_err(|error| limit.in_all(error))? {
            None => Ok(true),
            Some(waited) => {
                limit.waited(waited);
                Ok(false)
            }
        }
    }

    /// Ends the wait for a packet of `send`. Returns its failure.
    fn take_send(&mut self, ticket: Ticket) -> Option<Failure> {
        let at = self.sends.iter().position(|(known, _)| *known == ticket)?;
        self.sends.swap_remove(at).1
    }

    /// Reports the oldest fault of a submitted packet.
    fn check(&mut self) -> Result<(), Failure> {
        self.take_completions();
        self.faults.pop_front().map_or(Ok(()), Err)
    }
}

/// Stream channel from host to card.
#[pyclass(frozen, module = "fpga_rdma")]
pub(crate) struct H2cStream {
    card: CardState,
    state: Arc<Owned<Sender>>,
}

impl H2cStream {
    pub(super) fn open(py: Python<'_>, card: &CardState, number: u8) -> Result<Self, Failure> {
        let opened = card.get()?;
        let stream = wait::detached(py, || opened.h2c_stream(number))?;
        let sender = Sender { stream, faults: VecDeque::new(), sends: Vec::new() };
        Ok(Self { card: card.clone(), state: card.own(format!("h2c{number}"), sender)? })
    }

    /// Copies a packet into a DMA buffer: one object, or the objects of a list or tuple one after the other.
    fn gather(&self, data: &Bound<'_, PyAny>) -> Result<fpga_driver::DmaBuffer, Failure> {
        let parts = if data.is_instance_of::<PyList>() || data.is_instance_of::<PyTuple>() {
            data.try_iter()?.map(|part| Foreign::readable(&part?)).collect::<Result<Vec<_>, _>>()?
        } else {
            vec![Foreign::readable(data)?]
        };
        let length = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.len()));
        let length = length.filter(|length| *length > 0).ok_or_else(|| {
            Failure::value("a packet has at least one byte, and fits into memory".to_owned())
        })?;
        let views: Vec<SharedSlice<'_>> = parts.iter().map(Foreign::view).collect();
        let card = self.card.get()?;
        wait::detached(data.py(), move || {
            let buffer = card.buffer(length).map_err(Failure::from)?;
            let (memory, mut at) = (buffer.memory(), 0);
            for view in views {
                let copied = memory.copy_from(at, view, 0, view.len());
                copied.map_err(|error| Failure::value(error.to_string()))?;
                at += view.len();
            }
            Ok::<_, Failure>(buffer)
        })
    }
}

with_block!(H2cStream);

#[pymethods]
impl H2cStream {
    #[getter]
    fn name(&self) -> &str {
        self.state.name()
    }

    #[pyo3(signature = (data, timeout = Some(10.0)))]
    fn send(&self, py: Python<'_>, data: &Bound<'_, PyAny>, timeout: Option<f64>) -> Result<(), Failure> {
        let buffer = self.gather(data)?;
        let mut limit = Limit::new(timeout)?;
        let ticket = {
            let mut held = self.state.hold(py, &mut limit)?;
            let sender = held.value()?;
            sender.check()?;
            let ticket = sender.stream.submit(buffer).map_err(|refused| refused.error)?;
            sender.sends.push((ticket, None));
            ticket
        };
        let sent = self.state.turns(py, &mut limit, |sender, limit, pause| {
            if !sender.wait_part(ticket, limit, pause)? {
                return Ok(None);
            }
            sender.take_send(ticket).map_or(Ok(Some(())), Err)
        });
        if sent.is_err()
            && let Some(mut held) = self.state.try_hold()
            && let Ok(sender) = held.value()
        {
            // A packet that the engine does not have yet is withdrawn; one that it has stays in flight.
            let _ = sender.stream.try_cancel(ticket, Duration::ZERO);
            sender.take_completions();
            sender.take_send(ticket);
        }
        sent
    }

    fn submit(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> Result<(), Failure> {
        let buffer = self.gather(data)?;
        self.state.with(py, |sender| {
            sender.check()?;
            sender.stream.submit(buffer).map_err(|refused| refused.error)?;
            Ok(())
        })
    }

    fn poll(&self, py: Python<'_>) -> Result<u32, Failure> {
        self.state.with(py, |sender| {
            py.detach(|| sender.stream.poll().inspect(|_| sender.stream.relax()))?;
            sender.check()?;
            Ok(sender.stream.in_flight())
        })
    }

    #[pyo3(signature = (timeout = Some(10.0)))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> Result<(), Failure> {
        let mut last = None;
        self.state.turns(py, &mut Limit::new(timeout)?, |sender, limit, pause| {
            // Packets whose `send` has timed out are in flight as well.
            let submitted = sender.stream.ended() + u64::from(sender.stream.in_flight());
            last = last.or_else(|| submitted.checked_sub(1).map(Ticket::from_number));
            if let Some(last) = last
                && !sender.wait_part(last, limit, pause)?
            {
                return Ok(None);
            }
            sender.check()?;
            // Packets of a channel that has failed have ended, and were not sent.
            sender.stream.poll()?;
            Ok(Some(()))
        })
    }

    #[getter]
    fn in_flight(&self, py: Python<'_>) -> Result<u32, Failure> {
        self.state.with(py, |sender| Ok(sender.stream.in_flight()))
    }

    fn abort(&self, py: Python<'_>) -> Result<usize, Failure> {
        self.state.with(py, |sender| {
            let ended = wait::detached(py, || sender.stream.abort())?;
            // Packets that the caller has ended are not faults.
            while sender.stream.next_completion().is_some() {}
            sender.faults.clear();
            Ok(ended)
        })
    }

    #[getter]
    fn statistics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Failure> {
        let counted = self.state.with(py, |sender| Ok(sender.stream.statistics()))?;
        record(py, "stream", "SendStatistics", (counted.packets, counted.refused, counted.still))
    }

    fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        self.state.close(py)
    }

    fn __repr__(&self) -> String {
        let closed = if self.state.is_closed() { ", closed" } else { "" };
        format!("<H2cStream {} of {}{closed}>", self.state.name(), self.state.card())
    }
}
