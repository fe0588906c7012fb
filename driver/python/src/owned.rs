//! Objects that belong to a card and end with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use pyo3::prelude::*;

use crate::card::CardState;
use crate::error::Failure;
use crate::wait;

/// Object that `Card.close` closes.
pub(crate) trait Close: Send + Sync {
    /// Closes the object. A closed one can be closed again.
    ///
    /// # Errors
    /// The exception of a signal handler.
    fn close(&self, py: Python<'_>) -> Result<(), Failure>;
}

/// Value of the driver that Python threads share, until it is closed.
pub(crate) struct Owned<T> {
    card: String,
    /// Name of the object in messages, such as `c2h0`.
    name: String,
    /// `None`: closed.
    value: Mutex<Option<T>>,
    /// A thread wants to close the object: waits of other threads end.
    closing: AtomicBool,
}

impl<T: Send + 'static> Owned<T> {
    /// Makes the object a part of the card.
    ///
    /// # Errors
    /// `ClosedError` if the card was closed meanwhile.
    pub(crate) fn new(
        py: Python<'_>,
        card: &CardState,
        name: impl Into<String>,
        value: T,
    ) -> Result<Arc<Self>, Failure> {
        let owned = Arc::new(Self {
            card: card.name().to_owned(),
            name: name.into(),
            value: Mutex::new(Some(value)),
            closing: AtomicBool::new(false),
        });
        let weak: Weak<Self> = Arc::downgrade(&owned);
        card.adopt(py, weak)?;
        Ok(owned)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn card(&self) -> &str {
        &self.card
    }

    /// Runs a call with the value. Waits for calls of other threads.
    ///
    /// # Errors
    /// `ClosedError`, errors of the call, the exception of a signal handler.
    pub(crate) fn with<R>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut T) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        match wait::lock(py, &self.value)?.as_mut() {
            Some(value) => call(value),
            None => Err(self.closed()),
        }
    }

    /// Ends a wait if another thread wants to close the object.
    ///
    /// # Errors
    /// `ClosedError`.
    pub(crate) fn check_open(&self) -> Result<(), Failure> {
        if self.closing.load(Ordering::Relaxed) { Err(self.closed()) } else { Ok(()) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    fn closed(&self) -> Failure {
        wait::closed(&self.name).on_card(&self.card)
    }

    /// Takes the value out and marks the object as closed. `None`: it was closed before.
    ///
    /// # Errors
    /// The exception of a signal handler.
    pub(crate) fn take(&self, py: Python<'_>) -> Result<Option<T>, Failure> {
        self.closing.store(true, Ordering::Relaxed);
        Ok(wait::lock(py, &self.value)?.take())
    }
}

impl<T: Send + 'static> Close for Owned<T> {
    fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        let value = self.take(py)?;
        py.detach(|| drop(value));
        Ok(())
    }
}
