//! Integration tests of the package: one module each subject, in one binary, which links once.

mod network;
mod poll_until;
mod served;
mod threaded;
mod transfer;
