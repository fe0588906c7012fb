//! Binary interface: constants, enumerations, layouts, functions and symbol versions. `abi.txt` is the committed list;
//! `UPDATE_ABI=1 cargo test -p fpga-c --test it abi` writes it again. README.md, "Versions", has the rule for changes.

#[path = "../../build/header.rs"]
mod header;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use crate::prefix::{Toolchain, exported, here, installed, is_installed, prefix, run};
pub(crate) use header::Header;

pub(crate) fn header() -> Header {
    Header::parse(&std::fs::read_to_string(here("include/fpga.h")).unwrap())
}

/// C program that prints constants, enumerations and structures as its compiler lays them out.
fn program(header: &Header) -> String {
    let mut text = String::from(
        "#include <fpga.h>\n#include <stdio.h>\n#ifndef __cplusplus\n#define alignof _Alignof\n#endif\nint main(void)\n{\n",
    );
    let mut line =
        |format: &str, values: &str| writeln!(text, "    printf(\"{format}\\n\"{values});").unwrap();
    line("constants", "");
    for (name, _) in &header.constants {
        line(&format!("    {name} %llu"), &format!(", (unsigned long long){name}"));
    }
    for enumeration in &header.enumerations {
        let name = &enumeration.name;
        line(&format!("enum {name}: %zu bytes"), &format!(", sizeof({name})"));
        for (value, _) in &enumeration.values {
            line(&format!("    {value} %d"), &format!(", (int){value}"));
        }
    }
    for structure in &header.structures {
        let name = &structure.name;
        line(
            &format!("struct {name}: %zu bytes, alignment %zu"),
            &format!(", sizeof({name}), alignof({name})"),
        );
        for (of, field) in &structure.fields {
            line(&format!("    %zu {of} {field}"), &format!(", offsetof({name}, {field})"));
        }
    }
    text.push_str("    return 0;\n}\n");
    text
}

/// The list, laid out by one compiler.
fn list(header: &Header, toolchain: Toolchain) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (source, built) = (folder.path().join("layout.c"), folder.path().join("layout"));
    std::fs::write(&source, program(header)).unwrap();
    toolchain.compile(&source, &built, &[]);
    let mut text = run(&mut installed(&built));
    let versions: BTreeMap<String, String> = exported(&prefix().join("lib/libfpga.so"))
        .iter()
        .map(|symbol| symbol.split_once("@@").expect("symbols have versions"))
        .map(|(name, version)| (name.to_owned(), version.to_owned()))
        .collect();
    let mut functions: Vec<_> = header.functions.iter().collect();
    functions.sort_by_key(|function| &function.name);
    for function in functions {
        let version = versions.get(&function.name).map_or("not exported", String::as_str);
        let types: Vec<_> = function.parameters.iter().map(|(of, _)| of.as_str()).collect();
        let parameters = if types.is_empty() { "void" } else { &types.join(", ") };
        writeln!(text, "{version}: {} {}({parameters})", function.result, function.name).unwrap();
    }
    text
}

/// The list of the reference compiler.
static REFERENCE: LazyLock<String> = LazyLock::new(|| list(&header(), crate::prefix::GCC_C11));

/// Difference of two lists, with the consequence for the version.
fn difference(old: &str, new: &str) -> String {
    let missing_of = |text: &str, other: &str, sign: char| -> String {
        let missing = text.lines().filter(|line| !other.lines().any(|other| other == *line));
        missing.map(|line| format!("{sign} {line}\n")).collect()
    };
    let (removed, added) = (missing_of(old, new, '-'), missing_of(new, old, '+'));
    let consequence = if removed.is_empty() {
        "a new minor version"
    } else {
        "a new major version, unless a structure that is passed with its size has grown"
    };
    format!("{removed}{added}After a release this is {consequence}: see README.md, \"Versions\".")
}

#[test]
fn abi_matches_committed_list() {
    let list = &*REFERENCE;
    let path = here("abi.txt");
    if std::env::var_os("UPDATE_ABI").is_some() {
        std::fs::write(&path, list).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == *list,
        "abi.txt is stale; UPDATE_ABI=1 cargo test -p fpga-c --test it abi\n{}",
        difference(&committed, list)
    );
}

#[test]
fn abi_is_the_same_for_every_compiler() {
    let list_of = |compiler, standard| list(&header(), Toolchain { compiler, standard });
    let expected = REFERENCE.as_str();
    assert_eq!(list_of("g++", "-std=c++17"), expected);
    if is_installed("clang") {
        assert_eq!(list_of("clang", "-std=c11"), expected);
        assert_eq!(list_of("clang++", "-std=c++17"), expected);
    }
}

#[test]
fn abi_changes_are_named_by_version() {
    assert!(difference("a\nb\n", "a\nb\nc\n").contains("+ c\nAfter a release this is a new minor version"));
    assert!(
        difference("a\nb\n", "a\nc\n").contains("- b\n+ c\nAfter a release this is a new major version,")
    );
}

#[test]
fn header_forms_are_read() {
    let text = "/* a; b */\n#define A 1\n#define F(x) x\nextern \"C\" {\ntypedef enum e {\n X = 1, /* one */\n Y = 2 } e;\n\
                typedef struct { const char *name; uint8_t key[4]; } s;\nconst s *f(void);\ne g(const s *in, size_t n);\n}\n";
    let header = Header::parse(text);
    let pair = |of: &str, name: &str| (of.to_owned(), name.to_owned());
    assert_eq!(header.constants, [pair("A", "1")]);
    assert_eq!(header.enumerations[0].values, [("X".to_owned(), 1), ("Y".to_owned(), 2)]);
    assert_eq!(header.structures[0].fields, [pair("const char *", "name"), pair("uint8_t [4]", "key")]);
    assert_eq!((header.functions[0].result.as_str(), header.functions[0].parameters.len()), ("const s *", 0));
    assert_eq!(header.functions[1].parameters, [pair("const s *", "in"), pair("size_t", "n")]);
}
