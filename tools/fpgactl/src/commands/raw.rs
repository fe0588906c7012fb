//! `peek` and `poke`: raw 32-bit words of a BAR.

use fpga_driver::BarOffset;
use fpga_pci::MmioError;
use serde::Serialize;

use crate::all_ones;
use crate::bars::{self, Role};
use crate::cli::{PeekArgs, PokeArgs};
use crate::error::CliError;
use crate::guard::{self, BarSpan};
use crate::output::{Report, render, table};
use crate::registers::Register;
use crate::settings::Settings;
use crate::target;

/// BAR that was accessed.
#[derive(Debug, Serialize)]
struct BarLine {
    index: u8,
    role: &'static str,
}

/// One word.
#[derive(Debug, Serialize)]
struct Word {
    offset: String,
    value: u32,
    hex: String,
    /// Name of the register, if it is a known one.
    register: Option<String>,
}

impl Word {
    fn new(at: BarOffset, value: u32, register: Option<&Register>) -> Self {
        Self {
            offset: format!("{:#06x}", at.get()),
            value,
            hex: format!("{value:#010x}"),
            register: register.map(|register| register.name.clone()),
        }
    }
}

/// Report of `peek`.
#[derive(Debug, Serialize)]
pub struct PeekReport {
    card: String,
    bar: BarLine,
    words: Vec<Word>,
}

impl Report for PeekReport {
    fn text(&self) -> String {
        let mut table = table(&[], &[]);
        for word in &self.words {
            table.add_row([&word.offset, &word.hex, word.register.as_deref().unwrap_or_default()]);
        }
        render(&table)
    }
}

/// Report of `poke`.
#[derive(Debug, Serialize)]
pub struct PokeReport {
    card: String,
    bar: BarLine,
    #[serde(flatten)]
    word: Word,
    /// Effect of the word, if the register is known.
    effect: Option<&'static str>,
}

impl Report for PokeReport {
    fn text(&self) -> String {
        let Word { offset, hex, register, .. } = &self.word;
        let name = register.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
        let mut text = format!("{} BAR {offset}{name} <- {hex}\n", self.bar.role);
        if let Some(effect) = self.effect {
            text += &format!("note: {effect}\n");
        }
        text += "note: the write is posted: it was sent, and its arrival is not confirmed\n";
        text
    }
}

/// The BAR does not have the words that the command line names.
fn outside(card: &str, error: &MmioError) -> CliError {
    CliError::usage(format!("{card}: {error}")).advised(error.help())
}

/// Runs `peek`.
///
/// # Errors
/// See [`CliError`]. If the range is not inside the BAR, nothing is read.
pub fn peek(settings: &Settings, args: &PeekArgs) -> Result<PeekReport, CliError> {
    let opened = target::observe(&settings.card)?;
    let card = opened.card.name().to_owned();
    let found = bars::open(&opened.card, &*opened.backend, args.bar)?;
    let all = opened.registers();
    let stretch = BarSpan { role: found.role, at: args.offset, length: u64::from(args.count) * 4 };
    let mmio = |error| CliError::mmio(&card, &error);
    // Checked before the first read: a part of the range is useless.
    let view = found.bar.slice(args.offset, stretch.length).map_err(|error| outside(&card, &error))?;
    if !args.force
        && let Some(harm) = guard::read_hazard(&opened.card, &all, stretch)
    {
        let what = format!("reading BAR {} at {:#x}", found.index, args.offset.get());
        return Err(CliError::hazard(&card, what, &harm));
    }
    let words = (0..u64::from(args.count))
        .map(|n| {
            let at = args.offset.get() + 4 * n;
            let value = view.read32(BarOffset::new(4 * n)).map_err(mmio)?;
            let place = BarSpan { at: BarOffset::new(at), length: 4, ..stretch };
            Ok(Word::new(place.at, value, place.registers(&all).next()))
        })
        .collect::<Result<Vec<_>, CliError>>()?;
    // The DMA BAR has reserved words; the bypass BAR is memory.
    if found.role == Some(Role::User) {
        all_ones::check(&opened.card, words.iter().map(|word| (true, word.value)))?;
    }
    Ok(PeekReport { bar: BarLine { index: found.index, role: found.role_name() }, card, words })
}

/// Runs `poke`.
///
/// # Errors
/// See [`CliError`]. In case of an error, nothing was written.
pub fn poke(settings: &Settings, args: &PokeArgs) -> Result<PokeReport, CliError> {
    let opened = target::observe(&settings.card)?;
    let card = opened.card.name().to_owned();
    let found = bars::open(&opened.card, &*opened.backend, args.bar)?;
    let all = opened.registers();
    let stretch = BarSpan { role: found.role, at: args.offset, length: 4 };
    let mmio = |error| CliError::mmio(&card, &error);
    let view = found.bar.slice(args.offset, stretch.length).map_err(|error| outside(&card, &error))?;
    if !args.force
        && let Some(harm) = guard::write_hazard(&opened.card, &all, stretch)?
    {
        let what = format!("writing BAR {} at {:#x}", found.index, args.offset.get());
        return Err(CliError::hazard(&card, what, &harm));
    }
    view.write32(BarOffset::ZERO, args.value).map_err(mmio)?;
    Ok(PokeReport {
        bar: BarLine { index: found.index, role: found.role_name() },
        word: Word::new(args.offset, args.value, stretch.registers(&all).next()),
        effect: guard::effects(&all, stretch).first().copied(),
        card,
    })
}
