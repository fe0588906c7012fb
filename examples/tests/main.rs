//! Tests of the examples.

mod bindings;
mod rtl;
mod run_all;

/// The tests of the example of that name: `cargo test` builds examples as programs and does not run their tests.
#[path = "../unit_test_your_app.rs"]
#[expect(dead_code, reason = "its main function runs as a program")]
mod unit_test_your_app;
