//! Integration tests of the package: one module each subject, in one binary, which links once.

mod network;
mod partition;
mod poll_until;
mod served;
mod threaded;
