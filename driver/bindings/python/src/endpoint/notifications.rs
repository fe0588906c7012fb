//! Arrivals at an endpoint.

use std::sync::Arc;

use fpga_rdma::Notification;
use pyo3::prelude::*;

use super::{Endpoint, State, in_time, others, steps, wait_part};
use crate::error::{Class, Failure};
use crate::record::{fields, named_record};
use crate::wait;

fn notification<'py>(py: Python<'py>, arrived: &Notification) -> Result<Bound<'py, PyAny>, Failure> {
    let fields = fields!(py,
        node: arrived.node.get(),
        incarnation: arrived.incarnation.get(),
        transfer: arrived.transfer.get(),
        address: arrived.address.get(),
        length: arrived.length,
        time: arrived.time,
    );
    named_record("endpoint", "Notification", &fields)
}

/// Arrivals at an endpoint.
#[pyclass(frozen, module = "fpga_rdma.endpoint")]
pub(crate) struct Notifications {
    pub(super) state: Arc<State>,
}

#[pymethods]
impl Notifications {
    fn poll<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>, Failure> {
        let endpoint = self.state.get(py)?;
        let arrived = py.detach(|| {
            steps(&endpoint, || {
                endpoint.poll()?;
                Ok(endpoint.next_notification())
            })
        })?;
        if arrived.is_none() {
            self.state.check(py, &endpoint)?;
        }
        arrived.map(|arrived| notification(py, &arrived)).transpose()
    }

    #[pyo3(signature = (timeout = Some(10.0), *, poll = Vec::new()))]
    fn wait<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
        poll: Vec<Py<Endpoint>>,
    ) -> Result<Bound<'py, PyAny>, Failure> {
        let (endpoint, others) = (self.state.get(py)?, others(py, poll)?);
        let limit = wait::duration(timeout)?;
        let arrived = self.state.wait_in_parts(py, &endpoint, limit, |part| {
            py.detach(|| {
                wait_part(
                    &endpoint,
                    &others,
                    part,
                    |limit| in_time(endpoint.wait_notification(limit)),
                    || {
                        endpoint.poll()?;
                        Ok(endpoint.next_notification())
                    },
                )
            })
        })?;
        let Some(arrived) = arrived else {
            return Err(Failure::new(Class::TimedOutError, format!("nothing has arrived after {limit:?}"))
                .on_card(self.state.endpoint.card())
                .advice("wait longer (timeout=...), or check that a peer was given a region to send to; if it is in this program, poll its endpoint: wait(poll=[other])"));
        };
        notification(py, &arrived)
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Failure> {
        self.wait(py, None, Vec::new())
    }

    fn __aiter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __anext__<'py>(this: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>, Failure> {
        let helper = this.py().import("fpga_rdma._aio")?.getattr("result")?;
        Ok(helper.call1((this.getattr("poll")?,))?)
    }
}
