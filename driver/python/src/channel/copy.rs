//! Blocking transfers of memory that is not DMA memory: through a buffer of the driver.

use fpga_driver::{CardAddr, SharedSlice, WaitOptions, bulk};

use super::engine::{Direct, Engine, either};
use crate::error::{Class, Failure};
use crate::foreign::Stream;

/// Maximum length of a chunk in bytes. A longer transfer is cut into chunks, so that copies and transfers overlap.
const PIECE_BYTES: usize = 1 << 20;

fn failed(error: &fpga_driver::errors::MemoryError) -> Failure {
    Failure::new(Class::Refused, error.to_string())
}

impl Engine {
    /// Moves all bytes of `memory` from or to card memory at `card`, and waits.
    pub(super) fn copy(
        &mut self,
        memory: SharedSlice<'_>,
        card: CardAddr,
        options: WaitOptions,
    ) -> Result<(), Failure> {
        if memory.len() <= PIECE_BYTES || either!(self, channel => channel.in_flight()) > 0 {
            return self.copy_pieces(memory, card, options);
        }
        // Nothing else is in flight: after a failure the channel is aborted.
        let length = memory.len() as u64;
        match &mut self.direct {
            Direct::H2c(channel) => {
                bulk::write_from(
                    &self.card,
                    channel,
                    &mut Stream::of(memory),
                    card,
                    length,
                    options,
                    &mut |_| {},
                )?;
            }
            Direct::C2h(channel) => {
                bulk::read_into(
                    &self.card,
                    channel,
                    card,
                    length,
                    &mut Stream::of(memory),
                    options,
                    &mut |_| {},
                )?;
            }
        }
        Ok(())
    }

    /// As [`copy`](Self::copy), one chunk after the other. A failure ends this transfer alone.
    fn copy_pieces(
        &mut self,
        memory: SharedSlice<'_>,
        card: CardAddr,
        options: WaitOptions,
    ) -> Result<(), Failure> {
        either!(self, channel => channel.check_range(card, memory.len() as u64))?;
        let mut done = 0;
        while done < memory.len() {
            let length = (memory.len() - done).min(PIECE_BYTES);
            let piece = memory.slice(done, length).map_err(|error| failed(&error))?;
            // The whole range was checked.
            let at = card.checked_add(done as u64).unwrap_or(card);
            match &mut self.direct {
                Direct::H2c(channel) => {
                    let buffer = self.card.buffer_for(fpga_driver::Direction::H2c, length)?;
                    buffer.memory().copy_from(0, piece, 0, length).map_err(|error| failed(&error))?;
                    if let Err(failed) = channel.write_with(buffer, at, options) {
                        return Err(self.after_early_end(failed.error.into()));
                    }
                }
                Direct::C2h(channel) => {
                    let buffer = self.card.buffer_for(fpga_driver::Direction::C2h, length)?;
                    let buffer = match channel.read_with(buffer, at, options) {
                        Ok(buffer) => buffer,
                        Err(failed) => return Err(self.after_early_end(failed.error.into())),
                    };
                    piece.copy_from(0, buffer.memory(), 0, length).map_err(|error| failed(&error))?;
                }
            }
            done += length;
        }
        Ok(())
    }
}
