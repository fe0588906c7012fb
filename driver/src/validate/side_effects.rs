//! Side effects of a self-test, determined without changing the card.

use fpga_registers::xdma::{ChannelBlock, IRQ_BASE, IrqBlock, channel_base};

use super::ValidateOptions;
use super::context::TestContext;
use super::problem::Verdict;
use crate::card::Card;

/// Returns what opening and testing `card` would disturb, one sentence each, most serious first. The card may be open for inspection only
/// ([`OpenOptions::observe`](crate::OpenOptions::observe)): only registers without side effects are read. A register that cannot be read is
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
            Ok((_, true)) => {
                found.push(format!("{name} is moving data: it is stopped, and its transfer is lost"))
            }
            Ok((true, false)) => found.push(format!("{name} is started and waits: it is stopped")),
            Ok((false, false)) => {}
            Err(error) => {
                found.push(format!("{name} cannot be looked at ({error}): if it runs, it is stopped"))
            }
        }
    }
    match IrqBlock::CHANNEL_ENABLE.read(bar, IRQ_BASE) {
        Ok(mask) if mask.into_bits() != 0 => {
            found.push(
                "interrupts of channels are enabled: they are masked, and whoever waits for one waits on"
                    .to_owned(),
            );
        }
        Ok(_) => {}
        Err(error) => {
            found.push(format!("the interrupt masks cannot be looked at ({error}): they are cleared"))
        }
    }
    if card.info().ni.is_some() {
        found.push(
            "the network interface is silenced and tested in loopback: what its host would have heard meanwhile is lost".to_owned(),
        );
    }
    match TestContext::new(card, options).choose_scratch() {
        Ok(range) => found.push(format!(
            "{} bytes of card memory at {} to {} are overwritten; they are saved before and put back after",
            range.length,
            range.start,
            range.last()
        )),
        Err(Verdict::Fail(why) | Verdict::Skip(why) | Verdict::Pass(why) | Verdict::Warn(why)) => {
            found.push(format!("no card memory is written: {why}"));
        }
    }
    found
}
