//! Diagnosis of FPGA cards: a self-test, and recording and replay of register accesses.
//!
//! | To | Use |
//! |---|---|
//! | test a card, with a remedy for each problem | [`validate::run`] |
//! | list what a self-test would disturb | [`validate::side_effects`] |
//! | record every register access of a program | [`record::Recorder`] |
//! | replay recorded accesses and compare the values read | [`record::replay`] |
//!
//! To repair a card that does not work, see `fpga_driver::recovery`.
#![forbid(unsafe_code)]

pub mod record;
pub mod validate;
