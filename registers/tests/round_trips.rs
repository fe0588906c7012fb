//! Round trips of arbitrary values through words.

use fpga_registers::cdma::SgDescriptor;
use fpga_registers::xdma::descriptor::{MAX_BLOCK, MAX_LEN, block_length, next_adjacent};
use fpga_registers::xdma::{
    ChannelControl, ChannelStatus, Descriptor, DescriptorControl, Direction, PollWriteback, StreamWriteback,
};
use fpga_registers::{CardAddr, Iova, RegisterValue};
use proptest::prelude::*;

proptest! {
    #[test]
    fn xdma_descriptor_words_round_trip(words: [u32; 8]) {
        prop_assert_eq!(Descriptor::from_words(words).to_words(), words);
    }

    #[test]
    fn cdma_descriptor_words_round_trip(words: [u32; 16]) {
        let descriptor = SgDescriptor::from_words(words);
        prop_assert_eq!(descriptor.to_words(), words);
        prop_assert_eq!(&descriptor.to_engine_words()[..], &words[..8]);
    }

    #[test]
    fn stream_writeback_words_round_trip(words: [u32; 2]) {
        prop_assert_eq!(StreamWriteback::from_words(words).to_words(), words);
    }

    #[test]
    fn xdma_descriptor_fields_round_trip(
        (host, card, next) in any::<(u64, u64, u64)>(),
        length in 0..=MAX_LEN,
        (stop, completed, eop) in any::<(bool, bool, bool)>(),
        adjacent in 0_u8..64,
    ) {
        let control = DescriptorControl::new()
            .with_stop(stop)
            .with_completed(completed)
            .with_eop(eop)
            .with_next_adjacent(adjacent);
        let (host, card, next) = (Iova::new(host), CardAddr::new(card), Iova::new(next));
        for direction in Direction::ALL {
            let built = match direction {
                Direction::H2c => Descriptor::h2c(host, card, length),
                Direction::C2h => Descriptor::c2h(card, host, length),
            };
            let read = Descriptor::from_words(built.unwrap().with_control(control).with_next(next).to_words());
            prop_assert_eq!(read.control(), control);
            prop_assert!(read.control().has_magic());
            prop_assert_eq!((read.control().stop(), read.control().completed(), read.control().eop()), (stop, completed, eop));
            prop_assert_eq!(read.control().next_adjacent(), adjacent);
            prop_assert_eq!(read.length(), length);
            prop_assert_eq!(read.host_address(direction), host);
            prop_assert_eq!(read.card_address(direction), card);
            prop_assert_eq!(read.next(), next);
        }
    }

    #[test]
    fn register_value_keeps_every_bit(raw: u32) {
        prop_assert_eq!(ChannelControl::from_register(raw).into_register(), raw);
        prop_assert_eq!(ChannelStatus::from_register(raw).into_register(), raw);
        prop_assert_eq!(PollWriteback::from_register(raw).into_register(), raw);
    }

    #[test]
    fn decoded_fields_sum_to_word(raw: u32) {
        let sum = ChannelStatus::from_register(raw).decoded()
            .fields()
            .fold(0, |sum, decoded| sum | decoded.value() << decoded.field().low());
        prop_assert_eq!(sum, raw);
    }

    /// For any address and count: within the limits, and never across a page.
    #[test]
    fn next_adjacent_stays_in_limits_and_page(slot: u32, available: u32) {
        let first = u64::from(slot) * 32;
        let length = block_length(Iova::new(first), available);
        prop_assert!(length <= MAX_BLOCK && length <= available);
        prop_assert!(length >= 1 || available == 0);
        let last = first + 32 * u64::from(length.max(1)) - 1;
        prop_assert_eq!(first / 4096, last / 4096);
        prop_assert_eq!(u32::from(next_adjacent(Iova::new(first), available)), length.saturating_sub(1));
    }
}
