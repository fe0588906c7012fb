//! Writes `abi.rs`, the types and constants of `include/fpga.h` in Rust, and `exports.rs`, its functions. The header is the only place where
//! they and their documentation are written.
//!
//! A function of the header calls the function of the same name in `src`, which has the same parameters and returns a `Result`; the compiler
//! compares the types. Without simulated cards, functions `fpga_network_...` report that.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a build script")]

#[path = "build/header.rs"]
mod header;

use std::fmt::Write as _;
use std::path::Path;

use header::{Function, Header};

fn main() {
    for path in ["build.rs", "build/header.rs", "include/fpga.h"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let header = Header::parse(&std::fs::read_to_string("include/fpga.h").unwrap());
    let (mut types, mut exports) = (String::new(), String::new());
    constants(&header, &mut types);
    structures(&header, &mut types);
    let has_simulator = std::env::var_os("CARGO_FEATURE_SIM").is_some();
    for function in &header.functions {
        export(&header, function, has_simulator, &mut exports);
    }
    let folder = std::env::var_os("OUT_DIR").unwrap();
    std::fs::write(Path::new(&folder).join("abi.rs"), types).unwrap();
    std::fs::write(Path::new(&folder).join("exports.rs"), exports).unwrap();
}

/// Type in Rust that is passed as the type in C. Handles and enumerations are numbers.
fn rust_type(header: &Header, c: &str) -> String {
    let c = c.trim().replace("volatile ", "");
    if let Some((of, length)) = c.split_once('[') {
        let length = length.trim_end_matches(']');
        let constant = header.constants.iter().find(|(name, _)| name == length);
        let length = constant.map_or(length, |(_, value)| value);
        return format!("[{}; {length}]", rust_type(header, of));
    }
    if let Some(target) = c.strip_suffix('*') {
        let (access, target) = match target.strip_prefix("const ") {
            Some(target) if !target.contains('*') => ("const", target),
            _ => ("mut", target),
        };
        let target = match target.trim() {
            "void" => "u8".to_owned(),
            "char" => "core::ffi::c_char".to_owned(),
            target => rust_type(header, target),
        };
        return format!("*{access} {target}");
    }
    let is_handle = |name: &str| {
        let fields = header.structures.iter().find(|it| it.name == name).map(|it| &it.fields);
        fields.is_some_and(|fields| matches!(fields.as_slice(), [(of, _)] if of == "uint64_t"))
    };
    let name = c.trim();
    match name {
        "fpga_status" => "Status".to_owned(),
        "size_t" => "usize".to_owned(),
        "int" => "i32".to_owned(),
        _ if header.enumerations.iter().any(|it| it.name == name) => "i32".to_owned(),
        _ if is_handle(name) => "u64".to_owned(),
        _ if header.structures.iter().any(|it| it.name == name) => name.to_owned(),
        _ => match name.strip_suffix("_t").and_then(|it| it.split_once("int")) {
            Some((sign, bits)) => format!("{}{bits}", if sign == "u" { 'u' } else { 'i' }),
            None => panic!("{name} has no type in Rust"),
        },
    }
}

/// Name of a variant: `InUse` of `FPGA_ERROR_IN_USE`.
fn variant(name: &str) -> String {
    let name = name.trim_start_matches("FPGA_").trim_start_matches("ERROR_");
    let capital = |word: &str| format!("{}{}", &word[..1], word[1..].to_ascii_lowercase());
    name.split('_').map(capital).collect()
}

fn constants(header: &Header, text: &mut String) {
    for (name, value) in &header.constants {
        if value.parse::<u32>().is_ok() {
            writeln!(text, "pub(crate) const {name}: u32 = {value};").unwrap();
        }
    }
    for enumeration in &header.enumerations {
        if enumeration.name == "fpga_status" {
            text.push_str(
                "#[derive(Debug, Clone, Copy, PartialEq, Eq)]\n#[repr(i32)]\npub(crate) enum Status {\n",
            );
            for (name, value) in &enumeration.values {
                writeln!(text, "    {} = {value},", variant(name)).unwrap();
            }
            text.push_str("}\nimpl Status {\n    pub(crate) const ALL: &[Self] = &[");
            enumeration
                .values
                .iter()
                .for_each(|(name, _)| write!(text, "Self::{}, ", variant(name)).unwrap());
            text.push_str("];\n}\n");
            continue;
        }
        for (name, value) in &enumeration.values {
            writeln!(text, "pub(crate) const {name}: i32 = {value};").unwrap();
        }
    }
}

fn structures(header: &Header, text: &mut String) {
    let mut layouts = String::new();
    for header::Structure { name, fields } in &header.structures {
        if rust_type(header, name) == "u64" {
            continue;
        }
        writeln!(text, "#[derive(Debug, Clone, Copy)]\n#[repr(C)]\npub(crate) struct {name} {{").unwrap();
        let mut offsets = String::new();
        for (of, field) in fields {
            writeln!(text, "    pub(crate) {field}: {},", rust_type(header, of)).unwrap();
            write!(offsets, "(\"{field}\", core::mem::offset_of!({name}, {field})), ").unwrap();
        }
        writeln!(text, "}}\n// SAFETY: integers, addresses, and arrays and structures of them.").unwrap();
        writeln!(text, "unsafe impl Plain for {name} {{}}").unwrap();
        writeln!(layouts, "    (\"{name}\", size_of::<{name}>(), &[{offsets}]),").unwrap();
    }
    writeln!(text, "#[cfg(test)]\npub(crate) const LAYOUTS: &[Layout] = &[\n{layouts}];").unwrap();
}

fn export(header: &Header, function: &Function, has_simulator: bool, text: &mut String) {
    let Function { result, name, parameters } = function;
    let typed = |(of, name): &(String, String)| format!("{name}: {}", rust_type(header, of));
    let list = parameters.iter().map(typed).collect::<Vec<_>>().join(", ");
    let names = parameters.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(", ");
    let body = if result != "fpga_status" {
        format!("functions::{name}({names})")
    } else if name.starts_with("fpga_network_") && !has_simulator {
        format!("let _ = ({names},);\n    call(|| Err(no_simulator()))")
    } else {
        format!("call(|| functions::{name}({names}))")
    };
    let result = rust_type(header, result);
    writeln!(
        text,
        "#[unsafe(no_mangle)]\npub(crate) extern \"C\" fn {name}({list}) -> {result} {{\n    {body}\n}}"
    )
    .unwrap();
}
