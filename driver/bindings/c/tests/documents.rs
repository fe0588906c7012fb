//! C programs in documents are compiled and run, and so is the command line that the documents show.

use std::path::Path;
use std::process::Command;

use crate::prefix::{GCC_C11, Toolchain, here, installed, prefix, run};

/// Blocks of one language in a document.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let start = format!("```{language}\n");
    text.split(start.as_str())
        .skip(1)
        .filter_map(|rest| rest.split_once("\n```"))
        .map(|(block, _)| block)
        .collect()
}

fn document(path: &str) -> String {
    std::fs::read_to_string(here("../../..").join(path)).unwrap()
}

/// Compiles and runs all programs of a document, and returns what they print.
fn outputs(path: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("program.c");
    let run_one = |block: &&str| {
        std::fs::write(&source, block).unwrap();
        GCC_C11.compile(&source, &folder.path().join("program"), &[]);
        run(&mut installed(folder.path().join("program")))
    };
    blocks(&document(path), "c").iter().map(run_one).collect()
}

#[test]
fn guide_programs_print_what_the_text_says() {
    let outputs = outputs("docs/guide/c.md");
    assert_eq!(outputs[0], "hello, card\n");
    assert!(outputs[1].contains("(not supported by this card)\n"), "{outputs:?}");
    assert_eq!(outputs.len(), 2);
    let text = document("docs/guide/c.md");
    let first = blocks(&text, "c")[0];
    assert!(first.lines().filter(|line| !line.is_empty()).count() <= 20, "the title says twenty lines");
}

#[test]
fn package_document_programs_run() {
    assert_eq!(outputs("driver/bindings/c/README.md").len(), 1);
}

#[test]
fn guide_cpp_program_runs() {
    let text = document("docs/guide/c.md");
    let programs = blocks(&text, "cpp");
    assert_eq!(programs.len(), 1);
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("program.cpp"), folder.path().join("program"));
    std::fs::write(&source, programs[0]).unwrap();
    Toolchain { compiler: "g++", standard: "-std=c++17" }.compile(&source, &program, &[]);
    assert_eq!(run(&mut installed(&program)), "written\n");
}

/// The README shows the body of a function.
#[test]
fn readme_statements_write_to_card() {
    let text = document("README.md");
    let body = blocks(&text, "c");
    assert_eq!(body.len(), 1);
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("program.c"), folder.path().join("program"));
    let check = "char found[6];\nfpga_channel c2h;\nfpga_channel_open(card, FPGA_C2H, 0, &c2h);\n\
                 fpga_read(c2h, 0x1000, found, 6, FPGA_NO_TIMEOUT);\nputs(found);\nreturn 0;";
    let text =
        format!("#include <fpga.h>\n#include <stdio.h>\nint main(void)\n{{\n{}\n{check}\n}}\n", body[0]);
    std::fs::write(&source, text).unwrap();
    GCC_C11.compile(&source, &program, &[]);
    assert_eq!(run(&mut installed(&program)), "hello\n");
}

/// The line that compiles, as a shell runs it.
#[test]
fn guide_command_compiles_program() {
    for path in ["docs/guide/c.md", "driver/bindings/c/README.md"] {
        let text = document(path);
        let line =
            text.lines().map(|line| line.trim_start_matches("$ ")).find(|line| line.starts_with("cc "));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("hello.c"), blocks(&text, "c")[0]).unwrap();
        run(Command::new("sh")
            .args(["-euc", line.unwrap()])
            .current_dir(folder.path())
            .env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"))
            .env("LD_LIBRARY_PATH", prefix().join("lib")));
        assert!(Path::new(&folder.path().join("hello")).exists());
    }
}
