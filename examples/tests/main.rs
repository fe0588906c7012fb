//! Tests of the examples: one module each subject, in one binary, which links once.

mod run_all;
mod unit_test_your_app;
