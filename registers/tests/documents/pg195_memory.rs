//! Descriptors and write-backs of XDMA. The rules are in PG344 "Descriptors" (the Versal twin of the PG195 page) and
//! PG195 "Poll Mode"; the numbers of the descriptor table are restated by libxdma.h and xdma-regs.h.

use fpga_registers::xdma::descriptor::{
    BLOCK_BOUNDARY, MAGIC, MAX_BLOCK, MAX_LEN, SIZE, block_length, next_adjacent,
};
use fpga_registers::xdma::writeback::{POLL_SIZE, STREAM_MAGIC, STREAM_SIZE};
use fpga_registers::xdma::{
    Descriptor, DescriptorControl, Direction, LengthError, PollWriteback, StreamWriteback,
};
use fpga_registers::{CardAddr, Iova};

#[test]
fn pg195_memory_limits_match() {
    assert_eq!(MAGIC, 0xAD4B); // libxdma.h DESC_MAGIC, xdma-regs.h XDMA_DESC_MAGIC
    assert_eq!(SIZE, 32); // PG344 Descriptors: 32-byte boundary; libxdma.h struct xdma_desc
    assert_eq!(MAX_LEN, 268_435_455); // libxdma.h XDMA_DESC_BLEN_MAX, 28 bits
    assert_eq!(MAX_BLOCK, 0x40); // libxdma.h XDMA_MAX_ADJ_BLOCK_SIZE; PG195 dsc_adj[5:0]
    assert_eq!(BLOCK_BOUNDARY, 4096); // PG344 Descriptors; xdma-regs.h XDMA_DESC_BLOCK_BOUNDARY
    assert_eq!(STREAM_MAGIC, 0x52B4); // PG344 DMA C2H Stream: 16'h52b4; libxdma.h C2H_WB
    assert_eq!(STREAM_SIZE, 8); // libxdma.h struct xdma_result: status, length
    assert_eq!(POLL_SIZE, 4); // PG195 Poll Mode, table 1: one word
    assert_eq!(PollWriteback::COUNT_MODULUS, 0x0100_0000); // PG195 Poll Mode: lower 24 bits
}

#[test]
fn pg195_golden_control_words() {
    let control = DescriptorControl::new();
    assert_eq!(control.into_bits(), 0xAD4B_0000);
    // libxdma's last descriptor: Stop, Completed, EOP.
    let last = control.with_stop(true).with_completed(true).with_eop(true);
    assert_eq!(last.into_bits(), 0xAD4B_0013);
    // xdma-regs.h XDMA_DESC_CONTROL_LAST, XDMA_DESC_CONTROL_CYCLIC, XDMA_DESC_CONTROL(32, 0).
    assert_eq!(control.with_stop(true).with_completed(true).into_bits(), 0xAD4B_0003);
    assert_eq!(control.with_completed(true).into_bits(), 0xAD4B_0002);
    assert_eq!(control.with_next_adjacent(31).into_bits(), 0xAD4B_1F00);
    assert_eq!(control.with_next_adjacent(63).into_bits(), 0xAD4B_3F00);
    assert!(control.has_magic());
    assert!(!DescriptorControl::from_bits(0xAD4A_0013).has_magic());
    assert!(control.with_next_adjacent_checked(64).is_err());
}

#[test]
fn pg195_golden_descriptors() {
    // Order of words: libxdma.h struct xdma_desc.
    let last = DescriptorControl::new().with_stop(true).with_completed(true).with_eop(true);
    let host = Iova::new(0x0000_0001_2345_6000);
    let card = CardAddr::new(0x0000_0002_8000_0040);
    let next = Iova::new(0x0000_0003_FFFF_FFE0);

    let h2c = Descriptor::h2c(host, card, 0x1000).unwrap().with_control(last).with_next(next);
    assert_eq!(h2c.to_words(), [0xAD4B_0013, 0x1000, 0x2345_6000, 1, 0x8000_0040, 2, 0xFFFF_FFE0, 3]);
    assert_eq!((h2c.host_address(Direction::H2c), h2c.card_address(Direction::H2c)), (host, card));

    let c2h = Descriptor::c2h(card, host, MAX_LEN).unwrap();
    assert_eq!(c2h.to_words(), [0xAD4B_0000, 0x0FFF_FFFF, 0x8000_0040, 2, 0x2345_6000, 1, 0, 0]);
    assert_eq!((c2h.host_address(Direction::C2h), c2h.card_address(Direction::C2h)), (host, card));

    let stream = Descriptor::c2h_stream(next, host, 64).unwrap();
    assert_eq!(stream.to_words(), [0xAD4B_0000, 64, 0xFFFF_FFE0, 3, 0x2345_6000, 1, 0, 0]);
    assert_eq!((stream.writeback_address(), stream.host_address(Direction::C2h)), (next, host));

    assert_eq!(Descriptor::h2c_stream(host, 0).unwrap().to_words()[1..6], [0, 0x2345_6000, 1, 0, 0]);
    assert_eq!(Descriptor::h2c(host, card, MAX_LEN + 1), Err(LengthError { length: MAX_LEN + 1 }));
}

#[test]
fn pg195_golden_writebacks() {
    // PG195 Poll Mode: bit 31 error, 23:0 count.
    let poll = PollWriteback::from_bits(0x8012_3456);
    assert_eq!((poll.error(), poll.count()), (true, 0x12_3456));
    assert_eq!(PollWriteback::of(7, false).into_bits(), 7);
    assert_eq!(PollWriteback::of(0xFF00_0002, true).into_bits(), 0x8000_0002);
    // libxdma.h struct xdma_result: status, length.
    assert_eq!(StreamWriteback::new(1500, true).to_words(), [0x52B4_0001, 1500]);
    assert_eq!(StreamWriteback::new(64, false).to_words(), [0x52B4_0000, 64]);
    assert!(StreamWriteback::from_words([0x52B4_0001, 9]).has_magic());
    assert!(!StreamWriteback::from_words([0, 0]).has_magic());
}

/// Returns the number of descriptors from `first` that the rules allow in one block, counted one by one.
fn walked_block(first: u64, available: u32) -> u32 {
    let mut length = 0;
    while length < available && length < 64 && (first + 32 * u64::from(length)) / 4096 == first / 4096 {
        length += 1;
    }
    length
}

#[test]
fn pg195_adjacency_ends_at_page_and_64() {
    for slot in 0..256_u64 {
        let first = 0xFFFF_0000_0000 + slot * 32;
        for available in (0..=130).chain([u32::MAX]) {
            let expected = walked_block(first, available);
            assert_eq!(
                block_length(Iova::new(first), available),
                expected,
                "slot {slot}, {available} available"
            );
            let extra = u32::from(next_adjacent(Iova::new(first), available));
            assert_eq!(extra, expected.saturating_sub(1));
        }
    }
}
