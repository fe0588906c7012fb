//! Integration tests of the package: one module each subject, in one binary, which links once.

mod access;
mod documents;
mod round_trips;
