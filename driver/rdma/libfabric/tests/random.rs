//! Random operations of four processes, checked against a list that all of them derive from a seed.
//!
//! `FPGA_RANDOM_OPERATIONS` is the number of operations of each run, and `FPGA_RANDOM_SEED` the seed.

use crate::{Installed, compiled, traffic};

const RANKS: usize = 4;
const OPERATIONS: &str = "20000";
/// With lost packets each waits for a repetition.
const OPERATIONS_WITH_LOSS: &str = "4000";

fn run(progress: &str, operations: &str, conditions: &[(&str, &str)]) {
    let installed = Installed::new();
    let Some(program) = compiled("random.c", installed.0.path()) else { return };
    let variable = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let (operations, seed) =
        (variable("FPGA_RANDOM_OPERATIONS", operations), variable("FPGA_RANDOM_SEED", "1"));
    let command = || {
        let mut command = installed.command(&program, &[&operations, &seed, progress]);
        command.envs(conditions.iter().copied());
        command
    };
    let output = command().output().unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    // Some operations of each kind move no data.
    traffic::check(&output, RANKS, operations.parse::<u64>().unwrap() / 2);
    traffic::check_fails_without_provider(command());
}

#[test]
fn random_operations_of_ranks_match_the_model() {
    run("manual", OPERATIONS, &[]);
    run("auto", OPERATIONS, &[]);
}

#[test]
fn random_operations_with_loss_and_reordering_match_the_model() {
    let conditions = [("FPGA_LOSS", "1%"), ("FPGA_REORDER", "32")];
    run("manual", OPERATIONS_WITH_LOSS, &conditions);
    run("auto", OPERATIONS_WITH_LOSS, &conditions);
}
