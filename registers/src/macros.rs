//! The two macros that define everything in this package: a register value and a register block. Each item is stated once; accessors, field
//! tables, offsets, layout checks, catalogue entries and their descriptions are derived from the statement.

/// Declares register values: fields from the least significant bit up as `width name: type`, reserved bits with a
/// name that starts with `_`, an optional default after `=` and an optional [`FieldKind`](crate::FieldKind) after
/// `as`.
macro_rules! register_value {
    ($(
        $(#[$doc:meta])*
        pub struct $name:ident {
            $( $(#[doc = $field_doc:tt])* $width:literal $field:ident : $type:ident $(= $default:tt)? $(, $kind:expr)? ; )*
        }
    )*) => {$(
        $(#[$doc])*
        #[bitfield_struct::bitfield(u32)]
        #[derive(PartialEq, Eq, Hash)]
        pub struct $name {
            $( $(#[doc = $field_doc])* #[bits($width $(, default = $default)?)] pub $field: $type, )*
        }

        impl $crate::decode::RegisterValue for $name {
            const FIELDS: &'static [$crate::decode::Field] = &$crate::decode::place([
                $( $crate::decode::Field::new(stringify!($field), $width, field_kind!($width $(, $kind)?))
                    .with_doc(concat!($($field_doc),*)) ),*
            ]);

            fn from_register(raw: u32) -> Self {
                Self::from_bits(raw)
            }

            fn into_register(self) -> u32 {
                self.into_bits()
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(&$crate::decode::RegisterValue::decoded(*self), f)
            }
        }
    )*};
}

/// Kind of a field: as stated, else a flag for one bit and a number for more.
macro_rules! field_kind {
    ($width:literal) => {
        if $width == 1 { $crate::decode::FieldKind::Flag } else { $crate::decode::FieldKind::Number }
    };
    ($width:literal, $kind:expr) => {
        $kind
    };
}

/// Declares a register block: `offset field NAME: Cell<Value> = reset;` per register (no reset where the document
/// gives none), `skip name [words];` for a reserved gap before the next register and `end name [words]` at the end.
macro_rules! register_block {
    (
        $(#[$doc:meta])*
        pub struct $block:ident [$size:literal] {
            $(
                $(skip $gap:ident [$gap_words:literal];)?
                $(#[doc = $register_doc:tt])*
                $offset:literal $field:ident $name:ident : $cell:ident<$value:ty> $(= $reset:literal)? ;
            )*
            $(end $tail:ident [$tail_words:literal])?
        }
    ) => {
        $(#[$doc])*
        #[repr(C)]
        pub struct $block {
            $(
                $($gap: [u32; $gap_words],)?
                $(#[doc = $register_doc])*
                pub $field: $crate::access::$cell<$value>,
            )*
            $($tail: [u32; $tail_words],)?
        }

        impl $block {
            /// Size of the block's register space in bytes.
            pub const SIZE: u32 = $size;

            $(
                $(#[doc = $register_doc])*
                pub const $name: $crate::access::Reg<$crate::access::$cell<$value>> =
                    $crate::access::Reg::field_of::<Self>(core::mem::offset_of!(Self, $field), |block| &block.$field);
            )*

            /// Every register of the block, in address order.
            pub const REGISTERS: &'static [$crate::catalog::RegisterSpec] = &[
                $($crate::catalog::RegisterSpec::new::<$crate::access::$cell<$value>>(
                    stringify!($field),
                    core::mem::offset_of!(Self, $field),
                    reset_value!($($reset)?),
                    concat!($($register_doc),*),
                )),*
            ];
        }

        impl core::fmt::Debug for $block {
            // Prints the name only: formatting must never touch a device.
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($block)).finish_non_exhaustive()
            }
        }

        const _: () = {
            $(assert!(core::mem::offset_of!($block, $field) == $offset);)*
            assert!(size_of::<$block>() == $size);
            assert!(align_of::<$block>() == 4);
        };
    };
}

/// Documented reset value, or none.
macro_rules! reset_value {
    () => {
        None
    };
    ($reset:literal) => {
        Some($reset)
    };
}
