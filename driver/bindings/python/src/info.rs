//! Properties of a card, as dataclasses of `fpga_rdma.info`.

use fpga_driver::BarOffset;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::card::Card;
use crate::error::Failure;
use crate::record::{fields, named_record};

#[pymethods]
impl Card {
    #[getter]
    fn info<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Failure> {
        let card = self.state().get()?;
        let info = card.info();
        let (ids, roles, xdma) = (info.ids, info.roles, info.xdma);
        let ranges = card.memory_ranges().unwrap_or_default();
        let ranges = PyTuple::new(py, ranges.iter().map(|range| (range.start.get(), range.length)))?;
        let fields = fields!(py,
            name: info.name.as_str(),
            vendor: ids.vendor,
            device: ids.device,
            subsystem_vendor: ids.subsystem.0,
            subsystem_device: ids.subsystem.1,
            h2c_channels: xdma.h2c_channels,
            c2h_channels: xdma.c2h_channels,
            stream: xdma.stream,
            data_width: xdma.data_width,
            max_payload: xdma.max_payload,
            max_read_request: xdma.max_read_request,
            dma_bar: roles.dma.index,
            user_bar: roles.user.map(|bar| bar.index),
            cdma_offset: info.cdma.map(BarOffset::get),
            memory: ranges,
            network_interface: info.ni.is_some(),
        );
        named_record("info", "CardInfo", &fields)
    }

    #[getter]
    fn dma_memory<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Failure> {
        let card = self.state().get()?;
        let stats = card.memory().stats();
        let fields = fields!(py,
            mapped_bytes: stats.mapped_bytes,
            in_use: stats.in_use,
            in_use_bytes: stats.in_use_bytes,
            registered: stats.caller_areas,
            registered_bytes: stats.caller_bytes,
            quarantined: stats.quarantined,
            quarantined_bytes: stats.quarantined_bytes,
        );
        named_record("info", "DmaMemory", &fields)
    }
}
