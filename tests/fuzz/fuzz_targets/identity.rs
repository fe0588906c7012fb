//! Fuzzes identity blocks: each is accepted or refused, and the block table of an accepted one is consistent.
#![no_main]

use fpga_firmware::generated::{BlockType, CONTRACT_CHECKSUM, CONTRACT_VERSION, IDENTITY_MAGIC};
use fpga_firmware::identity::{HEAD_WORDS, REQUIRED, check};
use libfuzzer_sys::fuzz_target;

fn examine(words: &[u32], bar_size: u64) {
    let identity = match check(words, bar_size) {
        Ok(identity) => identity,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    for block_type in REQUIRED {
        assert!(identity.block(block_type).is_ok());
    }
    let mut ranges: Vec<_> = identity
        .blocks()
        .iter()
        .map(|block| (u64::from(block.offset), u64::from(block.offset) + u64::from(block.size)))
        .collect();
    ranges.sort_unstable();
    assert!(ranges.iter().all(|(start, end)| start < end && *end <= bar_size));
    assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    assert_eq!(identity.blocks_of(BlockType::Ni).count(), 1);
}

fuzz_target!(|input: &[u8]| {
    let mut words: Vec<u32> = input.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let bar_size = 0x1_0000;
    examine(&words, bar_size);
    // The same block table with a valid head.
    if words.len() >= HEAD_WORDS {
        words[..3].copy_from_slice(&[IDENTITY_MAGIC, CONTRACT_VERSION, CONTRACT_CHECKSUM]);
        examine(&words, bar_size);
        words[5] %= 16;
        examine(&words, bar_size);
    }
});
