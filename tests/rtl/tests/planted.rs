//! Faults planted in copies of the modules: the random tests find each of them.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use crate::frames::{FULL_PACE, Pace, RX_FILES, check_frames, random_frames, rx_of};
use crate::scenario::FILES;
use crate::transmit::{BUILDS, random_windows};

/// Argument of the program that activates the fault, file, expression of the module, and its replacement.
type Fault = (&'static str, &'static str, &'static str, &'static str);

const RX_FAULTS: [Fault; 8] = [
    ("+planta", "ni_rx_rules.sv", "index < count", "index <= count"),
    ("+plantb", "ni_rx_rules.sv", "(!behind[31] || behind == 32'h8000_0000)", "!behind[31]"),
    ("+plantc", "ni_rx_rules.sv", "flags_broken && counts_trimmed", "counts_trimmed"),
    ("+plantd", "ni_rx_rules.sv", "64'(left) <= others", "1'b1"),
    ("+plante", "ni_ranges.sv", "inner_end[63:0] <= outer_end[63:0]", "1'b1"),
    ("+plantf", "ni_rx_payload.sv", "(rest || take && !first)", "(take && !first)"),
    ("+plantg", "ni_rx.sv", "RESIDUES[32*last_gap+:32]", "RESIDUES[31:0]"),
    ("+planth", "ni_rx.sv", "refuse && fault_valid", "1'b0"),
];

const TRANSMIT_FAULTS: [Fault; 8] = [
    ("+planta", "ni_tx.sv", "out_end > (SIZE_BITS + 1)'(BYTES)", "out_end >= (SIZE_BITS + 1)'(BYTES)"),
    ("+plantb", "ni_tx.sv", "SIZE_BITS'(i) < size", "1'b1"),
    ("+plantc", "ni_transmit.sv", "sequence_word != commit_word", "1'b0"),
    ("+plantd", "ni_transmit.sv", "answer_word >> {count[1:0], 3'b000} == 32'h0", "1'b1"),
    ("+plante", "ni_transmit_check.sv", "payload <= PAYLOAD_SIZE", "1'b1"),
    ("+plantf", "ni_transmit_check.sv", "end_packet <= 17'(packets)", "1'b1"),
    ("+plantg", "ni_transmit_header.sv", "number == last_index", "index == last_index"),
    ("+planth", "ni_transmit.sv", "path_answer ? answer_byte", "path_answer ? answer_word[7:0]"),
];

/// Copies `files` with `faults`, each of which acts only if its argument is given. Returns the folder.
fn plant(name: &str, files: &[&str], faults: &[Fault]) -> PathBuf {
    let folder = fpga_process::workspace_root().join("target/ni-planted").join(name);
    fs::create_dir_all(&folder).unwrap();
    for file in files {
        let mut text = fs::read_to_string(fpga_ni_tests::sources().join(file)).unwrap();
        for (argument, _, expression, fault) in faults.iter().filter(|fault| fault.1 == *file) {
            assert_eq!(text.matches(expression).count(), 1, "{file}: {expression}");
            let name = argument.trim_start_matches('+');
            let chosen = match expression.split_once(" ? ") {
                // One branch of a conditional expression.
                Some((condition, value)) if *condition == fault[..condition.len()] => {
                    let fault = &fault[condition.len() + 3..];
                    format!("{condition} ? ($test$plusargs(\"{name}\") != 0 ? {fault} : {value})")
                }
                _ => format!("($test$plusargs(\"{name}\") != 0 ? ({fault}) : ({expression}))"),
            };
            text = text.replace(expression, &chosen);
        }
        let path = folder.join(file);
        if fs::read_to_string(&path).is_ok_and(|found| found == text) {
            continue;
        }
        fs::write(path, text).unwrap();
    }
    folder
}

/// Faults that a check does not find. A simulation that ends with an error counts as found.
fn missed(faults: &[Fault], check: impl Fn(&'static str) -> Result<(), String>) -> Vec<&'static str> {
    let missed =
        |argument| catch_unwind(AssertUnwindSafe(|| check(argument))).is_ok_and(|result| result.is_ok());
    faults.iter().map(|fault| fault.0).filter(|argument| missed(argument)).collect()
}

#[test]
fn faults_of_the_receiving_side_are_found() {
    let (bus, packet_log2) = (128, 6);
    let folder = plant("rx", &RX_FILES, &RX_FAULTS);
    let Some(program) = rx_of("rx_planted", &folder, bus, packet_log2) else { return };
    let frames = random_frames(3, packet_log2, 4000);
    let check = |plant| {
        let pace = Pace { accept_fault: 40, plant, ..FULL_PACE };
        check_frames(&program, packet_log2, 1, &frames, pace)
    };
    check("").unwrap();
    assert_eq!(missed(&RX_FAULTS, check), Vec::<&str>::new());
}

#[test]
fn faults_of_the_transmit_side_are_found() {
    let build = BUILDS[0];
    let folder = plant("transmit", &FILES, &TRANSMIT_FAULTS);
    let Some(program) = build.program("transmit_planted", &folder).unwrap() else { return };
    let check = |argument: &'static str| {
        let plant = (!argument.is_empty()).then_some(argument);
        random_windows(build, 4, 1200).run_planted(&program, 1, 256, 0, plant).map(|_| ())
    };
    check("").unwrap();
    assert_eq!(missed(&TRANSMIT_FAULTS, check), Vec::<&str>::new());
}
