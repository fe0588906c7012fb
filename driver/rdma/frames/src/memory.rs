//! Reading of blocks from card memory.

use fpga_driver::SharedSlice;

use crate::blocks::{BLOCK, BlockError};

/// Returns a copy of the block at `offset`. It is read once: a card that changes the block afterwards cannot make it differ from the bytes
/// that were checked.
pub(crate) fn block_at(memory: SharedSlice<'_>, offset: usize) -> Result<[u8; BLOCK], BlockError> {
    let mut block = [0; BLOCK];
    match memory.read(offset, &mut block) {
        Ok(()) => Ok(block),
        Err(_) => Err(BlockError::Short { found: memory.len().saturating_sub(offset) }),
    }
}
