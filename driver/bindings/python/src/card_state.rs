//! State of a card that its Python objects share: channels, children, and closing.

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
use crate::wait::{self, lock};

/// A card, open until `Card.close`, shared by all objects of the card.
#[derive(Clone)]
pub(crate) struct CardState(Arc<Inner>);

/// Interval between two checks whether another thread has opened a channel.
const OPEN_POLL_INTERVAL: Duration = Duration::from_micros(200);

/// A channel of a card.
enum Slot {
    /// A thread is opening it.
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
    /// Process that may use the card. In a child process, locks may have been copied while another thread of the parent held them.
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
        lock(&self.0.map).clone()
    }

    pub(crate) fn set_map(&self, map: Arc<RegisterMap>) {
        *lock(&self.0.map) = Some(map);
    }

    /// DMA memory of the card's Python objects.
    pub(crate) fn regions(&self) -> &Arc<Regions> {
        &self.0.regions
    }

    /// Returns a channel, which is opened if needed. With `exclusive`, an open one is refused.
    ///
    /// # Errors
    /// Errors of opening it; `InUseError`, `OtherProcessError`.
    pub(crate) fn channel(
        &self,
        py: Python<'_>,
        key: (Direction, u8),
        options: ChannelOptions,
        exclusive: bool,
    ) -> Result<Arc<Shared>, Failure> {
        self.check_process()?;
        loop {
            let mut slots = lock(&self.0.channels);
            match slots.get(&key) {
                Some(Slot::Open(channel)) if channel.is_open() => {
                    if exclusive {
                        let message = format!("{} is open already", channel.label());
                        return Err(Failure::new(Class::InUseError, message)
                            .advice("close it first, or open it with its options before its first use")
                            .on_card(self.name()));
                    }
                    return Ok(Arc::clone(channel));
                }
                Some(Slot::Opening) => {
                    drop(slots);
                    py.detach(|| std::thread::sleep(OPEN_POLL_INTERVAL));
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
        let mut slots = lock(&self.0.channels);
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

    /// Records an object that is closed with the card.
    ///
    /// # Errors
    /// `ClosedError` if the card was closed meanwhile; `OtherProcessError`.
    pub(crate) fn adopt(&self, child: Weak<dyn Close>) -> Result<(), Failure> {
        self.check_process()?;
        let mut children = lock(&self.0.children);
        self.get()?;
        children.retain(|child| child.strong_count() > 0);
        children.push(child);
        Ok(())
    }

    /// Makes a value an object that is closed with the card.
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

    /// Closes the card and all its objects, also after a failure. Returns the first failure.
    pub(crate) fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        self.check_process()?;
        // First, so that nothing is taken from the card any more.
        let card = lock(&self.0.card).take();
        let children = std::mem::take(&mut *lock(&self.0.children));
        let children: Vec<Arc<dyn Close>> = children.iter().filter_map(Weak::upgrade).collect();
        let channels = std::mem::take(&mut *lock(&self.0.channels));
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
            self.0.regions.unmap();
            drop(card);
        });
        closed
    }
}
