//! Memory of Python objects: any contiguous object with the buffer protocol, such as `bytes`, `bytearray`, `memoryview`, `numpy.ndarray`.

use std::io;

use fpga_driver::{ReadVolatile, SharedMemory, SharedSlice, WriteVolatile};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;

use crate::error::Failure;

/// Exported memory of a Python object. The exporter neither frees nor resizes it until this is dropped.
pub(crate) struct Foreign {
    /// Before `_export`, so that it is dropped first. `None`: empty memory.
    memory: Option<SharedMemory>,
    _export: PyUntypedBuffer,
}

impl Foreign {
    /// Exports the bytes of `object`.
    ///
    /// # Errors
    /// `TypeError` if it has no buffer protocol, `ValueError` if its bytes are not contiguous.
    pub(crate) fn readable(object: &Bound<'_, PyAny>) -> Result<Self, Failure> {
        let export = PyUntypedBuffer::get(object)?;
        let is_contiguous = export.is_c_contiguous() || export.is_fortran_contiguous();
        if !is_contiguous {
            return Err(Failure::value(
                "the bytes of the object are not contiguous: copy it first, such as with numpy.ascontiguousarray"
                    .to_owned(),
            ));
        }
        let (pointer, length) = (export.buf_ptr().cast::<u8>(), export.len_bytes());
        let memory = match length {
            0 => None,
            // SAFETY: the export is contiguous, so `length` bytes at its pointer are mapped and initialised until it is released, which
            // happens after `memory` is dropped. This package makes no references to them except views of shared memory; Python code of
            // other threads may change them meanwhile, as another process may. Read-only exports are only read (`readable`'s users).
            _ => Some(
                unsafe { SharedMemory::from_foreign(pointer, length, Box::new(())) }
                    .map_err(|error| Failure::value(error.to_string()))?,
            ),
        };
        Ok(Self { memory, _export: export })
    }

    /// Exports the bytes of an object that the call changes.
    ///
    /// # Errors
    /// As [`readable`](Self::readable); `ValueError` if the object is read-only.
    pub(crate) fn writable(object: &Bound<'_, PyAny>) -> Result<Self, Failure> {
        let foreign = Self::readable(object)?;
        if foreign._export.readonly() {
            return Err(Failure::value(
                "the object is read-only: give a bytearray or a writable array".to_owned(),
            ));
        }
        Ok(foreign)
    }

    /// Size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, SharedMemory::len)
    }

    /// Copies the bytes.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.memory.as_ref().map_or_else(Vec::new, |memory| memory.view().to_vec())
    }

    /// The bytes.
    pub(crate) fn view(&self) -> SharedSlice<'_> {
        self.memory.as_ref().map(SharedMemory::view).unwrap_or_default()
    }

    /// The bytes, as a stream that is read and written once, from the first byte on.
    pub(crate) fn stream(&self) -> Stream<'_> {
        Stream { memory: self.view(), at: 0 }
    }
}

/// Bytes of foreign memory, copied in order.
pub(crate) struct Stream<'a> {
    memory: SharedSlice<'a>,
    at: usize,
}

impl Stream<'_> {
    fn next(&mut self, wanted: usize) -> (usize, usize) {
        let (at, count) = (self.at, wanted.min(self.memory.len() - self.at));
        self.at += count;
        (at, count)
    }
}

impl ReadVolatile for Stream<'_> {
    fn read_volatile(&mut self, into: SharedSlice<'_>) -> io::Result<usize> {
        let (at, count) = self.next(into.len());
        into.copy_from(0, self.memory, at, count).map_err(io::Error::other)?;
        Ok(count)
    }
}

impl WriteVolatile for Stream<'_> {
    fn write_volatile(&mut self, from: SharedSlice<'_>) -> io::Result<usize> {
        let (at, count) = self.next(from.len());
        self.memory.copy_from(at, from, 0, count).map_err(io::Error::other)?;
        Ok(count)
    }
}
