//! The card's PCIe side as its engines see it: host memory behind the bus-master switch, with accounting.

use crate::counters::CardCounters;
use crate::fault_log::{FaultKind, FaultLog, Unit};
use crate::host::HostPort;
use crate::space::CardSpace;
use fpga_core::time::Nanos;
use fpga_registers::Iova;

/// What one step of an engine may touch.
///
/// `H` is the host's own type where its accesses are worth compiling in (XDMA channels), `dyn HostPort` elsewhere.
pub(crate) struct Lanes<'a, H: HostPort + ?Sized + 'a> {
    pub(crate) host: &'a mut H,
    pub(crate) bus_master: bool,
    pub(crate) space: &'a mut CardSpace,
    pub(crate) counters: &'a mut CardCounters,
    pub(crate) faults: &'a mut FaultLog,
    pub(crate) now: Nanos,
}

/// A non-posted request failed: the completer answered "unsupported request".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsupported;

impl<H: HostPort + ?Sized> Lanes<'_, H> {
    /// Memory read request.
    pub(crate) fn read(
        &mut self,
        unit: Unit,
        refused: FaultKind,
        at: Iova,
        into: &mut [u8],
    ) -> Result<(), Unsupported> {
        host_read(self.host, self.bus_master, self.faults, unit, refused, at, into)
    }

    /// Posted memory write: never fails as far as the sender can tell.
    pub(crate) fn post(&mut self, unit: Unit, at: Iova, from: &[u8]) {
        host_post(self.host, self.bus_master, self.faults, unit, at, from);
    }
}

/// [`Lanes::read`] with the parts borrowed one by one, for use inside a borrow of card memory.
pub(crate) fn host_read<H: HostPort + ?Sized>(
    host: &mut H,
    bus_master: bool,
    faults: &mut FaultLog,
    unit: Unit,
    refused: FaultKind,
    at: Iova,
    into: &mut [u8],
) -> Result<(), Unsupported> {
    if !bus_master {
        faults.push(FaultKind::BusMasterOff, unit, at.get(), 0);
        return Err(Unsupported);
    }
    host.read(at, into).map_err(|fault| {
        faults.push(refused, unit, fault.at.get(), 0);
        Unsupported
    })
}

/// [`Lanes::post`] with the parts borrowed one by one.
pub(crate) fn host_post<H: HostPort + ?Sized>(
    host: &mut H,
    bus_master: bool,
    faults: &mut FaultLog,
    unit: Unit,
    at: Iova,
    from: &[u8],
) {
    if !bus_master {
        faults.push(FaultKind::BusMasterOff, unit, at.get(), 1);
        return;
    }
    if let Err(fault) = host.write(at, from) {
        faults.push(FaultKind::HostWriteLost, unit, fault.at.get(), 0);
    }
}
