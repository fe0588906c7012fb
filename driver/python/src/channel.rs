//! DMA channels between host memory and card memory.

use std::sync::Mutex;

use fpga_driver::{C2hChannel, CardAddr, H2cChannel, bulk};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

use crate::card::CardState;
use crate::error::{Class, Failure};
use crate::foreign::Foreign;
use crate::wait;

/// Direction of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    H2c,
    C2h,
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::H2c => "h2c",
            Self::C2h => "c2h",
        }
    }
}

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

    fn __getitem__(&self, py: Python<'_>, number: i64) -> Result<Py<Channel>, Failure> {
        let count = self.__len__()?;
        let number =
            u8::try_from(number).ok().filter(|number| usize::from(*number) < count).ok_or_else(|| {
                let side = self.side.name();
                PyIndexError::new_err(format!(
                    "{}: there is no {side}[{number}]; the card has {count}",
                    self.card.name()
                ))
            })?;
        self.card.channel(py, (self.side, number), || Channel::open(py, &self.card, self.side, number))
    }

    fn __repr__(&self) -> String {
        let count = self.__len__().unwrap_or(0);
        format!("<{count} {} channels of {}>", self.side.name(), self.card.name())
    }
}

enum Engine {
    H2c(H2cChannel),
    C2h(C2hChannel),
}

/// A DMA channel.
#[pyclass(frozen, module = "fpga_rdma")]
pub(crate) struct Channel {
    card: CardState,
    side: Side,
    number: u8,
    /// `None`: closed.
    engine: Mutex<Option<Engine>>,
}

impl Channel {
    fn open(py: Python<'_>, card: &CardState, side: Side, number: u8) -> Result<Self, Failure> {
        let opened = card.get()?;
        let engine = wait::detached(py, || match side {
            Side::H2c => opened.h2c(number).map(Engine::H2c),
            Side::C2h => opened.c2h(number).map(Engine::C2h),
        })?;
        Ok(Self { card: card.clone(), side, number, engine: Mutex::new(Some(engine)) })
    }

    pub(crate) fn is_open(&self, py: Python<'_>) -> Result<bool, Failure> {
        Ok(wait::lock(py, &self.engine)?.is_some())
    }

    pub(crate) fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        let engine = wait::lock(py, &self.engine)?.take();
        py.detach(|| drop(engine));
        Ok(())
    }

    fn label(&self) -> String {
        format!("{}{}", self.side.name(), self.number)
    }

    fn closed(&self) -> Failure {
        wait::closed(&self.label()).on_card(self.card.name())
    }

    fn wrong_direction(&self, does: &str, not: &str) -> Failure {
        Failure::new(
            Class::Unsupported,
            format!("{} {does} the card's memory, and does not {not} it", self.label()),
        )
        .on_card(self.card.name())
    }
}

#[pymethods]
impl Channel {
    #[getter]
    fn name(&self) -> String {
        self.label()
    }

    #[pyo3(signature = (data, address, timeout = Some(10.0)))]
    fn write(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        address: u64,
        timeout: Option<f64>,
    ) -> Result<(), Failure> {
        let source = Foreign::readable(data)?;
        let card = self.card.get()?;
        let mut guard = wait::lock(py, &self.engine)?;
        match guard.as_mut() {
            Some(Engine::H2c(channel)) => {
                let options = wait::options(timeout)?;
                let (mut stream, length) = (source.stream(), source.len() as u64);
                wait::detached(py, || {
                    bulk::write_from(
                        &card,
                        channel,
                        &mut stream,
                        CardAddr::new(address),
                        length,
                        options,
                        &mut |_| {},
                    )
                })
            }
            Some(Engine::C2h(_)) => Err(self.wrong_direction("reads", "write")),
            None => Err(self.closed()),
        }
    }

    #[pyo3(signature = (into, address, timeout = Some(10.0)))]
    fn read(
        &self,
        py: Python<'_>,
        into: &Bound<'_, PyAny>,
        address: u64,
        timeout: Option<f64>,
    ) -> Result<(), Failure> {
        let sink = Foreign::writable(into)?;
        let card = self.card.get()?;
        let mut guard = wait::lock(py, &self.engine)?;
        match guard.as_mut() {
            Some(Engine::C2h(channel)) => {
                let options = wait::options(timeout)?;
                let (mut stream, length) = (sink.stream(), sink.len() as u64);
                wait::detached(py, || {
                    bulk::read_into(
                        &card,
                        channel,
                        CardAddr::new(address),
                        length,
                        &mut stream,
                        options,
                        &mut |_| {},
                    )
                })
            }
            Some(Engine::H2c(_)) => Err(self.wrong_direction("writes", "read")),
            None => Err(self.closed()),
        }
    }

    #[pyo3(name = "close")]
    fn close_python(&self, py: Python<'_>) -> Result<(), Failure> {
        self.close(py)
    }

    fn __repr__(&self, py: Python<'_>) -> Result<String, Failure> {
        let state = match wait::lock(py, &self.engine)?.as_ref() {
            None => "closed".to_owned(),
            Some(Engine::H2c(channel)) => format!("{} in flight", channel.in_flight()),
            Some(Engine::C2h(channel)) => format!("{} in flight", channel.in_flight()),
        };
        Ok(format!("<Channel {} of {}: {state}>", self.label(), self.card.name()))
    }
}

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Channels>()?;
    module.add_class::<Channel>()
}
