//! Typed bindings of a map, generated when a program is built.
//!
//! The build script, `build.rs`, with this package among the `build-dependencies`:
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     fpga_register_map::bindings::build("maps/scaler.yaml")
//! }
//! ```
//!
//! generates a module with the name of the file, and the program includes it:
//!
//! ```ignore
//! include!(concat!(env!("OUT_DIR"), "/scaler.rs"));
//!
//! let control = scaler::filter::CONTROL.read(bar, scaler::filter::BASE)?;
//! scaler::filter::CONTROL.write(bar, scaler::filter::BASE, control.with_mode(scaler::Mode::Run))?;
//! ```
//!
//! | Of the map | In the module |
//! |---|---|
//! | a block | a module, with its place as `BASE`, or the places of all its elements as `BASES` |
//! | a register | a constant [`Reg`](fpga_registers::Reg) of its access kind; an array of them. A register that can be written and that a read changes has two: `NAME` to read, `NAME_WRITE` to write |
//! | a register with fields or an enum | a type for its value, with a method per field to read it, and one to replace it where it can be written; `None` from the latter for a number that does not fit |
//! | an enum | an enum. A field that holds one is read as `Err(number)` where the number has no name |
//! | a reset value | `RESET` of the value's type, or `NAME_RESET` |
//!
//! Accesses that the map does not permit do not compile: there is no `write` on a read-only register and no `read` on a clear-on-read one,
//! which has [`read_and_clear`](fpga_registers::Reg::read_and_clear) instead.

use std::collections::HashMap;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use heck::{ToShoutySnakeCase, ToSnakeCase, ToUpperCamelCase};

use crate::assemble;
use crate::error::MapError;
use crate::schema::{Access, Bits, Block, Enumeration, Field, File, Register};

/// Options of the generated bindings.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Path of the package `fpga-registers` in the program.
    pub registers: String,
}

impl Default for Options {
    /// For a program that uses the driver, which re-exports the package.
    fn default() -> Self {
        Self { registers: "::fpga_registers".to_owned() }
    }
}

/// Reason why no bindings were generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindingsError {
    /// The map was refused.
    #[error(transparent)]
    Map(#[from] MapError),
    /// Two names of the map yield the same name in Rust.
    #[error("register map {}: {first} and {second} both become `{name}` in Rust: rename one of them", file.display())]
    Collision {
        /// The map.
        file: PathBuf,
        /// Name in Rust.
        name: String,
        /// One name of the map.
        first: String,
        /// The other one.
        second: String,
    },
    /// The file's name is not a valid module name.
    #[error("register map {}: its file name without the ending becomes the module's name: begin it with a letter, and use only letters, digits, _ and -", file.display())]
    FileName {
        /// The map.
        file: PathBuf,
    },
    /// Not called from a build script.
    #[error("OUT_DIR is not set: call this from a build script that cargo runs")]
    NoOutDir,
    /// The module could not be written.
    #[error("{}: cannot write the bindings: {source}", file.display())]
    Write {
        /// Path of the module.
        file: PathBuf,
        /// Error of the system.
        r#source: io::Error,
    },
}

/// Complete build script: generates the bindings of the map `file` in the folder that cargo names, makes cargo run the script again when
/// the map changes, and reports an error in cargo's format.
pub fn build(file: impl AsRef<Path>) -> ExitCode {
    let file = file.as_ref();
    println!("cargo::rerun-if-changed={}", file.display());
    let made = match env::var_os("OUT_DIR") {
        Some(folder) => write(file, Path::new(&folder), &Options::default()),
        None => Err(BindingsError::NoOutDir),
    };
    match made {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cargo::error={error}");
            ExitCode::FAILURE
        }
    }
}

/// Generates the bindings of the map `file` in `folder`; returns the path of the generated file, which has the map's name.
///
/// # Errors
/// See [`BindingsError`].
pub fn write(file: &Path, folder: &Path, options: &Options) -> Result<PathBuf, BindingsError> {
    let stem = module(file)?;
    let (parsed, _) = assemble::check(file, &assemble::read(file)?)?;
    let target = folder.join(format!("{stem}.rs"));
    let text = text(file, &parsed, &stem, options)?;
    fs::write(&target, text).map_err(|source| BindingsError::Write { file: target.clone(), source })?;
    Ok(target)
}

/// Name of the module.
fn module(file: &Path) -> Result<String, BindingsError> {
    let stem = file.file_stem().and_then(|stem| stem.to_str()).map(|stem| stem.replace('-', "_"));
    stem.filter(|stem| crate::name::is_name(stem))
        .map(|stem| stem.to_snake_case())
        .ok_or_else(|| BindingsError::FileName { file: file.to_owned() })
}

macro_rules! out {
    ($text:expr, $($arguments:tt)*) => {{
        // Writing to a String cannot fail.
        let _ = writeln!($text, $($arguments)*);
    }};
}

/// Names of one scope, each with the name in the map that it comes from.
struct Scope<'a> {
    file: &'a Path,
    taken: HashMap<String, String>,
}

impl<'a> Scope<'a> {
    fn new(file: &'a Path) -> Self {
        Self { file, taken: HashMap::new() }
    }

    fn take(&mut self, name: String, of: &str) -> Result<String, BindingsError> {
        match self.taken.insert(name.clone(), of.to_owned()) {
            None => Ok(name),
            Some(first) => {
                let second = of.to_owned();
                Err(BindingsError::Collision { file: self.file.to_owned(), name, first, second })
            }
        }
    }
}

/// Changes a name that is a keyword.
fn word(name: String) -> String {
    // Strict and reserved keywords of the 2024 edition that consist of lower-case letters, and `Self`.
    const WORDS: &[&str] = &[
        "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do",
        "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let",
        "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self",
        "Self", "static", "struct", "super", "trait", "true", "try", "type", "typeof", "unsafe", "unsized",
        "use", "virtual", "where", "while", "yield",
    ];
    if WORDS.contains(&name.as_str()) { name + "_" } else { name }
}

/// Converts text of the map to a documentation comment; no text can end the comment.
fn doc(text: &str, otherwise: &str) -> String {
    let text = if text.trim().is_empty() { otherwise } else { text.trim() };
    text.lines().map(|line| format!("/// {}", line.trim_end())).collect::<Vec<_>>().join("\n")
}

fn text(path: &Path, file: &File, module: &str, options: &Options) -> Result<String, BindingsError> {
    let mut s = String::new();
    let mut scope = Scope::new(path);
    out!(s, "// Generated from a register map by the build. Change the map instead.\n");
    out!(s, "{}", doc(&file.doc, &format!("Registers of {}.", file.name)));
    // The module is generated: disable the lints of the program.
    out!(
        s,
        "#[allow(dead_code, unreachable_pub, rustdoc::all, clippy::all, clippy::pedantic, clippy::restriction)]"
    );
    out!(s, "pub mod {} {{", word(module.to_owned()));
    for enumeration in &file.enums {
        let name = scope
            .take(word(enumeration.name.to_upper_camel_case()), &format!("enum {}", enumeration.name))?;
        write_enum(&mut s, path, enumeration, &name)?;
    }
    for (block, registers) in file.blocks.iter().zip(assemble::effective(file)) {
        let name = scope.take(word(block.name.to_snake_case()), &format!("block {}", block.name))?;
        let mut writer = Writer { s: &mut s, path, file, root: &options.registers };
        writer.block(block, &name, &registers)?;
    }
    out!(s, "}}");
    Ok(s)
}

fn write_enum(s: &mut String, path: &Path, e: &Enumeration, name: &str) -> Result<(), BindingsError> {
    let mut scope = Scope::new(path);
    let variants = e.variants.iter().map(|variant| {
        let name =
            scope.take(word(variant.name.to_upper_camel_case()), &format!("{}.{}", e.name, variant.name))?;
        Ok((name, variant))
    });
    let variants: Vec<_> = variants.collect::<Result<_, BindingsError>>()?;
    out!(s, "\n{}", doc(&e.doc, &format!("Values of {}.", e.name)));
    out!(s, "#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]\n#[repr(u32)]\npub enum {name} {{");
    for (name, variant) in &variants {
        out!(
            s,
            "{}\n{name} = {:#x},",
            doc(&variant.doc, &format!("{}: {}.", variant.name, variant.value)),
            variant.value
        );
    }
    out!(s, "}}\n\nimpl {name} {{");
    out!(s, "/// Number of the value.\n#[must_use]\npub const fn value(self) -> u32 {{ self as u32 }}");
    out!(s, "/// Value with this number, if it has a name.\n#[must_use]");
    out!(s, "pub const fn from_value(value: u32) -> ::core::option::Option<Self> {{ match value {{");
    for (name, variant) in &variants {
        out!(s, "{:#x} => ::core::option::Option::Some(Self::{name}),", variant.value);
    }
    out!(s, "_ => ::core::option::Option::None, }} }}");
    out!(s, "/// The name of a number in the map.\n#[must_use]");
    out!(s, "pub fn name_of(value: u32) -> ::core::option::Option<&'static str> {{ match value {{");
    for (_, variant) in &variants {
        out!(s, "{:#x} => ::core::option::Option::Some({:?}),", variant.value, variant.name);
    }
    out!(s, "_ => ::core::option::Option::None, }} }}\n}}");
    Ok(())
}

struct Writer<'a> {
    s: &'a mut String,
    path: &'a Path,
    file: &'a File,
    /// The package `fpga-registers`.
    root: &'a str,
}

impl Writer<'_> {
    fn block(&mut self, block: &Block, name: &str, registers: &[&Register]) -> Result<(), BindingsError> {
        let mut scope = Scope::new(self.path);
        let (s, root) = (&mut *self.s, self.root);
        out!(s, "\n{}\npub mod {name} {{", doc(&block.doc, &format!("Block {}.", block.name)));
        match block.count {
            None => {
                let name = scope.take("BASE".to_owned(), "the block's offset")?;
                out!(s, "/// Offset of the block in the BAR.");
                out!(s, "pub const {name}: {root}::BarOffset = {root}::BarOffset::new({:#x});", block.offset);
            }
            Some(count) => {
                let used = registers.iter().map(|register| register.end()).max().unwrap_or(0);
                let stride = block.stride.or(block.size).unwrap_or(used);
                let name = scope.take("BASES".to_owned(), "the blocks' offsets")?;
                out!(
                    s,
                    "/// Offsets of the blocks in the BAR.\npub const {name}: [{root}::BarOffset; {count}] = {{"
                );
                out!(s, "let mut all = [{root}::BarOffset::ZERO; {count}];\nlet mut n = 0;");
                out!(
                    s,
                    "while n < {count} {{ all[n] = {root}::BarOffset::new({:#x} + {stride:#x} * n as u64); n += 1; }}\nall }};",
                    block.offset
                );
            }
        }
        for register in registers {
            self.register(&mut scope, block, register)?;
        }
        out!(self.s, "}}");
        Ok(())
    }

    fn register(
        &mut self,
        scope: &mut Scope<'_>,
        block: &Block,
        register: &Register,
    ) -> Result<(), BindingsError> {
        let of = format!("{}.{}", block.name, register.name);
        let text = doc(&register.doc, &format!("Register {of}."));
        let shouty = register.name.to_shouty_snake_case();
        if register.width == 64 {
            for (half, bits, add) in [("LOW", "31:0", 0), ("HIGH", "63:32", 4)] {
                let name = scope.take(format!("{shouty}_{half}"), &of)?;
                out!(self.s, "{text} Bits {bits}.");
                self.constant(&name, cell(register.access), "u32", register.offset + add, register);
            }
            return Ok(());
        }
        let own_type = !register.fields.is_empty() || register.values.is_some();
        let value = if own_type {
            let name = scope.take(word(register.name.to_upper_camel_case()), &of)?;
            self.value_type(&name, &of, register)?;
            name
        } else {
            if let Some(reset) = register.reset {
                let name = scope.take(format!("{shouty}_RESET"), &of)?;
                out!(self.s, "/// Value of {of} after reset.\npub const {name}: u32 = {reset:#x};");
            }
            "u32".to_owned()
        };
        let name = scope.take(shouty.clone(), &of)?;
        let changes = register.fields.iter().any(|field| field.access == Some(Access::Rc));
        out!(self.s, "{text}");
        if changes && register.access != Access::Rc {
            self.constant(&name, "Rc", &value, register.offset, register);
            if register.access.kind().is_writable() {
                let name = scope.take(format!("{shouty}_WRITE"), &of)?;
                out!(self.s, "/// [`{shouty}`], to be written.");
                self.constant(&name, "Wo", &value, register.offset, register);
            }
        } else {
            self.constant(&name, cell(register.access), &value, register.offset, register);
        }
        Ok(())
    }

    fn constant(&mut self, name: &str, cell: &str, value: &str, offset: u32, register: &Register) {
        let (s, root) = (&mut *self.s, self.root);
        let kind = format!("{root}::Reg<{root}::{cell}<{value}>>");
        match register.count {
            None => out!(s, "pub const {name}: {kind} = {root}::Reg::at({offset:#x});"),
            Some(count) => {
                let stride = register.element_stride();
                out!(s, "pub const {name}: [{kind}; {count}] = {{");
                out!(s, "let mut all = [{root}::Reg::at({offset:#x}); {count}];\nlet mut n = 0;");
                out!(
                    s,
                    "while n < {count} {{ all[n] = {root}::Reg::at({offset:#x} + {stride:#x} * n as u32); n += 1; }}\nall }};"
                );
            }
        }
    }

    fn value_type(&mut self, name: &str, of: &str, register: &Register) -> Result<(), BindingsError> {
        let (s, root) = (&mut *self.s, self.root);
        out!(
            s,
            "\n/// Value of {of}.\n#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]\npub struct {name}(u32);\n"
        );
        out!(s, "impl {name} {{");
        let mut methods = Scope::new(self.path);
        for (made, text) in [
            (
                "from_bits",
                "/// The value of this register word.\n#[must_use]\npub const fn from_bits(word: u32) -> Self { Self(word) }",
            ),
            ("bits", "/// The register word.\n#[must_use]\npub const fn bits(self) -> u32 { self.0 }"),
        ] {
            methods.take(made.to_owned(), "the register word")?;
            out!(s, "{text}");
        }
        if let Some(reset) = register.reset {
            out!(s, "/// The value after reset.\npub const RESET: Self = Self({reset:#x});");
        }
        // A register with an enum has a single field.
        let whole = register.values.as_ref().filter(|_| register.fields.is_empty()).map(|values| Field {
            name: "value".into(),
            bits: Bits::ALL,
            access: None,
            values: Some(values.clone()),
            doc: Box::default(),
        });
        let mut fields: Vec<&Field> = register.fields.iter().chain(&whole).collect();
        fields.sort_by_key(|field| field.bits.low());
        for field in &fields {
            write_field(s, self.file, &mut methods, of, register.access, field)?;
        }
        out!(s, "}}\n\nimpl {root}::RegisterValue for {name} {{");
        out!(s, "const FIELDS: &'static [{root}::Field] = &{root}::decode::place([");
        let mut next = 0;
        let reserved = |s: &mut String, width: u8| {
            out!(s, "{root}::Field::new(\"_reserved\", {width}, {root}::FieldKind::Hex),");
        };
        for field in &fields {
            if field.bits.low() > next {
                reserved(s, field.bits.low() - next);
            }
            let kind = match (&field.values, field.bits.width()) {
                (Some(values), _) => match enumeration(self.file, values) {
                    Some(known) => {
                        format!("Choice(super::{}::name_of)", word(known.name.to_upper_camel_case()))
                    }
                    None => "Number".to_owned(),
                },
                (None, 1) => "Flag".to_owned(),
                (None, _) => "Number".to_owned(),
            };
            out!(
                s,
                "{root}::Field::new({:?}, {}, {root}::FieldKind::{kind}),",
                field.name,
                field.bits.width()
            );
            next = field.bits.high() + 1;
        }
        if next < 32 {
            reserved(s, 32 - next);
        }
        out!(
            s,
            "]);\nfn from_register(raw: u32) -> Self {{ Self(raw) }}\nfn into_register(self) -> u32 {{ self.0 }}\n}}"
        );
        for (which, pattern) in [("Display", "{}"), ("Debug", &format!("{name}({{}})"))] {
            out!(s, "\nimpl ::core::fmt::{which} for {name} {{");
            out!(s, "fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{");
            out!(s, "::core::write!(f, {pattern:?}, {root}::RegisterValue::decoded(*self)) }}\n}}");
        }
        out!(s, "");
        Ok(())
    }
}

fn enumeration<'a>(file: &'a File, name: &str) -> Option<&'a Enumeration> {
    file.enums.iter().find(|known| known.name.eq_ignore_ascii_case(name))
}

/// Writes the methods that read and replace a field.
fn write_field(
    s: &mut String,
    file: &File,
    methods: &mut Scope<'_>,
    of: &str,
    register: Access,
    field: &Field,
) -> Result<(), BindingsError> {
    let access = field.access.unwrap_or(register).kind();
    let bits = field.bits;
    let (low, most, mask) = (bits.low(), bits.max_value(), bits.mask());
    let of = format!("{of}.{}", field.name);
    let text = doc(&field.doc, &format!("Bits {bits}."));
    let snake = field.name.to_snake_case();
    let held = field.values.as_ref().and_then(|values| enumeration(file, values));
    let held = held.map(|held| format!("super::{}", word(held.name.to_upper_camel_case())));
    let number = match bits.width() {
        1 => "bool",
        2..=8 => "u8",
        9..=16 => "u16",
        _ => "u32",
    };
    let extract = format!("(self.0 >> {low}) & {most:#x}");
    if access.is_readable() {
        let name = methods.take(word(snake.clone()), &of)?;
        out!(s, "{text}\n#[must_use]");
        match (&held, number) {
            (Some(held), _) => out!(
                s,
                "pub const fn {name}(self) -> ::core::result::Result<{held}, u32> {{ match {held}::from_value({extract}) {{ ::core::option::Option::Some(known) => ::core::result::Result::Ok(known), ::core::option::Option::None => ::core::result::Result::Err({extract}) }} }}"
            ),
            (None, "bool") => out!(s, "pub const fn {name}(self) -> bool {{ {extract} != 0 }}"),
            (None, _) => out!(s, "pub const fn {name}(self) -> {number} {{ ({extract}) as {number} }}"),
        }
    }
    if access.is_writable() {
        let name = methods.take(format!("with_{snake}"), &of)?;
        let keep = !mask;
        out!(s, "{text}\n#[must_use]");
        match (&held, number, bits.width()) {
            (Some(held), ..) => out!(
                s,
                "pub const fn {name}(self, value: {held}) -> Self {{ Self(self.0 & {keep:#x} | value.value() << {low}) }}"
            ),
            (None, "bool", _) | (None, _, 8 | 16 | 32) => out!(
                s,
                "pub const fn {name}(self, value: {number}) -> Self {{ Self(self.0 & {keep:#x} | (value as u32) << {low}) }}"
            ),
            (None, ..) => out!(
                s,
                "pub const fn {name}(self, value: {number}) -> ::core::option::Option<Self> {{ if value as u32 > {most:#x} {{ return ::core::option::Option::None; }} ::core::option::Option::Some(Self(self.0 & {keep:#x} | (value as u32) << {low})) }}"
            ),
        }
    }
    Ok(())
}

/// Cell type of registers with this access kind.
const fn cell(access: Access) -> &'static str {
    match access {
        Access::Ro => "Ro",
        Access::Rw => "Rw",
        Access::Wo => "Wo",
        Access::Rw1c => "Rw1c",
        Access::W1s => "W1s",
        Access::W1c => "W1c",
        Access::Rc => "Rc",
    }
}
