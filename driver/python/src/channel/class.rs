//! Python classes of channels.

use std::sync::Arc;

use fpga_driver::backend::Clock;
use fpga_driver::{CardAddr, ChannelOptions, RunMode};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use std::os::fd::{AsRawFd, RawFd};

use super::batch::Batch;
use super::engine::{Shared, Side, either};
use super::ticket::PyTicket;
use crate::card::CardState;
use crate::error::{Class, Failure};
use crate::foreign::Foreign;
use crate::memory::Place;
use crate::numbers::{self, Numbers};
use crate::wait;

/// Channels of one direction. A channel is taken when it is first indexed.
#[pyclass(frozen, module = "fpga_rdma")]
pub(crate) struct Channels {
    card: CardState,
    side: Side,
}

impl Channels {
    pub(crate) const fn new(card: CardState, side: Side) -> Self {
        Self { card, side }
    }

    /// Checks the number of a channel.
    fn number(&self, number: i64) -> Result<u8, Failure> {
        let count = self.__len__()?;
        u8::try_from(number).ok().filter(|number| usize::from(*number) < count).ok_or_else(|| {
            let (card, side) = (self.card.name(), self.side.name());
            PyIndexError::new_err(format!("{card}: there is no {side}[{number}]; the card has {count}"))
                .into()
        })
    }
}

#[pymethods]
impl Channels {
    fn __len__(&self) -> Result<usize, Failure> {
        let card = self.card.get()?;
        let xdma = &card.info().xdma;
        Ok(match self.side {
            Side::H2c => xdma.h2c_channels,
            Side::C2h => xdma.c2h_channels,
        }
        .into())
    }

    fn __getitem__(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers::number)] number: i64,
    ) -> Result<Channel, Failure> {
        let number = self.number(number)?;
        let shared = self.card.channel(py, (self.side, number), ChannelOptions::default(), false)?;
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
        let shared = self.card.channel(py, (self.side, self.number(number)?), options, true)?;
        Ok(Channel { card: self.card.clone(), shared })
    }

    fn __repr__(&self) -> String {
        let count = self.__len__().unwrap_or(0);
        format!("<{count} {} channels of {}>", self.side.name(), self.card.name())
    }
}

/// A DMA channel.
#[pyclass(frozen, weakref, module = "fpga_rdma")]
pub(crate) struct Channel {
    card: CardState,
    pub(super) shared: Arc<Shared>,
}

impl Channel {
    fn check_direction(&self, side: Side) -> Result<(), Failure> {
        if self.shared.side == side {
            return Ok(());
        }
        // The channel has the other direction.
        let (does, not) = match side {
            Side::H2c => ("reads", "write"),
            Side::C2h => ("writes", "read"),
        };
        let message = format!("{} {does} the card's memory, and does not {not} it", self.shared.label());
        Err(Failure::new(Class::Unsupported, message).on_card(self.card.name()))
    }

    /// Moves the bytes of an object and waits.
    fn transfer(
        &self,
        py: Python<'_>,
        memory: &Foreign,
        address: u64,
        timeout: Option<f64>,
    ) -> Result<(), Failure> {
        let (place, card) = (memory.place(&self.shared.regions), CardAddr::new(address));
        let mut locked = self.shared.lock(py)?;
        let engine = locked.engine()?;
        let options = wait::options(timeout)?;
        wait::detached(py, || match &place {
            Some(place) => engine.transfer(place, card, options),
            None => engine.copy(memory.view(), card, options),
        })
    }

    /// The bytes of an object that this channel reads or writes.
    fn bytes(&self, object: &Bound<'_, PyAny>) -> Result<Foreign, Failure> {
        match self.shared.side {
            Side::H2c => Foreign::readable(object),
            Side::C2h => Foreign::writable(object),
        }
    }

    /// The part of DMA memory that an object lies in.
    fn place(&self, object: &Bound<'_, PyAny>) -> Result<Place, Failure> {
        self.bytes(object)?.place(&self.shared.regions).ok_or_else(|| {
            Failure::new(Class::Refused, "the object is not in DMA memory of this card")
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
        let place = self.place(memory)?;
        let offsets = Numbers::read(py, offsets, "offsets")?;
        let addresses = Numbers::read(py, addresses, "addresses")?;
        let batch = Batch { place, offsets, addresses, length };
        batch.check()?;
        let mut locked = self.shared.lock(py)?;
        let engine = locked.engine()?;
        let options = wait::options(timeout)?;
        wait::detached(py, || engine.batch(&batch, options))
    }
}

#[pymethods]
impl Channel {
    #[getter]
    fn name(&self) -> String {
        self.shared.label()
    }

    #[getter]
    fn number(&self) -> u8 {
        self.shared.number
    }

    #[getter]
    fn closed(&self, py: Python<'_>) -> Result<bool, Failure> {
        Ok(!self.shared.is_open(py)?)
    }

    #[getter]
    fn in_flight(&self, py: Python<'_>) -> Result<u32, Failure> {
        let mut locked = self.shared.lock(py)?;
        Ok(either!(locked.engine()?, channel => channel.in_flight()))
    }

    #[pyo3(signature = (data, address, timeout = Some(10.0)))]
    fn write(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::address)] address: u64,
        timeout: Option<f64>,
    ) -> Result<(), Failure> {
        self.check_direction(Side::H2c)?;
        self.transfer(py, &Foreign::readable(data)?, address, timeout)
    }

    #[pyo3(signature = (into, address, timeout = Some(10.0)))]
    fn read(
        &self,
        py: Python<'_>,
        into: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::address)] address: u64,
        timeout: Option<f64>,
    ) -> Result<(), Failure> {
        self.check_direction(Side::C2h)?;
        self.transfer(py, &Foreign::writable(into)?, address, timeout)
    }

    fn submit(
        slf: &Bound<'_, Self>,
        memory: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::address)] address: u64,
    ) -> Result<PyTicket, Failure> {
        let (channel, py) = (slf.get(), slf.py());
        let place = channel.place(memory)?;
        let mut locked = channel.shared.lock(py)?;
        let submitted = locked.engine()?.submit(&place, CardAddr::new(address))?;
        Ok(PyTicket::new(slf.clone().unbind(), submitted, place.length))
    }

    fn submit_list(
        slf: &Bound<'_, Self>,
        parts: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
    ) -> Result<PyTicket, Failure> {
        let (channel, py) = (slf.get(), slf.py());
        let place = |(memory, address): &(Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let address = CardAddr::new(numbers::address(address)?);
            channel.place(memory).map(|place| (place, address))
        };
        let parts = parts.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        let length = parts.iter().map(|(place, _)| place.length).sum();
        let mut locked = channel.shared.lock(py)?;
        let submitted = locked.engine()?.submit_list(&parts)?;
        Ok(PyTicket::new(slf.clone().unbind(), submitted, length))
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
        self.check_direction(Side::H2c)?;
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
        self.check_direction(Side::C2h)?;
        self.batch(py, memory, offsets, addresses, length, timeout)
    }

    #[pyo3(signature = (data, address))]
    fn write_async<'py>(
        slf: &Bound<'py, Self>,
        data: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = numbers::address)] address: u64,
    ) -> Result<Bound<'py, PyAny>, Failure> {
        slf.get().check_direction(Side::H2c)?;
        let card = slf.get().card.object(slf.py())?;
        Ok(slf.py().import("fpga_rdma._async")?.call_method1("write", (card, slf, data, address))?)
    }

    #[pyo3(signature = (into, address))]
    fn read_async<'py>(
        slf: &Bound<'py, Self>,
        into: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = numbers::address)] address: u64,
    ) -> Result<Bound<'py, PyAny>, Failure> {
        slf.get().check_direction(Side::C2h)?;
        let card = slf.get().card.object(slf.py())?;
        Ok(slf.py().import("fpga_rdma._async")?.call_method1("read", (card, slf, into, address))?)
    }

    /// Starts queued transfers and returns the number of transfers that have ended.
    fn poll(&self, py: Python<'_>) -> Result<usize, Failure> {
        let mut locked = self.shared.lock(py)?;
        let engine = locked.engine()?;
        wait::detached(py, || engine.poll())
    }

    #[pyo3(signature = (timeout = Some(10.0)))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> Result<(), Failure> {
        let mut locked = self.shared.lock(py)?;
        let engine = locked.engine()?;
        let options = wait::options(timeout)?;
        wait::detached(py, || {
            let submitted = either!(engine, channel => channel.ended() + u64::from(channel.in_flight()));
            if let Some(last) = submitted.checked_sub(1) {
                engine.wait_ended(fpga_driver::Ticket::from_number(last), options)?;
            }
            engine.take_any_failure().map_or(Ok(()), Err)?;
            // What has ended with the channel was reported, but did not succeed.
            engine.check()
        })
    }

    fn abort(&self, py: Python<'_>) -> Result<usize, Failure> {
        let mut locked = self.shared.lock(py)?;
        let engine = locked.engine()?;
        wait::detached(py, || engine.abort())
    }

    /// Descriptor that becomes readable when a transfer ends; `None` if the caller has to poll.
    fn _descriptor(&self, py: Python<'_>) -> Result<Option<RawFd>, Failure> {
        let mut locked = self.shared.lock(py)?;
        let engine = locked.engine()?;
        if engine.card.backend().clock() == Clock::Virtual {
            // A card inside this thread works only while it is polled.
            return Ok(None);
        }
        Ok(either!(engine, channel => channel.events()).ok().map(|events| events.as_raw_fd()))
    }

    /// Serves the descriptor: takes its interrupts, arms the channel and polls.
    fn _serve(&self, py: Python<'_>) -> Result<usize, Failure> {
        let mut locked = self.shared.lock(py)?;
        let engine = locked.engine()?;
        wait::detached(py, || {
            if let Ok(events) = either!(engine, channel => channel.events()) {
                let _ = events.take();
            }
            // Queued transfers start before the channel is armed: a run clears the line.
            let ended = engine.poll()?;
            either!(engine, channel => channel.arm())?;
            Ok::<_, Failure>(ended + engine.poll()?)
        })
    }

    /// Lets a card in this thread work, and polls.
    fn _step(&self, py: Python<'_>) -> Result<usize, Failure> {
        let mut locked = self.shared.lock(py)?;
        let engine = locked.engine()?;
        wait::detached(py, || {
            for _ in 0..STEPS {
                either!(engine, channel => channel.relax());
                if engine.poll()? > 0 {
                    return Ok(1);
                }
            }
            Ok::<_, Failure>(0)
        })
    }

    /// Ends the use of the descriptor.
    fn _rest(&self, py: Python<'_>) -> Result<(), Failure> {
        let mut locked = self.shared.lock(py)?;
        let engine = locked.engine()?;
        wait::detached(py, || either!(engine, channel => channel.disarm()))
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
        let state = match wait::lock(py, &self.shared.engine)?.as_mut() {
            None => "closed".to_owned(),
            Some(engine) => format!("{} in flight", either!(engine, channel => channel.in_flight())),
        };
        Ok(format!("<Channel {} of {}: {state}>", self.shared.label(), self.card.name()))
    }
}

/// Steps of a card in this thread between two turns of an event loop.
const STEPS: u32 = 64;

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Channels>()?;
    module.add_class::<Channel>()?;
    module.add_class::<PyTicket>()
}
