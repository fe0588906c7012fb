//! `regs list`, `regs dump`, `regs read`, `regs write`: registers by name.

mod write;

use serde::Serialize;

use crate::cli::RegsCommand;
use crate::error::CliError;
use crate::output::{Report, render, table};
use crate::registers::{self, Register};
use crate::settings::Settings;
use crate::target::{self, Opened};

pub use write::WriteReport;

/// A register without its value.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    bar: &'static str,
    address: String,
    access: &'static str,
    read_has_side_effect: bool,
    reset: Option<String>,
}

impl Listed {
    fn new(register: &Register) -> Self {
        Self {
            name: register.name.clone(),
            bar: register.bar.name(),
            address: format!("{:#06x}", register.address.get()),
            access: register.access.abbreviation(),
            read_has_side_effect: register.access.read_has_side_effect(),
            reset: register.reset.map(|value| format!("{value:#010x}")),
        }
    }
}

/// A register with its value.
#[derive(Debug, Serialize)]
struct Shown {
    name: String,
    bar: &'static str,
    address: String,
    access: &'static str,
    value: u32,
    hex: String,
    fields: Vec<registers::FieldValue>,
    #[serde(skip)]
    decoded: String,
}

impl Shown {
    fn read(opened: &Opened, register: &Register) -> Result<Self, CliError> {
        let value = register.read(&opened.card)?;
        Ok(Self {
            name: register.name.clone(),
            bar: register.bar.name(),
            address: format!("{:#06x}", register.address.get()),
            access: register.access.abbreviation(),
            value,
            hex: format!("{value:#010x}"),
            fields: register.fields(value),
            decoded: register.decoded(value),
        })
    }
}

/// What a `regs` command found.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum RegsReport {
    /// `regs list`.
    List(ListReport),
    /// `regs dump`.
    Dump(DumpReport),
    /// `regs read`.
    Read(ReadReport),
    /// `regs write`.
    Write(Box<WriteReport>),
}

/// The card's registers.
#[derive(Debug, Serialize)]
pub struct ListReport {
    card: String,
    registers: Vec<Listed>,
}

/// The card's registers with their values.
#[derive(Debug, Serialize)]
pub struct DumpReport {
    card: String,
    registers: Vec<Shown>,
    /// Not read, because a read changes the card.
    skipped_side_effect: Vec<String>,
    /// Not read, because there is nothing to read.
    skipped_write_only: Vec<String>,
}

/// One register.
#[derive(Debug, Serialize)]
pub struct ReadReport {
    card: String,
    #[serde(flatten)]
    register: Shown,
}

impl Report for RegsReport {
    fn text(&self) -> String {
        match self {
            Self::List(report) => report.text(),
            Self::Dump(report) => report.text(),
            Self::Read(report) => report.text(),
            Self::Write(report) => report.text(),
        }
    }
}

impl ListReport {
    fn text(&self) -> String {
        let mut table = table(&["BAR", "ADDRESS", "ACCESS", "RESET", "NAME", ""], &[]);
        for register in &self.registers {
            let note = if register.read_has_side_effect { "read has side effects" } else { "" };
            let reset = register.reset.as_deref().unwrap_or("-");
            table.add_row([register.bar, &register.address, register.access, reset, &register.name, note]);
        }
        render(&table)
    }
}

impl DumpReport {
    fn text(&self) -> String {
        let mut table = table(&["BAR", "ADDRESS", "NAME", "VALUE", "FIELDS"], &[]);
        for register in &self.registers {
            table.add_row([
                register.bar,
                &register.address,
                &register.name,
                &register.hex,
                &register.decoded,
            ]);
        }
        let mut text = render(&table);
        for (names, why) in [
            (&self.skipped_side_effect, "a read has side effects; `regs read NAME --force` reads one"),
            (&self.skipped_write_only, "write-only"),
        ] {
            if !names.is_empty() {
                text += &format!("\nNot read ({why}):\n  {}\n", names.join(" "));
            }
        }
        text
    }
}

impl ReadReport {
    fn text(&self) -> String {
        let Shown { name, bar, address, access, hex, fields, .. } = &self.register;
        let mut text = format!("{name} = {hex}  ({bar} BAR {address}, {access})\n");
        text += &fields_table(fields);
        text
    }
}

/// Fields line by line; nothing for a plain number.
fn fields_table(fields: &[registers::FieldValue]) -> String {
    if fields.is_empty() {
        return String::new();
    }
    let mut table = table(&["BITS", "FIELD", "VALUE", "MEANING"], &[]);
    for field in fields {
        let bits = if field.high == field.low {
            field.low.to_string()
        } else {
            format!("{}:{}", field.high, field.low)
        };
        table.add_row([
            bits,
            field.name.to_owned(),
            format!("{:#x}", field.value),
            field.meaning.clone().unwrap_or_default(),
        ]);
    }
    render(&table)
}

/// Runs the command.
///
/// # Errors
/// See [`CliError`].
pub fn run(settings: &Settings, command: &RegsCommand) -> Result<RegsReport, CliError> {
    let opened = target::observe(&settings.card)?;
    let card = opened.card.name().to_owned();
    let all = registers::of(&opened);
    match command {
        RegsCommand::List => {
            Ok(RegsReport::List(ListReport { card, registers: all.iter().map(Listed::new).collect() }))
        }
        RegsCommand::Dump => dump(&opened, &all).map(RegsReport::Dump),
        RegsCommand::Read { name, force } => {
            let register = find(&card, &all, name, *force)?;
            Ok(RegsReport::Read(ReadReport { card, register: Shown::read(&opened, register)? }))
        }
        RegsCommand::Write { name, value, force } => {
            let report = write::write(&opened, &all, name, *value, *force)?;
            Ok(RegsReport::Write(Box::new(report)))
        }
    }
}

pub(super) fn dump(opened: &Opened, all: &[Register]) -> Result<DumpReport, CliError> {
    let mut report = DumpReport {
        card: opened.card.name().to_owned(),
        registers: Vec::with_capacity(all.len()),
        skipped_side_effect: Vec::new(),
        skipped_write_only: Vec::new(),
    };
    for register in all {
        if register.access.read_has_side_effect() {
            report.skipped_side_effect.push(register.name.clone());
        } else if !register.access.is_readable() {
            report.skipped_write_only.push(register.name.clone());
        } else {
            report.registers.push(Shown::read(opened, register)?);
        }
    }
    Ok(report)
}

/// The register of this name, if it may be read.
fn find<'a>(card: &str, all: &'a [Register], name: &str, force: bool) -> Result<&'a Register, CliError> {
    let Some(register) = all.iter().find(|register| register.name.eq_ignore_ascii_case(name)) else {
        return Err(no_such_register(card, all, name));
    };
    let (card, name) = (card.to_owned(), register.name.clone());
    if !register.access.is_readable() {
        // Set and clear aliases are named after what they are aliases of.
        let plain = name.rsplit_once('_').map(|(plain, _)| plain.to_owned());
        let hint = match plain.filter(|plain| all.iter().any(|other| other.name == *plain)) {
            Some(plain) => format!("read {plain} instead"),
            None => "`fpgactl regs list` shows which registers can be read".to_owned(),
        };
        return Err(CliError::WriteOnly { card, name, hint });
    }
    if register.access.read_has_side_effect() && !force {
        return Err(CliError::SideEffect { card, name });
    }
    Ok(register)
}

fn no_such_register(card: &str, all: &[Register], name: &str) -> CliError {
    CliError::NoSuchRegister { card: card.to_owned(), name: name.to_owned(), hint: hint(all, name) }
}

/// The registers of the block that was meant, or the blocks.
fn hint(all: &[Register], name: &str) -> String {
    let block = name.split_once('.').map_or(name, |(block, _)| block);
    let of_block: Vec<&str> = all
        .iter()
        .filter_map(|register| register.name.split_once('.'))
        .filter(|(known, _)| known.eq_ignore_ascii_case(block))
        .map(|(_, register)| register)
        .collect();
    if !of_block.is_empty() {
        return format!("{block} has {}", of_block.join(", "));
    }
    let mut blocks: Vec<&str> =
        all.iter().filter_map(|register| Some(register.name.split_once('.')?.0)).collect();
    blocks.dedup();
    format!("the card's blocks are {}; `fpgactl regs list` lists all registers", ranges(&blocks).join(", "))
}

/// Names that differ in a number only, as one: `msix0 to msix31`.
fn ranges(names: &[&str]) -> Vec<String> {
    let pattern = |name: &str| name.replace(|c: char| c.is_ascii_digit(), "");
    names
        .chunk_by(|a, b| pattern(a) == pattern(b))
        .filter_map(|group| match group {
            [first, .., last] => Some(format!("{first} to {last}")),
            [only] => Some((*only).to_owned()),
            [] => None,
        })
        .collect()
}
