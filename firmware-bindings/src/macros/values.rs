//! Enums and bit sets: named numbers.

/// Declares enums: `Name = value,` per variant.
///
/// The enum is `non_exhaustive` and has the given representation. `name`, `Display` and `VALUES` use the name of the variant as written;
/// lists keep the declaration order. `TryFrom` refuses other numbers.
macro_rules! contract_enums {
    ($(
        $(#[$doc:meta])*
        pub enum $name:ident: $repr:ident {
            $( $(#[$variant_doc:meta])* $variant:ident = $value:literal, )*
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[repr($repr)]
        pub enum $name {
            $( $(#[$variant_doc])* $variant = $value, )*
        }

        impl $name {
            /// Every value, in map order.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )*];

            /// Number and name of every value.
            pub const VALUES: &'static [(u32, &'static str)] = &[$( ($value, stringify!($variant)), )*];

            /// Number of the value.
            #[must_use]
            pub const fn value(self) -> $repr {
                self as $repr
            }

            /// The value's name in the map.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$variant => stringify!($variant), )*
                }
            }
        }

        impl TryFrom<$repr> for $name {
            type Error = $crate::catalog::UnknownValue;

            #[inline]
            fn try_from(value: $repr) -> Result<Self, $crate::catalog::UnknownValue> {
                match value {
                    $( $value => Ok(Self::$variant), )*
                    _ => Err($crate::catalog::UnknownValue { of: stringify!($name), value: value.into() }),
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }
    )*};
}

/// Declares bit sets: `[number] NAME;` per bit.
///
/// A set keeps bits without a name. `Display` writes the names of the bits in declaration order, joined by `|`, and the bits without a
/// name as one number.
macro_rules! contract_bits {
    ($(
        $(#[$doc:meta])*
        pub struct $name:ident: $repr:ident {
            $( $(#[$bit_doc:meta])* [$number:literal] $bit:ident; )*
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($repr);

        impl $name {
            /// No bit set.
            pub const NONE: Self = Self(0);
            $( $(#[$bit_doc])* pub const $bit: Self = Self(1 << $number); )*
            /// Every bit that the map names.
            pub const ALL: Self = Self($( Self::$bit.0 )|*);
            /// Every bit that the map names, with its name.
            pub const NAMES: &'static [(Self, &'static str)] = &[$( (Self::$bit, stringify!($bit)), )*];

            /// Creates the set of these bits, including bits that the map does not name.
            #[must_use]
            #[inline]
            pub const fn from_bits(bits: $repr) -> Self {
                Self(bits)
            }

            /// All bits.
            #[must_use]
            #[inline]
            pub const fn bits(self) -> $repr {
                self.0
            }

            /// Whether all bits of `other` are set.
            #[must_use]
            #[inline]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Union of both sets.
            #[must_use]
            #[inline]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Bits that the map does not name.
            #[must_use]
            #[inline]
            pub const fn unknown(self) -> Self {
                Self(self.0 & !Self::ALL.0)
            }

            /// Whether no bit is set.
            #[must_use]
            #[inline]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }
        }

        impl core::ops::BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                self.with(other)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let names = Self::NAMES.iter().map(|(bit, name)| (bit.0.into(), *name));
                $crate::catalog::write_bits(f, self.0.into(), names)
            }
        }
    )*};
}
