//! `regs list`, `regs dump`, `regs read`, `regs write`, `regs watch`: registers by name.

mod watch;
mod write;

use serde::Serialize;

use crate::cli::RegsCommand;
use crate::error::CliError;
use crate::output::{Report, render, table};
use crate::registers::{self, Named, Register};
use crate::settings::Settings;
use crate::target::{self, Opened};

pub use watch::watch;
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
    doc: String,
}

impl Listed {
    fn new(register: &Register) -> Self {
        Self {
            name: register.name.clone(),
            bar: register.bar.name(),
            address: format!("{:#06x}", register.address.get()),
            access: register.access.abbreviation(),
            read_has_side_effect: register.read_has_side_effect(),
            reset: register.reset.map(|value| format!("{value:#010x}")),
            doc: register.doc().to_owned(),
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
    /// The name of the value, where the register's values have names.
    meaning: Option<String>,
    fields: Vec<registers::FieldValue>,
    #[serde(skip)]
    decoded: String,
}

/// The field that was asked for.
#[derive(Debug, Serialize)]
struct FieldShown {
    name: String,
    bits: String,
    access: &'static str,
    value: u32,
    hex: String,
    meaning: Option<String>,
}

impl FieldShown {
    /// `None` if a whole register was named.
    fn new(named: &Named<'_>, word: u32) -> Option<Self> {
        let part = named.field.as_ref()?;
        let (value, meaning) = named.value(word);
        Some(Self {
            name: named.name(),
            bits: part.bits.to_string(),
            access: part.access.abbreviation(),
            value,
            hex: format!("{value:#x}"),
            meaning,
        })
    }
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
            meaning: register.meaning(value),
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
    Read(Box<ReadReport>),
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
    /// The field, if one was asked for.
    field: Option<FieldShown>,
    doc: String,
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
        let Shown { name, bar, address, access, hex, fields, meaning, .. } = &self.register;
        let in_words = |meaning: &Option<String>| {
            meaning.as_ref().map_or_else(String::new, |meaning| format!(" {meaning}"))
        };
        if let Some(FieldShown { name, bits, access, hex, meaning, .. }) = &self.field {
            let meaning = in_words(meaning);
            let plural = if bits.contains(':') { "s" } else { "" };
            return format!("{name} = {hex}{meaning}  ({bar} BAR {address}, bit{plural} {bits}, {access})\n");
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
            field.name.clone(),
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
            let named = readable(&opened, &all, name, *force)?;
            let register = Shown::read(&opened, named.register)?;
            let field = FieldShown::new(&named, register.value);
            let doc = named.register.doc().to_owned();
            Ok(RegsReport::Read(Box::new(ReadReport { card, register, field, doc })))
        }
        RegsCommand::Write { name, value, force } => {
            let report = write::write(&opened, &all, name, value, *force)?;
            Ok(RegsReport::Write(Box::new(report)))
        }
        RegsCommand::Watch(_) => Err(CliError::Usage("regs watch reports line by line".to_owned())),
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
        if register.read_has_side_effect() {
            report.skipped_side_effect.push(register.name.clone());
        } else if !register.access.is_readable() {
            report.skipped_write_only.push(register.name.clone());
        } else {
            report.registers.push(Shown::read(opened, register)?);
        }
    }
    Ok(report)
}

/// The register or field of this name, if it may be read.
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
        // Set and clear aliases are named after what they are aliases of.
        let plain = register.name.rsplit_once('_').map(|(plain, _)| plain.to_owned());
        let hint = match plain.filter(|plain| all.iter().any(|other| other.name == *plain)) {
            Some(plain) => format!("read {plain} instead"),
            None => "`fpgactl regs list` shows which registers can be read".to_owned(),
        };
        return Err(CliError::WriteOnly { card, name, hint });
    }
    if register.read_has_side_effect() && !force {
        return Err(CliError::SideEffect { card, name });
    }
    Ok(named)
}
