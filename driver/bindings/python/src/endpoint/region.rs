//! Card memory that other nodes write or read.

use std::sync::Arc;

use fpga_driver::{CardAddr, NodeId};
use fpga_rdma::{ReadableHandle, RegionHandle, RemoteRegion};
use pyo3::prelude::*;

use super::State;
use crate::error::{Class, Failure, with_block};
use crate::numbers;
use crate::record::record;

/// Reads a `RemoteRegion`.
pub(super) fn region_of(remote: &Bound<'_, PyAny>) -> PyResult<RemoteRegion> {
    Ok(RemoteRegion {
        node: NodeId::new(numbers::node(&remote.getattr("node")?)?),
        address: CardAddr::new(numbers::address(&remote.getattr("address")?)?),
        length: numbers::length(&remote.getattr("length")?)?,
        key: numbers::key(&remote.getattr("key")?)?,
    })
}

/// Makes a `RemoteRegion`.
fn region_record<'py>(py: Python<'py>, remote: &RemoteRegion) -> Result<Bound<'py, PyAny>, Failure> {
    let fields = (remote.node.get(), remote.address.get(), remote.length, remote.key);
    record(py, "endpoint", "RemoteRegion", fields)
}

/// Direction of the access to a region.
pub(super) enum Window {
    Write(RegionHandle),
    Read(ReadableHandle),
}

/// Memory that is open for another node.
#[pyclass(frozen, module = "fpga_rdma.endpoint")]
pub(crate) struct Region {
    pub(super) state: Arc<State>,
    pub(super) handle: Window,
}

with_block!(Region);

#[pymethods]
impl Region {
    #[getter]
    fn remote<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Failure> {
        match &self.handle {
            Window::Write(handle) => region_record(py, &handle.remote),
            Window::Read(handle) => {
                let mailbox = region_record(py, &handle.remote.mailbox)?;
                let fields = (handle.remote.node.get(), handle.remote.length, mailbox);
                record(py, "endpoint", "RemoteReadable", fields)
            }
        }
    }

    fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        let endpoint = match self.state.get(py) {
            Err(failure) if failure.is(Class::ClosedError) => return Ok(()),
            endpoint => endpoint?,
        };
        match &self.handle {
            Window::Write(handle) => endpoint.close_region(handle),
            Window::Read(handle) => endpoint.close_readable(handle),
        }
        .map_err(Into::into)
    }

    fn __repr__(&self) -> String {
        match &self.handle {
            Window::Write(handle) => {
                format!("<Region of {} bytes at {}>", handle.remote.length, handle.remote.address)
            }
            Window::Read(handle) => format!("<Region of {} bytes, readable>", handle.remote.length),
        }
    }
}
