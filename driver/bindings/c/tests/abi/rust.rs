//! The same functions as Rust defines them. Both sides are written in the same types, which a calling convention passes alike.

use std::path::Path;

use super::header::{Header, split};

/// Type that a register or the stack holds, of a type in C.
fn of_c(header: &Header, name: &str) -> String {
    let is_handle = |name: &str| {
        let fields = header.structures.iter().find(|it| it.name == name).map(|it| &it.fields);
        fields.is_some_and(|fields| matches!(fields.as_slice(), [(of, _)] if of == "uint64_t"))
    };
    let name = name.trim_start_matches("const ").trim();
    if name.contains('*') || header.callbacks.iter().any(|(callback, _)| callback == name) {
        return "pointer".into();
    }
    if header.enumerations.iter().any(|enumeration| enumeration.name == name) || name == "int" {
        return "i32".into();
    }
    match name {
        "void" => String::new(),
        "size_t" => "usize".into(),
        "double" => "f64".into(),
        "bool" => "bool".into(),
        _ if is_handle(name) => "u64".into(),
        _ => match name.strip_suffix("_t").and_then(|it| it.split_once("int")) {
            Some((sign, bits)) => format!("{}{bits}", if sign == "u" { 'u' } else { 'i' }),
            None => panic!("{name} is passed by value: add it to tests/abi/rust.rs"),
        },
    }
}

/// The same of a type in Rust.
fn of_rust(name: &str) -> String {
    match name.trim() {
        name if name.starts_with(['*', '&']) || name.starts_with("Option<") => "pointer".into(),
        "Status" | "c_int" => "i32".into(),
        name => name.to_owned(),
    }
}

fn signature(name: &str, parameters: &[String], result: &str) -> String {
    let result = if result.is_empty() { String::new() } else { format!(" -> {result}") };
    format!("{name}({}){result}", parameters.join(", "))
}

/// Functions of the header.
pub(super) fn of_header(header: &Header) -> Vec<String> {
    let signature_of = |function: &super::header::Function| {
        let parameters: Vec<_> = function.parameters.iter().map(|it| of_c(header, it)).collect();
        signature(&function.name, &parameters, &of_c(header, &function.result))
    };
    header.functions.iter().map(signature_of).collect()
}

/// Functions of a source.
pub(super) fn of_source(text: &str) -> Vec<String> {
    let definitions = text.split("extern \"C\" fn ").skip(1).filter(|rest| rest.starts_with("fpga_"));
    let signature_of = |rest: &str| {
        let (head, _) = rest.split_once('{').expect("a function has a body");
        let (name, rest) = head.split_once('(').expect("a function has parameters");
        let (list, result) = rest.rsplit_once(')').expect("the parameters end");
        let parameters: Vec<_> = split(list)
            .iter()
            .map(|parameter| of_rust(parameter.split_once(':').expect("parameters have types").1))
            .collect();
        signature(name, &parameters, &of_rust(result.trim().trim_start_matches("->")))
    };
    definitions.map(signature_of).collect()
}

/// Functions of all sources below a folder.
pub(super) fn of_sources(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(of_sources(&path));
        } else {
            found.extend(of_source(&std::fs::read_to_string(&path).unwrap()));
        }
    }
    found
}
