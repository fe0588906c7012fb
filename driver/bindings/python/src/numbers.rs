//! Integer arguments of Python programs: single integers with a range, and arrays of offsets and addresses.
//!
//! Objects of other types are a `TypeError`, and integers outside the range a `ValueError` that names the argument, the number and the range.

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PySequence, PyString};

use crate::error::Failure;
use crate::export::{Export, name_of};

/// Integer type of an argument, or an optional one.
pub(crate) trait IntegerArgument: Sized {
    /// Converts the object, called `argument` in messages.
    fn read(object: &Bound<'_, PyAny>, argument: &str) -> PyResult<Self>;
}

macro_rules! whole {
    ($($integer:ty)*) => {$(
        impl IntegerArgument for $integer {
            fn read(object: &Bound<'_, PyAny>, argument: &str) -> PyResult<Self> {
                object.extract().map_err(|error: PyErr| conversion_error(object, argument, u64::from(<$integer>::MAX), error))
            }
        }
    )*};
}
whole!(u8 u16 u32 u64);

impl IntegerArgument for usize {
    fn read(object: &Bound<'_, PyAny>, argument: &str) -> PyResult<Self> {
        object.extract().map_err(|error: PyErr| conversion_error(object, argument, Self::MAX as u64, error))
    }
}

/// Signed integer, such as an index that the caller compares with a count. Numbers beyond 64 bits become the largest or smallest one.
impl IntegerArgument for i64 {
    fn read(object: &Bound<'_, PyAny>, argument: &str) -> PyResult<Self> {
        object.extract().or_else(|error: PyErr| {
            if error.is_instance_of::<PyOverflowError>(object.py()) {
                return Ok(if object.lt(0)? { Self::MIN } else { Self::MAX });
            }
            Err(conversion_error(object, argument, 0, error))
        })
    }
}

impl<T: IntegerArgument> IntegerArgument for Vec<T> {
    fn read(object: &Bound<'_, PyAny>, argument: &str) -> PyResult<Self> {
        object.try_iter()?.map(|item| T::read(&item?, argument)).collect()
    }
}

impl<T: IntegerArgument> IntegerArgument for Option<T> {
    fn read(object: &Bound<'_, PyAny>, argument: &str) -> PyResult<Self> {
        if object.is_none() { Ok(None) } else { T::read(object, argument).map(Some) }
    }
}

impl IntegerArgument for (u64, u64) {
    fn read(object: &Bound<'_, PyAny>, argument: &str) -> PyResult<Self> {
        let pair: (Bound<'_, PyAny>, Bound<'_, PyAny>) = object.extract().map_err(|_| {
            PyTypeError::new_err(format!(
                "{argument} is of type {}: give a pair of integers",
                name_of(object)
            ))
        })?;
        Ok((u64::read(&pair.0, argument)?, u64::read(&pair.1, argument)?))
    }
}

fn conversion_error(object: &Bound<'_, PyAny>, argument: &str, max: u64, error: PyErr) -> PyErr {
    let py = object.py();
    if error.is_instance_of::<PyOverflowError>(py) {
        let text = format!("{argument} is {}: give an integer from 0 to {max:#x}", digits(object));
        return pyo3::exceptions::PyValueError::new_err(text);
    }
    if error.is_instance_of::<PyTypeError>(py) {
        return PyTypeError::new_err(format!("{argument} is of type {}: give an integer", name_of(object)));
    }
    error
}

/// Formats an integer; integers of more than 40 digits are not written out.
pub(crate) fn digits(number: &Bound<'_, PyAny>) -> String {
    match number.str() {
        Ok(text) if text.len().is_ok_and(|length| length <= 40) => text.to_string_lossy().into(),
        _ => "an integer of many digits".to_owned(),
    }
}

macro_rules! arguments {
    ($($name:ident)*) => {$(
        /// Converts the argument of this name.
        pub(crate) fn $name<T: IntegerArgument>(object: &Bound<'_, PyAny>) -> PyResult<T> {
            T::read(object, stringify!($name))
        }
    )*};
}

// Names of arguments, for `#[pyo3(from_py_with = numbers::address)]`.
arguments!(
    address big_threshold buffer_size buffers card_memory cards cdma_offset channel descriptors destination destinations dma_bar event_line event_ring
    incarnation index key length line max_data_length max_value_length node number offset packets peer port priority read_channel reorder seed
    segment shape slots source source_alignment subscribers transfers value window
);

/// Offsets or addresses: one number for each transfer.
pub(crate) struct Numbers(pub(crate) Vec<u64>);

impl Numbers {
    /// Reads an array of integers (numpy, `array.array`) of any width, byte order and step, or any sequence of integers.
    ///
    /// # Errors
    /// `ValueError` for numbers outside 64 bits, also negative ones, and for several dimensions; `TypeError` for other objects.
    pub(crate) fn read(py: Python<'_>, object: &Bound<'_, PyAny>, argument: &str) -> Result<Self, Failure> {
        let no_integers = || {
            let text =
                format!("{argument} is of type {}: give an array or a sequence of integers", name_of(object));
            Failure::Python(PyTypeError::new_err(text))
        };
        if object.is_instance_of::<PyString>() {
            return Err(no_integers());
        }
        let export = match Export::with_any_elements(object) {
            // Arrays of Python's integers are sequences of objects.
            Ok(export) if export.format() != b"O" => export,
            _ => return Self::elements(py, object, argument).unwrap_or_else(|| Err(no_integers())),
        };
        let Some(layout) = Layout::of(export.format(), export.item_size()) else {
            return Err(no_integers());
        };
        match export.dimensions() {
            0 => return Err(no_integers()),
            1 => {}
            count => {
                return Err(Failure::value(format!(
                    "{argument} has {count} dimensions: give an array of one dimension"
                )));
            }
        }
        let numbers = layout.read(py, &export)?;
        // Arrays are long: the sign bits of all numbers are tested at once.
        if layout.is_signed && numbers.iter().fold(0, |all, number| all | number) >> 63 != 0 {
            let below = numbers.iter().map(|number| number.cast_signed()).enumerate().find(|(_, n)| *n < 0);
            if let Some((at, number)) = below {
                return Err(negative(argument, at, &number.to_string()));
            }
        }
        Ok(Self(numbers))
    }

    /// Reads a sequence, or an object that converts itself to one. `None` for other objects.
    fn elements(py: Python<'_>, object: &Bound<'_, PyAny>, argument: &str) -> Option<Result<Self, Failure>> {
        if let Ok(sequence) = object.cast::<PySequence>() {
            let items = sequence.try_iter().map_err(Failure::from);
            return Some(items.and_then(|items| {
                items
                    .enumerate()
                    .map(|(at, item)| element(&item?, argument, at))
                    .collect::<Result<_, _>>()
                    .map(Self)
            }));
        }
        if let Ok(list) = object.call_method0(intern!(py, "tolist"))
            && list.cast::<PySequence>().is_ok()
        {
            return Self::elements(py, &list, argument);
        }
        None
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

fn negative(argument: &str, at: usize, number: &str) -> Failure {
    Failure::value(format!("{argument}[{at}] is negative ({number}): give 0 or more"))
}

/// Element of a sequence.
fn element(item: &Bound<'_, PyAny>, argument: &str, at: usize) -> Result<u64, Failure> {
    let name = format!("{argument}[{at}]");
    if item.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err(format!("{name} is of type bool: give an integer")).into());
    }
    match item.extract::<i64>() {
        Ok(number) => u64::try_from(number).map_err(|_| negative(argument, at, &number.to_string())),
        Err(_) => match item.lt(0) {
            Ok(true) if item.is_instance_of::<pyo3::types::PyInt>() => {
                Err(negative(argument, at, &digits(item)))
            }
            _ => Ok(u64::read(item, &name)?),
        },
    }
}

/// How an array stores its integers.
struct Layout {
    width: usize,
    is_signed: bool,
    is_big_endian: bool,
}

impl Layout {
    /// Layout of a format of the module `struct`; `None` if the elements are not integers.
    fn of(format: &[u8], width: usize) -> Option<Self> {
        let (order, letter) = match *format {
            [letter] => (b'@', letter),
            [order @ (b'<' | b'>' | b'!' | b'=' | b'@' | b'|'), letter] => (order, letter),
            _ => return None,
        };
        let is_big_endian = match order {
            b'<' => false,
            b'>' | b'!' => true,
            _ => cfg!(target_endian = "big"),
        };
        let is_signed = match letter {
            b'b' | b'h' | b'i' | b'l' | b'q' | b'n' => true,
            b'B' | b'H' | b'I' | b'L' | b'Q' | b'N' => false,
            _ => return None,
        };
        matches!(width, 1 | 2 | 4 | 8).then_some(Self { width, is_signed, is_big_endian })
    }

    /// Reads all integers. Negative ones are extended to 64 bits.
    fn read(&self, py: Python<'_>, export: &Export) -> PyResult<Vec<u64>> {
        if self.width == 8 {
            let mut numbers = export.to_words(py)?;
            if self.is_big_endian != cfg!(target_endian = "big") {
                numbers.iter_mut().for_each(|number| *number = number.swap_bytes());
            }
            return Ok(numbers);
        }
        let bytes = export.to_vec(py)?;
        Ok(match self.width {
            1 => self.decode::<1>(&bytes),
            2 => self.decode::<2>(&bytes),
            _ => self.decode::<4>(&bytes),
        })
    }

    /// Decodes integers of one width.
    fn decode<const WIDTH: usize>(&self, bytes: &[u8]) -> Vec<u64> {
        let (items, _) = bytes.as_chunks::<WIDTH>();
        let unused = 64 - 8 * u32::try_from(WIDTH).unwrap_or(8);
        let numbers = items.iter().map(|item| {
            let mut item = *item;
            if !self.is_big_endian {
                item.reverse();
            }
            item.iter().fold(0, |number: u64, byte| (number << 8) | u64::from(*byte))
        });
        if self.is_signed {
            numbers.map(|number| ((number << unused).cast_signed() >> unused).cast_unsigned()).collect()
        } else {
            numbers.collect()
        }
    }
}
