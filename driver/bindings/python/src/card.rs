//! Cards: opening, properties, and what can be taken from them.

use std::collections::HashMap;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use fpga_driver::backend::Process;
use fpga_driver::{
    BarOffset, CardAddr, CardRange, CardSpec, ChannelOptions, Direction, NetworkInterface, OpenOptions,
};
use fpga_register_map::RegisterMap;
use pyo3::prelude::*;

use crate::bar::{Bar, BarRole};
use crate::channel::{Channels, Shared};
use crate::error::{Class, Failure, at_block_end};
use crate::memory::{Regions, brief};
use crate::numbers;
use crate::owned::Close;
use crate::wait;

/// Card of Python objects: it is open until `Card.close`, and shared by everything that was taken from it.
#[derive(Clone)]
pub(crate) struct CardState(Arc<Inner>);

/// Interval in which a thread looks whether another one has taken a channel.
const SLOT_INTERVAL: Duration = Duration::from_micros(200);

/// A channel of a card.
enum Slot {
    /// A thread is taking it.
    Opening,
    Open(Arc<Shared>),
}

impl Slot {
    fn open(self) -> Option<Arc<Shared>> {
        match self {
            Self::Opening => None,
            Self::Open(channel) => Some(channel),
        }
    }
}

struct Inner {
    name: String,
    card: Mutex<Option<fpga_driver::Card>>,
    /// Channels that were taken, by direction and number.
    channels: Mutex<HashMap<(Direction, u8), Slot>>,
    regions: Arc<Regions>,
    /// Register map that was loaded last.
    map: Mutex<Option<Arc<RegisterMap>>>,
    /// Other objects that were taken.
    children: Mutex<Vec<Weak<dyn Close>>>,
    /// A child of this process uses and closes nothing: the locks may be those of other threads of the parent.
    process: Process,
}

impl CardState {
    pub(crate) fn new(card: fpga_driver::Card) -> Self {
        let name = card.name().to_owned();
        Self(Arc::new(Inner {
            name,
            card: Mutex::new(Some(card)),
            channels: Mutex::default(),
            children: Mutex::default(),
            regions: Arc::new(Regions::new()),
            map: Mutex::default(),
            process: Process::current(),
        }))
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    /// Checks that this process has opened the card.
    ///
    /// # Errors
    /// `OtherProcessError`.
    pub(crate) fn check_process(&self) -> Result<(), Failure> {
        self.0.process.check().map_err(|other| Failure::from(other).on_card(&self.0.name))
    }

    /// The driver's handle.
    ///
    /// # Errors
    /// `ClosedError`, `OtherProcessError`.
    pub(crate) fn get(&self) -> Result<fpga_driver::Card, Failure> {
        self.check_process()?;
        let card = self.0.card.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        card.clone().ok_or_else(|| wait::closed("the card").on_card(&self.0.name))
    }

    /// Register map of the design that was loaded last.
    pub(crate) fn map(&self) -> Option<Arc<RegisterMap>> {
        brief(&self.0.map).clone()
    }

    pub(crate) fn set_map(&self, map: Arc<RegisterMap>) {
        *brief(&self.0.map) = Some(map);
    }

    /// DMA memory of the card's Python objects.
    pub(crate) fn regions(&self) -> &Arc<Regions> {
        &self.0.regions
    }

    /// Channel of a number, which is taken if it is not open. `exclusive`: an open one is refused.
    ///
    /// # Errors
    /// Errors of taking it; `InUseError`, `OtherProcessError`.
    pub(crate) fn channel(
        &self,
        py: Python<'_>,
        key: (Direction, u8),
        options: ChannelOptions,
        exclusive: bool,
    ) -> Result<Arc<Shared>, Failure> {
        self.check_process()?;
        loop {
            let mut slots = brief(&self.0.channels);
            match slots.get(&key) {
                Some(Slot::Open(channel)) if channel.is_open() => {
                    if exclusive {
                        let message = format!("{} is open already", channel.label());
                        return Err(Failure::new(Class::InUse, message)
                            .advice("close it first, or open it with its options before its first use")
                            .on_card(self.name()));
                    }
                    return Ok(Arc::clone(channel));
                }
                Some(Slot::Opening) => {
                    drop(slots);
                    py.detach(|| std::thread::sleep(SLOT_INTERVAL));
                    py.check_signals()?;
                }
                Some(Slot::Open(_)) | None => {
                    slots.insert(key, Slot::Opening);
                    break;
                }
            }
        }
        // Other channels can be taken meanwhile.
        let opened = Shared::open(py, self, key.0, key.1, options);
        let mut slots = brief(&self.0.channels);
        match opened {
            Ok(channel) => {
                slots.insert(key, Slot::Open(Arc::clone(&channel)));
                drop(slots);
                if let Err(closed) = self.get() {
                    // The card was closed meanwhile, and did not know the channel.
                    channel.close(py)?;
                    return Err(closed);
                }
                Ok(channel)
            }
            Err(failure) => {
                slots.remove(&key);
                Err(failure)
            }
        }
    }

    /// Makes an object a part of the card: it is closed with the card.
    ///
    /// # Errors
    /// `ClosedError` if the card was closed meanwhile; `OtherProcessError`.
    pub(crate) fn adopt(&self, child: Weak<dyn Close>) -> Result<(), Failure> {
        self.check_process()?;
        let mut children = brief(&self.0.children);
        self.get()?;
        children.retain(|child| child.strong_count() > 0);
        children.push(child);
        Ok(())
    }

    /// Closes the card and all that was taken from it. All of it is closed even if a part fails; the first failure is returned.
    fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        self.check_process()?;
        // First, so that nothing is taken from the card any more.
        let card = brief(&self.0.card).take();
        let children = std::mem::take(&mut *brief(&self.0.children));
        let children: Vec<Arc<dyn Close>> = children.iter().filter_map(Weak::upgrade).collect();
        let channels = std::mem::take(&mut *brief(&self.0.channels));
        let channels: Vec<Arc<Shared>> = channels.into_values().filter_map(Slot::open).collect();
        // All waits end at once, not one after the other.
        children.iter().for_each(|child| child.begin_close());
        channels.iter().for_each(|channel| channel.engine.begin_close());
        let mut closed = Ok(());
        for child in children {
            closed = closed.and(child.close(py));
        }
        for channel in channels {
            closed = closed.and(channel.close(py));
        }
        py.detach(|| {
            // Arrays stay readable, but do not keep the device.
            self.0.regions.give_back();
            drop(card);
        });
        closed
    }
}

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

    /// Channels from host to card.
    #[getter]
    fn h2c(&self) -> Channels {
        Channels::new(self.0.clone(), Direction::H2c)
    }

    /// Channels from card to host.
    #[getter]
    fn c2h(&self) -> Channels {
        Channels::new(self.0.clone(), Direction::C2h)
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

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> Result<(), Failure> {
        at_block_end(self.0.close(py))
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

/// Opens a card in a thread of its own: a server that does not answer, or a simulator that starts, takes seconds, and Ctrl-C ends this call
/// at once. The thread ends by itself then, and closes the card.
fn opened(py: Python<'_>, spec: CardSpec, options: OpenOptions) -> Result<fpga_driver::Card, Failure> {
    let (sender, mut receiver) = std::sync::mpsc::channel();
    let work = move || {
        // After Ctrl-C, there is no receiver.
        let _ = sender.send(fpga_driver::Card::open_with(&spec, options));
    };
    let system =
        |error: std::io::Error| Failure::new(Class::Open, format!("no thread could be started: {error}"));
    std::thread::Builder::new().name("fpga-open".to_owned()).spawn(work).map_err(system)?;
    loop {
        // A receiver belongs to one thread at a time.
        let own = &mut receiver;
        match py.detach(move || own.recv_timeout(wait::SIGNAL_INTERVAL)) {
            Ok(opened) => return Ok(opened?),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::new(Class::Open, "the thread that opens the card has ended"));
            }
        }
    }
}

/// Opens a card.
#[pyfunction]
#[pyo3(signature = (name, *, interrupts = false, observe = false, dma_bar = None, cdma_offset = None, network_interface = None, card_memory = None))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
fn open(
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
    let card = opened(py, spec, options)?;
    if interrupts {
        wait::detached(py, || card.enable_interrupts())?;
    }
    Ok(Card::new(CardState::new(card)))
}

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Card>()?;
    module.add_function(wrap_pyfunction!(open, module)?)
}
