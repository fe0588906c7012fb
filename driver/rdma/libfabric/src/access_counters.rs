//! Counters of remote access to memory regions (`FI_RMA_EVENT`).

use crate::code::Code;
use crate::sources::{Source, Sources};
use crate::sys::EINVAL;
use fpga_messages::CompletionKind;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Counter, as regions see it.
pub(crate) trait AccessCounter: Send + Sync {
    /// Counts an access.
    fn count(&self);

    /// Endpoints that the counter gets its events from.
    fn sources(&self) -> &Arc<Sources>;
}

/// Counters of one region.
#[derive(Default)]
struct Bound {
    read: Option<Arc<dyn AccessCounter>>,
    write: Option<Arc<dyn AccessCounter>>,
}

/// Counters of the regions of a domain.
#[derive(Default)]
pub(crate) struct AccessCounters {
    by_key: Mutex<HashMap<u64, Bound>>,
    /// Lists of endpoints of these counters: each endpoint of the domain may be the target. A list outlives the binding, not the counter.
    lists: Mutex<Vec<Weak<Sources>>>,
}

impl AccessCounters {
    fn by_key(&self) -> MutexGuard<'_, HashMap<u64, Bound>> {
        // The table is complete at any time.
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds a counter to the region `key` for the chosen directions. `endpoints` returns the endpoints that are enabled.
    ///
    /// # Errors
    /// `FI_EINVAL` if the region has a counter for one of them.
    pub(crate) fn bind(
        &self,
        key: u64,
        counter: Arc<dyn AccessCounter>,
        is_read: bool,
        is_write: bool,
        endpoints: impl FnOnce() -> Vec<Arc<dyn Source>>,
    ) -> Result<(), Code> {
        let mut by_key = self.by_key();
        let bound = by_key.entry(key).or_default();
        if is_read && bound.read.is_some() || is_write && bound.write.is_some() {
            return Err(EINVAL);
        }
        let sources = Arc::clone(counter.sources());
        if is_read {
            bound.read = Some(Arc::clone(&counter));
        }
        if is_write {
            bound.write = Some(counter);
        }
        drop(by_key);
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|list| list.strong_count() > 0);
        lists.push(Arc::downgrade(&sources));
        // Under the lock: an endpoint that opens or closes meanwhile visits the lists afterwards.
        endpoints().into_iter().for_each(|endpoint| sources.attach(endpoint));
        Ok(())
    }

    /// The region `key` was closed.
    pub(crate) fn unbind(&self, key: u64) {
        let bound = self.by_key().remove(&key);
        drop(bound);
    }

    /// Calls `visit` with the lists of endpoints of all counters.
    pub(crate) fn visit_lists(&self, visit: impl Fn(&Sources)) {
        let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.iter().filter_map(Weak::upgrade).for_each(|list| visit(&list));
    }

    /// Counts an access to the region `key`.
    pub(crate) fn count(&self, key: u64, kind: CompletionKind) {
        let by_key = self.by_key();
        let counter = by_key.get(&key).and_then(|bound| match kind {
            CompletionKind::RemoteRead => bound.read.as_ref(),
            _ => bound.write.as_ref(),
        });
        if let Some(counter) = counter {
            counter.count();
        }
    }
}
