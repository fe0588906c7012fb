//! Memory of Python objects: any object with the buffer protocol whose elements lie in the order of their indices, such as `bytes`,
//! `memoryview`, a C-contiguous `numpy.ndarray`. Arrays in another order are refused: the order of memory is not the one that the program sees.

use std::sync::OnceLock;

use fpga_driver::{SharedMemory, SharedSlice};
use pyo3::prelude::*;

use crate::buffer::Buffer;
use crate::error::Failure;
use crate::export::Export;
use crate::memory::{RegionPart, Regions};

/// Exported memory of a Python object. The exporter neither frees nor resizes it until this is dropped.
pub(crate) struct Foreign {
    /// Memory of `export`, made at its first use; `None`: empty. Declared before `export`, so that it is dropped first.
    memory: OnceLock<Option<SharedMemory>>,
    export: Export,
}

impl Foreign {
    /// Exports the bytes of `object`.
    ///
    /// # Errors
    /// `TypeError` if it has no bytes or its elements are Python objects, `ValueError` if they are not in C order.
    pub(crate) fn readable(object: &Bound<'_, PyAny>) -> Result<Self, Failure> {
        Ok(Self { memory: OnceLock::new(), export: Export::in_order(object)? })
    }

    /// Exports the bytes of an object that the call changes.
    ///
    /// # Errors
    /// As [`readable`](Self::readable); `ValueError` if the object is read-only.
    pub(crate) fn writable(object: &Bound<'_, PyAny>) -> Result<Self, Failure> {
        let foreign = Self::readable(object)?;
        // A buffer exports itself as read-only while a transfer of it is in flight, which does not concern the next transfer.
        if foreign.export.is_read_only() && !object.is_exact_instance_of::<Buffer>() {
            return Err(Failure::value(
                "the object is read-only: give a bytearray or a writable array".to_owned(),
            ));
        }
        Ok(foreign)
    }

    /// Size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.export.len()
    }

    /// Returns the part of DMA memory that contains the object.
    pub(crate) fn region_part(&self, regions: &Regions) -> Option<RegionPart> {
        regions.find(self.export.pointer().addr(), self.len())
    }

    fn memory(&self) -> Option<&SharedMemory> {
        let make = || {
            let (pointer, length) = (self.export.pointer(), self.len());
            // SAFETY: the export is contiguous, so `length` bytes at its pointer are mapped and initialised until it is released, which
            // happens after `memory` is dropped. This package makes no references to them except views of shared memory; Python code of
            // other threads may change them meanwhile, as another process may. Read-only exports are only read (`readable`'s users).
            unsafe { SharedMemory::from_foreign(pointer, length, Box::new(())) }.ok()
        };
        self.memory.get_or_init(make).as_ref()
    }

    /// The bytes; no bytes for empty memory.
    pub(crate) fn view(&self) -> SharedSlice<'_> {
        self.memory().map(SharedMemory::view).unwrap_or_default()
    }

    /// Copies the bytes.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.view().to_vec()
    }
}

/// Size of an object in bytes, checked as for a transfer of it.
#[pyfunction]
pub(crate) fn _nbytes(object: &Bound<'_, PyAny>, writable: bool) -> Result<usize, Failure> {
    let memory = if writable { Foreign::writable(object)? } else { Foreign::readable(object)? };
    Ok(memory.len())
}
