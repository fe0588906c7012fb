//! The tests of the example of the same name: its point, but `cargo test` builds examples as programs.
#![forbid(unsafe_code)]

#[path = "../unit_test_your_app.rs"]
#[expect(dead_code, reason = "its main function runs as a program")]
mod unit_test_your_app;
