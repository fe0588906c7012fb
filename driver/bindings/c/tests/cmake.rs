//! A CMake project that finds the installed library.

use std::path::Path;
use std::process::Command;

use crate::prefix::{here, install, is_installed, run};

/// Project with one program by the shared library and one by the static library.
fn project(folder: &Path, version: &str) {
    let source = here("tests/programs/round_trip.c");
    let text = format!(
        "cmake_minimum_required(VERSION 3.13)\n\
         project(round_trip C)\n\
         find_package(fpga {version} REQUIRED)\n\
         add_executable(shared {source})\n\
         target_link_libraries(shared PRIVATE fpga::fpga)\n\
         add_executable(static {source})\n\
         target_link_libraries(static PRIVATE fpga::fpga_static)\n",
        source = source.display()
    );
    std::fs::write(folder.join("CMakeLists.txt"), text).unwrap();
}

fn configure(folder: &Path, prefix: &Path) -> Command {
    let mut command = Command::new("cmake");
    command.args(["-S", "."]).arg("-B").arg(folder.join("build")).current_dir(folder);
    command.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
    command
}

/// In a folder of libraries with more than one name, as in Debian, and moved after the installation.
#[test]
fn cmake_project_finds_library_and_runs() {
    if !is_installed("cmake") {
        return;
    }
    let installed = install("cc", "prefix-before-move", "lib/some-machine");
    let prefix = installed.with_file_name("prefix-after-move");
    if prefix.exists() {
        std::fs::remove_dir_all(&prefix).unwrap();
    }
    std::fs::rename(installed, &prefix).unwrap();
    let folder = tempfile::tempdir().unwrap();
    project(folder.path(), "1.0");
    // CMake searches lib and lib/ARCHITECTURE; this folder is neither.
    let package = prefix.join("lib/some-machine/cmake/fpga");
    run(configure(folder.path(), &prefix).arg(format!("-Dfpga_DIR={}", package.display())));
    run(Command::new("cmake").arg("--build").arg(folder.path().join("build")));
    for name in ["shared", "static"] {
        let said = run(&mut Command::new(folder.path().join("build").join(name)));
        assert!(said.starts_with("round trip of"), "{said}");
    }
    // Programs for another interface are refused.
    for version in ["2", "1.99"] {
        let folder = tempfile::tempdir().unwrap();
        project(folder.path(), version);
        let mut command = configure(folder.path(), &prefix);
        let done = command.arg(format!("-Dfpga_DIR={}", package.display())).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && said.contains("version"), "{said}");
    }
    std::fs::remove_dir_all(prefix).unwrap();
}
