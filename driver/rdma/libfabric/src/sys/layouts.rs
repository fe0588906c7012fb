//! Comparison with the installed headers: a C program prints sizes, offsets and values of everything that is used here.

use super::*;
use fpga_pci::testing::skipped_without;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

fn layouts() -> impl Iterator<Item = &'static Layout> {
    let all = [
        attributes::STRUCTURES,
        domain::STRUCTURES,
        domain::TABLES,
        endpoint::STRUCTURES,
        endpoint::TABLES,
        events::STRUCTURES,
        events::TABLES,
        fid::STRUCTURES,
        fid::TABLES,
        messages::STRUCTURES,
    ];
    all.into_iter().flatten()
}

/// Structures of the caller that newer headers make longer than they are here, because only the fields of version 1.17 are used.
const PREFIXES: [&str; 4] = ["fi_mr_attr", "fi_cq_attr", "fi_cq_err_entry", "fi_cntr_attr"];

fn program() -> String {
    let mut text = String::from("#include <stdio.h>\n#include <stddef.h>\n");
    for header in [
        "fabric",
        "fi_domain",
        "fi_endpoint",
        "fi_eq",
        "fi_cm",
        "fi_tagged",
        "fi_rma",
        "fi_atomic",
        "fi_collective",
    ] {
        writeln!(text, "#include <rdma/{header}.h>").unwrap();
    }
    text.push_str("#include <rdma/providers/fi_prov.h>\nint main(void) {\n");
    for Layout { name, fields, .. } in layouts() {
        writeln!(text, "printf(\"{name} %zu\\n\", sizeof(struct {name}));").unwrap();
        for field in fields.iter().map(|(field, _)| field.trim_start_matches("r#")) {
            writeln!(text, "printf(\"{name}.{field} %zu\\n\", offsetof(struct {name}, {field}));").unwrap();
        }
    }
    for name in BITS.iter().chain(NUMBERS).map(|(name, _)| name).chain(CODES.iter().map(|(name, _)| name)) {
        writeln!(text, "printf(\"{name} %llu\\n\", (unsigned long long) {name});").unwrap();
    }
    text.push_str("return 0;\n}\n");
    text
}

#[test]
fn layouts_match_installed_headers() {
    // Another version's headers: FPGA_LIBFABRIC_INCLUDE=DIRECTORY.
    let include = std::env::var("FPGA_LIBFABRIC_INCLUDE").unwrap_or_else(|_| "/usr/include".to_owned());
    if !Path::new(&include).join("rdma/fabric.h").exists() {
        skipped_without(&format!("{include}/rdma/fabric.h"), "libfabric-dev");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (source, binary) = (directory.path().join("layouts.c"), directory.path().join("layouts"));
    std::fs::write(&source, program()).unwrap();
    let compiled = Command::new("cc").args(["-w", "-I", &include, "-o"]).arg(&binary).arg(&source).output();
    let Ok(compiled) = compiled else {
        skipped_without("a C compiler", "gcc");
        return;
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&binary).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let lines = output.lines().map(|line| line.split_once(' ').unwrap());
    let values: std::collections::HashMap<&str, u64> =
        lines.map(|(name, value)| (name, value.parse().unwrap())).collect();

    for Layout { name, size, fields } in layouts() {
        let theirs = usize::try_from(values[*name]).unwrap();
        assert!(
            PREFIXES.contains(name) || *size >= theirs,
            "{name} has {size} bytes here, {theirs} in the headers"
        );
        for (field, offset) in *fields {
            let key = format!("{name}.{}", field.trim_start_matches("r#"));
            assert_eq!(u64::try_from(*offset).unwrap(), values[key.as_str()], "{key}");
        }
    }
    let codes = CODES.iter().map(|(name, code)| (*name, u64::try_from(Code::get(*code)).unwrap()));
    for (name, value) in BITS.iter().chain(NUMBERS).copied().chain(codes) {
        assert_eq!(value, values[name], "{name}");
    }
}
