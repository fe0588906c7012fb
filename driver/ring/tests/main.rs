//! Integration tests of the package: one module each subject, in one binary, which links once.

mod cdma_ring;
mod packets;
mod ring;
mod ring_credits;
