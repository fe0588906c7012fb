//! Registers that read as all ones: reported with their cause by every command that reads registers.

use fpga_driver::{Card, errors::AllOnesCause};

use crate::advice::render;
use crate::error::CliError;

/// Examines the words that a command has read. If all words of the user BAR are ones, or any of the DMA BAR, it finds the cause. Logic behind
/// the user BAR that does not answer is noted on standard error, because all ones can be a value.
///
/// # Errors
/// The card itself does not answer.
pub fn explain(card: &Card, words: impl IntoIterator<Item = (bool, u32)>) -> Result<(), CliError> {
    let (mut dma, mut user, mut silent) = (false, 0_u32, 0_u32);
    for (in_user_bar, word) in words {
        let is_silent = word == u32::MAX;
        dma |= is_silent && !in_user_bar;
        user = user.saturating_add(in_user_bar.into());
        silent = silent.saturating_add((in_user_bar && is_silent).into());
    }
    let user_silent = user != 0 && silent == user;
    if !dma && !user_silent {
        return Ok(());
    }
    match card.all_ones_cause() {
        AllOnesCause::UserLogic if user_silent => {
            eprintln!("fpgactl: note: {}: {}", card.name(), AllOnesCause::UserLogic);
            Ok(())
        }
        AllOnesCause::UserLogic => Ok(()),
        cause => Err(CliError::failed(format!("{}: {cause}", card.name())).advise(render(&cause.advice()))),
    }
}
