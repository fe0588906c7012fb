//! Messengers that exchange messages over the links of simulated cards.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]
#![expect(clippy::cast_possible_truncation, reason = "all lengths are small")]

mod access;
mod allocations;
mod bed;
mod copies;
mod direct;
mod failures;
mod hostile;
mod messages;
mod ports;
mod random;
mod served;
mod sessions;
mod shared;
mod unexpected;

/// Counts allocations per thread.
#[global_allocator]
static ALLOCATOR: fpga_pci::testing::CountingAllocator = fpga_pci::testing::CountingAllocator;
