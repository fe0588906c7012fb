//! Memory that Python objects of any shape and type export through the buffer protocol: arrays, numpy scalars, ctypes objects, `bytes`.

use core::ffi::CStr;
use core::ffi::{c_char, c_void};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use pyo3::{ffi, intern};

use crate::error::Failure;

/// Exported memory of a Python object. The object neither frees nor resizes it until this is dropped.
pub(crate) struct Export {
    /// In a box, because exporters let fields of the view point to other fields.
    view: Box<ffi::Py_buffer>,
}

// SAFETY: the view is not changed after it was filled in, and is released under the lock of the interpreter. Other threads of Python may access
// the exported memory as well; this package accesses it as shared memory only.
unsafe impl Send for Export {}
// SAFETY: as above.
unsafe impl Sync for Export {}

impl Export {
    /// Exports the memory of `object`.
    ///
    /// # Errors
    /// `TypeError` if it exports none, or if its elements are Python objects; errors of the object, such as of a closed one.
    pub(crate) fn get(object: &Bound<'_, PyAny>) -> Result<Self, Failure> {
        match Self::with_any_elements(object) {
            Ok(export) => {
                export.check_elements(object)?;
                Ok(export)
            }
            Err(error) => {
                // numpy exports no arrays whose type has no format in the buffer protocol, such as dates. Their bytes have one.
                match bytes_of_array(object)? {
                    Some(bytes) => Ok(Self::with_any_elements(&bytes)?),
                    None if error.is_instance_of::<PyTypeError>(object.py()) => Err(no_bytes(object)),
                    None => Err(error.into()),
                }
            }
        }
    }

    /// As [`get`](Self::get), for elements in the order of their indices.
    ///
    /// # Errors
    /// As [`get`](Self::get); `ValueError` for another order.
    pub(crate) fn in_order(object: &Bound<'_, PyAny>) -> Result<Self, Failure> {
        let export = Self::get(object)?;
        if export.is_in_order() { Ok(export) } else { Err(out_of_order()) }
    }

    /// Exports the memory of `object`, with elements of any type.
    ///
    /// # Errors
    /// Errors of the object; `TypeError` if it has no buffer protocol.
    pub(crate) fn with_any_elements(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: the object is alive and the view is writable. It is filled in, or the call fails.
        let filled = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, ffi::PyBUF_FULL_RO) };
        if filled != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        Ok(Self { view })
    }

    /// Refuses elements that are addresses of this process: written by a card, they crash the interpreter.
    fn check_elements(&self, object: &Bound<'_, PyAny>) -> Result<(), Failure> {
        if !has_references(self.format()) {
            return Ok(());
        }
        let text = format!(
            "{} has elements that are Python objects or pointers, which a card cannot use: give an array of numbers, such as from .astype",
            name_of(object)
        );
        Err(Failure::Python(PyTypeError::new_err(text)))
    }

    /// Returns the address of the first element.
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.view.buf.cast()
    }

    /// Returns the size of all elements in bytes.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.view.len).unwrap_or(0)
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.view.readonly != 0
    }

    /// Returns the size of an element in bytes.
    pub(crate) fn item_size(&self) -> usize {
        usize::try_from(self.view.itemsize).unwrap_or(0)
    }

    pub(crate) fn dimensions(&self) -> usize {
        usize::try_from(self.view.ndim).unwrap_or(0)
    }

    /// Returns the type of the elements, in the notation of Python's module `struct`.
    pub(crate) fn format(&self) -> &[u8] {
        if self.view.format.is_null() {
            return b"B";
        }
        // SAFETY: a format is a string that lives as long as the view.
        unsafe { CStr::from_ptr(self.view.format) }.to_bytes()
    }

    /// Whether the elements lie one after the other, in the order of their indices (C order).
    pub(crate) fn is_in_order(&self) -> bool {
        // SAFETY: the view is filled in.
        unsafe { ffi::PyBuffer_IsContiguous(&raw const *self.view, c_char::from_ne_bytes([b'C'])) != 0 }
    }

    /// Whether the elements lie one after the other, in any order of the dimensions.
    pub(crate) fn is_contiguous(&self) -> bool {
        // SAFETY: the view is filled in.
        unsafe { ffi::PyBuffer_IsContiguous(&raw const *self.view, c_char::from_ne_bytes([b'A'])) != 0 }
    }

    /// Copies the elements in the order of their indices, for any memory layout.
    pub(crate) fn to_vec(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        let mut bytes = vec![0_u8; self.len()];
        // SAFETY: `bytes` has `len` bytes.
        unsafe { self.copy_to(py, bytes.as_mut_ptr().cast()) }?;
        Ok(bytes)
    }

    /// As [`to_vec`](Self::to_vec), for elements of 8 bytes, which stay as they are stored.
    pub(crate) fn to_words(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let mut words = vec![0_u64; self.len().div_ceil(8)];
        // SAFETY: `words` has `len` bytes or more, and every pattern of bytes is an integer.
        unsafe { self.copy_to(py, words.as_mut_ptr().cast()) }?;
        Ok(words)
    }

    /// Copies the elements in the order of their indices.
    ///
    /// # Safety
    /// `into` has [`len`](Self::len) writable bytes.
    unsafe fn copy_to(&self, py: Python<'_>, into: *mut c_void) -> PyResult<()> {
        let order = c_char::from_ne_bytes([b'C']);
        // SAFETY: the view is filled in, and states how many bytes are written; `into` has them.
        let copied = unsafe { ffi::PyBuffer_ToContiguous(into, &raw const *self.view, self.view.len, order) };
        if copied == 0 { Ok(()) } else { Err(PyErr::fetch(py)) }
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // At the end of the interpreter, the object is not released.
        let _ = Python::try_attach(|_| {
            // SAFETY: the view is filled in, and this is its one release.
            unsafe { ffi::PyBuffer_Release(&raw mut *self.view) };
        });
    }
}

/// Returns the name of an object's type for messages, for arrays with the type of their elements.
pub(crate) fn name_of(object: &Bound<'_, PyAny>) -> String {
    let class =
        object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string_lossy().into());
    match object.getattr(intern!(object.py(), "dtype")) {
        Ok(dtype) if dtype.to_string() != class => format!("{class} of {dtype}"),
        _ => class,
    }
}

fn no_bytes(object: &Bound<'_, PyAny>) -> Failure {
    let hint = if object.is_instance_of::<PyString>() {
        "encode it, such as text.encode()"
    } else {
        "give bytes, a bytearray, an array, or another object with the buffer protocol"
    };
    Failure::Python(PyTypeError::new_err(format!("{} has no bytes to move: {hint}", name_of(object))))
}

/// Returns the bytes of a numpy array, as an array; `None` for other objects.
fn bytes_of_array<'py>(object: &Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyAny>>, Failure> {
    let py = object.py();
    let numpy = py.import(intern!(py, "numpy"))?;
    if !object.is_instance(&numpy.getattr(intern!(py, "ndarray"))?)? {
        return Ok(None);
    }
    if object.getattr(intern!(py, "dtype"))?.getattr(intern!(py, "hasobject"))?.is_truthy()? {
        return Err(Failure::Python(PyTypeError::new_err(format!(
            "{} has elements that are Python objects, which a card cannot use: give an array of numbers, such as from .astype",
            name_of(object)
        ))));
    }
    if !object.getattr(intern!(py, "flags"))?.getattr(intern!(py, "c_contiguous"))?.is_truthy()? {
        return Err(out_of_order());
    }
    let plain = numpy.call_method1(intern!(py, "asarray"), (object,))?;
    Ok(Some(plain.call_method1(intern!(py, "reshape"), (-1,))?.call_method1(intern!(py, "view"), ("u1",))?))
}

/// Returns the error of an array whose elements do not lie in the order of their indices.
pub(crate) fn out_of_order() -> Failure {
    Failure::Python(PyValueError::new_err(
        "the array is not contiguous in C order (it is transposed, in Fortran order, or a part with steps): \
         numpy.ascontiguousarray makes a copy that is",
    ))
}

/// Whether a format has elements that are Python objects or addresses of this process. Names of fields are between colons.
fn has_references(format: &[u8]) -> bool {
    let mut is_name = false;
    let mut letters = format.iter().copied().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            b':' => is_name = !is_name,
            _ if is_name => {}
            b'O' | b'&' | b'X' | b'z' => return true,
            // A complex number, or a pointer to wide characters.
            b'Z' if !matches!(letters.peek(), Some(b'f' | b'd' | b'g' | b'e')) => return true,
            _ => {}
        }
    }
    false
}
