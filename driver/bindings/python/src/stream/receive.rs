//! Receiving packets.

use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Duration;

use fpga_driver::errors::ErrorKind as _;
use fpga_driver::stream::{C2hStreamOptions, Packet, StreamError};
use fpga_driver::{ChannelError, SharedSlice, WaitMode, WaitOptions};
use fpga_pci::Clock;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::advice::render;
use crate::card_state::CardState;
use crate::error::{Class, Classify as _, Failure, with_block};
use crate::foreign::Foreign;
use crate::owned::{Close as _, Owned};
use crate::record::record;
use crate::wait::{self, Limit};

/// Time for which a wait on a card with interrupts polls before it sleeps.
const SPIN_TIME: Duration = Duration::from_micros(50);

/// A receiving stream.
struct Receiver {
    stream: fpga_driver::C2hStream,
    /// Packet for which the program had no space.
    kept: Option<Vec<u8>>,
    is_stopping: bool,
    /// The card has interrupts, so waits sleep.
    sleeps: bool,
    /// The card is in virtual time: it works only while it is polled.
    is_virtual: bool,
}

impl Receiver {
    /// Time for `try_receive`, on the card's clock: for a card in virtual time to work, and for the driver to see that a stopped engine is
    /// idle.
    const fn poll_time(&self) -> Duration {
        match (self.is_virtual, self.is_stopping) {
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
    pub(super) fn open(
        py: Python<'_>,
        card: &CardState,
        number: u8,
        options: C2hStreamOptions,
    ) -> Result<Self, Failure> {
        let opened = card.get()?;
        let stream = wait::detached(py, || opened.c2h_stream_with(number, options))?;
        let sleeps = stream.events().is_ok();
        let is_virtual = opened.clock() == Clock::Virtual;
        let receiver = Receiver { stream, kept: None, is_stopping: false, sleeps, is_virtual };
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
                options = options.mode(WaitMode::Hybrid { spin: SPIN_TIME });
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
        Failure::new(Class::TimedOutError, format!("no packet within {waited:?}"))
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
                Class::RangeError,
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
            let poll_time = receiver.poll_time();
            if poll_time.is_zero() {
                let packet = py.detach(|| receiver.stream.next_packet())?;
                return packet.map(|packet| Received::Ring(packet).to_bytes(py)).transpose();
            }
            // A wait that polls would disable the interrupt that the program has armed.
            let mode = if receiver.sleeps { WaitMode::Interrupt } else { WaitMode::Poll };
            let wait = WaitOptions::default().timeout(poll_time).mode(mode);
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
            Ok(receiver.is_stopping && receiver.kept.is_none() && receiver.stream.posted() == 0)
        })
    }

    fn stop(&self, py: Python<'_>) -> Result<(), Failure> {
        self.state.with(py, |receiver| {
            wait::detached(py, || receiver.stream.stop())?;
            receiver.is_stopping = true;
            Ok(())
        })
    }

    fn abort(&self, py: Python<'_>) -> Result<(), Failure> {
        self.state.with(py, |receiver| {
            receiver.is_stopping = false;
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
