//! Runs every example without arguments: it must succeed and print something.
//!
//! `cargo test` has built the examples next to this test. They run as separate programs, as a user runs them.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the directory of the examples: this test is `target/PROFILE/deps/it-HASH`, they are in `target/PROFILE/examples`.
fn built_examples() -> PathBuf {
    let this = std::env::current_exe().unwrap();
    this.parent().and_then(Path::parent).unwrap().join("examples")
}

/// Returns the example names from the source folder, so that an example missing from Cargo.toml is detected.
fn names() -> Vec<String> {
    let sources = fs::read_dir(env!("CARGO_MANIFEST_DIR")).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<String> = sources
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter(|path| path.file_name().is_some_and(|name| name != "build.rs"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn examples_all_run() {
    let folder = built_examples();
    let names = names();
    assert!(names.len() >= 9, "{names:?}");
    for name in names {
        let program = folder.join(&name).with_extension(std::env::consts::EXE_EXTENSION);
        assert!(
            program.is_file(),
            "{} is not built: declare it in examples/Cargo.toml, and run `cargo test -p fpga-examples` as a whole",
            program.display()
        );
        let output = Command::new(&program).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {}\n{errors}", output.status);
        assert!(!output.stdout.is_empty(), "{name} has no output");
    }
}

#[test]
fn examples_are_short() {
    for name in names() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&name).with_extension("rs");
        let lines = fs::read_to_string(path).unwrap().lines().count();
        assert!(lines < 120, "{name} has {lines} lines");
    }
}

#[test]
fn examples_readme_table_is_complete() {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    for name in names() {
        assert!(
            readme.contains(&format!("[`{name}`]({name}.rs)")),
            "{name} is missing in examples/README.md"
        );
    }
}
