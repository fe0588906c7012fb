//! Typed access: name, offset and permitted operations of each register.
//!
//! A backend (a mapped BAR, `pread`/`pwrite` on a VFIO region, a simulated card, a recording) implements
//! [`RegisterIo`]: two untyped 32-bit operations. A [`Reg`] is the typed name of one register; its methods exist
//! only where the register's access kind allows them:
//!
//! | Cell | PG195 / PG034 access | `read` | `read_and_clear` | `write` |
//! |---|---|---|---|---|
//! | [`Ro`] | RO | yes | | |
//! | [`Rw`] | RW, R/W | yes | | replaces the value |
//! | [`Wo`] | WO | | | replaces the value |
//! | [`W1s`] | W1S | | | ones set bits of the aliased register |
//! | [`W1c`] | W1C | | | ones clear bits of the aliased register |
//! | [`Rw1c`] | RW1C, R/WC | yes | | ones clear bits |
//! | [`Rc`] | RC | | yes | |
//!
//! Reading a clear-on-read register is an action, so it cannot be expressed as a pure read:
//!
//! ```compile_fail,E0599
//! use fpga_registers::{BarOffset, RegisterIo, xdma::ChannelBlock};
//! fn peek<I: RegisterIo>(io: &I) {
//!     let _ = ChannelBlock::STATUS_RC.read(io, BarOffset::ZERO);
//! }
//! ```
//!
//! An alias or write-only register has no read:
//!
//! ```compile_fail,E0599
//! use fpga_registers::{BarOffset, RegisterIo, xdma::ChannelBlock};
//! fn peek<I: RegisterIo>(io: &I) {
//!     let _ = ChannelBlock::CONTROL_SET.read(io, BarOffset::ZERO);
//! }
//! ```
//!
//! ```compile_fail,E0599
//! use fpga_registers::{BarOffset, Reg, RegisterIo, Wo};
//! fn peek<I: RegisterIo>(io: &I, register: Reg<Wo<u32>>) {
//!     let _ = register.read(io, BarOffset::ZERO);
//! }
//! ```
//!
//! A read-only register has no write:
//!
//! ```compile_fail,E0599
//! use fpga_registers::{BarOffset, RegisterIo, xdma::{ChannelBlock, Identifier}};
//! fn poke<I: RegisterIo>(io: &I) {
//!     let _ = ChannelBlock::IDENTIFIER.write(io, BarOffset::ZERO, Identifier::new());
//! }
//! ```
//!
//! A register that only reads cannot be read "and cleared", and values do not cross registers:
//!
//! ```compile_fail,E0599
//! use fpga_registers::{BarOffset, RegisterIo, xdma::ChannelBlock};
//! fn take<I: RegisterIo>(io: &I) {
//!     let _ = ChannelBlock::STATUS.read_and_clear(io, BarOffset::ZERO);
//! }
//! ```
//!
//! ```compile_fail,E0308
//! use fpga_registers::{BarOffset, RegisterIo, xdma::{ChannelBlock, ChannelStatus}};
//! fn poke<I: RegisterIo>(io: &I) {
//!     let _ = ChannelBlock::CONTROL.write(io, BarOffset::ZERO, ChannelStatus::new());
//! }
//! ```

use core::fmt;
use core::marker::PhantomData;

use volatile_register::{RO, RW, WO};

use crate::addr::BarOffset;
use crate::decode::RegisterValue;

/// Aligned 32-bit access to one BAR, implemented by every backend.
///
/// Both blocks accept whole, aligned 32-bit accesses only (PG195 "PCIe to DMA Address Map"; PG034 ignores write
/// strobes), so there is no narrower operation.
pub trait RegisterIo {
    /// Error of an access: out of bounds, misaligned, device gone.
    type Error;

    /// Reads the word at byte offset `at`, a multiple of four.
    ///
    /// # Errors
    /// Backend-specific: an offset outside the BAR, a misaligned offset, a failed access.
    fn read32(&self, at: BarOffset) -> Result<u32, Self::Error>;

    /// Writes the word at byte offset `at`, a multiple of four. The write may be posted.
    ///
    /// # Errors
    /// Same as [`RegisterIo::read32`].
    fn write32(&self, at: BarOffset, value: u32) -> Result<(), Self::Error>;
}

impl<T: RegisterIo + ?Sized> RegisterIo for &T {
    type Error = T::Error;

    fn read32(&self, at: BarOffset) -> Result<u32, Self::Error> {
        (**self).read32(at)
    }

    fn write32(&self, at: BarOffset, value: u32) -> Result<(), Self::Error> {
        (**self).write32(at, value)
    }
}

/// Access kind: permitted operations of a register, and their effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AccessKind {
    /// RO: reads have no effect, writes are not defined.
    ReadOnly,
    /// RW: reads return the written value, except fields that the hardware owns.
    ReadWrite,
    /// WO: reads return nothing useful.
    WriteOnly,
    /// W1S: ones written set bits of another register; reads return nothing useful.
    Write1Set,
    /// W1C alias: ones written clear bits of another register; reads return nothing useful.
    Write1Clear,
    /// RW1C: reads have no effect, ones written clear the register's own bits.
    ReadWrite1Clear,
    /// RC: a read returns the bits and clears them.
    ReadClears,
}

impl AccessKind {
    /// Returns whether a read returns the register's content.
    #[must_use]
    pub const fn is_readable(self) -> bool {
        matches!(self, Self::ReadOnly | Self::ReadWrite | Self::ReadWrite1Clear | Self::ReadClears)
    }

    /// Returns whether a write is defined.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        !matches!(self, Self::ReadOnly | Self::ReadClears)
    }

    /// Returns whether a read changes the device, so that a debugger or a dump would consume events.
    #[must_use]
    pub const fn read_has_side_effect(self) -> bool {
        matches!(self, Self::ReadClears)
    }

    /// The abbreviation that PG195 uses.
    #[must_use]
    pub const fn abbreviation(self) -> &'static str {
        match self {
            Self::ReadOnly => "RO",
            Self::ReadWrite => "RW",
            Self::WriteOnly => "WO",
            Self::Write1Set => "W1S",
            Self::Write1Clear => "W1C",
            Self::ReadWrite1Clear => "RW1C",
            Self::ReadClears => "RC",
        }
    }
}

impl fmt::Display for AccessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.abbreviation())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// One 32-bit register as a field of a block structure.
///
/// Sealed: the access kinds are a closed list.
pub trait Cell: sealed::Sealed {
    /// The register's value type.
    type Value: RegisterValue;
    /// Volatile cell of a mapped BAR.
    type Volatile;
    /// Access kind of the register.
    const ACCESS: AccessKind;
}

/// Cells whose content can be read without an effect on the device.
pub trait PureRead: Cell {}

/// Cells that can be written.
pub trait Writable: Cell {}

macro_rules! cell {
    ($(#[$doc:meta])* $name:ident, $volatile:ident, $access:ident $(, $capability:ident)*) => {
        $(#[$doc])*
        #[repr(transparent)]
        pub struct $name<V> {
            // Never accessed through this type: it gives the block structures their layout. Access uses a `RegisterIo`, so that a simulated
            // card and a recording see it too.
            _cell: $volatile<u32>,
            value: PhantomData<fn(V) -> V>,
        }

        impl<V> fmt::Debug for $name<V> {
            // Prints the kind only: formatting must never touch a device.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }

        impl<V> sealed::Sealed for $name<V> {}

        impl<V: RegisterValue> Cell for $name<V> {
            type Value = V;
            type Volatile = $volatile<u32>;
            const ACCESS: AccessKind = AccessKind::$access;
        }

        $(impl<V: RegisterValue> $capability for $name<V> {})*

        const _: () = assert!(size_of::<$name<u32>>() == 4 && align_of::<$name<u32>>() == 4);
    };
}

cell! {
    /// A read-only register.
    Ro, RO, ReadOnly, PureRead
}
cell! {
    /// A read-write register.
    Rw, RW, ReadWrite, PureRead, Writable
}
cell! {
    /// A write-only register.
    Wo, WO, WriteOnly, Writable
}
cell! {
    /// A write-1-to-set alias of another register.
    W1s, WO, Write1Set, Writable
}
cell! {
    /// A write-1-to-clear alias of another register.
    W1c, WO, Write1Clear, Writable
}
cell! {
    /// A register that reads purely and whose bits are cleared by writing ones.
    Rw1c, RW, ReadWrite1Clear, PureRead, Writable
}
cell! {
    /// A register whose bits are cleared by reading it.
    Rc, RO, ReadClears
}

/// Typed name of one register within its block. `C` is the cell type, e.g. `Rw<ChannelControl>`.
///
/// ```
/// use fpga_registers::xdma::{ChannelBlock, ChannelControl, Direction, channel_base};
/// use fpga_registers::{BarOffset, RegisterIo};
///
/// fn stop<I: RegisterIo>(io: &I) -> Result<ChannelControl, I::Error> {
///     let base: BarOffset = channel_base(Direction::H2c, 0);
///     ChannelBlock::CONTROL_CLEAR.write(io, base, ChannelControl::new().with_run(true))?;
///     ChannelBlock::CONTROL.read(io, base)
/// }
/// ```
pub struct Reg<C> {
    offset: u32,
    cell: PhantomData<fn() -> C>,
}

impl<C> Clone for Reg<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Reg<C> {}

impl<C: Cell> fmt::Debug for Reg<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reg({:#04x} {})", self.offset, C::ACCESS)
    }
}

impl<C: Cell> Reg<C> {
    /// Creates the register at `offset` bytes in its block.
    #[must_use]
    pub const fn at(offset: u32) -> Self {
        Self { offset, cell: PhantomData }
    }

    /// Creates the register that is field `_field` of block `B`; the accessor proves that the field is a `C`.
    pub(crate) const fn field_of<B>(offset: usize, _field: fn(&B) -> &C) -> Self {
        Self::at(block_offset(offset))
    }

    /// Byte offset within the block.
    #[must_use]
    pub const fn offset(self) -> u32 {
        self.offset
    }

    /// Byte offset within the BAR, for a block that starts at `base`.
    #[must_use]
    pub const fn address(self, base: BarOffset) -> BarOffset {
        base.offset_by(self.offset)
    }

    /// Access kind of the register.
    #[must_use]
    pub const fn access(self) -> AccessKind {
        C::ACCESS
    }
}

impl<C: PureRead> Reg<C> {
    /// Reads the register of the block at `base`; the device does not change.
    ///
    /// All ones means that the device is gone: check before using any field.
    ///
    /// # Errors
    /// Errors of the backend.
    pub fn read<I: RegisterIo + ?Sized>(self, io: &I, base: BarOffset) -> Result<C::Value, I::Error> {
        io.read32(self.address(base)).map(C::Value::from_register)
    }
}

impl<C: Writable> Reg<C> {
    /// Writes the register of the block at `base`. The effect of the written ones depends on the cell: see the table at the [module](self).
    ///
    /// # Errors
    /// Errors of the backend.
    pub fn write<I: RegisterIo + ?Sized>(
        self,
        io: &I,
        base: BarOffset,
        value: C::Value,
    ) -> Result<(), I::Error> {
        io.write32(self.address(base), value.into_register())
    }
}

impl<V: RegisterValue> Reg<Rc<V>> {
    /// Reads the register of the block at `base`, which clears it: the bits are returned once, to this caller.
    ///
    /// # Errors
    /// Errors of the backend. The bits may be lost then.
    pub fn read_and_clear<I: RegisterIo + ?Sized>(self, io: &I, base: BarOffset) -> Result<V, I::Error> {
        io.read32(self.address(base)).map(V::from_register)
    }
}

/// Converts a field offset to a register offset; blocks are a few KiB at most.
pub(crate) const fn block_offset(offset: usize) -> u32 {
    // The largest block is the 4 KiB MSI-X page, so this never fires; it is evaluated at compile time only.
    assert!(offset < 0x1_0000, "block larger than its BAR");
    #[expect(clippy::cast_possible_truncation, reason = "bounded by the assertion above")]
    let offset = offset as u32;
    offset
}
