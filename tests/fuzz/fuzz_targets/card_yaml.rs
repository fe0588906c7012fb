//! Fuzzes card files: a valid text gives a description that a card can be built from, an invalid one gives an error with its position and
//! reason.
#![no_main]

use std::path::Path;

use fpga_card::{Card, CardDescription, DescriptionError};
use libfuzzer_sys::fuzz_target;

/// Maximum number of lines by YAML's rules, which know more line ends than `str::lines`.
fn max_lines(text: &str) -> usize {
    text.matches(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count() + 1
}

fuzz_target!(|text: &str| {
    match CardDescription::parse(Path::new("fuzz.yaml"), text) {
        Ok(description) => {
            assert_eq!(description.validate(), Ok(()));
            assert!(Card::new(description).is_ok(), "a valid description is refused by the builder");
        }
        Err(error) => {
            assert!(error.to_string().starts_with("card file fuzz.yaml:"), "{error}");
            if let DescriptionError::Syntax { line, column, .. }
            | DescriptionError::Invalid { line, column, .. } = error
            {
                assert!(line >= 1 && line <= max_lines(text) + 1, "line {line}");
                assert!(column >= 1, "column {column}");
            }
        }
    }
});
