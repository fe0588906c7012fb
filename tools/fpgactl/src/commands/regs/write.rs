//! `regs write`: writes one register by name, and reads it before and after.

use fpga_registers::AccessKind;
use serde::Serialize;

use super::{FieldRow, RegisterValueRow, fields_table};
use crate::all_ones;
use crate::error::CliError;
use crate::guard::{self, BarSpan};
use crate::registers::{self, Register};
use crate::target::Opened;

/// Register that was written.
#[derive(Debug, Serialize)]
pub struct WriteReport {
    card: String,
    name: String,
    bar: &'static str,
    address: String,
    access: &'static str,
    value: u32,
    hex: String,
    /// Field, if one was named.
    field: Option<FieldRow>,
    /// Effect of the register.
    effect: Option<&'static str>,
    /// Register before the write. For an alias this is the aliased register; `None` if it cannot be read.
    before: Option<RegisterValueRow>,
    /// The same register after the write.
    after: Option<RegisterValueRow>,
}

impl WriteReport {
    pub(super) fn text(&self) -> String {
        let Self { name, hex, bar, address, access, .. } = self;
        let mut text = String::new();
        if let Some(FieldRow { name, hex, bits, meaning, .. }) = &self.field {
            let meaning = meaning.as_ref().map_or_else(String::new, |meaning| format!(" {meaning}"));
            let plural = if bits.contains(':') { "s" } else { "" };
            text += &format!("{name} <- {hex}{meaning}  (bit{plural} {bits})\n");
        }
        text += &format!("{name} <- {hex}  ({bar} BAR {address}, {access})\n");
        if let Some(effect) = self.effect {
            text += &format!("note: {effect}\n");
        }
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => {
                for (when, shown) in [("before", before), ("after", after)] {
                    let line = format!("{when:6}  {} = {}  {}", shown.name, shown.hex, shown.decoded);
                    text += line.trim_end();
                    text.push('\n');
                }
                text += &fields_table(&after.fields);
            }
            _ => text += "note: the register cannot be read back\n",
        }
        text
    }
}

/// Writes the number that `text` stands for to the register or field `name`.
pub(super) fn write(
    opened: &Opened,
    all: &[Register],
    name: &str,
    text: &str,
    force: bool,
) -> Result<WriteReport, CliError> {
    let card = opened.card.name().to_owned();
    let named = registers::find(&card, all, name)?;
    let (register, name) = (named.register, named.name());
    let access = named.field.as_ref().map_or(register.access, |field| field.access);
    let refused = |reason: String| {
        let access = access.abbreviation();
        Err(CliError::failed(format!("{card}: {name} ({access}) is not written: {reason}")))
    };
    if !access.is_writable() {
        return refused(refusal_reason(register, all));
    }
    let value = named.parse(text)?;
    let kept = match named.back_off() {
        Ok(kept) => kept,
        Err((why, help)) => return refused(why.to_owned()).map_err(|error| error.advised(help)),
    };
    if kept != 0 && register.read_has_side_effect() && !force {
        return refused(format!(
            "the rest of its register must be read first, which changes {}: write the whole register, or add --force if that is intended",
            register.name
        ));
    }
    let stretch = BarSpan::of(register);
    if !force && let Some(harm) = guard::write_hazard(&opened.card, all, stretch)? {
        return Err(CliError::hazard(&card, format_args!("writing {name}"), &harm));
    }
    let mirror = mirror(register, all);
    let read = || mirror.map(|mirror| RegisterValueRow::read(opened, mirror)).transpose();
    let before = read()?;
    let rest = match &before {
        _ if kept == 0 => 0,
        Some(before) if before.name == register.name => before.value,
        _ => register.read(&opened.card)?,
    };
    let word = named.bits().insert(rest & kept, value);
    register.write(&opened.card, word)?;
    // The read after the write pushes it to the card.
    let after = read()?;
    if let (Some(mirror), Some(row)) = (mirror, &after) {
        all_ones::check(&opened.card, [mirror.read_word(row.value)])?;
    }
    Ok(WriteReport {
        field: FieldRow::new(&named, word),
        card,
        name: register.name.clone(),
        bar: register.bar.name(),
        address: format!("{:#06x}", register.address.get()),
        access: register.access.abbreviation(),
        value: word,
        hex: format!("{word:#010x}"),
        effect: guard::effects(all, stretch).first().copied(),
        before,
        after,
    })
}

/// Register that shows the effect of a write: the register itself or the aliased register, if reading it changes nothing.
fn mirror<'a>(register: &'a Register, all: &'a [Register]) -> Option<&'a Register> {
    let shown = match register.access {
        // Set and clear aliases are named after their register.
        AccessKind::Write1Set | AccessKind::Write1Clear => {
            let (plain, _) = register.name.rsplit_once('_')?;
            all.iter().find(|other| other.name == plain)?
        }
        _ => register,
    };
    (shown.access.is_readable() && !shown.read_has_side_effect()).then_some(shown)
}

fn refusal_reason(register: &Register, all: &[Register]) -> String {
    let name = &register.name;
    if register.access == AccessKind::ReadClears {
        let plain = name.rsplit_once('_').map(|(plain, _)| plain);
        let other = plain
            .and_then(|plain| all.iter().find(|other| other.name == plain && other.access.is_writable()));
        return match other {
            Some(other) => format!("a read clears it; to clear single bits write {}", other.name),
            None => "a read clears it".to_owned(),
        };
    }
    "only the card sets it, and the effect of a write is undefined; `poke` writes it anyway".to_owned()
}
