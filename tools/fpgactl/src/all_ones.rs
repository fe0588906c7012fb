//! Check of every command that reads registers for words of all ones, and their cause.

use fpga_driver::{Card, errors::AllOnesCause};

use crate::advice::render;
use crate::error::CliError;

/// Checks `words` (whether the word is of the user BAR, and its value). If all words of the user BAR are all ones, or any of the DMA BAR, the
/// cause is determined. Logic behind the user BAR that does not answer is noted on standard error, because all ones can be a value.
///
/// # Errors
/// The card itself does not answer.
pub fn check(card: &Card, words: impl IntoIterator<Item = (bool, u32)>) -> Result<(), CliError> {
    let (mut dma, mut user, mut user_ones) = (false, 0_u32, 0_u32);
    for (in_user_bar, word) in words {
        let is_ones = word == u32::MAX;
        dma |= is_ones && !in_user_bar;
        user = user.saturating_add(in_user_bar.into());
        user_ones = user_ones.saturating_add((in_user_bar && is_ones).into());
    }
    let user_bar_fails = user != 0 && user_ones == user;
    if !dma && !user_bar_fails {
        return Ok(());
    }
    match card.all_ones_cause() {
        AllOnesCause::UserLogic if user_bar_fails => {
            eprintln!("fpgactl: note: {}: {}", card.name(), AllOnesCause::UserLogic);
            Ok(())
        }
        AllOnesCause::UserLogic => Ok(()),
        cause => Err(CliError::failed(format!("{}: {cause}", card.name())).advise(render(&cause.advice()))),
    }
}
