//! Programs of `examples/c`, compiled by their Makefile and pkg-config from a copy of their folder.

use std::path::Path;
use std::process::Command;

use crate::prefix::{here, is_installed, prefix, run};

/// Copies the sources, so that parallel builds and the working tree do not meet.
fn copy_to(folder: &Path) {
    for file in std::fs::read_dir(here("../../../examples/c")).unwrap().map(|file| file.unwrap().path()) {
        if file.extension().is_some_and(|end| end == "c" || end == "h") || file.ends_with("Makefile") {
            std::fs::copy(&file, folder.join(file.file_name().unwrap())).unwrap();
        }
    }
}

#[test]
fn examples_run_and_print_results() {
    if !is_installed("make") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    copy_to(folder.path());
    let said = run(Command::new("make")
        .args(["--silent", "run", "CFLAGS=-std=c11 -Wall -Wextra -Werror -pedantic"])
        .current_dir(folder.path())
        .env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"))
        .env("LD_LIBRARY_PATH", prefix().join("lib")));
    let expected = "64 transfers of 4096 bytes to the card and back\n\
                    1000 packets, 2417500 bytes, 0 lost\n\
                    lines 0x8, line 3: 1\nlines 0x8, line 3: 1\nlines 0x8, line 3: 1\n\
                    100000 bytes from node 1, all equal\n";
    assert_eq!(said, expected);
}

/// The example's error message has the name that was given and what to do.
#[test]
fn example_reports_card_that_does_not_exist() {
    if !is_installed("make") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    copy_to(folder.path());
    let command = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder.path());
        command
            .env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"))
            .env("LD_LIBRARY_PATH", prefix().join("lib"));
        command
    };
    run(&mut command("make", &["--silent", "round_trip"]));
    let done = command("./round_trip", &["mock:no-such-card"]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code() == Some(1) && said.contains("no-such-card"), "{said}");
}
