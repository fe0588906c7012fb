//! Registers of an opened card: from the catalog of the Xilinx cores, from that of the network interface, and from the user's map.

mod names;

use std::borrow::Cow;
use std::sync::Arc;

use fpga_driver::{BarOffset, Card};
use fpga_firmware::catalog as ni_catalog;
use fpga_firmware::generated::BlockType;
use fpga_firmware::identity::Identity;
use fpga_pci::Backend;
use fpga_pci::{Bar, MmioError};
use fpga_register_map::RegisterMap;
use fpga_register_map::schema::Bits;
use fpga_registers::catalog::{self, BarRole, CardLayout, RegisterSpec};
use fpga_registers::{AccessKind, Decoded, DecodedField, FieldKind};
use serde::Serialize;

use crate::design::Design;
use crate::error::CliError;

pub use names::{Named, find, select};

/// BAR of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterBar {
    /// DMA BAR.
    Dma,
    /// User BAR.
    User,
}

impl RegisterBar {
    /// Name of the BAR.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dma => "dma",
            Self::User => "user",
        }
    }
}

#[derive(Debug, Clone)]
enum Origin {
    /// Register of the network interface contract, or of a block of the Xilinx cores.
    Known(&'static RegisterSpec, Option<catalog::Block>),
    /// Register of the map, by number.
    Mapped(Arc<RegisterMap>, usize),
}

/// Register of a card.
#[derive(Debug, Clone)]
pub struct Register {
    /// Full name, `block.register`.
    pub name: String,
    /// BAR of the register.
    pub bar: RegisterBar,
    /// Byte offset in that BAR.
    pub address: BarOffset,
    /// Access kind.
    pub access: AccessKind,
    /// Value after reset, if fixed.
    pub reset: Option<u32>,
    origin: Origin,
}

/// Field of a register's value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldValue {
    /// Name.
    pub name: String,
    /// Highest bit.
    pub high: u8,
    /// Lowest bit.
    pub low: u8,
    /// Value of the field, shifted to bit 0.
    pub value: u32,
    /// Name of the value, if it has one.
    pub meaning: Option<String>,
    /// Purpose of the field.
    pub doc: String,
}

impl Register {
    fn core(info: catalog::RegisterInfo) -> Self {
        Self {
            name: info.name().to_string(),
            bar: if info.bar() == BarRole::Dma { RegisterBar::Dma } else { RegisterBar::User },
            address: info.address(),
            access: info.access(),
            reset: info.reset(),
            origin: Origin::Known(info.spec(), Some(info.block())),
        }
    }

    fn interface(block: &ni_catalog::BlockInfo, base: BarOffset, spec: &'static RegisterSpec) -> Self {
        Self {
            name: format!("{}.{}", block.name, spec.name()),
            bar: RegisterBar::User,
            address: base.offset_by(spec.offset()),
            access: spec.access(),
            reset: spec.reset(),
            origin: Origin::Known(spec, None),
        }
    }

    /// Block of the Xilinx cores; `None` for the network interface.
    #[must_use]
    pub const fn block(&self) -> Option<catalog::Block> {
        match self.origin {
            Origin::Known(_, block) => block,
            Origin::Mapped(..) => None,
        }
    }

    /// Returns whether the user's map describes it.
    #[must_use]
    pub const fn is_mapped(&self) -> bool {
        matches!(self.origin, Origin::Mapped(..))
    }

    /// Description, if there is one.
    #[must_use]
    pub fn doc(&self) -> Cow<'_, str> {
        match &self.origin {
            Origin::Known(spec, _) => spec.doc().to_string().into(),
            Origin::Mapped(map, index) => {
                map.registers().get(*index).map_or("", |register| map.doc_of(register)).into()
            }
        }
    }

    /// First sentence of the description in one line, for listings.
    #[must_use]
    pub fn summary(&self) -> String {
        let doc = self.doc();
        let sentence = doc.split_once(". ").map_or(&*doc, |(first, _)| first);
        let words: Vec<&str> = sentence.split_whitespace().collect();
        words.join(" ").trim_end_matches('.').to_owned()
    }

    /// Returns whether a read changes it.
    #[must_use]
    pub fn read_has_side_effect(&self) -> bool {
        match &self.origin {
            Origin::Mapped(map, index) => {
                map.registers().get(*index).is_some_and(|register| map.read_has_side_effect(register))
            }
            _ => self.access.read_has_side_effect(),
        }
    }

    /// Reads the register. The caller checks whether it may be read.
    pub fn read(&self, card: &Card) -> Result<u32, CliError> {
        self.in_bar(card, |bar| bar.read32(self.address))
    }

    /// Writes the register. The caller checks whether it may be written.
    pub fn write(&self, card: &Card, value: u32) -> Result<(), CliError> {
        self.in_bar(card, |bar| bar.write32(self.address, value))
    }

    /// Returns the BAR of the register (whether it is the user BAR) with a word that was read, for [`crate::all_ones::check`].
    #[must_use]
    pub fn read_word(&self, word: u32) -> (bool, u32) {
        (self.bar == RegisterBar::User, word)
    }

    fn in_bar<T>(
        &self,
        card: &Card,
        access: impl FnOnce(&Bar) -> Result<T, MmioError>,
    ) -> Result<T, CliError> {
        let bar = match self.bar {
            RegisterBar::Dma => Some(card.dma_bar()),
            RegisterBar::User => card.user_bar(),
        };
        // A register of the user BAR is listed only if there is a user BAR.
        let Some(bar) = bar else {
            return Err(CliError::usage(format!("{}: there is no user BAR for {}", card.name(), self.name)));
        };
        access(bar).map_err(|error| CliError::mmio(card.name(), &error))
    }

    /// Decodes `raw` into fields, from the least significant bit up.
    #[must_use]
    pub fn fields(&self, raw: u32) -> Vec<FieldValue> {
        match &self.origin {
            Origin::Known(spec, block) => decode(spec, *block, raw)
                .fields()
                .map(|decoded| FieldValue {
                    name: decoded.name().to_owned(),
                    high: decoded.field().high(),
                    low: decoded.field().low(),
                    value: decoded.value(),
                    meaning: value_name(&decoded),
                    doc: decoded.field().doc().to_string(),
                })
                .collect(),
            Origin::Mapped(map, index) => {
                let Some(register) = map.registers().get(*index) else { return Vec::new() };
                let value_of = |field: &fpga_register_map::MapField| {
                    let value = field.bits.extract(raw);
                    let named = fpga_register_map::Named { register, field: Some(field) };
                    let meaning =
                        map.values(named).and_then(|values| values.name_of(value)).map(str::to_owned);
                    let (high, low) = (field.bits.high(), field.bits.low());
                    let doc = field.doc.clone();
                    FieldValue { name: field.name.clone(), high, low, value, meaning, doc }
                };
                map.fields(register).iter().map(value_of).collect()
            }
        }
    }

    fn access_of(&self, bits: Bits) -> AccessKind {
        if let Origin::Mapped(map, index) = &self.origin
            && let Some(register) = map.registers().get(*index)
            && let Some(field) = map.fields(register).iter().find(|field| field.bits == bits)
        {
            return field.access;
        }
        self.access
    }

    /// Name of `raw` as a whole, if the register holds named numbers.
    #[must_use]
    pub fn value_name(&self, raw: u32) -> Option<String> {
        match &self.origin {
            Origin::Known(spec, _) => spec.value_name(raw).map(str::to_owned),
            Origin::Mapped(map, index) => {
                let named = fpga_register_map::Named { register: map.registers().get(*index)?, field: None };
                map.values(named)?.name_of(raw).map(str::to_owned)
            }
        }
    }

    /// Decodes `raw` in one line, without the word itself.
    #[must_use]
    pub fn decoded(&self, raw: u32) -> String {
        if let Some(name) = self.value_name(raw) {
            return name;
        }
        if let Origin::Known(spec, block) = &self.origin {
            let text = decode(spec, *block, raw).to_string();
            return text.split_once(' ').map_or_else(String::new, |(_, fields)| fields.to_owned());
        }
        let fields = self.fields(raw);
        let described = fields
            .iter()
            .filter(|field| field.high != field.low || field.value != 0 || field.meaning.is_some());
        let parts: Vec<String> = described.map(FieldValue::in_words).collect();
        parts.join(" ")
    }
}

impl FieldValue {
    /// Value with its meaning.
    #[must_use]
    pub fn shown(&self) -> String {
        match &self.meaning {
            Some(meaning) => format!("{:#x} {meaning}", self.value),
            None => format!("{:#x}", self.value),
        }
    }

    /// Meaning of the value, if it has a name, and purpose of the field.
    #[must_use]
    pub fn explained(&self) -> String {
        match (&self.meaning, self.doc.trim_end()) {
            (Some(meaning), "") => meaning.clone(),
            (Some(meaning), doc) => format!("{meaning}: {doc}"),
            (None, doc) => doc.to_owned(),
        }
    }

    /// Form in a list of fields: a flag by its name, a code by its meaning.
    fn in_words(&self) -> String {
        let Self { name, value, .. } = self;
        match (&self.meaning, self.high == self.low) {
            (Some(meaning), _) => format!("{name}={value}({meaning})"),
            (None, true) => name.clone(),
            (None, false) => format!("{name}={value}"),
        }
    }
}

/// Decodes `raw` into fields, with bit names for the direction of the block's channel.
fn decode(spec: &RegisterSpec, block: Option<catalog::Block>, raw: u32) -> Decoded {
    let decoded = spec.decode(raw);
    match block.and_then(catalog::Block::direction) {
        Some(direction) => decoded.on(direction),
        None => decoded,
    }
}

/// Meaning of a code, or names of the set bits of a group.
fn value_name(decoded: &DecodedField) -> Option<String> {
    if let Some(text) = decoded.meaning() {
        return Some(text.to_owned());
    }
    // Single flags and numbers need no name.
    if !matches!(decoded.field().kind(), FieldKind::Flags(_) | FieldKind::FlagsByDirection { .. }) {
        return None;
    }
    let names: Vec<String> = decoded
        .set_bits()
        .map(|(bit, name)| name.map_or_else(|| format!("bit{}", decoded.field().low() + bit), str::to_owned))
        .collect();
    if names.is_empty() { None } else { Some(names.join("|")) }
}

/// All registers of a card, those of the DMA BAR first, in address order.
#[must_use]
pub fn of(card: &Card, backend: &dyn Backend, map: Option<&Arc<RegisterMap>>) -> Vec<Register> {
    let info = card.info();
    let vectors = u8::try_from(backend.interrupt_vectors()).unwrap_or(u8::MAX);
    let mut layout =
        CardLayout::new(info.xdma.h2c_channels, info.xdma.c2h_channels).with_msix_vectors(vectors);
    // Without a user BAR an offset in it is meaningless.
    if let Some(at) = info.cdma.filter(|_| card.user_bar().is_some()) {
        layout = layout.with_cdma(at);
    }
    let mut registers: Vec<Register> = layout.registers().map(Register::core).collect();
    if let Some(identity) = &info.identity {
        registers.extend(interface(identity));
    }
    // A map describes the user BAR; without one, its names are meaningless.
    if let Some(map) = map.filter(|_| card.user_bar().is_some()) {
        registers.extend(mapped(map));
    }
    // Stable: the registers of the DMA BAR stay in front.
    registers.sort_by_key(|register| (register.bar == RegisterBar::User, register.address));
    registers
}

/// Registers of the blocks in the card's block table.
fn interface(identity: &Identity) -> impl Iterator<Item = Register> + '_ {
    ni_catalog::registers().filter_map(|(block, register)| {
        // The identity block is at the start of the BAR; the table may omit it.
        let base = match identity.block(block.block_type) {
            Ok(found) => found.base(),
            Err(_) if block.block_type == BlockType::Identity => BarOffset::ZERO,
            Err(_) => return None,
        };
        Some(Register::interface(block, base, register))
    })
}

/// Registers of a user's map.
pub(crate) fn mapped(map: &Arc<RegisterMap>) -> impl Iterator<Item = Register> + '_ {
    map.registers().iter().enumerate().map(|(index, register)| Register {
        name: register.name.clone(),
        bar: RegisterBar::User,
        address: register.address,
        access: register.access,
        reset: register.reset,
        origin: Origin::Mapped(Arc::clone(map), index),
    })
}

/// Registers known before a card is opened: those of the DMA BAR, for any set of channels; and, if the subsystem id is this project's,
/// those of the network interface at their usual offsets. The block table confirms or moves them when the card is opened.
pub(crate) fn before_opening(design: Design, has_ids: bool) -> Vec<Register> {
    let has_interface = has_ids || design.interface;
    let mut layout = CardLayout::new(u8::MAX, u8::MAX);
    let block = ni_catalog::block(BlockType::Cdma).filter(|_| has_interface);
    let cdma = block.map_or(design.cdma_offset, |block| Some(BarOffset::new(block.default_offset.into())));
    if let Some(at) = cdma {
        layout = layout.with_cdma(at);
    }
    let interface = ni_catalog::registers().filter(|_| has_interface).map(|(block, register)| {
        Register::interface(block, BarOffset::new(block.default_offset.into()), register)
    });
    layout.registers().map(Register::core).chain(interface).collect()
}

#[cfg(test)]
mod tests {
    use crate::target::{self, Target};

    /// Covers every built-in card: the purpose of each register and bit is documented.
    #[test]
    fn registers_and_fields_all_have_documentation() {
        let mut count = 0;
        for name in ["default", "us-plus-x8-stream", "artix-x1"] {
            let opened = target::observe(&format!("mock:{name}").parse::<Target>().unwrap()).unwrap();
            for register in opened.registers() {
                assert!(!register.doc().is_empty() && !register.summary().is_empty(), "{}", register.name);
                // Reserved bits are shown when they are set.
                for field in register.fields(u32::MAX).iter().filter(|field| field.name != "reserved") {
                    let described = field.explained();
                    assert!(
                        !field.doc.is_empty() && !described.is_empty(),
                        "{}.{}",
                        register.name,
                        field.name
                    );
                    assert!(
                        !described.contains(['`', '\n']),
                        "{}.{}: {described}",
                        register.name,
                        field.name
                    );
                    count += 1;
                }
            }
        }
        assert!(count > 500, "{count}");
    }
}
