//! `regs list`, `regs dump`, `regs read`, `regs write`, `regs watch`: registers by name.

mod watch;
mod write;

use std::io::{self, Write};

use serde::{Serialize, Serializer};

use crate::all_ones;
use crate::cli::RegsCommand;
use crate::error::CliError;
use crate::output::{LongTable, Report, folded, render, table};
use crate::registers::{self, Named, Register};
use crate::settings::Settings;
use crate::style;
use crate::target::{self, Opened};

pub use watch::watch;
pub use write::WriteReport;

/// Register without its value.
#[derive(Debug, Serialize)]
struct RegisterRow {
    name: String,
    bar: &'static str,
    address: String,
    access: &'static str,
    read_has_side_effect: bool,
    reset: Option<String>,
    doc: String,
}

impl RegisterRow {
    fn new(register: &Register) -> Self {
        Self {
            name: register.name.clone(),
            bar: register.bar.name(),
            address: format!("{:#06x}", register.address.get()),
            access: register.access.abbreviation(),
            read_has_side_effect: register.read_has_side_effect(),
            reset: register.reset.map(|value| format!("{value:#010x}")),
            doc: register.doc().into_owned(),
        }
    }
}

/// Register with its value.
#[derive(Debug, Serialize)]
struct RegisterValueRow {
    name: String,
    bar: &'static str,
    address: String,
    access: &'static str,
    value: u32,
    hex: String,
    /// Name of the value, if the register's values have names.
    meaning: Option<String>,
    fields: Vec<registers::FieldValue>,
    #[serde(skip)]
    decoded: String,
}

/// Requested field.
#[derive(Debug, Serialize)]
struct FieldRow {
    name: String,
    bits: String,
    access: &'static str,
    value: u32,
    hex: String,
    meaning: Option<String>,
    doc: String,
}

impl FieldRow {
    /// Returns `None` if a whole register was named.
    fn new(named: &Named<'_>, word: u32) -> Option<Self> {
        let part = named.field.as_ref()?;
        let (value, meaning) = named.value(word);
        let of_register = named.register.fields(word).into_iter().find(|field| field.name == part.name);
        Some(Self {
            name: named.name(),
            bits: part.bits.to_string(),
            access: part.access.abbreviation(),
            value,
            hex: format!("{value:#x}"),
            meaning,
            doc: of_register.map_or_else(String::new, |field| field.doc),
        })
    }
}

fn listed<S: Serializer>(registers: &[Register], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(registers.iter().map(RegisterRow::new))
}

fn shown<S: Serializer>(registers: &[(Register, u32)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(registers.iter().map(|(register, value)| RegisterValueRow::new(register, *value)))
}

impl RegisterValueRow {
    fn new(register: &Register, value: u32) -> Self {
        Self {
            name: register.name.clone(),
            bar: register.bar.name(),
            address: format!("{:#06x}", register.address.get()),
            access: register.access.abbreviation(),
            value,
            hex: format!("{value:#010x}"),
            meaning: register.value_name(value),
            fields: register.fields(value),
            decoded: register.decoded(value),
        }
    }

    fn read(opened: &Opened, register: &Register) -> Result<Self, CliError> {
        Ok(Self::new(register, register.read(&opened.card)?))
    }
}

/// Report of a `regs` command.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum RegsReport {
    /// Report of `regs list`.
    List(ListReport),
    /// Report of `regs dump`.
    Dump(DumpReport),
    /// Report of `regs read`.
    Read(Box<ReadReport>),
    /// Report of `regs write`.
    Write(Box<WriteReport>),
}

/// Registers of the card. A map may have several hundred thousand, so each is described when it is written out.
#[derive(Debug, Serialize)]
pub struct ListReport {
    card: String,
    #[serde(serialize_with = "listed")]
    registers: Vec<Register>,
}

/// Registers of the card with their values.
#[derive(Debug, Serialize)]
pub struct DumpReport {
    card: String,
    #[serde(serialize_with = "shown")]
    registers: Vec<(Register, u32)>,
    /// Registers not read because a read changes the card.
    skipped_side_effect: Vec<String>,
    /// Write-only registers, which are not read.
    skipped_write_only: Vec<String>,
}

/// One register.
#[derive(Debug, Serialize)]
pub struct ReadReport {
    card: String,
    #[serde(flatten)]
    register: RegisterValueRow,
    /// Requested field, if any.
    field: Option<FieldRow>,
    doc: String,
}

impl Report for RegsReport {
    fn text(&self) -> String {
        match self {
            Self::List(report) => whole(|out| report.write(out)),
            Self::Dump(report) => whole(|out| report.write(out)),
            Self::Read(report) => report.text(),
            Self::Write(report) => report.text(),
        }
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::List(report) => report.write(out),
            Self::Dump(report) => report.write(out),
            short => out.write_all(short.text().as_bytes()),
        }
    }
}

/// Returns a long report as one string.
fn whole(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _ = write(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

impl ListReport {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table =
            LongTable::new(["BAR", "ADDRESS", "ACCESS", "RESET", "NAME", "MEANING"]).within(style::columns());
        let each = |row: &mut dyn FnMut([&str; 6]) -> io::Result<()>| {
            self.registers.iter().try_for_each(|known| {
                let register = RegisterRow::new(known);
                let note = if register.read_has_side_effect { "(read has side effects) " } else { "" };
                let reset = register.reset.as_deref().unwrap_or("-");
                let meaning = format!("{note}{}", known.summary());
                row([register.bar, &register.address, register.access, reset, &register.name, &meaning])
            })
        };
        each(&mut |row| {
            table.measure(row);
            Ok(())
        })?;
        table.begin(out)?;
        each(&mut |row| table.row(row, out))
    }
}

impl DumpReport {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let columns = style::columns();
        let mut table = LongTable::new(["BAR", "ADDRESS", "NAME", "VALUE", "FIELDS"]).folded(columns);
        let each = |row: &mut dyn FnMut([&str; 5]) -> io::Result<()>| {
            self.registers.iter().try_for_each(|(register, value)| {
                let shown = RegisterValueRow::new(register, *value);
                row([shown.bar, &shown.address, &shown.name, &shown.hex, &shown.decoded])
            })
        };
        each(&mut |row| {
            table.measure(row);
            Ok(())
        })?;
        table.begin(out)?;
        each(&mut |row| table.row(row, out))?;
        for (names, why) in [
            (&self.skipped_side_effect, "a read has side effects; `regs read NAME --force` reads one"),
            (&self.skipped_write_only, "write-only"),
        ] {
            if !names.is_empty() {
                let width = columns.map_or(usize::MAX, |columns| columns.saturating_sub(2));
                writeln!(out, "\nNot read ({why}):\n  {}", folded(&names.join(" "), width).join("\n  "))?;
            }
        }
        Ok(())
    }
}

impl ReadReport {
    fn text(&self) -> String {
        let RegisterValueRow { name, bar, address, access, hex, fields, meaning, .. } = &self.register;
        let in_words = |meaning: &Option<String>| {
            meaning.as_ref().map_or_else(String::new, |meaning| format!(" {meaning}"))
        };
        if let Some(FieldRow { name, bits, access, hex, meaning, doc, .. }) = &self.field {
            let meaning = in_words(meaning);
            let plural = if bits.contains(':') { "s" } else { "" };
            let line =
                format!("{name} = {hex}{meaning}  ({bar} BAR {address}, bit{plural} {bits}, {access})\n");
            return if doc.is_empty() { line } else { line + doc.trim_end() + "\n" };
        }
        let meaning = in_words(meaning);
        let mut text = format!("{name} = {hex}{meaning}  ({bar} BAR {address}, {access})\n");
        if !self.doc.is_empty() {
            text += &format!("{}\n", self.doc.trim_end());
        }
        text += &fields_table(fields);
        text
    }
}

/// Fields line by line; empty for a plain number.
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
        table.add_row([bits, field.name.clone(), format!("{:#x}", field.value), field.explained()]);
    }
    render(&table)
}

/// Runs the command.
pub fn run(settings: &Settings, command: &RegsCommand) -> Result<RegsReport, CliError> {
    let opened = target::observe(&settings.card)?;
    let card = opened.card.name().to_owned();
    let all = opened.registers();
    match command {
        RegsCommand::List { names } => {
            let registers = registers::select(&card, all, names)?;
            Ok(RegsReport::List(ListReport { card, registers }))
        }
        RegsCommand::Dump { names } => {
            let report = dump(&opened, registers::select(&card, all, names)?)?;
            let words = report.registers.iter().map(|(register, word)| register.read_word(*word));
            all_ones::check(&opened.card, words)?;
            Ok(RegsReport::Dump(report))
        }
        RegsCommand::Read { name, force } => {
            let named = readable(&opened, &all, name, *force)?;
            let register = RegisterValueRow::read(&opened, named.register)?;
            all_ones::check(&opened.card, [named.register.read_word(register.value)])?;
            let field = FieldRow::new(&named, register.value);
            let doc = named.register.doc().into_owned();
            Ok(RegsReport::Read(Box::new(ReadReport { card, register, field, doc })))
        }
        RegsCommand::Write { name, value, force } => {
            let report = write::write(&opened, &all, name, value, *force)?;
            Ok(RegsReport::Write(Box::new(report)))
        }
        RegsCommand::Watch(_) => Err(CliError::usage("regs watch reports line by line")),
    }
}

pub(super) fn dump(opened: &Opened, all: Vec<Register>) -> Result<DumpReport, CliError> {
    let mut report = DumpReport {
        card: opened.card.name().to_owned(),
        registers: Vec::with_capacity(all.len()),
        skipped_side_effect: Vec::new(),
        skipped_write_only: Vec::new(),
    };
    for register in all {
        if register.read_has_side_effect() {
            report.skipped_side_effect.push(register.name);
        } else if !register.access.is_readable() {
            report.skipped_write_only.push(register.name);
        } else {
            let value = register.read(&opened.card)?;
            report.registers.push((register, value));
        }
    }
    Ok(report)
}

/// Returns the register or field of this name if it may be read.
fn readable<'a>(
    opened: &Opened,
    all: &'a [Register],
    name: &str,
    force: bool,
) -> Result<Named<'a>, CliError> {
    let card = opened.card.name().to_owned();
    let named = registers::find(&card, all, name)?;
    let (register, name) = (named.register, named.name());
    let access = named.field.as_ref().map_or(register.access, |field| field.access);
    if !access.is_readable() {
        // Set and clear aliases are named after their register.
        let plain = register.name.rsplit_once('_').map(|(plain, _)| plain.to_owned());
        let hint = match plain.filter(|plain| all.iter().any(|other| other.name == *plain)) {
            Some(plain) => format!("read {plain} instead"),
            None => "`fpgactl regs list` shows which registers can be read".to_owned(),
        };
        let text = format!("{card}: {name} is write-only, a read returns no useful value");
        return Err(CliError::failed(text).advise(hint));
    }
    if register.read_has_side_effect() && !force {
        return Err(CliError::failed(format!(
            "{card}: reading {name} changes the card: it is clear-on-read, so other processes that wait for these bits lose them"
        ))
        .advise("add --force to read it anyway"));
    }
    Ok(named)
}
