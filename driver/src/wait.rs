//! Limit of waits for an idle engine.

/// Maximum time until an engine is idle after a stop or a reset, in nanoseconds. The engine finishes the bus transfer that it has begun:
/// the longest descriptor is 256 MiB, 1.1 s on the slowest link (one lane of the first generation). An AXI slave that does not answer holds
/// the engine forever. A healthy card needs microseconds; a simulated one may be without CPU time for some tenths of a second.
pub(crate) const IDLE_TIMEOUT_NS: u64 = 2_000_000_000;
