//! Registers of a design by name, as a register map describes them.

use core::ffi::c_char;
use std::path::Path;
use std::sync::Arc;

use fpga_driver::errors::{Cause, MmioError};
use fpga_driver::{Bar, Card};
use fpga_register_map::{AccessError, MapError, NameError, Named, RegisterMap, Registers};

use crate::call::{call, copy_text, set, set_if, text, write_struct};
use crate::code::Code as _;
use crate::error::Failure;
use crate::handle::{self, Kind, Object};
use crate::layout::{c_struct, zeroed};
use crate::status::Status;

/// Bits of the accesses that a register permits, as in the header.
const READABLE: u32 = 1;
const WRITABLE: u32 = 2;
const READ_HAS_SIDE_EFFECT: u32 = 4;

c_struct! {
    /// Register or field of a map.
    CEntry = "fpga_map_entry" {
        offset: u64,
        first_bit: u32,
        bits: u32,
        access: u32,
        is_field: u32,
        has_reset: u32,
        reset: u32,
        values: u32,
        reserved: u32,
    }
}

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

/// Loads a register map from a file.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_map_load(file: *const c_char, out: *mut u64) -> Status {
    call(|| {
        set(out, 0)?;
        let map = RegisterMap::load(Path::new(text(file, "the name of the file")?));
        set(out, handle::add(Map::new(map.map_err(|error| invalid(&error))?))?)
    })
}

/// Reads a register map from a text.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_map_parse(yaml: *const c_char, name: *const c_char, out: *mut u64) -> Status {
    call(|| {
        set(out, 0)?;
        let name = if name.is_null() { "map" } else { text(name, "the name of the map")? };
        let map = RegisterMap::parse(Path::new(name), text(yaml, "the map")?);
        set(out, handle::add(Map::new(map.map_err(|error| invalid(&error))?))?)
    })
}

/// Closes a register map.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_map_close(map: u64) -> Status {
    call(|| Ok(handle::close_shared::<Map>(map)?))
}

/// Runs `body` with the registers of a map on a card.
fn registers<R>(
    map: u64,
    card: u64,
    body: impl FnOnce(&Registers<'_, Bar>) -> Result<R, AccessError<MmioError>>,
) -> Result<R, Failure> {
    let map = handle::shared(map, |map: &Map| Arc::clone(&map.map))?;
    let card = handle::shared(card, Card::clone)?;
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

/// Reads a register or a field.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_map_read(map: u64, card: u64, name: *const c_char, value: *mut u32) -> Status {
    call(|| {
        set(value, u32::MAX)?;
        let name = text(name, "the name of the register")?;
        set(value, registers(map, card, |registers| registers.read(name))?)
    })
}

/// Reads a register whose read has side effects.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_map_take(map: u64, card: u64, name: *const c_char, value: *mut u32) -> Status {
    call(|| {
        set(value, u32::MAX)?;
        let name = text(name, "the name of the register")?;
        set(value, registers(map, card, |registers| registers.take(name))?)
    })
}

/// Writes a register or a field.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_map_write(map: u64, card: u64, name: *const c_char, value: u32) -> Status {
    call(|| {
        let name = text(name, "the name of the register")?;
        registers(map, card, |registers| registers.write(name, value))
    })
}

/// Writes a value that is given by its name or as a number in a text.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_map_set(
    map: u64,
    card: u64,
    name: *const c_char,
    value: *const c_char,
) -> Status {
    call(|| {
        let (name, value) = (text(name, "the name of the register")?, text(value, "the value")?);
        registers(map, card, |registers| registers.set(name, value))
    })
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

/// Converts a value to its name, or to a hexadecimal number.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_map_value_text(
    map: u64,
    name: *const c_char,
    value: u32,
    to: *mut c_char,
    length: usize,
    needed: *mut usize,
) -> Status {
    call(|| {
        set_if(needed, 0)?;
        named(map, name, |map, named| {
            let known = map.values(named).and_then(|values| values.name_of(value));
            let number = format!("{value:#x}");
            copy_text(to, length, needed, known.unwrap_or(&number))
        })
    })
}

/// Converts the name of a value, or a number in a text, to a number.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_map_value_number(
    map: u64,
    name: *const c_char,
    value: *const c_char,
    number: *mut u32,
) -> Status {
    call(|| {
        set(number, u32::MAX)?;
        let value = text(value, "the value")?;
        named(map, name, |map, named| set(number, map.number(named, value).map_err(|error| refused(&error))?))
    })
}

/// Returns one named value of a register or a field.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_map_get_value(
    map: u64,
    name: *const c_char,
    index: u32,
    to: *mut c_char,
    length: usize,
    value: *mut u32,
) -> Status {
    call(|| {
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
    })
}

/// Counts the registers and fields of a map.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_map_count(map: u64, count: *mut usize) -> Status {
    call(|| {
        set(count, 0)?;
        set(count, handle::shared(map, |map: &Map| map.names.len())?)
    })
}

/// Returns the name and the properties of one register or field.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_map_get_entry(
    map: u64,
    index: usize,
    name: *mut c_char,
    length: usize,
    entry: *mut CEntry,
    size: usize,
) -> Status {
    call(|| {
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
    })
}

fn properties(map: &RegisterMap, named: Named<'_>) -> CEntry {
    let access = named.access();
    let mut entry = zeroed::<CEntry>();
    entry.offset = named.register.address.get();
    entry.first_bit = named.bits().mask().trailing_zeros();
    entry.bits = named.bits().width().into();
    for (permits, bit) in [
        (access.is_readable(), READABLE),
        (access.is_writable(), WRITABLE),
        (map.read_has_side_effect(named.register), READ_HAS_SIDE_EFFECT),
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
