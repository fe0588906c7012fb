// Generated from a register map by the build. Change the map instead.

/// Several lines,
/// the last of which is not empty.
#[allow(dead_code, unreachable_pub, rustdoc::all, clippy::all, clippy::pedantic, clippy::restriction)]
pub mod odd_names {

/// How it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Match {
/// By itself.
Self_ = 0x0,
/// loopBack: 1.
LoopBack = 0x1,
/// HALT: 2147483648.
Halt = 0x80000000,
}

impl Match {
/// Number of the value.
#[must_use]
pub const fn value(self) -> u32 { self as u32 }
/// Value with this number, if it has a name.
#[must_use]
pub const fn from_value(value: u32) -> ::core::option::Option<Self> { match value {
0x0 => ::core::option::Option::Some(Self::Self_),
0x1 => ::core::option::Option::Some(Self::LoopBack),
0x80000000 => ::core::option::Option::Some(Self::Halt),
_ => ::core::option::Option::None, } }
/// The name of a number in the map.
#[must_use]
pub fn name_of(value: u32) -> ::core::option::Option<&'static str> { match value {
0x0 => ::core::option::Option::Some("self"),
0x1 => ::core::option::Option::Some("loopBack"),
0x80000000 => ::core::option::Option::Some("HALT"),
_ => ::core::option::Option::None, } }
}

/// Values of speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Speed {
/// slow: 1.
Slow = 0x1,
/// fast: 2.
Fast = 0x2,
}

impl Speed {
/// Number of the value.
#[must_use]
pub const fn value(self) -> u32 { self as u32 }
/// Value with this number, if it has a name.
#[must_use]
pub const fn from_value(value: u32) -> ::core::option::Option<Self> { match value {
0x1 => ::core::option::Option::Some(Self::Slow),
0x2 => ::core::option::Option::Some(Self::Fast),
_ => ::core::option::Option::None, } }
/// The name of a number in the map.
#[must_use]
pub fn name_of(value: u32) -> ::core::option::Option<&'static str> { match value {
0x1 => ::core::option::Option::Some("slow"),
0x2 => ::core::option::Option::Some("fast"),
_ => ::core::option::Option::None, } }
}

/// Block type.
pub mod type_ {
/// Offset of the block in the BAR.
pub const BASE: ::fpga_registers::BarOffset = ::fpga_registers::BarOffset::new(0x1000);

/// Value of type.Self.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Self_(u32);

impl Self_ {
/// The value of this register word.
#[must_use]
pub const fn from_bits(word: u32) -> Self { Self(word) }
/// The register word.
#[must_use]
pub const fn bits(self) -> u32 { self.0 }
/// The value after reset.
pub const RESET: Self = Self(0x1);
/// Bits 0.
#[must_use]
pub const fn with_go(self, value: bool) -> Self { Self(self.0 & 0xfffffffe | (value as u32) << 0) }
/// Bits 3:1.
#[must_use]
pub const fn fn_(self) -> u8 { ((self.0 >> 1) & 0x7) as u8 }
/// Bits 3:1.
#[must_use]
pub const fn with_fn(self, value: u8) -> ::core::option::Option<Self> { if value as u32 > 0x7 { return ::core::option::Option::None; } ::core::option::Option::Some(Self(self.0 & 0xfffffff1 | (value as u32) << 1)) }
/// Bits 15:8.
#[must_use]
pub const fn byte(self) -> u8 { ((self.0 >> 8) & 0xff) as u8 }
/// Bits 15:8.
#[must_use]
pub const fn with_byte(self, value: u8) -> Self { Self(self.0 & 0xffff00ff | (value as u32) << 8) }
/// Only read.
#[must_use]
pub const fn word(self) -> u16 { ((self.0 >> 16) & 0xffff) as u16 }
}

impl ::fpga_registers::RegisterValue for Self_ {
const FIELDS: &'static [::fpga_registers::Field] = &::fpga_registers::decode::place([
::fpga_registers::Field::new("go", 1, ::fpga_registers::FieldKind::Flag),
::fpga_registers::Field::new("fn", 3, ::fpga_registers::FieldKind::Number),
::fpga_registers::Field::new("_reserved", 4, ::fpga_registers::FieldKind::Hex),
::fpga_registers::Field::new("byte", 8, ::fpga_registers::FieldKind::Number),
::fpga_registers::Field::new("word", 16, ::fpga_registers::FieldKind::Number),
]);
fn from_register(raw: u32) -> Self { Self(raw) }
fn into_register(self) -> u32 { self.0 }
}

impl ::core::fmt::Display for Self_ {
fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
::core::write!(f, "{}", ::fpga_registers::RegisterValue::decoded(*self)) }
}

impl ::core::fmt::Debug for Self_ {
fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
::core::write!(f, "Self_({})", ::fpga_registers::RegisterValue::decoded(*self)) }
}

/// Register type.Self.
pub const SELF: ::fpga_registers::Reg<::fpga_registers::Rw<Self_>> = ::fpga_registers::Reg::at(0x0);

/// Value of type.option.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Option(u32);

impl Option {
/// The value of this register word.
#[must_use]
pub const fn from_bits(word: u32) -> Self { Self(word) }
/// The register word.
#[must_use]
pub const fn bits(self) -> u32 { self.0 }
/// Bits 31:0.
#[must_use]
pub const fn value(self) -> ::core::result::Result<super::Match, u32> { match super::Match::from_value((self.0 >> 0) & 0xffffffff) { ::core::option::Option::Some(known) => ::core::result::Result::Ok(known), ::core::option::Option::None => ::core::result::Result::Err((self.0 >> 0) & 0xffffffff) } }
/// Bits 31:0.
#[must_use]
pub const fn with_value(self, value: super::Match) -> Self { Self(self.0 & 0x0 | value.value() << 0) }
}

impl ::fpga_registers::RegisterValue for Option {
const FIELDS: &'static [::fpga_registers::Field] = &::fpga_registers::decode::place([
::fpga_registers::Field::new("value", 32, ::fpga_registers::FieldKind::Choice(super::Match::name_of)),
]);
fn from_register(raw: u32) -> Self { Self(raw) }
fn into_register(self) -> u32 { self.0 }
}

impl ::core::fmt::Display for Option {
fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
::core::write!(f, "{}", ::fpga_registers::RegisterValue::decoded(*self)) }
}

impl ::core::fmt::Debug for Option {
fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
::core::write!(f, "Option({})", ::fpga_registers::RegisterValue::decoded(*self)) }
}

/// Register type.option.
pub const OPTION: ::fpga_registers::Reg<::fpga_registers::Rw<Option>> = ::fpga_registers::Reg::at(0x4);

/// Value of type.apCtrl.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ApCtrl(u32);

impl ApCtrl {
/// The value of this register word.
#[must_use]
pub const fn from_bits(word: u32) -> Self { Self(word) }
/// The register word.
#[must_use]
pub const fn bits(self) -> u32 { self.0 }
/// Bits 1.
#[must_use]
pub const fn done(self) -> bool { (self.0 >> 1) & 0x1 != 0 }
/// Bits 5:4.
#[must_use]
pub const fn speed(self) -> ::core::result::Result<super::Speed, u32> { match super::Speed::from_value((self.0 >> 4) & 0x3) { ::core::option::Option::Some(known) => ::core::result::Result::Ok(known), ::core::option::Option::None => ::core::result::Result::Err((self.0 >> 4) & 0x3) } }
/// Bits 5:4.
#[must_use]
pub const fn with_speed(self, value: super::Speed) -> Self { Self(self.0 & 0xffffffcf | value.value() << 4) }
}

impl ::fpga_registers::RegisterValue for ApCtrl {
const FIELDS: &'static [::fpga_registers::Field] = &::fpga_registers::decode::place([
::fpga_registers::Field::new("_reserved", 1, ::fpga_registers::FieldKind::Hex),
::fpga_registers::Field::new("done", 1, ::fpga_registers::FieldKind::Flag),
::fpga_registers::Field::new("_reserved", 2, ::fpga_registers::FieldKind::Hex),
::fpga_registers::Field::new("speed", 2, ::fpga_registers::FieldKind::Choice(super::Speed::name_of)),
::fpga_registers::Field::new("_reserved", 26, ::fpga_registers::FieldKind::Hex),
]);
fn from_register(raw: u32) -> Self { Self(raw) }
fn into_register(self) -> u32 { self.0 }
}

impl ::core::fmt::Display for ApCtrl {
fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
::core::write!(f, "{}", ::fpga_registers::RegisterValue::decoded(*self)) }
}

impl ::core::fmt::Debug for ApCtrl {
fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
::core::write!(f, "ApCtrl({})", ::fpga_registers::RegisterValue::decoded(*self)) }
}

/// Register type.apCtrl.
pub const AP_CTRL: ::fpga_registers::Reg<::fpga_registers::Rc<ApCtrl>> = ::fpga_registers::Reg::at(0x8);
/// [`AP_CTRL`], to be written.
pub const AP_CTRL_WRITE: ::fpga_registers::Reg<::fpga_registers::Wo<ApCtrl>> = ::fpga_registers::Reg::at(0x8);
/// Value of type.plain after reset.
pub const PLAIN_RESET: u32 = 0x7;
/// Register type.plain.
pub const PLAIN: [::fpga_registers::Reg<::fpga_registers::Rw<u32>>; 3] = {
let mut all = [::fpga_registers::Reg::at(0xc); 3];
let mut n = 0;
while n < 3 { all[n] = ::fpga_registers::Reg::at(0xc + 0x8 * n as u32); n += 1; }
all };
/// Register type.total. Bits 31:0.
pub const TOTAL_LOW: ::fpga_registers::Reg<::fpga_registers::Ro<u32>> = ::fpga_registers::Reg::at(0x40);
/// Register type.total. Bits 63:32.
pub const TOTAL_HIGH: ::fpga_registers::Reg<::fpga_registers::Ro<u32>> = ::fpga_registers::Reg::at(0x44);

/// Value of type.events.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Events(u32);

impl Events {
/// The value of this register word.
#[must_use]
pub const fn from_bits(word: u32) -> Self { Self(word) }
/// The register word.
#[must_use]
pub const fn bits(self) -> u32 { self.0 }
/// Bits 0.
#[must_use]
pub const fn late(self) -> bool { (self.0 >> 0) & 0x1 != 0 }
/// Bits 0.
#[must_use]
pub const fn with_late(self, value: bool) -> Self { Self(self.0 & 0xfffffffe | (value as u32) << 0) }
}

impl ::fpga_registers::RegisterValue for Events {
const FIELDS: &'static [::fpga_registers::Field] = &::fpga_registers::decode::place([
::fpga_registers::Field::new("late", 1, ::fpga_registers::FieldKind::Flag),
::fpga_registers::Field::new("_reserved", 31, ::fpga_registers::FieldKind::Hex),
]);
fn from_register(raw: u32) -> Self { Self(raw) }
fn into_register(self) -> u32 { self.0 }
}

impl ::core::fmt::Display for Events {
fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
::core::write!(f, "{}", ::fpga_registers::RegisterValue::decoded(*self)) }
}

impl ::core::fmt::Debug for Events {
fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
::core::write!(f, "Events({})", ::fpga_registers::RegisterValue::decoded(*self)) }
}

/// Register type.events.
pub const EVENTS: ::fpga_registers::Reg<::fpga_registers::Rw1c<Events>> = ::fpga_registers::Reg::at(0x48);
/// Register type.queue.
pub const QUEUE: ::fpga_registers::Reg<::fpga_registers::Rc<u32>> = ::fpga_registers::Reg::at(0x4c);
/// Register type.kick.
pub const KICK: ::fpga_registers::Reg<::fpga_registers::Wo<u32>> = ::fpga_registers::Reg::at(0x50);
/// Register type.set.
pub const SET: ::fpga_registers::Reg<::fpga_registers::W1s<u32>> = ::fpga_registers::Reg::at(0x54);
/// Register type.clear.
pub const CLEAR: ::fpga_registers::Reg<::fpga_registers::W1c<u32>> = ::fpga_registers::Reg::at(0x58);
}

/// Block lanes.
pub mod lanes {
/// Offsets of the blocks in the BAR.
pub const BASES: [::fpga_registers::BarOffset; 2] = {
let mut all = [::fpga_registers::BarOffset::ZERO; 2];
let mut n = 0;
while n < 2 { all[n] = ::fpga_registers::BarOffset::new(0x2000 + 0x200 * n as u64); n += 1; }
all };

/// Value of lanes.Self.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Self_(u32);

impl Self_ {
/// The value of this register word.
#[must_use]
pub const fn from_bits(word: u32) -> Self { Self(word) }
/// The register word.
#[must_use]
pub const fn bits(self) -> u32 { self.0 }
/// The value after reset.
pub const RESET: Self = Self(0x1);
/// Bits 0.
#[must_use]
pub const fn with_go(self, value: bool) -> Self { Self(self.0 & 0xfffffffe | (value as u32) << 0) }
/// Bits 3:1.
#[must_use]
pub const fn fn_(self) -> u8 { ((self.0 >> 1) & 0x7) as u8 }
/// Bits 3:1.
#[must_use]
pub const fn with_fn(self, value: u8) -> ::core::option::Option<Self> { if value as u32 > 0x7 { return ::core::option::Option::None; } ::core::option::Option::Some(Self(self.0 & 0xfffffff1 | (value as u32) << 1)) }
/// Bits 15:8.
#[must_use]
pub const fn byte(self) -> u8 { ((self.0 >> 8) & 0xff) as u8 }
/// Bits 15:8.
#[must_use]
pub const fn with_byte(self, value: u8) -> Self { Self(self.0 & 0xffff00ff | (value as u32) << 8) }
/// Only read.
#[must_use]
pub const fn word(self) -> u16 { ((self.0 >> 16) & 0xffff) as u16 }
}

impl ::fpga_registers::RegisterValue for Self_ {
const FIELDS: &'static [::fpga_registers::Field] = &::fpga_registers::decode::place([
::fpga_registers::Field::new("go", 1, ::fpga_registers::FieldKind::Flag),
::fpga_registers::Field::new("fn", 3, ::fpga_registers::FieldKind::Number),
::fpga_registers::Field::new("_reserved", 4, ::fpga_registers::FieldKind::Hex),
::fpga_registers::Field::new("byte", 8, ::fpga_registers::FieldKind::Number),
::fpga_registers::Field::new("word", 16, ::fpga_registers::FieldKind::Number),
]);
fn from_register(raw: u32) -> Self { Self(raw) }
fn into_register(self) -> u32 { self.0 }
}

impl ::core::fmt::Display for Self_ {
fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
::core::write!(f, "{}", ::fpga_registers::RegisterValue::decoded(*self)) }
}

impl ::core::fmt::Debug for Self_ {
fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
::core::write!(f, "Self_({})", ::fpga_registers::RegisterValue::decoded(*self)) }
}

/// Register lanes.Self.
pub const SELF: ::fpga_registers::Reg<::fpga_registers::Rw<Self_>> = ::fpga_registers::Reg::at(0x0);

/// Value of lanes.option.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Option(u32);

impl Option {
/// The value of this register word.
#[must_use]
pub const fn from_bits(word: u32) -> Self { Self(word) }
/// The register word.
#[must_use]
pub const fn bits(self) -> u32 { self.0 }
/// Bits 31:0.
#[must_use]
pub const fn value(self) -> ::core::result::Result<super::Match, u32> { match super::Match::from_value((self.0 >> 0) & 0xffffffff) { ::core::option::Option::Some(known) => ::core::result::Result::Ok(known), ::core::option::Option::None => ::core::result::Result::Err((self.0 >> 0) & 0xffffffff) } }
/// Bits 31:0.
#[must_use]
pub const fn with_value(self, value: super::Match) -> Self { Self(self.0 & 0x0 | value.value() << 0) }
}

impl ::fpga_registers::RegisterValue for Option {
const FIELDS: &'static [::fpga_registers::Field] = &::fpga_registers::decode::place([
::fpga_registers::Field::new("value", 32, ::fpga_registers::FieldKind::Choice(super::Match::name_of)),
]);
fn from_register(raw: u32) -> Self { Self(raw) }
fn into_register(self) -> u32 { self.0 }
}

impl ::core::fmt::Display for Option {
fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
::core::write!(f, "{}", ::fpga_registers::RegisterValue::decoded(*self)) }
}

impl ::core::fmt::Debug for Option {
fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
::core::write!(f, "Option({})", ::fpga_registers::RegisterValue::decoded(*self)) }
}

/// Register lanes.option.
pub const OPTION: ::fpga_registers::Reg<::fpga_registers::Rw<Option>> = ::fpga_registers::Reg::at(0x4);

/// Value of lanes.apCtrl.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ApCtrl(u32);

impl ApCtrl {
/// The value of this register word.
#[must_use]
pub const fn from_bits(word: u32) -> Self { Self(word) }
/// The register word.
#[must_use]
pub const fn bits(self) -> u32 { self.0 }
/// Bits 1.
#[must_use]
pub const fn done(self) -> bool { (self.0 >> 1) & 0x1 != 0 }
/// Bits 5:4.
#[must_use]
pub const fn speed(self) -> ::core::result::Result<super::Speed, u32> { match super::Speed::from_value((self.0 >> 4) & 0x3) { ::core::option::Option::Some(known) => ::core::result::Result::Ok(known), ::core::option::Option::None => ::core::result::Result::Err((self.0 >> 4) & 0x3) } }
/// Bits 5:4.
#[must_use]
pub const fn with_speed(self, value: super::Speed) -> Self { Self(self.0 & 0xffffffcf | value.value() << 4) }
}

impl ::fpga_registers::RegisterValue for ApCtrl {
const FIELDS: &'static [::fpga_registers::Field] = &::fpga_registers::decode::place([
::fpga_registers::Field::new("_reserved", 1, ::fpga_registers::FieldKind::Hex),
::fpga_registers::Field::new("done", 1, ::fpga_registers::FieldKind::Flag),
::fpga_registers::Field::new("_reserved", 2, ::fpga_registers::FieldKind::Hex),
::fpga_registers::Field::new("speed", 2, ::fpga_registers::FieldKind::Choice(super::Speed::name_of)),
::fpga_registers::Field::new("_reserved", 26, ::fpga_registers::FieldKind::Hex),
]);
fn from_register(raw: u32) -> Self { Self(raw) }
fn into_register(self) -> u32 { self.0 }
}

impl ::core::fmt::Display for ApCtrl {
fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
::core::write!(f, "{}", ::fpga_registers::RegisterValue::decoded(*self)) }
}

impl ::core::fmt::Debug for ApCtrl {
fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
::core::write!(f, "ApCtrl({})", ::fpga_registers::RegisterValue::decoded(*self)) }
}

/// Register lanes.apCtrl.
pub const AP_CTRL: ::fpga_registers::Reg<::fpga_registers::Rc<ApCtrl>> = ::fpga_registers::Reg::at(0x8);
/// [`AP_CTRL`], to be written.
pub const AP_CTRL_WRITE: ::fpga_registers::Reg<::fpga_registers::Wo<ApCtrl>> = ::fpga_registers::Reg::at(0x8);
/// Value of lanes.plain after reset.
pub const PLAIN_RESET: u32 = 0x7;
/// Register lanes.plain.
pub const PLAIN: [::fpga_registers::Reg<::fpga_registers::Rw<u32>>; 3] = {
let mut all = [::fpga_registers::Reg::at(0xc); 3];
let mut n = 0;
while n < 3 { all[n] = ::fpga_registers::Reg::at(0xc + 0x8 * n as u32); n += 1; }
all };
/// Register lanes.total. Bits 31:0.
pub const TOTAL_LOW: ::fpga_registers::Reg<::fpga_registers::Ro<u32>> = ::fpga_registers::Reg::at(0x40);
/// Register lanes.total. Bits 63:32.
pub const TOTAL_HIGH: ::fpga_registers::Reg<::fpga_registers::Ro<u32>> = ::fpga_registers::Reg::at(0x44);

/// Value of lanes.events.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Events(u32);

impl Events {
/// The value of this register word.
#[must_use]
pub const fn from_bits(word: u32) -> Self { Self(word) }
/// The register word.
#[must_use]
pub const fn bits(self) -> u32 { self.0 }
/// Bits 0.
#[must_use]
pub const fn late(self) -> bool { (self.0 >> 0) & 0x1 != 0 }
/// Bits 0.
#[must_use]
pub const fn with_late(self, value: bool) -> Self { Self(self.0 & 0xfffffffe | (value as u32) << 0) }
}

impl ::fpga_registers::RegisterValue for Events {
const FIELDS: &'static [::fpga_registers::Field] = &::fpga_registers::decode::place([
::fpga_registers::Field::new("late", 1, ::fpga_registers::FieldKind::Flag),
::fpga_registers::Field::new("_reserved", 31, ::fpga_registers::FieldKind::Hex),
]);
fn from_register(raw: u32) -> Self { Self(raw) }
fn into_register(self) -> u32 { self.0 }
}

impl ::core::fmt::Display for Events {
fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
::core::write!(f, "{}", ::fpga_registers::RegisterValue::decoded(*self)) }
}

impl ::core::fmt::Debug for Events {
fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
::core::write!(f, "Events({})", ::fpga_registers::RegisterValue::decoded(*self)) }
}

/// Register lanes.events.
pub const EVENTS: ::fpga_registers::Reg<::fpga_registers::Rw1c<Events>> = ::fpga_registers::Reg::at(0x48);
/// Register lanes.queue.
pub const QUEUE: ::fpga_registers::Reg<::fpga_registers::Rc<u32>> = ::fpga_registers::Reg::at(0x4c);
/// Register lanes.kick.
pub const KICK: ::fpga_registers::Reg<::fpga_registers::Wo<u32>> = ::fpga_registers::Reg::at(0x50);
/// Register lanes.set.
pub const SET: ::fpga_registers::Reg<::fpga_registers::W1s<u32>> = ::fpga_registers::Reg::at(0x54);
/// Register lanes.clear.
pub const CLEAR: ::fpga_registers::Reg<::fpga_registers::W1c<u32>> = ::fpga_registers::Reg::at(0x58);
}
}
