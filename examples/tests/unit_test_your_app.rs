//! Runs the tests of the example of the same name: `cargo test` builds examples as programs and does not run their tests.
#![forbid(unsafe_code)]

#[path = "../unit_test_your_app.rs"]
#[expect(dead_code, reason = "its main function runs as a program")]
mod unit_test_your_app;
