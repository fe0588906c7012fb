//! The conformance suite on the backends of this process: each case on each backend is a separate test.

use std::process::ExitCode;

use fpga_tests::conformance::backends::{INLINE, ServedCard, THREADED};
use fpga_tests::conformance::faults::TABLE;
use fpga_tests::conformance::{Skip, TestBackend, cases, load, page};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

const BACKENDS: [&dyn TestBackend; 3] = [&INLINE, &THREADED, &ServedCard];

/// Themes whose cases run on the threaded backend here, because they depend on when the card runs. All other cases differ from those on the
/// served card, which has its own thread too, only by the socket: `conformance_every_case_on_threaded_card` runs them.
const THREADED_THEMES: [&str; 6] = ["channels.", "deadline.", "ending.", "interrupts.", "open.", "removal."];

fn is_about_time(case: &str) -> bool {
    THREADED_THEMES.iter().any(|theme| case.starts_with(theme))
}

fn main() -> ExitCode {
    // `cargo xtask long` gives several names, and this harness accepts one. No case is ignored.
    if std::env::args().any(|argument| argument == "--ignored") {
        return ExitCode::SUCCESS;
    }
    let mut trials = Vec::new();
    for backend in BACKENDS {
        for case in cases() {
            if backend.name() == THREADED.name() && !is_about_time(case.name) {
                continue;
            }
            let name = format!("{}::{}", backend.name(), case.name);
            trials.push(Trial::ignorable_test(name, move || match case.run(backend) {
                Ok(()) => Ok(Completion::Completed),
                Err(Skip(why)) => Ok(Completion::ignored_with(why)),
            }));
        }
    }
    trials.push(Trial::test("faults::faults_page_is_current", faults_page_is_current));
    trials.push(Trial::test("faults::every_row_has_a_case", every_row_has_a_case));
    trials.push(Trial::test("cases::names_are_unique", names_are_unique));
    trials.push(Trial::test("load::hammer_then_the_first_look", stress));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn faults_page_is_current() -> Result<(), Failed> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/faults.md");
    if std::fs::read_to_string(path).unwrap_or_default() == page::faults() {
        return Ok(());
    }
    Err("docs/guide/faults.md is outdated; run cargo run -p fpga-tests --bin conformance -- --fault-page > docs/guide/faults.md"
        .into())
}

/// Checks that a case exists for every row of the fault table, and that it needs the same capabilities.
fn every_row_has_a_case() -> Result<(), Failed> {
    for row in TABLE {
        let case = cases().into_iter().find(|case| case.name == row.case);
        let Some(case) = case else {
            return Err(format!("{}: no case is named {}", row.name, row.case).into());
        };
        if case.needs != row.needs {
            return Err(format!("{}: row and case need different capabilities", row.name).into());
        }
    }
    Ok(())
}

fn names_are_unique() -> Result<(), Failed> {
    let mut names: Vec<_> = cases().iter().map(|case| case.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    if names.len() == count { Ok(()) } else { Err("two cases have the same name".into()) }
}

/// Checks the programs for kills from outside (`--hammer`, `--check-after-kill`); the first one is stopped, not killed.
fn stress() -> Result<(), Failed> {
    let failed = |error: Box<dyn std::error::Error>| Failed::from(error.to_string());
    for backend in BACKENDS {
        let fixture = backend.fixture()?;
        let mut rounds = 0;
        let (mut begun, mut stop) = (false, || {
            rounds += 1;
            rounds > 400
        });
        let done =
            load::stress(fixture.open_backend()?, 3, &mut || begun = true, &mut stop).map_err(failed)?;
        if !begun || done < 200 {
            return Err(format!("{}: {done} transfers", backend.name()).into());
        }
        load::check_after_kill(fixture.open_backend()?).map_err(failed)?;
    }
    Ok(())
}
