//! Register blocks and layouts: constants for offsets and masks, and the catalog of registers.

/// Declares register blocks, and `BLOCKS`, their catalog in declaration order.
///
/// A register is declared as `access NAME: word;`, where a word is `offset "name" = reset`, without `= reset` where the contract fixes
/// none. The name in the catalog is given too, because a macro cannot change the case of an identifier.
/// More forms:
///
/// * `access LOW_NAME HIGH_NAME: word, word;` is a 64-bit register, lower half first;
/// * `access NAME[COUNT_NAME = count]: word, word, ...;` is an array; only the offset of its first word is a constant;
/// * a word ends with `values Enum` if it holds a value of that enum;
/// * a word ends with `fields module { ... }` if it has fields, each declared as `[high:low] NAME "name";`. A field of several bits has
///   the name of its shift constant after `NAME`.
///
/// `BlockType` and the enums are those of the module that invokes the macro.
macro_rules! contract_blocks {
    ($(
        #[doc = $doc:literal]
        pub mod $block:ident: BlockType::$block_type:ident, version $version:literal,
            offset $start:literal, size $size:literal
        {
            $(
                #[doc = $register_doc:literal]
                $access:ident $register:ident $($high_half:ident)? $([$count_name:ident = $count:literal])? : $(
                    $offset:literal $name:literal $(= $reset:literal)? $(values $values:ident)?
                    $(fields $fields:ident {
                        $(
                            #[doc = $field_doc:literal]
                            [$high:literal : $low:literal] $field:ident $($shift:ident)? $field_name:literal;
                        )*
                    })?
                ),+ ;
            )*
        }
    )*) => {
        $(
            #[doc = concat!(" Block `", stringify!($block), "`.", $doc)]
            pub mod $block {
                use super::BlockType;

                /// Type of the block in the block table.
                pub const BLOCK_TYPE: BlockType = BlockType::$block_type;
                /// Version of the block.
                pub const BLOCK_VERSION: u16 = $version;
                /// Default offset in the user BAR, in bytes; the block table overrides it.
                pub const BLOCK_OFFSET: u32 = $start;
                /// Size of the block in bytes.
                pub const BLOCK_SIZE: u32 = $size;

                $(
                    register_offset! {
                        $register_doc, $access, $register $($high_half)? $([$count_name = $count])? : $($offset)+
                    }

                    $($(
                        #[doc = concat!(" Fields of [`", stringify!($register), "`].")]
                        pub mod $fields {
                            $(
                                #[doc = $field_doc]
                                pub const $field: u32 = $crate::catalog::mask($high, $low);
                                $(
                                    #[doc = concat!(" Lowest bit of [`", stringify!($field), "`].")]
                                    pub const $shift: u32 = $low;
                                )?
                            )*
                        }
                    )?)+
                )*

                // The entry of the catalog.
                pub(super) const BLOCK_INFO: $crate::catalog::BlockInfo = $crate::catalog::BlockInfo {
                    block_type: BLOCK_TYPE,
                    name: stringify!($block),
                    version: BLOCK_VERSION,
                    default_offset: BLOCK_OFFSET,
                    size: BLOCK_SIZE,
                    doc: $doc.trim_ascii_start(),
                    registers: &[$($(
                        fpga_registers::catalog::RegisterSpec::plain(
                            $name,
                            $offset,
                            access_kind!($access),
                            reset_value!($($reset)?),
                            $register_doc,
                        )
                        $(.with_values(super::$values::VALUES))?
                        $(.with_fields(const {
                            &[$( fpga_registers::Field::at($field_name, $high, $low, $field_doc), )*]
                        }))?,
                    )+)*],
                };
            }
        )*

        /// Every block of the contract with its registers, in address order of the default offsets.
        pub static BLOCKS: &[$crate::catalog::BlockInfo] = &[$( $block::BLOCK_INFO, )*];
    };
}

/// Offset constants of one register, from its documentation, access, names and word offsets.
macro_rules! register_offset {
    ($doc:literal, $access:ident, $register:ident : $offset:literal) => {
        #[doc = concat!($doc, " (", access_text!($access), ")")]
        pub const $register: u32 = $offset;
    };
    ($doc:literal, $access:ident, $low:ident $high:ident : $low_offset:literal $high_offset:literal) => {
        #[doc = concat!($doc, " Bits 31:0. (", access_text!($access), ")")]
        pub const $low: u32 = $low_offset;
        #[doc = concat!($doc, " Bits 63:32. (", access_text!($access), ")")]
        pub const $high: u32 = $high_offset;
    };
    (
        $doc:literal, $access:ident, $first:ident [$count_name:ident = $count:literal] :
        $offset:literal $($more:literal)*
    ) => {
        #[doc = concat!($doc, " First of ", $count, " words (", access_text!($access), ").")]
        pub const $first: u32 = $offset;
        #[doc = concat!(" Number of `", stringify!($first), "` words.")]
        pub const $count_name: u32 = $count;
    };
}

/// Access kind of a register.
macro_rules! access_kind {
    (ro) => {
        $crate::catalog::AccessKind::ReadOnly
    };
    (rw) => {
        $crate::catalog::AccessKind::ReadWrite
    };
    (wo) => {
        $crate::catalog::AccessKind::WriteOnly
    };
}

/// Access kind of a register as text for its documentation.
macro_rules! access_text {
    (ro) => {
        "read only"
    };
    (rw) => {
        "read and write"
    };
    (wo) => {
        "write only"
    };
}

/// Reset value that the contract fixes, or none.
macro_rules! reset_value {
    () => {
        None
    };
    ($reset:literal) => {
        Some($reset)
    };
}

/// Declares layouts, as one module each: `type NAME: offset;` per member, where the type is `u8` to `u64` or
/// `bytes[length]`.
///
/// A layout `child: parent` starts with all members of `parent`, which must precede it; its size includes them. The child's module has
/// constants for them, too: each layout also becomes a macro of its name that declares the constants of all its members. The modules of
/// the layout and of its children invoke it.
macro_rules! contract_layouts {
    ($(
        $(#[$doc:meta])*
        pub mod $layout:ident $(: $parent:ident)? [$size:literal] {
            $(
                #[doc = $member_doc:literal]
                $type:ident $([$length:literal])? $member:ident: $offset:literal;
            )*
        }
    )*) => {$(
        macro_rules! $layout {
            () => {
                $( $parent! {} )?
                $(
                    #[doc = concat!($member_doc, " (`", stringify!($type), $("[", stringify!($length), "]",)? "`)")]
                    pub const $member: usize = $offset;
                )*
            };
        }

        $(#[$doc])*
        pub mod $layout {
            /// Size in bytes.
            pub const LAYOUT_SIZE: usize = $size;
            $layout! {}
        }
    )*};
}
