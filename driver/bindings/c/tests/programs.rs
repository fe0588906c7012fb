//! Programs of `tests/programs`: each ends with exit status 0 and prints what it has done.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::prefix::{GCC_C11, Toolchain, here, installed, is_installed, pkg_config, run};

/// Sources that a standard compiles, in the order of their names: C++ compiles those in C, too.
fn sources(standard: &str) -> Vec<PathBuf> {
    let ends: &[&str] = if standard.contains("++") { &["c", "cpp"] } else { &["c"] };
    let files = std::fs::read_dir(here("tests/programs")).unwrap().map(|file| file.unwrap().path());
    let mut sources: Vec<_> = files
        .filter(|path| path.extension().and_then(OsStr::to_str).is_some_and(|end| ends.contains(&end)))
        .collect();
    sources.sort();
    assert!(sources.len() >= 2, "{sources:?}");
    sources
}

/// Compiles and runs every program.
fn all(compiler: &'static str, standard: &'static str) {
    if !is_installed(compiler) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for source in sources(standard) {
        let program = folder.path().join(source.file_stem().unwrap());
        Toolchain { compiler, standard }.compile(&source, &program, &[]);
        let said = run(&mut installed(&program));
        assert!(said.ends_with('\n'), "{} says nothing: {said:?}", source.display());
    }
}

#[test]
fn programs_gcc_c11_pass() {
    all("gcc", "-std=c11");
}

/// C++ accepts the sources in C; the wrapper runs. `programs_valgrind_finds_no_error_and_no_leak_in_every_program` runs all of them,
/// compiled as C++.
#[test]
fn programs_gcc_cpp17_pass() {
    let toolchain = Toolchain { compiler: "g++", standard: "-std=c++17" };
    toolchain.check(&sources("-std=c11"));
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("wrapper");
    toolchain.compile(&here("tests/programs/wrapper.cpp"), &program, &[]);
    assert!(run(&mut installed(&program)).ends_with('\n'));
}

#[test]
fn programs_clang_c11_pass() {
    all("clang", "-std=c11");
}

#[test]
fn programs_clang_cpp17_pass() {
    all("clang++", "-std=c++17");
}

/// A transfer and wrong calls. Valgrind takes about a second for the simulated card of each program.
#[test]
fn programs_valgrind_finds_no_error_and_no_leak() {
    check_with_valgrind(
        ["round_trip.c", "misuse_handles.c"].map(|name| here("tests/programs").join(name)).into(),
    );
}

#[test]
#[ignore = "long: 15 s: every program"]
fn programs_valgrind_finds_no_error_and_no_leak_in_every_program() {
    check_with_valgrind(sources("-std=c++17"));
}

/// Every program frees what it created, so that a block which is still reachable at its end was forgotten by the library.
fn check_with_valgrind(sources: Vec<PathBuf>) {
    if !is_installed("valgrind") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let toolchain = Toolchain { compiler: "g++", standard: "-std=c++17" };
    let check = |source: &Path| {
        let program = folder.path().join(source.file_stem().unwrap());
        toolchain.compile(source, &program, &["-g"]);
        run(installed("valgrind")
            .args([
                "--quiet",
                "--error-exitcode=9",
                "--leak-check=full",
                "--show-leak-kinds=all",
                "--num-callers=40",
            ])
            // Half of the time of a short program; the suppressions name functions that are not inlined.
            .arg("--read-inline-info=no")
            .arg("--errors-for-leak-kinds=all")
            .arg(format!("--suppressions={}", here("tests/valgrind.supp").display()))
            .arg(&program));
    };
    // Two at a time: otherwise one CPU is idle, because no other test takes as long.
    let remaining = Mutex::new(sources.into_iter());
    let next = || remaining.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| std::iter::from_fn(next).for_each(|source| check(&source)));
        }
    });
}

/// The linker reads an archive of all packages: that takes about a second.
#[test]
fn program_linked_statically_runs() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let flags = pkg_config(&["--static", "--cflags", "--libs"]);
    GCC_C11.compile_with(&here("tests/programs/round_trip.c"), &program, &["-static"], &flags);
    assert!(run(&mut std::process::Command::new(&program)).starts_with("round trip of"));
}
