//! State of a card that its Python objects share: what was taken from it, and its closing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use fpga_driver::{ChannelOptions, Direction};
use fpga_pci::Process;
use fpga_register_map::RegisterMap;
use pyo3::prelude::*;

use crate::channel::Shared;
use crate::error::{Class, Failure};
use crate::memory::Regions;
use crate::owned::{Close, Owned};
use crate::wait::{self, brief};

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
        let opened = self.get().and_then(|card| Shared::open(py, card, &self.0.regions, key, options));
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

    /// Makes a value a part of the card.
    ///
    /// # Errors
    /// As [`adopt`](Self::adopt).
    pub(crate) fn own<T: Send + 'static>(
        &self,
        name: impl Into<String>,
        value: T,
    ) -> Result<Arc<Owned<T>>, Failure> {
        let owned = Arc::new(Owned::new(self.0.name.clone(), name, value));
        let weak: Weak<Owned<T>> = Arc::downgrade(&owned);
        self.adopt(weak)?;
        Ok(owned)
    }

    /// Closes the card and all that was taken from it. All of it is closed even if a part fails; the first failure is returned.
    pub(crate) fn close(&self, py: Python<'_>) -> Result<(), Failure> {
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
