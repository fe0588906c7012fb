//! Whole-stack tests: one module each subject, in one binary, which links once.

mod allocations;
mod cdma;
mod cdma_ring;
mod channels;
mod conformance_rtl;
mod conformance_threaded;
mod dma;
mod documents;
mod endpoint;
mod error_texts;
mod faults;
mod guards;
mod link;
mod names;
mod partition;
mod protocol_document;
mod raw_channel;
mod recovery;
mod scheme_allocations;
mod simulator_allocations;
mod state_bytes;
mod stream;
mod teardown;
mod time;
mod timeouts;
mod transfer;
mod validate;
mod vfio_user;
mod waits;
mod wedged;

/// Counts per thread, so that tests that run at the same time do not disturb the count.
#[global_allocator]
static ALLOCATOR: fpga_pci::testing::CountingAllocator = fpga_pci::testing::CountingAllocator;
