//! Fuzzes register logs: a valid text gives accesses that are written as they were read, an invalid one gives an error with a line number.
#![no_main]

use fpga_diag::record::log::{HEAD, Log, LogError};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // Without and with a valid first line, so that the fuzzer need not find that line.
    for with_head in [false, true] {
        let text = if with_head { [HEAD.as_bytes(), b"\n", bytes].concat() } else { bytes.to_vec() };
        match Log::read(text.as_slice()) {
            Ok(log) => {
                let lines: Vec<String> = log.entries().iter().map(ToString::to_string).collect();
                let again = Log::parse(&format!("{HEAD}\n{}\n", lines.join("\n")))
                    .expect("a written log can be parsed");
                assert_eq!(again.entries().len(), log.entries().len());
                for (one, other) in log.entries().iter().zip(again.entries()) {
                    assert_eq!(
                        (one.time, one.direction, one.bar, one.at, one.value),
                        (other.time, other.direction, other.bar, other.at, other.value)
                    );
                }
            }
            Err(LogError::Line { line, .. }) => {
                let lines = text.split(|byte| *byte == b'\n').count();
                assert!(line >= 1 && line <= lines, "line {line} of {lines}");
            }
            Err(error) => panic!("{error}"),
        }
    }
});
