//! Python classes of channels.

use std::sync::Arc;

use fpga_driver::{CardAddr, ChannelOptions, Direction, RunMode};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use std::os::fd::RawFd;

use super::batch::{Batch, BatchWork};
use super::shared::Shared;
use super::ticket::PyTicket;
use super::transfer::{Move, PyTransfer};
use crate::card::Card;
use crate::card_state::CardState;
use crate::error::{Class, Failure};
use crate::foreign::Foreign;
use crate::memory::RegionPart;
use crate::numbers::{self, Numbers};
use crate::wait::Limit;

/// Channels of one direction. A channel is taken when it is first indexed.
#[pyclass(frozen, module = "fpga_rdma")]
pub(crate) struct Channels {
    card: CardState,
    direction: Direction,
}

impl Channels {
    const fn new(card: CardState, direction: Direction) -> Self {
        Self { card, direction }
    }

    /// Checks the number of a channel.
    fn number(&self, number: i64) -> Result<u8, Failure> {
        let count = self.__len__()?;
        u8::try_from(number).ok().filter(|number| usize::from(*number) < count).ok_or_else(|| {
            let (card, direction) = (self.card.name(), self.direction);
            PyIndexError::new_err(format!("{card}: there is no {direction}[{number}]; the card has {count}"))
                .into()
        })
    }
}

#[pymethods]
impl Channels {
    fn __len__(&self) -> Result<usize, Failure> {
        let card = self.card.get()?;
        let xdma = &card.info().xdma;
        Ok(match self.direction {
            Direction::H2c => xdma.h2c_channels,
            Direction::C2h => xdma.c2h_channels,
        }
        .into())
    }

    fn __getitem__(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers::number)] number: i64,
    ) -> Result<Channel, Failure> {
        let number = self.number(number)?;
        let shared = self.card.channel(py, (self.direction, number), ChannelOptions::default(), false)?;
        Ok(Channel { card: self.card.clone(), shared })
    }

    #[pyo3(signature = (number, *, descriptors = 1024, transfers = 256, run_mode = "batch", fixed_address = false, report_each = false))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn open(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers::number)] number: i64,
        #[pyo3(from_py_with = numbers::descriptors)] descriptors: u32,
        #[pyo3(from_py_with = numbers::transfers)] transfers: u32,
        run_mode: &str,
        fixed_address: bool,
        report_each: bool,
    ) -> Result<Channel, Failure> {
        let mode = match run_mode {
            "batch" => RunMode::Batch,
            "credit" => RunMode::Credit,
            _ => return Err(Failure::value(format!("run_mode is {run_mode:?}: give 'batch' or 'credit'"))),
        };
        let options = ChannelOptions::default()
            .descriptors(descriptors)
            .transfers(transfers)
            .run_mode(mode)
            .fixed_address(fixed_address)
            .report_each(report_each);
        let shared = self.card.channel(py, (self.direction, self.number(number)?), options, true)?;
        Ok(Channel { card: self.card.clone(), shared })
    }

    fn __repr__(&self) -> String {
        let count = self.__len__().unwrap_or(0);
        format!("<{count} {} channels of {}>", self.direction, self.card.name())
    }
}

/// A DMA channel.
#[pyclass(frozen, weakref, module = "fpga_rdma")]
pub(crate) struct Channel {
    card: CardState,
    pub(super) shared: Arc<Shared>,
}

impl Channel {
    fn check_direction(&self, direction: Direction) -> Result<(), Failure> {
        if self.shared.direction == direction {
            return Ok(());
        }
        // The channel has the other direction.
        let (does, not) = match direction {
            Direction::H2c => ("reads", "write"),
            Direction::C2h => ("writes", "read"),
        };
        let message = format!("{} {does} the card's memory, and does not {not} it", self.shared.label());
        Err(Failure::new(Class::UnsupportedError, message).on_card(self.card.name()))
    }

    /// Moves the bytes of an object and waits.
    fn transfer(
        &self,
        py: Python<'_>,
        memory: Foreign,
        address: u64,
        timeout: Option<f64>,
    ) -> Result<(), Failure> {
        let mut limit = Limit::new(timeout)?;
        self.shared.run(py, &mut self.work(memory, address), &mut limit)
    }

    /// The transfer of the bytes of an object.
    fn work(&self, memory: Foreign, address: u64) -> Move {
        let part = memory.region_part(&self.shared.regions);
        Move::new(memory, part, CardAddr::new(address))
    }

    /// Coroutine of a transfer, which begins with its first step.
    fn task<'py>(
        &self,
        py: Python<'py>,
        memory: Foreign,
        address: u64,
    ) -> Result<Bound<'py, PyAny>, Failure> {
        let transfer = PyTransfer::new(&self.shared, self.work(memory, address));
        Ok(py.import("fpga_rdma._aio")?.call_method1("moved", (transfer,))?)
    }

    /// The bytes of an object that this channel reads or writes.
    fn bytes(&self, object: &Bound<'_, PyAny>) -> Result<Foreign, Failure> {
        match self.shared.direction {
            Direction::H2c => Foreign::readable(object),
            Direction::C2h => Foreign::writable(object),
        }
    }

    /// The part of DMA memory that an object lies in.
    fn part(&self, object: &Bound<'_, PyAny>) -> Result<RegionPart, Failure> {
        self.card.check_process()?;
        self.bytes(object)?.region_part(&self.shared.regions).ok_or_else(|| {
            Failure::new(Class::RefusedError, "the object is not in DMA memory of this card")
                .advice("allocate it with card.allocate, or register it with card.register")
                .on_card(self.card.name())
        })
    }

    /// Makes a batch of transfers and waits.
    fn batch(
        &self,
        py: Python<'_>,
        memory: &Bound<'_, PyAny>,
        offsets: &Bound<'_, PyAny>,
        addresses: &Bound<'_, PyAny>,
        length: usize,
        timeout: Option<f64>,
    ) -> Result<(), Failure> {
        let part = self.part(memory)?;
        let offsets = Numbers::read(py, offsets, "offsets")?;
        let addresses = Numbers::read(py, addresses, "addresses")?;
        let batch = Batch { part, offsets, addresses, length };
        batch.check()?;
        let mut limit = Limit::new(timeout)?;
        self.shared.run(py, &mut BatchWork::new(batch), &mut limit)
    }
}

#[pymethods]
impl Channel {
    #[getter]
    fn name(&self) -> &str {
        self.shared.label()
    }

    #[getter]
    fn number(&self) -> u8 {
        self.shared.number
    }

    #[getter]
    fn closed(&self) -> bool {
        !self.shared.is_open()
    }

    #[getter]
    fn in_flight(&self, py: Python<'_>) -> Result<u32, Failure> {
        self.shared.in_flight(py)
    }

    #[pyo3(signature = (data, address, timeout = Some(10.0)))]
    fn write(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::address)] address: u64,
        timeout: Option<f64>,
    ) -> Result<(), Failure> {
        self.check_direction(Direction::H2c)?;
        self.transfer(py, Foreign::readable(data)?, address, timeout)
    }

    #[pyo3(signature = (into, address, timeout = Some(10.0)))]
    fn read(
        &self,
        py: Python<'_>,
        into: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::address)] address: u64,
        timeout: Option<f64>,
    ) -> Result<(), Failure> {
        self.check_direction(Direction::C2h)?;
        self.transfer(py, Foreign::writable(into)?, address, timeout)
    }

    fn submit(
        slf: &Bound<'_, Self>,
        memory: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::address)] address: u64,
    ) -> Result<PyTicket, Failure> {
        let (channel, py) = (slf.get(), slf.py());
        let part = channel.part(memory)?;
        let submitted = channel.shared.with(py, |engine| engine.submit(&part, CardAddr::new(address)))?;
        Ok(PyTicket::new((slf, &channel.shared), submitted, part.length))
    }

    fn submit_list(
        slf: &Bound<'_, Self>,
        parts: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
    ) -> Result<PyTicket, Failure> {
        let (channel, py) = (slf.get(), slf.py());
        let part = |(memory, address): &(Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let address = CardAddr::new(numbers::address(address)?);
            channel.part(memory).map(|part| (part, address))
        };
        let parts = parts.iter().map(part).collect::<Result<Vec<_>, _>>()?;
        let length = parts.iter().map(|(part, _)| part.length).sum();
        let submitted = channel.shared.with(py, |engine| engine.submit_list(&parts))?;
        Ok(PyTicket::new((slf, &channel.shared), submitted, length))
    }

    #[pyo3(signature = (memory, offsets, addresses, length, timeout = Some(10.0)))]
    fn write_batch(
        &self,
        py: Python<'_>,
        memory: &Bound<'_, PyAny>,
        offsets: &Bound<'_, PyAny>,
        addresses: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::length)] length: usize,
        timeout: Option<f64>,
    ) -> Result<(), Failure> {
        self.check_direction(Direction::H2c)?;
        self.batch(py, memory, offsets, addresses, length, timeout)
    }

    #[pyo3(signature = (memory, offsets, addresses, length, timeout = Some(10.0)))]
    fn read_batch(
        &self,
        py: Python<'_>,
        memory: &Bound<'_, PyAny>,
        offsets: &Bound<'_, PyAny>,
        addresses: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::length)] length: usize,
        timeout: Option<f64>,
    ) -> Result<(), Failure> {
        self.check_direction(Direction::C2h)?;
        self.batch(py, memory, offsets, addresses, length, timeout)
    }

    #[pyo3(signature = (data, address))]
    fn write_async<'py>(
        slf: &Bound<'py, Self>,
        data: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = numbers::address)] address: u64,
    ) -> Result<Bound<'py, PyAny>, Failure> {
        slf.get().check_direction(Direction::H2c)?;
        slf.get().task(slf.py(), Foreign::readable(data)?, address)
    }

    #[pyo3(signature = (into, address))]
    fn read_async<'py>(
        slf: &Bound<'py, Self>,
        into: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = numbers::address)] address: u64,
    ) -> Result<Bound<'py, PyAny>, Failure> {
        slf.get().check_direction(Direction::C2h)?;
        slf.get().task(slf.py(), Foreign::writable(into)?, address)
    }

    /// Starts queued transfers and returns the number of transfers that have ended.
    fn poll(&self, py: Python<'_>) -> Result<usize, Failure> {
        let polled = self.shared.query(py, |engine| {
            let ended = engine.poll()?;
            if engine.is_stopping() {
                engine.continue_stops()?;
            }
            Ok(ended)
        })?;
        // A thread that has the channel polls it.
        Ok(polled.unwrap_or(0))
    }

    #[pyo3(signature = (timeout = Some(10.0)))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> Result<(), Failure> {
        let mut last = None;
        self.shared.turns(py, &mut Limit::new(timeout)?, |engine, limit, pause| {
            // Transfers that are submitted during the wait are not waited for.
            last = last.or_else(|| engine.last());
            if let Some(last) = last
                && !engine.wait_part(last, limit, pause)?
            {
                return Ok(None);
            }
            engine.take_any_failure().map_or(Ok(()), Err)?;
            // What has ended with the channel was reported, but did not succeed.
            engine.check().map(Some)
        })
    }

    fn abort(&self, py: Python<'_>) -> Result<usize, Failure> {
        self.shared.abort(py)
    }

    /// Arms the channel, and returns the descriptor that becomes readable when a transfer ends; `None` if the caller has to poll.
    fn _arm(&self, py: Python<'_>) -> Result<Option<RawFd>, Failure> {
        self.shared.arm(py)
    }

    #[pyo3(name = "close")]
    fn close_python(&self, py: Python<'_>) -> Result<(), Failure> {
        self.shared.close(py)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| Arc::ptr_eq(&self.shared, &other.get().shared))
    }

    fn __hash__(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    fn __repr__(&self, py: Python<'_>) -> Result<String, Failure> {
        let state = match self.shared.in_flight(py) {
            Ok(count) => format!("{count} in flight"),
            Err(failure) if failure.is(Class::ClosedError) => "closed".to_owned(),
            Err(failure) => return Err(failure),
        };
        Ok(format!("<Channel {} of {}: {state}>", self.shared.label(), self.card.name()))
    }
}

#[pymethods]
impl Card {
    /// Channels from host to card.
    #[getter]
    fn h2c(&self) -> Channels {
        Channels::new(self.state().clone(), Direction::H2c)
    }

    /// Channels from card to host.
    #[getter]
    fn c2h(&self) -> Channels {
        Channels::new(self.state().clone(), Direction::C2h)
    }
}
