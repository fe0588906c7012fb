//! Fuzzes register maps: a valid text gives a map whose registers are found by their names, an invalid one gives an error with its
//! position.
#![no_main]

use std::path::Path;

use fpga_register_map::{MapError, RegisterMap};
use libfuzzer_sys::fuzz_target;

/// Maximum number of lines by YAML's rules, which know more line ends than `str::lines`.
fn max_lines(text: &str) -> usize {
    text.matches(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count() + 1
}

fuzz_target!(|text: &str| {
    match RegisterMap::parse(Path::new("fuzz.yaml"), text) {
        Ok(map) => {
            for register in map.registers() {
                let found = map.find(&register.name).expect("a register is found by its name");
                assert_eq!(found.register, register);
                assert!(register.address.is_aligned_to(4));
            }
            assert!(map.registers().is_sorted_by_key(|register| register.address));
        }
        Err(error) => {
            assert!(error.to_string().starts_with("register map fuzz.yaml:"), "{error}");
            if let MapError::Syntax { line, column, .. } | MapError::Invalid { line, column, .. } = error {
                assert!(line >= 1 && line <= max_lines(text) + 1 && column >= 1, "{line}:{column}");
            }
        }
    }
});
