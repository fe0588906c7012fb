//! Diagnosis of FPGA cards: a self-test, inspection of endpoints and receive tables, and recording and replay of register accesses.
//!
//! | To | Use |
//! |---|---|
//! | test a card, with a remedy for each problem | [`validate::run`] |
//! | list what a self-test would disturb | [`validate::side_effects`] |
//! | read counters and receive tables of a network interface | [`inspect::ReceiveTables`] |
//! | compare an endpoint's mirror with its card | [`inspect::Inspect`] |
//! | record every register access of a program | [`record::Recorder`] |
//! | make data for a test transfer | [`test_data::RandomBytes`] |
//! | replay recorded accesses and compare the values read | [`record::replay`] |
//!
//! To repair a card that does not work, see `fpga_driver::recovery`.

pub mod inspect;
pub mod record;
pub mod test_data;
pub mod validate;
