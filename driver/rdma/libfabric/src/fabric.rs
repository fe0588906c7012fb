//! Fabrics: the network between the cards.

use crate::object::Head;
use crate::sys::FidFabric;

/// Fabric.
#[repr(C)]
pub(crate) struct Fabric {
    pub(crate) head: Head<FidFabric>,
}

impl Fabric {
    /// Version of the interface that the program was written for. The library sets it after the fabric was opened.
    pub(crate) fn api_version(&self) -> u32 {
        let raw = self.head.raw();
        // SAFETY: the structure lives as long as the fabric; the library writes the field before the program gets the fabric.
        unsafe { (&raw const (*raw).api_version).read() }
    }
}
