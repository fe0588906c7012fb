//! The C interface, called by C programs: the header compiles without warnings as C11 and C++17, and programs behave as it says.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder of the built library: the one of this test's program, without `deps`.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let deps = program.parent().unwrap();
    deps.to_owned()
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}\n{out}\n{err}");
    out.into_owned()
}

/// Compiles a program of `tests/programs` and runs it.
fn program(compiler: &str, standard: &str, name: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let built = folder.path().join("program");
    let library = library();
    run(Command::new(compiler)
        .args(["-x", if standard.contains("++") { "c++" } else { "c" }, standard])
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"])
        .arg("-I")
        .arg(here("include"))
        .arg(here("tests/programs").join(name))
        .arg("-L")
        .arg(&library)
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .args(["-lfpga", "-o"])
        .arg(&built));
    run(&mut Command::new(&built))
}

#[test]
fn c_program_round_trip_arrives() {
    assert_eq!(
        program("cc", "-std=c11", "round_trip.c"),
        "round trip of 300001 bytes, 64 transfers of 4096 bytes\n"
    );
}

#[test]
fn cpp_program_compiles_and_runs() {
    assert_eq!(
        program("c++", "-std=c++17", "round_trip.c"),
        "round trip of 300001 bytes, 64 transfers of 4096 bytes\n"
    );
}

#[test]
fn misuse_returns_statuses() {
    assert_eq!(program("cc", "-std=c11", "misuse.c"), "misuse is refused\n");
}

#[test]
fn every_function_of_header_is_exported_and_no_other() {
    let header = std::fs::read_to_string(here("include/fpga.h")).unwrap();
    let mut declared: Vec<&str> = header
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("fpga_"))
        .filter(|word| header.contains(&format!("{word}(")) && !word.ends_with("_t"))
        .collect();
    declared.sort_unstable();
    declared.dedup();
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library().join("libfpga.so")));
    let mut exported: Vec<&str> = symbols.lines().filter_map(|line| line.split(" T ").nth(1)).collect();
    exported.retain(|name| !name.starts_with("rust_"));
    exported.sort_unstable();
    assert_eq!(exported, declared);
}
