//! Domains: registered memory, and the thread that drives endpoints.

use crate::access_counters::AccessCounters;
use crate::fabric::Fabric;
use crate::object::{Head, Held};
use crate::progress::Progress;
use crate::sources::Source;
use crate::sys::FidDomain;
use fpga_messages::Regions;
use std::sync::{Arc, OnceLock};

/// Properties that a program has chosen for a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DomainChoice {
    /// Peers address registered memory by the owner's virtual addresses.
    pub(crate) has_virtual_addresses: bool,
    /// Keys of registered memory are chosen here.
    pub(crate) has_provider_keys: bool,
    /// The domain's thread drives the endpoints.
    pub(crate) is_automatic: bool,
}

/// Domain.
#[repr(C)]
pub(crate) struct Domain {
    pub(crate) head: Head<FidDomain>,
    pub(crate) fabric: Held<Fabric>,
    pub(crate) api_version: u32,
    pub(crate) choice: DomainChoice,
    pub(crate) regions: Arc<Regions>,
    pub(crate) accesses: Arc<AccessCounters>,
    progress: OnceLock<Progress>,
}

impl Domain {
    pub(crate) fn new(head: Head<FidDomain>, fabric: Held<Fabric>, choice: DomainChoice) -> Self {
        let api_version = fabric.api_version();
        let (regions, accesses) = Default::default();
        Self { head, fabric, api_version, choice, regions, accesses, progress: OnceLock::new() }
    }

    /// Gives an endpoint to the domain's thread.
    pub(crate) fn drive(&self, source: Arc<dyn Source>) {
        let progress = self.progress.get_or_init(|| Progress::start(self.choice.is_automatic));
        progress.add(Arc::clone(&source));
        self.accesses.visit_lists(|list| list.attach(Arc::clone(&source)));
    }

    /// The thread drives an endpoint no longer.
    pub(crate) fn release(&self, id: u64) {
        if let Some(progress) = self.progress.get() {
            progress.remove(id);
        }
        self.accesses.visit_lists(|list| list.detach(id));
    }

    /// Enabled endpoints.
    pub(crate) fn endpoints(&self) -> Vec<Arc<dyn Source>> {
        self.progress.get().map(Progress::endpoints).unwrap_or_default()
    }

    /// An operation was posted: the thread may have to wake earlier than it knew.
    #[inline]
    pub(crate) fn posted(&self) {
        if let Some(progress) = self.progress.get() {
            progress.wake();
        }
    }
}
