//! Integration tests of the package: one module each subject, in one binary, which links once.

mod fuzz_seeds;
mod identity_and_catalog;
mod message_limits;
mod samples;
mod window_and_event;
mod wire_fields;
mod wire_formats;
