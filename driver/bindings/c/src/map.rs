//! Registers of a design by name, as a register map describes them.

use core::ffi::c_char;
use std::path::Path;
use std::sync::Arc;

use fpga_driver::Bar;
use fpga_driver::errors::{Cause, MmioError};
use fpga_register_map::{AccessError, MapError, NameError, Named, RegisterMap, Registers};

use crate::abi::{
    FPGA_ACCESS_READ, FPGA_ACCESS_SIDE_EFFECT, FPGA_ACCESS_WRITE, Status, fpga_map_entry, zeroed,
};
use crate::call::{copy_text, set, set_if, text, write_struct};
use crate::code::StatusCode as _;
use crate::error::Failure;
use crate::handle::{self, Kind, Object};

/// Register map that threads share.
pub(crate) struct Map {
    map: Arc<RegisterMap>,
    /// All names: index of the register, and of its field if it is one.
    names: Arc<[(usize, Option<usize>)]>,
}

// SAFETY: the only type of this kind.
unsafe impl Object for Map {
    const KIND: Kind = Kind::Map;
}

impl Map {
    fn new(map: RegisterMap) -> Self {
        let fields =
            |index: usize| map.registers().get(index).map_or(0, |register| map.fields(register).len());
        let names = (0..map.registers().len())
            .flat_map(|index| {
                core::iter::once((index, None))
                    .chain((0..fields(index)).map(move |field| (index, Some(field))))
            })
            .collect();
        Self { map: Arc::new(map), names }
    }
}

fn invalid(error: &MapError) -> Failure {
    Failure::argument(&error.to_string())
}

fn refused(error: &NameError) -> Failure {
    let status = match error {
        NameError::Access { .. } => Status::Unsupported,
        NameError::OutOfRange { .. } => Status::Range,
        _ => Status::Argument,
    };
    Failure::of(status, &error.to_string())
}

pub(crate) fn fpga_map_load(file: *const c_char, out: *mut u64) -> Result<(), Failure> {
    set(out, 0)?;
    let map = RegisterMap::load(Path::new(text(file, "the name of the file")?));
    set(out, handle::add(Map::new(map.map_err(|error| invalid(&error))?))?)
}

pub(crate) fn fpga_map_parse(yaml: *const c_char, name: *const c_char, out: *mut u64) -> Result<(), Failure> {
    set(out, 0)?;
    let name = if name.is_null() { "map" } else { text(name, "the name of the map")? };
    let map = RegisterMap::parse(Path::new(name), text(yaml, "the map")?);
    set(out, handle::add(Map::new(map.map_err(|error| invalid(&error))?))?)
}

pub(crate) fn fpga_map_close(map: u64) -> Result<(), Failure> {
    Ok(handle::close_shared::<Map>(map)?)
}

/// Runs `body` with the registers of a map on a card.
fn registers<R>(
    map: u64,
    card: u64,
    body: impl FnOnce(&Registers<'_, Bar>) -> Result<R, AccessError<MmioError>>,
) -> Result<R, Failure> {
    let map = handle::shared(map, |map: &Map| Arc::clone(&map.map))?;
    let card = handle::card(card)?;
    let bar = card
        .user_bar()
        .ok_or_else(|| Failure::on_card(Status::Unsupported, &"the card has no user BAR", card.name()))?;
    body(&Registers::new(&map, bar)).map_err(|error| match &error {
        AccessError::Name(error) => refused(error),
        AccessError::Io { source, .. } => {
            Failure::on_card(Cause::from(*source).status(), &error, card.name())
        }
    })
}

pub(crate) fn fpga_map_read(
    map: u64,
    card: u64,
    name: *const c_char,
    value: *mut u32,
) -> Result<(), Failure> {
    set(value, u32::MAX)?;
    let name = text(name, "the name of the register")?;
    set(value, registers(map, card, |registers| registers.read(name))?)
}

pub(crate) fn fpga_map_take(
    map: u64,
    card: u64,
    name: *const c_char,
    value: *mut u32,
) -> Result<(), Failure> {
    set(value, u32::MAX)?;
    let name = text(name, "the name of the register")?;
    set(value, registers(map, card, |registers| registers.take(name))?)
}

pub(crate) fn fpga_map_write(map: u64, card: u64, name: *const c_char, value: u32) -> Result<(), Failure> {
    let name = text(name, "the name of the register")?;
    registers(map, card, |registers| registers.write(name, value))
}

pub(crate) fn fpga_map_set(
    map: u64,
    card: u64,
    name: *const c_char,
    value: *const c_char,
) -> Result<(), Failure> {
    let (name, value) = (text(name, "the name of the register")?, text(value, "the value")?);
    registers(map, card, |registers| registers.set(name, value))
}

/// Finds a register or a field of a map.
fn named<R>(
    map: u64,
    name: *const c_char,
    body: impl FnOnce(&RegisterMap, Named<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let map = handle::shared(map, |map: &Map| Arc::clone(&map.map))?;
    let found = map.find(text(name, "the name of the register")?).map_err(|error| refused(&error))?;
    body(&map, found)
}

pub(crate) fn fpga_map_value_text(
    map: u64,
    name: *const c_char,
    value: u32,
    to: *mut c_char,
    length: usize,
    needed: *mut usize,
) -> Result<(), Failure> {
    set_if(needed, 0)?;
    named(map, name, |map, named| {
        let known = map.values(named).and_then(|values| values.name_of(value));
        let number = format!("{value:#x}");
        copy_text(to, length, needed, known.unwrap_or(&number))
    })
}

pub(crate) fn fpga_map_value_number(
    map: u64,
    name: *const c_char,
    value: *const c_char,
    number: *mut u32,
) -> Result<(), Failure> {
    set(number, u32::MAX)?;
    let value = text(value, "the value")?;
    named(map, name, |map, named| set(number, map.number(named, value).map_err(|error| refused(&error))?))
}

pub(crate) fn fpga_map_get_value(
    map: u64,
    name: *const c_char,
    index: u32,
    to: *mut c_char,
    length: usize,
    value: *mut u32,
) -> Result<(), Failure> {
    set(value, u32::MAX)?;
    named(map, name, |map, named| {
        let names = map.values(named).map_or(&[][..], |values| &values.names);
        let (text, number) =
            usize::try_from(index).ok().and_then(|index| names.get(index)).ok_or_else(|| {
                Failure::of(Status::Range, &format!("{named} has {} named values", names.len()))
            })?;
        set(value, *number)?;
        copy_text(to, length, core::ptr::null_mut(), text)
    })
}

pub(crate) fn fpga_map_count(map: u64, count: *mut usize) -> Result<(), Failure> {
    set(count, 0)?;
    set(count, handle::shared(map, |map: &Map| map.names.len())?)
}

pub(crate) fn fpga_map_get_entry(
    map: u64,
    index: usize,
    name: *mut c_char,
    length: usize,
    entry: *mut fpga_map_entry,
    size: usize,
) -> Result<(), Failure> {
    let (map, names) = handle::shared(map, |map: &Map| (Arc::clone(&map.map), Arc::clone(&map.names)))?;
    let named = names.get(index).and_then(|(register, field)| {
        let register = map.registers().get(*register)?;
        let field = field.map_or(Some(None), |field| map.fields(register).get(field).map(Some))?;
        Some(Named { register, field })
    });
    let named = named.ok_or_else(|| {
        Failure::of(Status::Range, &format!("there is no entry {index}; the map has {}", names.len()))
    })?;
    if !name.is_null() {
        copy_text(name, length, core::ptr::null_mut(), &named.to_string())?;
    }
    if entry.is_null() {
        return Ok(());
    }
    write_struct(entry, size, &properties(&map, named))
}

fn properties(map: &RegisterMap, named: Named<'_>) -> fpga_map_entry {
    let access = named.access();
    let mut entry = zeroed::<fpga_map_entry>();
    entry.offset = named.register.address.get();
    entry.first_bit = named.bits().mask().trailing_zeros();
    entry.bits = named.bits().width().into();
    for (permits, bit) in [
        (access.is_readable(), FPGA_ACCESS_READ),
        (access.is_writable(), FPGA_ACCESS_WRITE),
        (map.read_has_side_effect(named.register), FPGA_ACCESS_SIDE_EFFECT),
    ] {
        entry.access |= if permits { bit } else { 0 };
    }
    entry.is_field = named.field.is_some().into();
    if let Some(reset) = named.register.reset {
        (entry.has_reset, entry.reset) = (1, named.bits().extract(reset));
    }
    entry.values =
        map.values(named).map_or(0, |values| u32::try_from(values.names.len()).unwrap_or(u32::MAX));
    entry
}
