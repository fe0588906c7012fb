//! AXI4-Stream channels: packets between host memory and the card.
//!
//! A packet becomes a `bytes` object, or is copied into memory of the program: the card's buffers return to the ring with the next call, and
//! no Python object refers to them.

use std::collections::VecDeque;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Duration;

use fpga_driver::errors::{ChannelFault, ErrorKind as _};
use fpga_driver::stream::{C2hStreamOptions, Packet, StreamError};
use fpga_driver::{ChannelError, Error, SharedSlice, Ticket, WaitMode, WaitOptions};
use fpga_pci::Clock;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::advice::render;
use crate::card::Card;
use crate::card_state::CardState;
use crate::error::{Class, Classify, Failure, with_block};
use crate::foreign::Foreign;
use crate::numbers;
use crate::owned::{Close as _, Owned};
use crate::record::record;
use crate::wait::{self, Limit, Pause};

/// Time for which a wait on a card with interrupts polls before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

impl Classify for StreamError {
    fn class(&self) -> Class {
        match self {
            Self::Packet(_) => Class::PacketLost,
            Self::Fault(_) => Class::Fault,
            Self::Channel(error) => error.class(),
            Self::Posted { .. } => Class::InUse,
            Self::Stopped => Class::StreamStopped,
            Self::Submit(error) => error.class(),
            Self::BufferTooLarge { .. } => Class::Range,
            _ => Class::Refused,
        }
    }
}

/// Sending stream with what its user has not seen yet.
struct Sender {
    stream: fpga_driver::H2cStream,
    /// Faults of submitted packets.
    faults: VecDeque<Failure>,
    /// Packets of `send`, with their failures.
    sends: Vec<(Ticket, Option<Failure>)>,
}

impl Sender {
    /// Drops the buffers of packets that have ended, and keeps their faults.
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

    /// The first cause of a fault: that of the channel, if the driver has ended the packet together with it.
    fn cause(&mut self, fault: Error<ChannelFault>) -> Failure {
        match (&fault.kind.cause, self.stream.poll()) {
            (cause, Err(lost)) if cause.is_loss() => lost.into(),
            _ => fault.into(),
        }
    }

    /// A part of a wait until a packet, and so every earlier one, has ended. Returns whether it has.
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
    fn open(py: Python<'_>, card: &CardState, number: u8) -> Result<Self, Failure> {
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

/// Receiving stream with the packet that its user had no space for.
struct Receiver {
    stream: fpga_driver::C2hStream,
    kept: Option<Vec<u8>>,
    stopping: bool,
    /// The card has interrupts: waits sleep.
    sleeps: bool,
    /// The card works only while it is polled, in its own time.
    is_virtual: bool,
}

impl Receiver {
    /// Time that a call without a wait may take, on the card's clock. A card in virtual time needs some to work in, and the driver some to
    /// see that a stopped engine is idle.
    const fn patience(&self) -> Duration {
        match (self.is_virtual, self.stopping) {
            (false, false) => Duration::ZERO,
            (false, true) => Duration::from_micros(100),
            (true, false) => Duration::from_micros(10),
            (true, true) => Duration::from_millis(200),
        }
    }
}

/// Stream channel from card to host.
#[pyclass(frozen, module = "fpga_rdma")]
pub(crate) struct C2hStream {
    state: Arc<Owned<Receiver>>,
}

/// A received packet: in the stream's buffers, or the one that was kept.
enum Received<'a> {
    Ring(Packet<'a>),
    Kept(&'a [u8]),
}

impl Received<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Ring(packet) => packet.len(),
            Self::Kept(bytes) => bytes.len(),
        }
    }

    fn to_vec(&self) -> Vec<u8> {
        match self {
            Self::Ring(packet) => packet.to_vec(),
            Self::Kept(bytes) => bytes.to_vec(),
        }
    }

    fn to_bytes(&self, py: Python<'_>) -> Result<Py<PyBytes>, Failure> {
        let bytes = match self {
            Self::Kept(bytes) => PyBytes::new(py, bytes),
            Self::Ring(packet) => PyBytes::new_with(py, packet.len(), |into| {
                packet.read(0, into).map_err(|error| Failure::value(error.to_string()).into())
            })?,
        };
        Ok(bytes.unbind())
    }

    /// Copies into memory that has space for the packet.
    fn copy_into(&self, into: SharedSlice<'_>) -> Result<(), Failure> {
        let copied = match self {
            Self::Kept(bytes) => into.write(0, bytes),
            Self::Ring(packet) => {
                let mut at = 0;
                packet.parts().try_for_each(|part| {
                    into.copy_from(at, part, 0, part.len())?;
                    at += part.len();
                    Ok(())
                })
            }
        };
        copied.map_err(|error| Failure::value(error.to_string()))
    }
}

impl C2hStream {
    fn open(
        py: Python<'_>,
        card: &CardState,
        number: u8,
        options: C2hStreamOptions,
    ) -> Result<Self, Failure> {
        let opened = card.get()?;
        let stream = wait::detached(py, || opened.c2h_stream_with(number, options))?;
        let sleeps = stream.events().is_ok();
        let is_virtual = opened.clock() == Clock::Virtual;
        let receiver = Receiver { stream, kept: None, stopping: false, sleeps, is_virtual };
        Ok(Self { state: card.own(format!("c2h{number}"), receiver)? })
    }

    /// Waits for the next packet. `None`: the stream was stopped and has no more.
    ///
    /// The wait is cut into parts, between which signal handlers run and other threads use the stream.
    fn next<R>(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        take: impl FnOnce(&Received<'_>) -> Result<R, Failure>,
    ) -> Result<Option<R>, Failure> {
        let mut limit = Limit::new(timeout)?;
        loop {
            let mut held = self.state.hold(py, &mut limit)?;
            let Receiver { stream, kept, sleeps, .. } = held.value()?;
            if let Some(bytes) = kept.take() {
                let taken = take(&Received::Kept(&bytes));
                if taken.is_err() {
                    *kept = Some(bytes);
                }
                return taken.map(Some);
            }
            let mut options = limit.options().timeout(limit.part());
            if *sleeps {
                options = options.mode(WaitMode::Hybrid { spin: SPIN });
            }
            match py.detach(|| stream.wait_packet(options)) {
                Ok(packet) => return take(&Received::Ring(packet)).map(Some),
                Err(error) if matches!(error.kind, StreamError::Stopped) => return Ok(None),
                Err(error) => match &error.kind {
                    StreamError::Channel(ChannelError::TimedOut { waited, .. }) => {
                        limit.waited(*waited);
                        // The limit counts parts of it at least.
                        if limit.is_over() {
                            return Err(self.late(timeout));
                        }
                    }
                    _ => return Err(error.into()),
                },
            }
            drop(held);
            self.state.between_turns(py, &mut limit)?;
        }
    }

    fn late(&self, timeout: Option<f64>) -> Failure {
        let waited = wait::duration(timeout).unwrap_or_default();
        Failure::new(Class::TimedOut, format!("no packet within {waited:?}"))
            .on_part(self.state.card(), self.state.name())
            .advice("wait longer (timeout=...); the buffers stay posted")
    }

    fn no_more(&self) -> Failure {
        let failure = Failure::new(StreamError::Stopped.class(), StreamError::Stopped.to_string())
            .on_part(self.state.card(), self.state.name());
        match StreamError::Stopped.advice() {
            Some(advice) => failure.advice(render(&advice)),
            None => failure,
        }
    }
}

with_block!(C2hStream);

#[pymethods]
impl C2hStream {
    #[getter]
    fn name(&self) -> &str {
        self.state.name()
    }

    #[pyo3(signature = (timeout = Some(10.0)))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> Result<Py<PyBytes>, Failure> {
        self.next(py, timeout, |packet| packet.to_bytes(py))?.ok_or_else(|| self.no_more())
    }

    #[pyo3(signature = (into, timeout = Some(10.0)))]
    fn receive_into(
        &self,
        py: Python<'_>,
        into: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> Result<usize, Failure> {
        let sink = Foreign::writable(into)?;
        let mut too_long = None;
        let received = self.next(py, timeout, |packet| {
            if packet.len() > sink.len() {
                too_long = Some(packet.to_vec());
                return Ok(0);
            }
            py.detach(|| packet.copy_into(sink.view()))?;
            Ok(packet.len())
        })?;
        if let Some(bytes) = too_long {
            let (length, room) = (bytes.len(), sink.len());
            self.state.with(py, |receiver| {
                receiver.kept = Some(bytes);
                Ok(())
            })?;
            return Err(Failure::new(
                Class::Range,
                format!("the packet has {length} bytes, and there is space for {room}"),
            )
            .on_part(self.state.card(), self.state.name())
            .advice("call again with more memory, or receive(): the packet is kept"));
        }
        received.ok_or_else(|| self.no_more())
    }

    fn try_receive(&self, py: Python<'_>) -> Result<Option<Py<PyBytes>>, Failure> {
        self.state.with(py, |receiver| {
            if let Some(bytes) = receiver.kept.take() {
                return Received::Kept(&bytes).to_bytes(py).map(Some);
            }
            let patience = receiver.patience();
            if patience.is_zero() {
                let packet = py.detach(|| receiver.stream.next_packet())?;
                return packet.map(|packet| Received::Ring(packet).to_bytes(py)).transpose();
            }
            // A wait that polls would disable the interrupt that the program has armed.
            let mode = if receiver.sleeps { WaitMode::Interrupt } else { WaitMode::Poll };
            let wait = WaitOptions::default().timeout(patience).mode(mode);
            match py.detach(|| receiver.stream.wait_packet(wait)) {
                Ok(packet) => Received::Ring(packet).to_bytes(py).map(Some),
                Err(error) if matches!(error.kind, StreamError::Stopped) || error.is_timeout() => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
    }

    #[pyo3(signature = (*, timeout = None))]
    fn packets(this: Py<Self>, timeout: Option<f64>) -> Result<Packets, Failure> {
        wait::duration(timeout)?;
        Ok(Packets { stream: this, timeout })
    }

    fn __iter__(this: Py<Self>) -> Packets {
        Packets { stream: this, timeout: None }
    }

    fn __aiter__<'py>(this: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>, Failure> {
        let py = this.py();
        Ok(py.import("fpga_rdma.stream")?.getattr("_Packets")?.call1((this,))?)
    }

    #[getter]
    fn stopped(&self, py: Python<'_>) -> Result<bool, Failure> {
        self.state.with(py, |receiver| {
            Ok(receiver.stopping && receiver.kept.is_none() && receiver.stream.posted() == 0)
        })
    }

    fn stop(&self, py: Python<'_>) -> Result<(), Failure> {
        self.state.with(py, |receiver| {
            wait::detached(py, || receiver.stream.stop())?;
            receiver.stopping = true;
            Ok(())
        })
    }

    fn abort(&self, py: Python<'_>) -> Result<(), Failure> {
        self.state.with(py, |receiver| {
            receiver.stopping = false;
            wait::detached(py, || receiver.stream.abort())?;
            Ok(())
        })
    }

    #[getter]
    fn posted(&self, py: Python<'_>) -> Result<u32, Failure> {
        self.state.with(py, |receiver| Ok(receiver.stream.posted()))
    }

    #[getter]
    fn statistics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Failure> {
        let counted = self.state.with(py, |receiver| Ok(receiver.stream.statistics()))?;
        let fields = (counted.packets, counted.bytes, counted.lost, counted.discarded_bytes, counted.starved);
        record(py, "stream", "ReceiveStatistics", fields)
    }

    fn fileno(&self, py: Python<'_>) -> Result<i32, Failure> {
        self.state.with(py, |receiver| Ok(receiver.stream.events()?.as_raw_fd()))
    }

    fn arm(&self, py: Python<'_>) -> Result<(), Failure> {
        self.state.with(py, |receiver| {
            // Interrupts of packets that the next call finds.
            let _ = receiver.stream.events()?.take();
            Ok(receiver.stream.arm()?)
        })
    }

    fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        self.state.close(py)
    }

    fn __repr__(&self) -> String {
        let closed = if self.state.is_closed() { ", closed" } else { "" };
        format!("<C2hStream {} of {}{closed}>", self.state.name(), self.state.card())
    }
}

/// Iterator over packets.
#[pyclass(frozen, module = "fpga_rdma")]
pub(crate) struct Packets {
    stream: Py<C2hStream>,
    timeout: Option<f64>,
}

#[pymethods]
impl Packets {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> Result<Option<Py<PyBytes>>, Failure> {
        self.stream.get().next(py, self.timeout, |packet| packet.to_bytes(py))
    }
}

#[pymethods]
impl Card {
    fn h2c_stream(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers::number)] number: u8,
    ) -> Result<H2cStream, Failure> {
        H2cStream::open(py, &self.0, number)
    }

    #[pyo3(signature = (number, *, buffers = 64, buffer_size = 4096))]
    fn c2h_stream(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers::number)] number: u8,
        #[pyo3(from_py_with = numbers::buffers)] buffers: u32,
        #[pyo3(from_py_with = numbers::buffer_size)] buffer_size: usize,
    ) -> Result<C2hStream, Failure> {
        let options = C2hStreamOptions::default().buffers(buffers).buffer_size(buffer_size);
        C2hStream::open(py, &self.0, number, options)
    }
}

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<H2cStream>()?;
    module.add_class::<C2hStream>()?;
    module.add_class::<Packets>()
}
