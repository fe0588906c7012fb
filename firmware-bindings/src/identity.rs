//! Identification of a card: contract, contract version, and the offsets of its blocks.
//!
//! The identity block is at offset 0 of the user BAR. [`Identity::read`] reads and checks it, [`check`] checks words that were read
//! already. An [`Identity`] guarantees that the contract is this package's, that every block lies in the BAR, on a word boundary, apart
//! from the others, and is large enough for its registers, and that the blocks that the NI needs exist.
//!
//! Read it only on a card that is known to implement this contract (by its PCI subsystem id, or by the user's choice): a read of
//! offset 0 may do anything on another design.

#![warn(clippy::indexing_slicing)]

use alloc::vec::Vec;

use fpga_registers::{BarOffset, RegisterIo, quantity};

use crate::catalog::{self, BlockInfo};
use crate::generated::layout::block_entry;
use crate::generated::{
    BLOCKS, BlockType, CONTRACT_CHECKSUM, CONTRACT_VERSION, Capabilities, IDENTITY_MAGIC,
    IDENTITY_MAX_BLOCKS, identity as at,
};

/// 32-bit words before the block table.
pub const HEAD_WORDS: usize = at::BLOCK_TABLE as usize / 4;

/// 32-bit words of one entry of the block table.
pub const ENTRY_WORDS: usize = block_entry::LAYOUT_SIZE / 4;

/// Blocks that the NI needs. The fault log, the sending block and the rates block are optional (capabilities FAULT_LOG, COMMANDS and
/// LINK_FEEDBACK).
pub const REQUIRED: [BlockType; 7] = [
    BlockType::Identity,
    BlockType::Cdma,
    BlockType::Ni,
    BlockType::Counters,
    BlockType::Registry,
    BlockType::Escape,
    BlockType::Memory,
];

/// A checked identity block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    build: u32,
    capabilities: Capabilities,
    blocks: Vec<Block>,
}

/// One block of the user BAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Block {
    /// Type as a number: a newer card of the same contract may have types that this software does not know.
    pub type_number: u16,
    /// Version of the block.
    pub version: u16,
    /// First byte in the user BAR.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
}

/// Reason for refusing a card.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The first word is all ones.
    #[error(
        "the identity block reads as all ones: the card does not answer (removed, in reset, or memory decoding is off); \
         reset or reseat it and open it again"
    )]
    AllOnes,
    /// The first word is not the magic.
    #[error(
        "the user BAR starts with {found:#010x} instead of {IDENTITY_MAGIC:#010x}: this bitstream has no network interface of this project"
    )]
    WrongMagic {
        /// First word found.
        found: u32,
    },
    /// The contract version is not supported.
    #[error(
        "the bitstream speaks contract {}.{}, this software {}.{}: {}",
        found >> 16, found & 0xffff, supported >> 16, supported & 0xffff,
        if found > supported { "update the software" } else { "update the bitstream" }
    )]
    WrongVersion {
        /// CONTRACT_VERSION found.
        found: u32,
        /// CONTRACT_VERSION of this package.
        supported: u32,
    },
    /// The version matches, but the bitstream was built from a different map.
    #[error(
        "the bitstream was built from a map with checksum {found:#010x}, this software from {supported:#010x}, for the same contract version"
    )]
    WrongChecksum {
        /// CHECKSUM found.
        found: u32,
        /// [`CONTRACT_CHECKSUM`].
        supported: u32,
    },
    /// The block table is longer than the identity block can hold.
    #[error(
        "the block table announces {count}, the maximum is {IDENTITY_MAX_BLOCKS}: the bitstream is damaged; load it again",
        count = quantity(*count, "entry"),
    )]
    BlockCount {
        /// BLOCK_COUNT found.
        count: u32,
    },
    /// The given words do not cover head and block table.
    #[error(
        "a buffer of {given} is too short for the identity block, which has {needed}: read the whole block",
        given = quantity(*given, "word"),
    )]
    TooShort {
        /// Words given.
        given: usize,
        /// Words of head and table.
        needed: usize,
    },
    /// A block is empty, or not on word boundaries.
    #[error("block {block} is empty or not aligned to words: the bitstream is damaged; load it again")]
    MisplacedBlock {
        /// The block.
        block: Block,
    },
    /// A block extends beyond the end of the BAR.
    #[error(
        "block {block} lies beyond the user BAR's {bar_size:#x} bytes: the bitstream needs a larger user BAR"
    )]
    OutsideBar {
        /// The block.
        block: Block,
        /// Bytes of the BAR.
        bar_size: u64,
    },
    /// Two blocks overlap.
    #[error("block {first} and block {second} overlap: the bitstream's block table is wrong")]
    Overlap {
        /// The block that starts first.
        first: Block,
        /// The other block.
        second: Block,
    },
    /// A block is too small for its registers.
    #[error(
        "block {block} is smaller than its registers, {needed:#x} bytes: the bitstream's block table is wrong"
    )]
    TooSmall {
        /// The block.
        block: Block,
        /// Bytes to the end of the last register.
        needed: u32,
    },
    /// A block has an unsupported version.
    #[error(
        "block {block}: this software supports version {supported}; use the software that belongs to the bitstream"
    )]
    WrongBlockVersion {
        /// The block.
        block: Block,
        /// Version that this package knows.
        supported: u16,
    },
    /// A block that may exist only once appears twice.
    #[error(
        "the block table lists two {block_type} blocks, expected one: the bitstream's block table is wrong"
    )]
    Duplicate {
        /// The block's type.
        block_type: BlockType,
    },
    /// A block is missing.
    #[error(
        "the bitstream has no {block_type} block: the network interface cannot work without it; load a full build"
    )]
    Missing {
        /// The block's type.
        block_type: BlockType,
    },
}

impl IdentityError {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub const fn help(&self) -> Option<&'static str> {
        match self {
            Self::WrongMagic { .. } => {
                Some("open the card without the network interface, or load the right bitstream")
            }
            Self::WrongChecksum { .. } => Some("build both from the same map/ni.yaml"),
            _ => None,
        }
    }
}

/// Error of reading an identity block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityReadError<E> {
    /// A register could not be read.
    #[error("cannot read the identity block at {at}: {error}")]
    Access {
        /// Register offset.
        at: BarOffset,
        /// Error of the backend.
        error: E,
    },
    /// The card is refused.
    #[error(transparent)]
    Refused(#[from] IdentityError),
}

impl core::fmt::Display for Block {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.block_type() {
            Some(known) => write!(f, "{known}")?,
            None => write!(f, "type {}", self.type_number)?,
        }
        write!(f, " version {} at {:#x} + {:#x}", self.version, self.offset, self.size)
    }
}

impl Block {
    /// Creates the block of the map, at its default offset.
    #[must_use]
    pub const fn usual(info: &BlockInfo) -> Self {
        Self {
            type_number: info.block_type.value(),
            version: info.version,
            offset: info.default_offset,
            size: info.size,
        }
    }

    /// Type, if this software knows it.
    #[must_use]
    pub fn block_type(&self) -> Option<BlockType> {
        BlockType::try_from(self.type_number).ok()
    }

    /// Offset of the first byte.
    #[must_use]
    pub fn base(&self) -> BarOffset {
        BarOffset::new(self.offset.into())
    }

    /// Offset of the register at `register` bytes from the block's start (a constant of [`crate::generated`]).
    #[must_use]
    pub fn at(&self, register: u32) -> BarOffset {
        BarOffset::new(u64::from(self.offset) + u64::from(register))
    }

    fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.size)
    }

    fn words(&self) -> [u32; ENTRY_WORDS] {
        [u32::from(self.version) << 16 | u32::from(self.type_number), self.offset, self.size, 0]
    }

    fn from_words([kind, offset, size, _]: [u32; ENTRY_WORDS]) -> Self {
        let [low, high, version_low, version_high] = kind.to_le_bytes();
        Self {
            type_number: u16::from_le_bytes([low, high]),
            version: u16::from_le_bytes([version_low, version_high]),
            offset,
            size,
        }
    }
}

/// Returns the words of an identity block of this contract, as a card with these blocks shows them.
#[must_use]
pub fn encode(build: u32, capabilities: Capabilities, blocks: &[Block]) -> Vec<u32> {
    // More blocks than fit give a count that every reader refuses, not a wrong number of them.
    let count = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
    let mut words =
        Vec::from([IDENTITY_MAGIC, CONTRACT_VERSION, CONTRACT_CHECKSUM, build, capabilities.bits(), count]);
    words.extend(blocks.iter().flat_map(Block::words));
    words
}

/// Returns every block of the contract at its default offset.
#[must_use]
pub fn usual_blocks() -> Vec<Block> {
    BLOCKS.iter().map(Block::usual).collect()
}

/// Checks the words of an identity block in a user BAR of `bar_size` bytes. Words after the block table are ignored.
///
/// # Errors
///
/// The first reason to refuse the card.
pub fn check(words: &[u32], bar_size: u64) -> Result<Identity, IdentityError> {
    let too_short = |needed| IdentityError::TooShort { given: words.len(), needed };
    let Some((head, table)) = words.split_first_chunk::<HEAD_WORDS>() else {
        // The first words may give a more specific error than their number.
        return Err(words
            .first()
            .map_or(Ok(()), |magic| check_magic(*magic))
            .err()
            .unwrap_or(too_short(HEAD_WORDS)));
    };
    let [magic, version, checksum, build, capabilities, count] = *head;
    check_head(magic, version, checksum, count)?;
    let count = count as usize;
    let entries = table.as_chunks::<ENTRY_WORDS>().0;
    let entries = entries.get(..count).ok_or(too_short(HEAD_WORDS + ENTRY_WORDS * count))?;
    let identity = Identity {
        build,
        capabilities: Capabilities::from_bits(capabilities),
        blocks: entries.iter().map(|words| Block::from_words(*words)).collect(),
    };
    identity.check_blocks(bar_size)?;
    Ok(identity)
}

fn check_magic(magic: u32) -> Result<(), IdentityError> {
    match magic {
        IDENTITY_MAGIC => Ok(()),
        u32::MAX => Err(IdentityError::AllOnes),
        found => Err(IdentityError::WrongMagic { found }),
    }
}

fn check_head(magic: u32, version: u32, checksum: u32, count: u32) -> Result<(), IdentityError> {
    check_magic(magic)?;
    // A card can disappear between two reads.
    if [version, checksum, count] == [u32::MAX; 3] {
        return Err(IdentityError::AllOnes);
    }
    if version != CONTRACT_VERSION {
        return Err(IdentityError::WrongVersion { found: version, supported: CONTRACT_VERSION });
    }
    if checksum != CONTRACT_CHECKSUM {
        return Err(IdentityError::WrongChecksum { found: checksum, supported: CONTRACT_CHECKSUM });
    }
    if count > IDENTITY_MAX_BLOCKS {
        return Err(IdentityError::BlockCount { count });
    }
    Ok(())
}

impl Identity {
    /// Reads and checks the identity block of a user BAR of `bar_size` bytes: 6 words, and 4 for every block.
    ///
    /// # Errors
    ///
    /// [`IdentityReadError::Access`] if the backend cannot read, [`IdentityReadError::Refused`] for an unusable card.
    pub fn read<I: RegisterIo + ?Sized>(io: &I, bar_size: u64) -> Result<Self, IdentityReadError<I::Error>> {
        let read = |index: u64| {
            let at = BarOffset::new(4 * index);
            io.read32(at).map_err(|error| IdentityReadError::Access { at, error })
        };
        let mut words = Vec::with_capacity(HEAD_WORDS);
        for index in 0..HEAD_WORDS as u64 {
            words.push(read(index)?);
            // The first word decides whether the others may be read at all.
            if index == 0 {
                words.iter().try_for_each(|magic| check_magic(*magic))?;
            }
        }
        if let [magic, version, checksum, _, _, count] = *words {
            // Check before the count is used.
            check_head(magic, version, checksum, count)?;
            let table = HEAD_WORDS as u64..HEAD_WORDS as u64 + ENTRY_WORDS as u64 * u64::from(count);
            for index in table {
                words.push(read(index)?);
            }
        }
        Ok(check(&words, bar_size)?)
    }

    fn check_blocks(&self, bar_size: u64) -> Result<(), IdentityError> {
        for block in &self.blocks {
            check_block(*block, bar_size)?;
        }
        let mut sorted = self.blocks.clone();
        sorted.sort_unstable_by_key(|block| block.offset);
        for pair in sorted.windows(2) {
            if let [first, second] = *pair
                && first.end() > second.offset.into()
            {
                return Err(IdentityError::Overlap { first, second });
            }
        }
        for block_type in BlockType::ALL.iter().copied() {
            // A card may have several CDMA engines, but only one of every other block.
            if block_type != BlockType::Cdma && self.blocks_of(block_type).count() > 1 {
                return Err(IdentityError::Duplicate { block_type });
            }
        }
        let of = |capability, block_type| self.capabilities.contains(capability).then_some(block_type);
        let fault_log = of(Capabilities::FAULT_LOG, BlockType::FaultLog);
        let sending = of(Capabilities::COMMANDS, BlockType::Sending);
        let rates = of(Capabilities::LINK_FEEDBACK, BlockType::Rates);
        for block_type in REQUIRED.into_iter().chain(fault_log).chain(sending).chain(rates) {
            self.block(block_type)?;
        }
        Ok(())
    }

    /// Build number of the bitstream.
    #[must_use]
    pub const fn build(&self) -> u32 {
        self.build
    }

    /// Capabilities of the build.
    #[must_use]
    pub const fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Every block, in the table's order, unknown types included.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The blocks of one type, in the table's order.
    pub fn blocks_of(&self, block_type: BlockType) -> impl Iterator<Item = Block> + '_ {
        self.blocks.iter().copied().filter(move |block| block.type_number == block_type.value())
    }

    /// Returns the block of this type, the first one if there are several. Never fails for the types in [`REQUIRED`].
    ///
    /// # Errors
    ///
    /// [`IdentityError::Missing`].
    pub fn block(&self, block_type: BlockType) -> Result<Block, IdentityError> {
        self.blocks_of(block_type).next().ok_or(IdentityError::Missing { block_type })
    }
}

fn check_block(block: Block, bar_size: u64) -> Result<(), IdentityError> {
    if block.size == 0 || !(block.offset | block.size).is_multiple_of(4) {
        return Err(IdentityError::MisplacedBlock { block });
    }
    if block.end() > bar_size {
        return Err(IdentityError::OutsideBar { block, bar_size });
    }
    let Some(info) = block.block_type().and_then(catalog::block) else {
        return Ok(());
    };
    if block.version != info.version {
        return Err(IdentityError::WrongBlockVersion { block, supported: info.version });
    }
    let needed = info.span();
    if block.size < needed {
        return Err(IdentityError::TooSmall { block, needed });
    }
    Ok(())
}
