//! Registers by their offset in a BAR.

use fpga_driver::{BarOffset, errors::MmioError};
use pyo3::prelude::*;

use crate::card_state::CardState;
use crate::error::{Classify, Failure};
use crate::numbers;

/// Role of a BAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarRole {
    Dma,
    User,
}

/// Registers of a card in one BAR.
#[pyclass(frozen, module = "fpga_rdma")]
pub(crate) struct Bar {
    card: CardState,
    role: BarRole,
}

impl Bar {
    pub(crate) const fn new(card: CardState, role: BarRole) -> Self {
        Self { card, role }
    }

    fn access<T>(&self, call: impl FnOnce(&fpga_driver::Bar) -> Result<T, MmioError>) -> Result<T, Failure> {
        let card = self.card.get()?;
        let bar = match self.role {
            BarRole::Dma => card.dma_bar(),
            BarRole::User => card.user_bar().ok_or_else(|| {
                Failure::new(crate::error::Class::UnsupportedError, "the card has no user BAR")
                    .on_card(card.name())
            })?,
        };
        call(bar).map_err(|error| {
            let failure = Failure::new(error.class(), error.to_string()).on_card(card.name());
            match error.help() {
                Some(help) => failure.advice(help),
                None => failure,
            }
        })
    }
}

#[pymethods]
impl Bar {
    /// Size in bytes.
    fn __len__(&self) -> Result<usize, Failure> {
        self.access(|bar| Ok(usize::try_from(bar.size()).unwrap_or(usize::MAX)))
    }

    fn read32(&self, #[pyo3(from_py_with = numbers::offset)] offset: u64) -> Result<u32, Failure> {
        self.access(|bar| bar.read32(BarOffset::new(offset)))
    }

    fn write32(
        &self,
        #[pyo3(from_py_with = numbers::offset)] offset: u64,
        #[pyo3(from_py_with = numbers::value)] value: u32,
    ) -> Result<(), Failure> {
        self.access(|bar| bar.write32(BarOffset::new(offset), value))
    }

    fn read64(&self, #[pyo3(from_py_with = numbers::offset)] offset: u64) -> Result<u64, Failure> {
        self.access(|bar| bar.read64(BarOffset::new(offset)))
    }

    fn write64(
        &self,
        #[pyo3(from_py_with = numbers::offset)] offset: u64,
        #[pyo3(from_py_with = numbers::value)] value: u64,
    ) -> Result<(), Failure> {
        self.access(|bar| bar.write64(BarOffset::new(offset), value))
    }

    fn __getitem__(&self, #[pyo3(from_py_with = numbers::offset)] offset: u64) -> Result<u32, Failure> {
        self.read32(offset)
    }

    fn __setitem__(
        &self,
        #[pyo3(from_py_with = numbers::offset)] offset: u64,
        #[pyo3(from_py_with = numbers::value)] value: u32,
    ) -> Result<(), Failure> {
        self.write32(offset, value)
    }

    fn __repr__(&self) -> String {
        let role = match self.role {
            BarRole::Dma => "dma",
            BarRole::User => "user",
        };
        match self.access(|bar| Ok(bar.size())) {
            Ok(size) => format!("<Bar {role} of {}: {size} bytes>", self.card.name()),
            Err(_) => format!("<Bar {role} of {}: not accessible>", self.card.name()),
        }
    }
}
