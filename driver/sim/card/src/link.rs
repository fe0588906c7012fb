//! PCIe side of the card as its engines see it: host memory behind the bus-master switch, with accounting.

use crate::counters::CardCounters;
use crate::fault_log::{FaultKind, FaultLog, Unit};
use crate::fault_plan::Plan;
use crate::host::{DmaPart, HostPort};
use crate::space::CardSpace;
use crate::stream::Streams;
use fpga_protocol::time::Nanos;
use fpga_registers::Iova;

/// Parts of the card that an engine may access in its turn.
pub(crate) struct EngineContext<'a, H: HostPort + ?Sized + 'a> {
    pub(crate) upstream: Upstream<'a, H>,
    pub(crate) space: &'a mut CardSpace,
    pub(crate) streams: &'a mut Streams,
    pub(crate) now: Nanos,
    /// Maximum number of bytes of a unit of work.
    pub(crate) quantum: usize,
    /// Number of moved bytes that ends a turn of a channel.
    pub(crate) turn: u64,
    /// Work takes virtual time: frames wait for the network port.
    pub(crate) paced: bool,
}

/// Access to the host, with the card's counters and logs.
///
/// `H` is the concrete host type where inlining its accesses pays off (XDMA channels), and `dyn HostPort` elsewhere.
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
    /// Bytes that had arrived before the failure: a long read is several requests.
    pub(crate) arrived: usize,
}

/// Minimum size in bytes of data that moves by the host's calls for parts. They may bypass its caches; shorter data would not recover the
/// cost of such a call.
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

    /// Posted memory write: the sender never sees a failure.
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

    /// Posted memory writes in a row, from `memory`. The card must be bus master.
    #[inline(never)]
    pub(crate) fn post_parts(&mut self, unit: Unit, parts: &[DmaPart], memory: &[u8]) {
        let mut rest = parts;
        while let Err((index, fault)) = self.host.write_parts(rest, memory) {
            self.faults.push(FaultKind::HostWriteLost, unit, fault.at.get(), 0);
            rest = rest.get(index + 1..).unwrap_or_default();
        }
    }
}
