//! The two kinds of allocations of a pool: owned by the host, and shared with the device.

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fpga_registers::Iova;

use super::{
    Allocation, AllocationOrigin, DmaAccess, IovaRange, MemoryError, QuarantineReason, SharedMemory,
    SharedSlice,
};
use crate::memory::BaseAddress;

/// DMA memory that the host owns: no transfer uses it. Posting a buffer moves it into the transfer.
///
/// ```
/// # use fpga_pci::{DmaAllocError, DmaPool};
/// # fn example(pool: &DmaPool) -> Result<(), Box<dyn std::error::Error>> {
/// let mut buffer = pool.allocate(4096)?;
/// buffer.fill(0);
/// buffer.write(16, b"abc")?;
/// let mut back = [0; 3];
/// buffer.read(16, &mut back)?;
/// buffer.memory().store_u64(8, 7)?;
/// let copy = buffer.to_vec();
/// # Ok(())
/// # }
/// ```
pub struct DmaBuffer(pub(super) Allocation);

/// DMA memory that the device may access at any time, until the last clone is dropped (or one of them is quarantined).
///
/// Clones are handles to the same bytes at the same device address, such as one for each channel that transfers them. Drop a clone only when
/// the device no longer accesses the memory on behalf of its holder.
#[derive(Clone)]
pub struct RegisteredMemory {
    /// Copy of the allocation's first address, size, device address and permissions: an access need not read them there.
    start: BaseAddress,
    length: usize,
    iova: Iova,
    access: DmaAccess,
    allocation: Arc<Allocation>,
}

impl fmt::Debug for DmaBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt("DmaBuffer", f)
    }
}

impl fmt::Debug for RegisteredMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.allocation.fmt("RegisteredMemory", f)
    }
}

impl DmaBuffer {
    /// Whether it was allocated from `pool`. Pools of different devices use the same addresses, so the address of a buffer of another pool
    /// refers to other memory here.
    #[must_use]
    #[inline]
    pub fn is_from(&self, pool: &super::DmaPool) -> bool {
        self.0.is_from(pool)
    }

    /// Permitted accesses of the device.
    #[must_use]
    #[inline]
    pub fn access(&self) -> DmaAccess {
        self.0.access
    }

    /// First address as the device sees it.
    #[must_use]
    #[inline]
    pub fn iova(&self) -> Iova {
        self.0.iova
    }

    /// Bytes in use.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "an empty buffer is not handed out; set_len(0) is a caller's own choice"
    )]
    #[inline]
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Bytes available.
    #[must_use]
    #[inline]
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// Sets the number of bytes in use. Bytes that come into use have unspecified content.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`] if `length` exceeds the capacity.
    pub fn set_len(&mut self, length: usize) -> Result<(), MemoryError> {
        if length > self.0.capacity {
            return Err(MemoryError::OutOfRange { offset: 0, length, size: self.0.capacity });
        }
        self.0.length = length;
        Ok(())
    }

    /// View of the bytes in use, for copies, atomic words and streams ([`ReadVolatile`](crate::ReadVolatile)).
    ///
    /// Not a slice, because the memory stays mapped for the device:
    ///
    /// ```compile_fail,E0599
    /// # fn peek(buffer: &fpga_pci::DmaBuffer) -> &[u8] {
    /// buffer.as_slice()
    /// # }
    /// ```
    #[must_use]
    #[inline]
    pub fn memory(&self) -> SharedSlice<'_> {
        self.0.view()
    }

    /// Copies the bytes in use into a vector.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.0.view().to_vec()
    }

    /// Sets all bytes in use to `value`.
    #[inline]
    pub fn fill(&mut self, value: u8) {
        let whole = self.0.view().fill(0, self.0.length, value);
        debug_assert!(whole.is_ok(), "a buffer's own length");
    }

    /// Copies from the buffer.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`].
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), MemoryError> {
        self.0.view().read(offset, into)
    }

    /// Copies into the buffer.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`].
    #[inline]
    pub fn write(&mut self, offset: usize, from: &[u8]) -> Result<(), MemoryError> {
        self.0.view().write(offset, from)
    }

    /// The bytes in use as contiguous ranges of device addresses, in order. A pool allocates from one mapping, so there is exactly one
    /// range (none if the length is 0); callers must handle any number.
    #[inline]
    pub fn runs(&self) -> impl Iterator<Item = IovaRange> + use<> {
        let run = IovaRange { iova: self.0.iova, length: self.0.length as u64 };
        (run.length != 0).then_some(run).into_iter()
    }

    /// Device address range of `length` bytes from `offset` on.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`] beyond the bytes in use.
    #[inline]
    pub fn run(&self, offset: usize, length: usize) -> Result<IovaRange, MemoryError> {
        self.0.run(offset, length)
    }

    /// Converts the buffer into memory that is shared with the device.
    #[must_use]
    pub fn into_registered(self) -> RegisteredMemory {
        RegisteredMemory::new(self.0)
    }

    /// Quarantines it; see [`DmaPool::quarantine`](super::DmaPool::quarantine).
    pub fn quarantine(self, reason: QuarantineReason) {
        self.0.quarantine(reason);
    }
}

impl RegisteredMemory {
    pub(super) fn new(allocation: Allocation) -> Self {
        let Allocation { start, length, iova, access, .. } = allocation;
        Self { start, length, iova, access, allocation: Arc::new(allocation) }
    }

    /// Returns whether it was allocated from or mapped by `pool`; see [`DmaBuffer::is_from`].
    #[must_use]
    #[inline]
    pub fn is_from(&self, pool: &super::DmaPool) -> bool {
        self.allocation.is_from(pool)
    }

    /// Permitted accesses of the device.
    #[must_use]
    #[inline]
    pub fn access(&self) -> DmaAccess {
        self.access
    }

    /// First address as the device sees it.
    #[must_use]
    #[inline]
    pub fn iova(&self) -> Iova {
        self.iova
    }

    /// Size in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an area is never empty")]
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Checked access to the memory: copies, atomic words, descriptors.
    #[must_use]
    #[inline]
    pub fn memory(&self) -> SharedSlice<'_> {
        // SAFETY: the allocation's `length` bytes from `start` on stay mapped while `allocation` exists, to which the view is bound through
        // `self`. They are readable, writable and initialised, and no references to them exist except such views.
        unsafe { self.start.view(self.length) }
    }

    /// Device address range of `length` bytes from `offset` on.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`].
    #[inline]
    pub fn run(&self, offset: usize, length: usize) -> Result<IovaRange, MemoryError> {
        self.allocation.run(offset, length)
    }

    /// Ends its use for DMA, and returns the bytes as memory of this process, for a program that reads them after the device was given
    /// back. Memory of the pool is not allocated again: with the pool, it is unmapped for the device. `None` if the pool has lost its entry.
    ///
    /// Call it when the device is known to be idle, or after [`quarantine`](Self::quarantine).
    #[must_use]
    pub fn into_host(self) -> Option<SharedMemory> {
        let memory = self.allocation.host()?;
        let offset = self.memory().host_address().checked_sub(memory.view().host_address())?;
        memory.part(offset, self.length).ok()
    }

    /// Quarantines it, for all clones; see [`DmaPool::quarantine`](super::DmaPool::quarantine). Only the first call is recorded.
    pub fn quarantine(self, reason: QuarantineReason) {
        self.allocation.quarantine(reason);
    }
}

impl Allocation {
    /// The memory that it lies in, which is not given back to the pool.
    fn host(&self) -> Option<SharedMemory> {
        match &self.origin {
            AllocationOrigin::Caller { memory } => Some((**memory).clone()),
            AllocationOrigin::Region { number } => {
                let state = self.pool.lock();
                let region = state.regions.get(*number)?.as_ref()?;
                self.kept.store(true, Ordering::Relaxed);
                Some(region.memory.clone())
            }
        }
    }

    #[inline]
    fn is_from(&self, pool: &super::DmaPool) -> bool {
        Arc::ptr_eq(&self.pool, &pool.0)
    }

    #[inline]
    fn run(&self, offset: usize, length: usize) -> Result<IovaRange, MemoryError> {
        if offset.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(MemoryError::OutOfRange { offset, length, size: self.length });
        }
        // The sum stays inside the region, whose end was checked when it was mapped.
        Ok(IovaRange { iova: Iova::new(self.iova.get() + offset as u64), length: length as u64 })
    }
}
