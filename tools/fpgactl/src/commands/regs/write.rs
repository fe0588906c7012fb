//! `regs write`: one register by name, before and after.

use fpga_driver::registers::AccessKind;
use serde::Serialize;

use super::{Shown, fields_table, no_such_register};
use crate::error::CliError;
use crate::guard::{self, Stretch};
use crate::registers::Register;
use crate::target::Opened;

/// A register that was written.
#[derive(Debug, Serialize)]
pub struct WriteReport {
    card: String,
    name: String,
    bar: &'static str,
    address: String,
    access: &'static str,
    value: u32,
    hex: String,
    /// What the register steers.
    effect: Option<&'static str>,
    /// The register before; the one that it is an alias of, where it is one; `None` if there is nothing to read.
    before: Option<Shown>,
    /// The same register after.
    after: Option<Shown>,
}

impl WriteReport {
    pub(super) fn text(&self) -> String {
        let Self { name, hex, bar, address, access, .. } = self;
        let mut text = format!("{name} <- {hex}  ({bar} BAR {address}, {access})\n");
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
            _ => text += "note: there is nothing to read it back from\n",
        }
        text
    }
}

/// Writes `value` to the register `name`.
pub(super) fn write(
    opened: &Opened,
    all: &[Register],
    name: &str,
    value: u32,
    force: bool,
) -> Result<WriteReport, CliError> {
    let card = opened.card.name().to_owned();
    let Some(register) = all.iter().find(|register| register.name.eq_ignore_ascii_case(name)) else {
        return Err(no_such_register(&card, all, name));
    };
    let name = register.name.clone();
    if !register.access.is_writable() {
        let access = register.access.abbreviation();
        return Err(CliError::NotWritable { reason: why_not(register, all), card, name, access });
    }
    let stretch = Stretch::of(register);
    if !force && let Some(harm) = guard::harm_of_writing(&opened.card, all, stretch)? {
        return Err(CliError::Harm { card, what: format!("writing {name}"), harm });
    }
    let mirror = mirror(register, all);
    let look = || mirror.map(|mirror| Shown::read(opened, mirror)).transpose();
    let before = look()?;
    register.write(&opened.card, value)?;
    // The read behind the write pushes it to the card.
    let after = look()?;
    Ok(WriteReport {
        card,
        name,
        bar: register.bar.name(),
        address: format!("{:#06x}", register.address.get()),
        access: register.access.abbreviation(),
        value,
        hex: format!("{value:#010x}"),
        effect: guard::effects(all, stretch).first().copied(),
        before,
        after,
    })
}

/// The register that shows what a write did: itself, or what it is an alias of, if a read of that changes nothing.
fn mirror<'a>(register: &'a Register, all: &'a [Register]) -> Option<&'a Register> {
    let shown = match register.access {
        // Set and clear aliases are named after what they are aliases of.
        AccessKind::Write1Set | AccessKind::Write1Clear => {
            let (plain, _) = register.name.rsplit_once('_')?;
            all.iter().find(|other| other.name == plain)?
        }
        _ => register,
    };
    (shown.access.is_readable() && !shown.access.read_has_side_effect()).then_some(shown)
}

fn why_not(register: &Register, all: &[Register]) -> String {
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
    "only the card sets it, and what a write does is not defined; `poke` sends one all the same".to_owned()
}
