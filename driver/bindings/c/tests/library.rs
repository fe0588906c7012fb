//! Shared library: its names, its symbols and the system's libraries that it needs.

use std::path::Path;
use std::process::Command;

use crate::prefix::{exported, here, install, is_installed, prefix, run};

/// Functions that the header declares.
fn declared() -> Vec<String> {
    crate::abi::header().functions.into_iter().map(|function| function.name).collect()
}

fn versioned(names: &[String]) -> Vec<String> {
    let mut versioned: Vec<_> = names.iter().map(|name| format!("{name}@@FPGA_1")).collect();
    versioned.sort();
    versioned
}

#[test]
fn library_exports_functions_of_header_and_no_other() {
    let declared = declared();
    assert!(declared.len() > 15, "{declared:?}");
    assert_eq!(exported(&prefix().join("lib/libfpga.so")), versioned(&declared));
}

#[test]
fn library_has_soname_and_links() {
    let lib = prefix().join("lib");
    let dynamic = run(Command::new("readelf").arg("-d").arg(lib.join("libfpga.so")));
    assert!(dynamic.contains("Library soname: [libfpga.so.1]"), "{dynamic}");
    // No way to this machine's folders is built in.
    assert!(!dynamic.contains("RUNPATH") && !dynamic.contains("RPATH"), "{dynamic}");
    let target = |name: &str| std::fs::read_link(lib.join(name)).unwrap();
    assert_eq!(target("libfpga.so"), Path::new("libfpga.so.1"));
    assert_eq!(target("libfpga.so.1"), Path::new("libfpga.so.1.0"));
}

#[test]
fn library_linked_by_clang_and_lld_exports_the_same() {
    if !is_installed("clang") || !is_installed("ld.lld") {
        return;
    }
    let other = install("clang -fuse-ld=lld", "prefix-lld", "lib");
    assert_eq!(exported(&other.join("lib/libfpga.so")), versioned(&declared()));
    std::fs::remove_dir_all(other).unwrap();
}

/// The list is written in install.sh, because a test build does not print it.
#[test]
fn system_libraries_are_those_of_rustc() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("empty.rs"), "").unwrap();
    let said = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--crate-type", "staticlib", "--print", "native-static-libs", "empty.rs"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&said.stderr);
    let list = said.lines().find_map(|line| line.strip_prefix("note: native-static-libs: ")).unwrap();
    let needed: Vec<_> = list.split(' ').filter(|name| !["-lgcc_s", "-lc"].contains(name)).collect();
    let script = std::fs::read_to_string(here("install.sh")).unwrap();
    assert!(script.contains(&format!("system_libraries='{}'", needed.join(" "))), "rustc needs {needed:?}");
}

#[test]
fn install_refuses_prefix_that_pkg_config_would_split() {
    for prefix in ["relative", "/with space", "/a|b"] {
        let done = Command::new(here("install.sh")).args(["--prefix", prefix]).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && said.contains("prefix") && said.contains(prefix), "{said}");
    }
}
