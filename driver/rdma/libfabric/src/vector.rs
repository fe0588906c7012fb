//! Address vectors: tables of peers.

use crate::code::Code;
use crate::domain::Domain;
use crate::events::EventQueue;
use crate::object::{Head, Held};
use crate::sys::{EBUSY, EINVAL, FidAv};
use core::sync::atomic::{AtomicU64, Ordering};
use fpga_messages::{Address, MAX_TEXT};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Length of every address in bytes: its text, padded with zeros. Some programs take the length of their own address for that of all others.
pub(crate) const ADDRESS_LENGTH: usize = MAX_TEXT + 1;
/// Maximum number of addresses.
const MAX_ADDRESSES: usize = 1 << 24;

/// Address vector.
#[repr(C)]
pub(crate) struct AddressVector {
    pub(crate) head: Head<FidAv>,
    pub(crate) domain: Held<Domain>,
    /// Insertions end with an event.
    pub(crate) is_asynchronous: bool,
    events: OnceLock<Held<EventQueue>>,
    addresses: Mutex<Vec<Option<Address>>>,
    /// Number of changes.
    version: AtomicU64,
}

impl AddressVector {
    pub(crate) fn new(head: Head<FidAv>, domain: Held<Domain>, is_asynchronous: bool) -> Self {
        let (events, addresses, version) = Default::default();
        Self { head, domain, is_asynchronous, events, addresses, version }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Address>>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn bind(&self, events: Held<EventQueue>) -> Result<(), Code> {
        self.events.set(events).map_err(|_| EBUSY)
    }

    pub(crate) fn events(&self) -> Option<&EventQueue> {
        self.events.get().map(|events| &**events)
    }

    /// Number of changes, which endpoints compare with that of their last update.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Inserts addresses at the lowest free indices. Returns the indices.
    pub(crate) fn insert(&self, new: impl Iterator<Item = Result<Address, Code>>) -> Vec<Result<u64, Code>> {
        let mut addresses = self.lock();
        let mut free = 0;
        let indices = new.map(|address| {
            let address = address?;
            while addresses.get(free).is_some_and(Option::is_some) {
                free += 1;
            }
            match addresses.get_mut(free) {
                Some(entry) => *entry = Some(address),
                None if free < MAX_ADDRESSES => addresses.push(Some(address)),
                None => return Err(crate::sys::ENOMEM),
            }
            Ok(crate::entry::to_u64(free))
        });
        let indices = indices.collect();
        self.version.fetch_add(1, Ordering::Release);
        indices
    }

    /// Removes an address.
    pub(crate) fn remove(&self, index: u64) -> Result<(), Code> {
        let mut addresses = self.lock();
        let entry = addresses.get_mut(crate::entry::to_size(index)).ok_or(EINVAL)?;
        entry.take().ok_or(EINVAL)?;
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    pub(crate) fn get(&self, index: u64) -> Option<Address> {
        self.lock().get(crate::entry::to_size(index)).copied().flatten()
    }

    /// Calls `visit` with all entries, and returns the version of this state.
    pub(crate) fn visit(&self, mut visit: impl FnMut(usize, Option<Address>)) -> u64 {
        let addresses = self.lock();
        for (index, address) in addresses.iter().enumerate() {
            visit(index, *address);
        }
        self.version()
    }
}

/// Encodes an address for programs.
pub(crate) fn encode(address: Address) -> [u8; ADDRESS_LENGTH] {
    let mut bytes = [0; ADDRESS_LENGTH];
    for (to, from) in bytes.iter_mut().take(MAX_TEXT).zip(address.to_string().bytes()) {
        *to = from;
    }
    bytes
}
