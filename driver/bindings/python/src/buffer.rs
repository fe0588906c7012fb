//! DMA memory as a Python object, which exports it through the buffer protocol, to numpy among others.

use core::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fpga_driver::{DmaAccess, SharedMemory};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PySlice, PyString, PyTuple};
use pyo3::{ffi, intern};

use crate::card::Card;
use crate::card_state::CardState;
use crate::error::{Class, Failure, with_block};
use crate::export::Export;
use crate::memory::Region;
use crate::numbers;
use crate::wait::{self, lock};

/// DMA memory of a card. It supports the buffer protocol, and DLPack through numpy.
#[pyclass(frozen, weakref, module = "fpga_rdma")]
pub(crate) struct Buffer {
    card: CardState,
    /// `None`: closed.
    region: Mutex<Option<Arc<Region>>>,
    /// Number of exported views, such as numpy arrays.
    views: AtomicUsize,
    /// Address in this process.
    address: usize,
    /// Size in bytes.
    length: usize,
    /// Address for the device.
    device_address: u64,
}

impl Buffer {
    /// Allocates `length` bytes of zeroed DMA memory.
    fn allocate(py: Python<'_>, card: &CardState, length: usize) -> Result<Self, Failure> {
        if length == 0 {
            return Err(Failure::value("a buffer of 0 bytes: give a length of 1 byte or more".to_owned()));
        }
        let opened = card.get()?;
        let memory = wait::detached(py, || {
            opened.registered_memory(length).inspect(|memory| {
                // Memory of the pool has been used before: its bytes may be another transfer's.
                let _ = memory.memory().fill(0, memory.len(), 0);
            })
        })?;
        Self::new(card, Region::new(memory, length))
    }

    /// Maps memory of a Python object, which stays exported until the buffer is closed.
    fn register(
        py: Python<'_>,
        card: &CardState,
        object: &Bound<'_, PyAny>,
        access: DmaAccess,
    ) -> Result<Self, Failure> {
        let export = Export::get(object)?;
        if !export.is_contiguous() {
            return Err(Failure::value(
                "the bytes of the object are not contiguous: pass a contiguous array".to_owned(),
            ));
        }
        if export.is_read_only() && access.device_writes() {
            return Err(Failure::value("the object is read-only: register it with access='read'".to_owned()));
        }
        let (pointer, length) = (export.pointer(), export.len());
        if length == 0 {
            return Err(Failure::value("the object has 0 bytes: register 1 page or more".to_owned()));
        }
        // SAFETY: the export keeps `length` contiguous bytes at its pointer mapped and initialised until it is released, which its owner
        // does: the memory itself, with its last clone. This package accesses them as shared memory only, and writes them (the card does)
        // only if the object is writable.
        let memory = unsafe { SharedMemory::from_foreign(pointer, length, Box::new(export)) };
        let memory = memory.map_err(|error| Failure::value(error.to_string()))?;
        let opened = card.get()?;
        let mapped = wait::detached(py, || {
            // A refused map returns the memory, which is released here, without a lock of the driver.
            opened.map_memory(memory, access).map_err(|refused| {
                Failure::new(Class::DmaMemoryError, refused.error.kind.to_string())
                    .advice("register whole pages (address and length are multiples of 4096), or use memory of card.allocate")
                    .on_card(opened.name())
            })
        })?;
        Self::new(card, Region::new(mapped, length))
    }

    fn new(card: &CardState, region: Region) -> Result<Self, Failure> {
        let region = Arc::new(region);
        if !card.regions().add(&region) {
            return Err(Failure::new(Class::InUseError, "a part of the memory is registered already")
                .on_card(card.name()));
        }
        let (address, length) = (region.address, region.length);
        let device_address = region.iova.get();
        let region = Mutex::new(Some(region));
        Ok(Self { card: card.clone(), region, views: AtomicUsize::new(0), address, length, device_address })
    }

    fn region(&self) -> Result<Arc<Region>, Failure> {
        // A child process has other pages at these addresses (zeros), or none.
        self.card.check_process()?;
        lock(&self.region).clone().ok_or_else(|| wait::closed("the buffer").on_card(self.card.name()))
    }

    fn is_busy(&self) -> bool {
        lock(&self.region).as_ref().is_some_and(|region| region.is_busy())
    }

    fn busy(&self) -> Failure {
        Failure::new(Class::InUseError, "a transfer of this memory is in flight")
            .advice("wait for the transfer (ticket.wait), or cancel it (ticket.cancel)")
            .on_card(self.card.name())
    }

    /// Releases the memory. With `waits`, it waits for channels that other threads are using.
    fn release(&self, py: Python<'_>, waits: bool) -> Result<(), Failure> {
        if !self.card.regions().is_own() {
            return Ok(());
        }
        let Some(region) = lock(&self.region).take() else { return Ok(()) };
        self.card.regions().remove(&region);
        for channel in self.card.regions().channels() {
            channel.deregister(py, region.number, waits)?;
        }
        // Unmapping is a system call.
        py.detach(|| drop(region));
        Ok(())
    }

    /// Exports the memory: fills in a view of it.
    fn export(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let buffer = slf.get();
        if view.is_null() {
            return Err(PyBufferError::new_err("no view"));
        }
        // SAFETY: not null, and the interpreter passes a view that is written here. Without an object it is not released.
        unsafe { (*view).obj = core::ptr::null_mut() };
        buffer.region()?;
        let busy = buffer.is_busy();
        if busy && flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err(
                "a transfer of this memory is in flight: wait for it before you take a writable view",
            ));
        }
        let length = isize::try_from(buffer.length).unwrap_or(isize::MAX);
        let memory = core::ptr::with_exposed_provenance_mut(buffer.address);
        // SAFETY: `view` is valid (above). `length` bytes at the address are mapped and initialised while the region exists: `close`
        // refuses while `views` is not 0, and the view holds a reference to this object. Rust code has no references to the bytes.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), memory, length, c_int::from(busy), flags) };
        if filled != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        buffer.views.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}

with_block!(Buffer);

#[pymethods]
impl Buffer {
    #[getter]
    fn nbytes(&self) -> usize {
        self.length
    }

    #[getter]
    fn device_address(&self) -> u64 {
        self.device_address
    }

    #[getter]
    fn in_flight(&self) -> bool {
        self.is_busy()
    }

    #[getter]
    fn closed(&self) -> bool {
        lock(&self.region).is_none()
    }

    fn __len__(&self) -> usize {
        self.length
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let item = PyMemoryView::from(slf.as_any())?.get_item(key)?;
        // A part is a copy, as of a bytearray: a view would not be refused while a transfer is in flight.
        if item.is_instance_of::<PyMemoryView>() {
            item.call_method0(intern!(slf.py(), "tobytes"))
        } else {
            Ok(item)
        }
    }

    fn __setitem__(
        slf: &Bound<'_, Self>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> Result<(), Failure> {
        if slf.get().is_busy() {
            return Err(slf.get().busy());
        }
        let view = PyMemoryView::from(slf.as_any())?;
        let Ok(slice) = key.cast::<PySlice>() else {
            return Ok(view.set_item(key, numbers::value::<u8>(value)?)?);
        };
        // The bytes of an object of any type, as for a transfer of it.
        let bytes = Export::in_order(value)?.to_vec(slf.py())?;
        let length = isize::try_from(slf.get().length).unwrap_or(isize::MAX);
        let wanted = slice.indices(length)?.slicelength;
        if wanted != bytes.len() {
            return Err(Failure::value(format!(
                "{} bytes for a slice of {wanted} bytes: give as many",
                bytes.len()
            )));
        }
        Ok(view.set_item(key, PyBytes::new(slf.py(), &bytes))?)
    }

    #[pyo3(signature = (dtype = None))]
    fn array<'py>(slf: &Bound<'py, Self>, dtype: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let bytes = slf.py().import("numpy")?.call_method1("frombuffer", (slf, "u1"))?;
        match dtype {
            Some(dtype) => bytes.call_method1("view", (dtype,)),
            None => Ok(bytes),
        }
    }

    #[pyo3(signature = (**arguments))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        arguments: Option<&Bound<'py, pyo3::types::PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = slf.py().import("numpy")?.call_method1("frombuffer", (slf, "u1"))?;
        array.call_method("__dlpack__", (), arguments)
    }

    /// Returns the device of DLPack: type kDLCPU (1), number 0.
    fn __dlpack_device__(&self) -> (u8, u8) {
        (1, 0)
    }

    fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        self.card.check_process()?;
        if self.is_busy() {
            return Err(self.busy());
        }
        if self.views.load(Ordering::Acquire) > 0 {
            let message = "views of the buffer exist: delete the arrays and memoryviews of it first";
            return Err(PyBufferError::new_err(message).into());
        }
        self.release(py, true)
    }

    fn __repr__(&self) -> String {
        let state = if self.closed() { ", closed" } else { "" };
        format!(
            "<Buffer of {}: {} bytes at device address {:#x}{state}>",
            self.card.name(),
            self.length,
            self.device_address
        )
    }

    // The interpreter passes a valid view, which the call fills in or refuses.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        Self::export(slf, view, flags)
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.views.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Views hold a reference to the object, so there are none. A transfer in flight keeps the memory until it has ended.
        if self.closed() {
            return;
        }
        let _ = Python::try_attach(|py| self.release(py, false));
    }
}

/// Reads the shape of an array: a size, or a sequence of sizes.
fn sizes(shape: &Bound<'_, PyAny>) -> Result<Vec<usize>, Failure> {
    if shape.is_instance_of::<PyString>() || shape.try_iter().is_err() {
        return Ok(vec![numbers::shape(shape)?]);
    }
    shape.try_iter()?.map(|size| Ok(numbers::shape(&size?)?)).collect()
}

/// Converts the name of an access: the card reads memory for H2C, and writes it for C2H.
fn access(name: &str) -> Result<DmaAccess, Failure> {
    match name {
        "read" => Ok(DmaAccess::ReadByDevice),
        "write" => Ok(DmaAccess::WriteByDevice),
        "both" => Ok(DmaAccess::Both),
        _ => Err(Failure::value(format!("access is {name:?}: give 'read' (H2C), 'write' (C2H) or 'both'"))),
    }
}

#[pymethods]
impl Card {
    fn buffer(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers::length)] length: usize,
    ) -> Result<Buffer, Failure> {
        Buffer::allocate(py, self.state(), length)
    }

    #[pyo3(signature = (memory, *, access = "both"))]
    fn register(&self, py: Python<'_>, memory: &Bound<'_, PyAny>, access: &str) -> Result<Buffer, Failure> {
        Buffer::register(py, self.state(), memory, self::access(access)?)
    }

    #[pyo3(signature = (shape, dtype = None))]
    fn allocate<'py>(
        &self,
        py: Python<'py>,
        shape: &Bound<'py, PyAny>,
        dtype: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>, Failure> {
        let numpy = py.import(intern!(py, "numpy"))?;
        let dtype = match dtype {
            Some(dtype) => numpy.call_method1(intern!(py, "dtype"), (dtype,))?,
            None => numpy.call_method1(intern!(py, "dtype"), ("u1",))?,
        };
        if dtype.getattr(intern!(py, "hasobject"))?.extract()? {
            return Err(Failure::value(format!("dtype {dtype}: a card cannot move Python objects")));
        }
        let sizes = sizes(shape)?;
        let item: usize = dtype.getattr(intern!(py, "itemsize"))?.extract()?;
        if item == 0 {
            return Err(Failure::value(format!(
                "dtype {dtype} has elements of 0 bytes: give their length, such as 'S16'"
            )));
        }
        let length = sizes.iter().try_fold(item, |length, size| length.checked_mul(*size));
        let length = length.ok_or_else(|| Failure::value("the array is too large".to_owned()))?;
        let shape = PyTuple::new(py, sizes)?;
        if length == 0 {
            return Ok(numpy.call_method1(intern!(py, "empty"), (shape, dtype))?);
        }
        let buffer = Bound::new(py, Buffer::allocate(py, self.state(), length)?)?;
        // The array has the type's byte order and fields; its base is the buffer.
        Ok(numpy.call_method1(intern!(py, "ndarray"), (shape, dtype, buffer))?)
    }

    fn device_address(&self, memory: &Bound<'_, PyAny>) -> Result<u64, Failure> {
        self.state().check_process()?;
        let export = Export::get(memory)?;
        if !export.is_contiguous() {
            return Err(Failure::value("the array is not contiguous: pass a contiguous array".to_owned()));
        }
        let found = self.state().regions().find(export.pointer().addr(), export.len());
        let part = found.ok_or_else(|| {
            Failure::value(
                "the object is not in DMA memory of this card: use card.allocate or card.register".to_owned(),
            )
        })?;
        Ok(part.region.iova.get().saturating_add(part.offset as u64))
    }
}
