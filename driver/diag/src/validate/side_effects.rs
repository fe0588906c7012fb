//! Side effects of a self-test, determined without changing the card.

use fpga_registers::xdma::{ChannelBlock, IRQ_BASE, IrqBlock, channel_base};

use super::ValidateOptions;
use super::context::TestContext;
use super::problem::Verdict;
use fpga_driver::Card;

/// Returns what opening and testing `card` would disturb, one sentence each, most serious first. The card may be open for inspection only
/// ([`OpenOptions::observe`](fpga_driver::OpenOptions::observe)): only registers without side effects are read. A register that cannot be read is
/// reported as well, because the state that it controls may also be disturbed.
#[must_use]
pub fn side_effects(card: &Card, options: ValidateOptions) -> Vec<String> {
    let mut found = Vec::new();
    let bar = card.dma_bar();
    for name in card.info().xdma.channels() {
        let base = channel_base(name.direction, name.number);
        let state = ChannelBlock::CONTROL
            .read(bar, base)
            .and_then(|control| Ok((control.run(), ChannelBlock::STATUS.read(bar, base)?.busy())));
        match state {
            Ok((_, true)) => found
                .push(format!("{name} is transferring data: the test stops it, and its transfer is lost")),
            Ok((true, false)) => {
                found.push(format!("{name} is started and waits for data: the test stops it"))
            }
            Ok((false, false)) => {}
            Err(error) => {
                found.push(format!("{name} cannot be read ({error}): if it runs, the test stops it"))
            }
        }
    }
    match IrqBlock::CHANNEL_ENABLE.read(bar, IRQ_BASE) {
        Ok(mask) if mask.into_bits() != 0 => {
            found.push(
                "channel interrupts are enabled: the test masks them, and a program that waits for one is not woken"
                    .to_owned(),
            );
        }
        Ok(_) => {}
        Err(error) => {
            found.push(format!("the interrupt masks cannot be read ({error}): the test clears them"))
        }
    }
    if card.info().ni.is_some() {
        found.push(
            "the network interface is disabled and tested in loopback: packets that arrive for its host meanwhile are lost".to_owned(),
        );
    }
    match TestContext::new(card, options).choose_scratch() {
        Ok(range) => found.push(format!(
            "{} bytes of card memory at {} to {} are overwritten; they are saved before and restored after",
            range.length,
            range.start,
            range.last()
        )),
        Err(Verdict { text: why, .. }) => {
            found.push(format!("no card memory is written: {why}"));
        }
    }
    found
}
