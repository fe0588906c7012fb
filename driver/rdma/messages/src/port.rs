//! Ports: the endpoints of an application on one card. Each has an address, receives, completions and registered memory of its own.

use crate::address::PeerId;
use crate::completion::{Completion, Failure};
use crate::layout::{MAX_PORTS, PortNumber};
use crate::matching::Matching;
use crate::region::Regions;
use crate::request::{AtomicCall, AtomicUnit, HostMemory};
use fpga_driver::SharedSlice;
use fpga_rdma::RegionHandle;
use std::collections::VecDeque;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// What an application gives a port.
pub(crate) struct PortOptions {
    pub(crate) memory: Arc<dyn HostMemory>,
    pub(crate) atomics: Arc<dyn AtomicUnit>,
    pub(crate) regions: Arc<Regions>,
    /// Credit of each peer for messages that match no receive, in units of [`crate::layout::EAGER_UNIT`].
    pub(crate) eager_limit: u32,
    /// Whether accesses of peers have completions.
    pub(crate) reports_access: bool,
}

/// Maximum number of failures of peers that are kept until the application takes them.
const MAX_PEER_FAILURES: usize = 64;

/// One endpoint of an application.
pub(crate) struct Port {
    pub(crate) options: PortOptions,
    pub(crate) matching: Matching,
    pub(crate) completions: VecDeque<Completion>,
    /// Failures of peers while receives from any source were posted: at most [`MAX_PEER_FAILURES`].
    pub(crate) peer_failures: VecDeque<Failure>,
    /// Memory window of the hello slots; `None` after the port was closed.
    pub(crate) hello_window: Option<RegionHandle>,
}

impl Port {
    pub(crate) fn new(options: PortOptions, hello_window: Option<RegionHandle>) -> Self {
        let (matching, completions, peer_failures) = Default::default();
        Self { options, matching, completions, peer_failures, hello_window }
    }

    /// Notes the failure of a peer that does not end the port's receives from any source.
    pub(crate) fn note_peer_failure(&mut self, failure: &Failure) {
        if self.matching.accepts_any_source() && self.peer_failures.len() < MAX_PEER_FAILURES {
            self.peer_failures.push_back(failure.clone());
        }
    }

    pub(crate) const fn is_open(&self) -> bool {
        self.hello_window.is_some()
    }
}

/// Memory of a port that was closed: nothing is registered, and no request uses it.
#[derive(Debug)]
struct NoMemory;

impl HostMemory for NoMemory {
    fn read(&self, _from: u64, _to: SharedSlice<'_>) {}

    fn write(&self, _to: u64, _from: SharedSlice<'_>) {}
}

impl AtomicUnit for NoMemory {
    fn apply(&self, _call: AtomicCall<'_>) -> bool {
        false
    }
}

/// Returns a port without memory and peers, which is closed.
fn closed() -> Port {
    let (memory, atomics) = (Arc::new(NoMemory), Arc::new(NoMemory));
    let regions = Arc::default();
    Port::new(PortOptions { memory, atomics, regions, eager_limit: 0, reports_access: false }, None)
}

/// All ports of a card, by their numbers. Numbers are not used again: a peer that knows a closed port cannot take another one for it.
pub(crate) struct Ports {
    list: Vec<Port>,
    /// Stands for a number that no port has, which would be a defect of this package.
    unknown: Port,
}

impl Default for Ports {
    fn default() -> Self {
        Self { list: Vec::new(), unknown: closed() }
    }
}

impl Ports {
    /// Returns the number of the next port; `None` if all are used.
    pub(crate) fn next(&self) -> Option<PortNumber> {
        u8::try_from(self.list.len()).ok().filter(|number| *number < MAX_PORTS).map(PortNumber)
    }

    pub(crate) fn add(&mut self, port: Port) {
        self.list.push(port);
    }

    /// Removes the state of a port, and returns it.
    pub(crate) fn close(&mut self, number: PortNumber) -> Port {
        std::mem::replace(&mut self[number], closed())
    }

    /// Returns the numbers of all ports.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = PortNumber> + use<> {
        (0..u8::try_from(self.list.len()).unwrap_or(u8::MAX)).map(PortNumber)
    }

    /// Number of open ports.
    pub(crate) fn count_open(&self) -> usize {
        self.list.iter().filter(|port| port.is_open()).count()
    }

    /// Whether a receive is posted.
    pub(crate) fn is_receiving(&self) -> bool {
        self.list.iter().any(|port| port.matching.is_waiting())
    }

    /// Appends the peers from which posted receives expect messages.
    pub(crate) fn sources(&self, into: &mut Vec<PeerId>) {
        self.list.iter().for_each(|port| port.matching.sources(into));
    }
}

impl Index<PortNumber> for Ports {
    type Output = Port;

    #[inline]
    fn index(&self, number: PortNumber) -> &Port {
        let port = self.list.get(usize::from(number.0));
        debug_assert!(port.is_some(), "no port has the number {number:?}");
        port.unwrap_or(&self.unknown)
    }
}

impl IndexMut<PortNumber> for Ports {
    #[inline]
    fn index_mut(&mut self, number: PortNumber) -> &mut Port {
        let port = self.list.get_mut(usize::from(number.0));
        debug_assert!(port.is_some(), "no port has the number {number:?}");
        port.unwrap_or(&mut self.unknown)
    }
}
