//! Dataclasses of the package's Python part, for properties, statistics and completions.

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::Failure;

/// Makes an object of class `class` of `fpga_rdma.MODULE`, whose fields are given in the order of the class.
///
/// # Errors
/// Errors of Python.
pub(crate) fn record<'py>(
    py: Python<'py>,
    module: &str,
    class: &str,
    fields: impl PyCallArgs<'py>,
) -> Result<Bound<'py, PyAny>, Failure> {
    Ok(py.import(format!("fpga_rdma.{module}"))?.getattr(class)?.call1(fields)?)
}

/// As [`record`], with the fields by name.
///
/// # Errors
/// As [`record`].
pub(crate) fn named_record<'py>(
    module: &str,
    class: &str,
    fields: &Bound<'py, PyDict>,
) -> Result<Bound<'py, PyAny>, Failure> {
    let module = fields.py().import(format!("fpga_rdma.{module}"))?;
    Ok(module.getattr(class)?.call((), Some(fields))?)
}

/// Makes a dictionary of fields by name.
macro_rules! fields {
    ($py:expr, $($name:ident: $value:expr),* $(,)?) => {{
        let fields = pyo3::types::PyDict::new($py);
        $(fields.set_item(stringify!($name), $value)?;)*
        fields
    }};
}
pub(crate) use fields;
