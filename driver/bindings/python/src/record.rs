//! Records: dataclasses of the package's Python part, for statistics and completions.

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

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
