//! Integration tests of the package: one module each subject, in one binary, which links once.

mod allocations;
mod credits;
mod interleavings;
mod pool;
mod soak;
mod stream;
mod trace;

/// Counts per thread, so that tests that run at the same time do not disturb the count.
#[global_allocator]
static ALLOCATOR: fpga_pci::testing::CountingAllocator = fpga_pci::testing::CountingAllocator;
