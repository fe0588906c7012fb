//! DMA channels in good weather: every channel, every size, every way to wait, and what each costs.
#![expect(clippy::cast_possible_truncation, reason = "sizes of tests")]

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fpga_driver::core::ring::RefusalReason;
use fpga_driver::mock::World;
use fpga_driver::{
    Card, CardAddr, ChannelError, ChannelOptions, Completion, H2cChannel, SubmitError, Ticket, TransferError,
    WaitMode, WaitOptions,
};
use fpga_tests::bytes;
use fpga_tests::cards::{assert_closed, assert_pool, open, peek, poke, seeded, with_channels, world};
use proptest::prelude::*;

fn filled(card: &Card, data: &[u8]) -> fpga_driver::DmaBuffer {
    let mut buffer = card.buffer(data.len()).unwrap();
    buffer.as_mut_slice().copy_from_slice(data);
    buffer
}

/// Polls and lets the card work until `count` transfers have ended.
fn finish(card: &Card, channel: &mut H2cChannel, count: usize) -> Vec<Completion> {
    let transport = card_transport(card);
    let mut done = Vec::new();
    for _ in 0..1_000_000 {
        channel.poll().unwrap();
        done.extend(std::iter::from_fn(|| channel.next_completion()));
        if done.len() >= count {
            return done;
        }
        transport.step();
    }
    panic!("{} of {count} transfers ended", done.len());
}

thread_local! {
    static WORLD: std::cell::RefCell<Option<World>> = const { std::cell::RefCell::new(None) };
}
