//! `registry` and `escape`: tables of the receiving card, and whether its host's mirror agrees.

use fpga_diag::inspect::Inspect as _;
use std::time::Duration;

use fpga_diag::inspect::{EscapeSlot, ReceiveTables};
use fpga_firmware::MessageId;

use fpga_protocol::mirror::Table;
use fpga_protocol::receiver::EntryView;
use serde::Serialize;

use super::{
    ListingSource, LoadProgress, REGISTRY, has_messages, in_micros, scheme_name, scheme_names, span_text,
};
use crate::cli::Scheme;
use crate::error::CliError;
use crate::output::{Report, listing};

/// State of the host's mirror of a table.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct MirrorRow {
    pub(in crate::commands) occupancy: u16,
    /// Each difference in words; empty if mirror and card agree.
    pub(in crate::commands) differences: Vec<String>,
}

impl MirrorRow {
    fn of(scene: &ListingSource, of: Table) -> Option<Self> {
        let ListingSource::Load(load) = scene else { return None };
        let mirror = load.receiving.endpoint().mirror();
        let occupancy = match of {
            Table::Registry => mirror.occupancy(),
            Table::Escape => mirror.escape_occupancy(),
        };
        let differences =
            load.differences.iter().filter(|found| found.table == of).map(ToString::to_string).collect();
        Some(Self { occupancy, differences })
    }

    fn text(mirror: Option<&Self>) -> String {
        match mirror {
            None => "no mirror: this command does not fetch the card's events".to_owned(),
            Some(Self { occupancy, differences }) if differences.is_empty() => {
                format!("mirror, from events alone: {occupancy} in use, no field differs")
            }
            Some(Self { occupancy, differences }) => format!(
                "mirror, from events alone: {occupancy} in use, differs where events are still in flight:\n  {}",
                differences.join("\n  ")
            ),
        }
    }
}

fn registry_owner(scene: &ListingSource) -> (String, u32, ReceiveTables) {
    match scene {
        ListingSource::Load(load) => {
            let receiving = &load.receiving;
            (receiving.name(), receiving.node().get(), receiving.endpoint().tables())
        }
        ListingSource::Card { name, node, tables } => (name.clone(), *node, (**tables).clone()),
    }
}

/// Report of `registry`.
#[derive(Debug, Serialize)]
pub struct RegistryReport {
    pub(in crate::commands) card: String,
    pub(in crate::commands) node: u32,
    #[serde(flatten)]
    pub(in crate::commands) moment: Option<LoadProgress>,
    /// Default scheme, for transfers that name none.
    pub(in crate::commands) scheme: &'static str,
    /// All active schemes: with entries of a registry, contexts of messages, or both.
    pub(in crate::commands) schemes: Vec<&'static str>,
    pub(in crate::commands) capacity: u16,
    pub(in crate::commands) occupancy: u32,
    pub(in crate::commands) high_water: u32,
    /// Silence of its sender after which an entry is released.
    pub(in crate::commands) timeout_us: f64,
    pub(in crate::commands) entries: Vec<EntryRow>,
    pub(in crate::commands) mirror: Option<MirrorRow>,
}

#[derive(Debug, Serialize)]
pub(in crate::commands) struct EntryRow {
    pub(in crate::commands) index: u16,
    /// Scheme that receives it.
    pub(in crate::commands) scheme: &'static str,
    pub(in crate::commands) generation: u32,
    pub(in crate::commands) source: u32,
    pub(in crate::commands) incarnation: String,
    pub(in crate::commands) transfer: u32,
    pub(in crate::commands) segment: u32,
    pub(in crate::commands) segment_count: u32,
    pub(in crate::commands) base: String,
    pub(in crate::commands) length: u32,
    pub(in crate::commands) expected: u16,
    /// First packet of the mask: 0, or in message schemes the lowest missing packet.
    pub(in crate::commands) first: u32,
    pub(in crate::commands) received: u32,
    /// Words of the mask as the card holds them: word 0 first, unused bits set.
    pub(in crate::commands) mask: Vec<String>,
    /// One character per expected packet from `first` on, at most 256: `#` in memory, `.` missing.
    pub(in crate::commands) bits: String,
    pub(in crate::commands) silent: bool,
    pub(in crate::commands) notify: bool,
    pub(in crate::commands) transfer_length: u64,
    /// Time since its last packet.
    pub(in crate::commands) age_us: f64,
    /// Time until the card releases it, if no further packet arrives.
    pub(in crate::commands) expires_in_us: f64,
}

impl EntryRow {
    fn new(index: u16, entry: &EntryView, timeout: Duration) -> Self {
        // A mask shows at most 256 packets from the first missing one on.
        let shown = u32::from(entry.expected).saturating_sub(entry.first).min(256);
        let bits = drawn(&entry.mask, u16::try_from(shown).unwrap_or(u16::MAX));
        let there = u32::try_from(bits.bytes().filter(|bit| *bit == b'#').count()).unwrap_or(u32::MAX);
        Self {
            index,
            scheme: Scheme::name_of(entry.scheme),
            generation: entry.generation,
            source: entry.source.get(),
            incarnation: entry.incarnation.to_string(),
            transfer: entry.transfer.get(),
            segment: entry.segment,
            segment_count: entry.segment_count,
            base: entry.base.to_string(),
            length: entry.length,
            expected: entry.expected,
            first: entry.first,
            received: entry.first.saturating_add(there),
            mask: entry.mask.iter().map(|word| format!("{word:#010x}")).collect(),
            bits,
            silent: entry.silent,
            notify: entry.notify,
            transfer_length: entry.transfer_length,
            age_us: in_micros(entry.age),
            expires_in_us: in_micros(timeout.saturating_sub(entry.age.into())),
        }
    }
}

/// Formats a mask as bits, packet 0 first.
fn drawn(mask: &[u32; 8], expected: u16) -> String {
    let words = mask.iter().flat_map(|word| (0..32).map(move |bit| word >> bit & 1 != 0));
    words.take(usize::from(expected)).map(|there| if there { '#' } else { '.' }).collect()
}

impl RegistryReport {
    pub(in crate::commands) fn new(scene: &ListingSource) -> Result<Self, CliError> {
        let (card, node, tables) = registry_owner(scene);
        let (occupancy, high_water) = tables.registry_occupancy()?;
        let timeout = tables.registry_timeout()?;
        let mut entries = Vec::new();
        for index in 0..tables.registry_entries() {
            let entry = tables.entry(index)?;
            if entry.valid {
                entries.push(EntryRow::new(index, &entry, timeout));
            }
        }
        Ok(Self {
            card,
            node,
            moment: LoadProgress::of(scene),
            scheme: scheme_name(&tables)?,
            schemes: scheme_names(&tables)?,
            capacity: tables.registry_entries(),
            occupancy,
            high_water,
            timeout_us: in_micros(timeout),
            entries,
            mirror: MirrorRow::of(scene, Table::Registry),
        })
    }
}

impl Report for RegistryReport {
    fn text(&self) -> String {
        let mut text = format!(
            "{}, node {}: {} of {} {} in use, {} at most so far\n{}\n{}\n",
            self.card,
            self.node,
            self.occupancy,
            self.capacity,
            match (self.schemes.contains(&REGISTRY), has_messages(&self.schemes)) {
                (true, false) => "registry entries".to_owned(),
                (true, true) => {
                    let messages: Vec<_> =
                        self.schemes.iter().filter(|name| **name != REGISTRY).copied().collect();
                    format!("registry entries and contexts of {} messages", messages.join(", "))
                }
                (false, _) => format!("contexts of {} messages", self.schemes.join(", ")),
            },
            self.high_water,
            LoadProgress::text(self.moment.as_ref()),
            MirrorRow::text(self.mirror.as_ref())
        );
        if self.entries.is_empty() {
            return text;
        }
        let part = match (self.schemes.contains(&REGISTRY), has_messages(&self.schemes)) {
            (true, true) => ">segment or message",
            (false, _) => ">message",
            (true, false) => ">segment",
        };
        let segment = |entry: &EntryRow| match entry.scheme {
            REGISTRY => format!("{}/{}", entry.segment, entry.segment_count),
            _ => MessageId::new(entry.segment).to_string(),
        };
        // 64 bits per line: the widest mask takes four lines.
        let lines = |entry: &EntryRow| {
            let lines = entry.bits.as_bytes().chunks(64);
            lines.map(String::from_utf8_lossy).collect::<Vec<_>>().join("\n")
        };
        text += &listing(
            &self.entries,
            &[
                (">entry", &|entry| entry.index.to_string()),
                (">from", &|entry| entry.source.to_string()),
                (">transfer", &|entry| entry.transfer.to_string()),
                (part, &segment),
                ("base", &|entry| entry.base.clone()),
                (">bytes", &|entry| entry.length.to_string()),
                (">packets", &|entry| format!("{}/{}", entry.received, entry.expected)),
                (">last packet", &|entry| format!("{} ago", span_text(entry.age_us))),
                (">expires", &|entry| format!("in {}", span_text(entry.expires_in_us))),
                ("mask", &lines),
            ],
        );
        text
    }
}

/// Report of `escape`.
#[derive(Debug, Serialize)]
pub struct EscapeReport {
    pub(in crate::commands) card: String,
    pub(in crate::commands) node: u32,
    #[serde(flatten)]
    pub(in crate::commands) moment: Option<LoadProgress>,
    pub(in crate::commands) capacity: u16,
    pub(in crate::commands) occupancy: u32,
    pub(in crate::commands) high_water: u32,
    /// Escape timeout: how long a packet waits for the start packet of its segment.
    pub(in crate::commands) timeout_us: f64,
    pub(in crate::commands) slots: Vec<SlotRow>,
    pub(in crate::commands) mirror: Option<MirrorRow>,
}

#[derive(Debug, Serialize)]
pub(in crate::commands) struct SlotRow {
    pub(in crate::commands) index: u16,
    pub(in crate::commands) source: u32,
    pub(in crate::commands) incarnation: String,
    pub(in crate::commands) transfer: u32,
    pub(in crate::commands) segment: u32,
    pub(in crate::commands) address: String,
    pub(in crate::commands) length: u64,
    pub(in crate::commands) op: String,
    pub(in crate::commands) age_us: f64,
    /// Time until the card drops it.
    pub(in crate::commands) drops_in_us: f64,
}

impl SlotRow {
    fn new(slot: &EscapeSlot, timeout: Duration) -> Self {
        Self {
            index: slot.index,
            source: slot.packet.node.get(),
            incarnation: slot.packet.incarnation.to_string(),
            transfer: slot.packet.transfer.get(),
            segment: slot.packet.segment,
            address: slot.packet.address.to_string(),
            length: slot.packet.length,
            op: slot.op.to_string(),
            age_us: in_micros(slot.age),
            drops_in_us: in_micros(timeout.saturating_sub(slot.age)),
        }
    }
}

impl EscapeReport {
    pub(in crate::commands) fn new(scene: &ListingSource) -> Result<Self, CliError> {
        let (card, node, tables) = registry_owner(scene);
        let (occupancy, high_water) = tables.escape_occupancy()?;
        let timeout = tables.escape_timeout()?;
        let mut slots = Vec::new();
        for index in 0..tables.escape_slots() {
            slots.extend(tables.escaped(index)?.map(|slot| SlotRow::new(&slot, timeout)));
        }
        Ok(Self {
            card,
            node,
            moment: LoadProgress::of(scene),
            capacity: tables.escape_slots(),
            occupancy,
            high_water,
            timeout_us: in_micros(timeout),
            slots,
            mirror: MirrorRow::of(scene, Table::Escape),
        })
    }
}

impl Report for EscapeReport {
    fn text(&self) -> String {
        let mut text = format!(
            "{}, node {}: {} of {} escape slots in use, {} at most so far\n{}\n{}\n",
            self.card,
            self.node,
            self.occupancy,
            self.capacity,
            self.high_water,
            LoadProgress::text(self.moment.as_ref()),
            MirrorRow::text(self.mirror.as_ref())
        );
        if self.slots.is_empty() {
            return text;
        }
        text += &listing(
            &self.slots,
            &[
                (">slot", &|slot| slot.index.to_string()),
                (">from", &|slot| slot.source.to_string()),
                (">transfer", &|slot| slot.transfer.to_string()),
                (">segment", &|slot| slot.segment.to_string()),
                ("address", &|slot| slot.address.clone()),
                (">bytes", &|slot| slot.length.to_string()),
                ("op", &|slot| slot.op.clone()),
                (">waits for", &|slot| span_text(slot.age_us)),
                (">dropped", &|slot| format!("in {}", span_text(slot.drops_in_us))),
            ],
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_is_drawn_per_packet() {
        let mut mask = [u32::MAX; 8];
        // Example of docs/protocol.md 5.3: eight packets expected, the first one present.
        mask[0] = 0xFFFF_FF01;
        assert_eq!(drawn(&mask, 8), "#.......");
        mask[0] = 0xFFFF_FF85;
        assert_eq!(drawn(&mask, 8), "#.#....#");
        assert_eq!(drawn(&[u32::MAX; 8], 256).len(), 256);
        mask[7] = 0x7FFF_FFFF;
        assert!(drawn(&mask, 256).ends_with("##."));
        assert_eq!(drawn(&mask, 0), "");
    }
}
