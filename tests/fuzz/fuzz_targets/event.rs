//! Fuzzes events of 64 bytes: each is decoded or refused, and a decoded event has exactly one encoding.
#![no_main]

use fpga_firmware::event::{Event, EventKind, SIZE, sequence_of};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some(bytes) = input.first_chunk::<SIZE>() else { return };
    match Event::decode(bytes) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(event) => {
            assert_eq!(&event.encode(), bytes);
            assert_eq!(event.sequence, sequence_of(bytes));
            assert_eq!(event.nack_reason().is_some(), event.kind == EventKind::Nack);
            assert_eq!(event.fault_reason().is_some(), event.kind == EventKind::Fault);
        }
    }
});
