//! Cards: opening, properties, and what can be taken from them.

use std::sync::mpsc::RecvTimeoutError;

use fpga_driver::{BarOffset, CardAddr, CardRange, CardSpec, NetworkInterface, OpenOptions};
use pyo3::prelude::*;

use crate::bar::{Bar, BarRole};
use crate::card_state::CardState;
use crate::error::{Class, Failure, with_block};
use crate::numbers;
use crate::wait;

/// An opened card.
#[pyclass(frozen, weakref, module = "fpga_rdma")]
pub(crate) struct Card(pub(crate) CardState);

impl Card {
    pub(crate) const fn new(state: CardState) -> Self {
        Self(state)
    }

    pub(crate) const fn state(&self) -> &CardState {
        &self.0
    }
}

with_block!(Card);

#[pymethods]
impl Card {
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    #[getter]
    fn closed(&self) -> bool {
        self.0.get().is_err()
    }

    #[getter]
    fn dma_bar(&self) -> Bar {
        Bar::new(self.0.clone(), BarRole::Dma)
    }

    #[getter]
    fn user_bar(&self) -> Bar {
        Bar::new(self.0.clone(), BarRole::User)
    }

    /// Closes the card and everything that was taken from it. Transfers in flight are aborted. A closed card can be closed again.
    fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        self.0.close(py)
    }

    fn __repr__(&self) -> String {
        let name = self.0.name();
        let Ok(card) = self.0.get() else { return format!("<Card {name}: closed>") };
        let xdma = &card.info().xdma;
        let kind = if xdma.stream { "stream" } else { "memory" };
        let ni = if card.info().ni.is_some() { ", network interface" } else { "" };
        format!("<Card {name}: {} H2C and {} C2H {kind} channels{ni}>", xdma.h2c_channels, xdma.c2h_channels)
    }
}

/// Opens a card in a thread, so that Ctrl-C ends this call at once, also while a server does not answer or a simulator starts. The thread
/// then ends by itself, and closes the card.
fn open_in_thread(
    py: Python<'_>,
    spec: CardSpec,
    options: OpenOptions,
) -> Result<fpga_driver::Card, Failure> {
    let (sender, mut receiver) = std::sync::mpsc::channel();
    let work = move || {
        // After Ctrl-C, there is no receiver.
        let _ = sender.send(fpga_driver::Card::open_with(&spec, options));
    };
    let system = |error: std::io::Error| {
        Failure::new(Class::OpenError, format!("no thread could be started: {error}"))
    };
    std::thread::Builder::new().name("fpga-open".to_owned()).spawn(work).map_err(system)?;
    loop {
        // `Receiver` is not `Sync`.
        let own = &mut receiver;
        match py.detach(move || own.recv_timeout(wait::SIGNAL_INTERVAL)) {
            Ok(opened) => return Ok(opened?),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::new(Class::OpenError, "the thread that opens the card has ended"));
            }
        }
    }
}

/// Opens a card.
#[pyfunction]
#[pyo3(signature = (name, *, interrupts = false, observe = false, dma_bar = None, cdma_offset = None, network_interface = None, card_memory = None))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn open(
    py: Python<'_>,
    name: &str,
    interrupts: bool,
    observe: bool,
    #[pyo3(from_py_with = numbers::dma_bar)] dma_bar: Option<u8>,
    #[pyo3(from_py_with = numbers::cdma_offset)] cdma_offset: Option<u64>,
    network_interface: Option<bool>,
    #[pyo3(from_py_with = numbers::card_memory)] card_memory: Option<(u64, u64)>,
) -> Result<Card, Failure> {
    let mut options = OpenOptions::default().observe(observe).network_interface(match network_interface {
        None => NetworkInterface::BySubsystem,
        Some(true) => NetworkInterface::Expected,
        Some(false) => NetworkInterface::Ignored,
    });
    options.dma_bar = dma_bar;
    options.cdma_offset = cdma_offset.map(BarOffset::new);
    options.card_memory = card_memory.map(|(start, length)| CardRange::new(CardAddr::new(start), length));
    let spec = name.parse().map_err(fpga_driver::Error::<fpga_driver::OpenError>::from)?;
    let card = open_in_thread(py, spec, options)?;
    if interrupts {
        wait::detached(py, || card.enable_interrupts())?;
    }
    Ok(Card::new(CardState::new(card)))
}
