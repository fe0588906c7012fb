//! The card's PCIe side as its engines see it: host memory behind the bus-master switch, with accounting.

use crate::counters::CardCounters;
use crate::fault_log::{FaultKind, FaultLog, Unit};
use crate::fault_plan::Plan;
use crate::host::{DmaPart, HostPort};
use crate::space::CardSpace;
use crate::stream::Streams;
use fpga_protocol::time::Nanos;
use fpga_registers::Iova;

/// What a turn of an engine may touch.
pub(crate) struct EngineContext<'a, H: HostPort + ?Sized + 'a> {
    pub(crate) upstream: Upstream<'a, H>,
    pub(crate) space: &'a mut CardSpace,
    pub(crate) streams: &'a mut Streams,
    pub(crate) now: Nanos,
}

/// The way to the host, and the card's books.
///
/// `H` is the host's own type where its accesses are worth compiling in (XDMA channels), `dyn HostPort` elsewhere.
pub(crate) struct Upstream<'a, H: HostPort + ?Sized + 'a> {
    pub(crate) host: &'a mut H,
    pub(crate) bus_master: bool,
    pub(crate) counters: &'a mut CardCounters,
    pub(crate) faults: &'a mut FaultLog,
    pub(crate) plan: &'a mut Plan,
}

/// A non-posted request failed: the completer answered "unsupported request".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsupported {
    /// Bytes that had arrived until then: a long read is several requests.
    pub(crate) arrived: usize,
}

/// Data of at least this many bytes moves by the host's calls for parts, which may go past its caches; shorter data would not
/// make up for what such a call costs.
pub(crate) const BULK: usize = 2048;

impl<H: HostPort + ?Sized> Upstream<'_, H> {
    /// Memory read request.
    pub(crate) fn read(
        &mut self,
        unit: Unit,
        refused: FaultKind,
        at: Iova,
        into: &mut [u8],
    ) -> Result<(), Unsupported> {
        if !self.bus_master {
            self.faults.push(FaultKind::BusMasterOff, unit, at.get(), 0);
            return Err(Unsupported { arrived: 0 });
        }
        let read = if into.len() >= BULK {
            let whole = DmaPart { at, offset: 0, length: into.len() };
            self.host.read_parts(&[whole], into).map_err(|(_, fault)| fault)
        } else {
            self.host.read(at, into)
        };
        read.map_err(|fault| {
            self.faults.push(refused, unit, fault.at.get(), 0);
            let arrived = usize::try_from(fault.at.get().wrapping_sub(at.get())).unwrap_or(0);
            Unsupported { arrived }
        })
    }

    /// Posted memory write: never fails as far as the sender can tell.
    #[inline]
    pub(crate) fn post(&mut self, unit: Unit, at: Iova, from: &[u8]) {
        if !self.bus_master {
            self.faults.push(FaultKind::BusMasterOff, unit, at.get(), 1);
            return;
        }
        if from.len() >= BULK {
            self.post_parts(unit, &[DmaPart { at, offset: 0, length: from.len() }], from);
        } else if let Err(fault) = self.host.write(at, from) {
            self.faults.push(FaultKind::HostWriteLost, unit, fault.at.get(), 0);
        }
    }

    /// Posted memory writes in a row, out of `memory`. The card is bus master.
    #[inline(never)]
    pub(crate) fn post_parts(&mut self, unit: Unit, parts: &[DmaPart], memory: &[u8]) {
        let mut rest = parts;
        while let Err((index, fault)) = self.host.write_parts(rest, memory) {
            self.faults.push(FaultKind::HostWriteLost, unit, fault.at.get(), 0);
            rest = rest.get(index + 1..).unwrap_or_default();
        }
    }
}
