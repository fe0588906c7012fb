//! Register writes that go to the server through shared memory, without a message each.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fpga_pci::memory::{RingError, RingWriter};
use fpga_pci::wait::monotonic_ns;
use fpga_pci::{ServerError, SharedMemory};

use super::connection::ServerConnection;
use super::error::protocol;
use super::wire::{Reply, Request, SmallWrite, WRITE_RING};

/// Time after a write to the ring in which its result is polled for: a server that is awake works that fast, and one that had to be woken.
const PROMPT_NS: u64 = 20_000;
const PROMPT_AFTER_WAKE_NS: u64 = 60_000;
/// Duration of one pause in that time.
const PROMPT_PAUSE_NS: u64 = 1_000;

/// Reason why writes do not go through shared memory: they are sent by messages.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShareError {
    #[error(transparent)]
    Memory(#[from] fpga_pci::MemoryError),
    #[error(transparent)]
    Server(#[from] ServerError),
}

impl ServerConnection {
    /// Passes a ring to the server, which has offered to execute its writes.
    pub(super) fn share_writes(&self) -> Result<(), ShareError> {
        let memory = SharedMemory::memfd("fpga-writes", WRITE_RING.length())?;
        let file: Vec<_> = memory.file().into_iter().collect();
        self.ask(&Request::ShareWrites, &file, |reply, _| match reply {
            Reply::ShareWrites => Ok(()),
            _ => Err(protocol("a reply to another command")),
        })?;
        self.exchange().ring = Some(RingWriter::new(WRITE_RING, memory));
        Ok(())
    }

    /// Lets `span` pass; less if the server may have executed a write by then. A short sleep takes several times the server's work.
    pub(super) fn pause(&self, span: Duration) {
        let began = monotonic_ns();
        if began >= self.prompt_until.load(Ordering::Relaxed) {
            fpga_pci::sleep(span);
            return;
        }
        while monotonic_ns().saturating_sub(began) < PROMPT_PAUSE_NS {
            std::hint::spin_loop();
        }
    }

    /// Returns whether writes go through shared memory.
    pub(super) fn has_ring(&self) -> bool {
        self.exchange().ring.is_some()
    }

    /// Writes to the ring if there is one and `from` fits a register. Returns `false` if the write must be sent by a message.
    pub(super) fn post_shared(&self, region: u32, offset: u64, from: &[u8]) -> Result<bool, ServerError> {
        let Some(write) = SmallWrite::new(region, offset, from) else { return Ok(false) };
        loop {
            let mut exchange = self.exchange();
            self.check()?;
            let Some(ring) = &mut exchange.ring else { return Ok(false) };
            let pushed = ring.push(&[&write.to_bytes()]).and_then(|is_pushed| {
                let sleeps = if is_pushed { ring.publish()? } else { false };
                Ok((is_pushed, sleeps))
            });
            let prompt = if matches!(pushed, Ok((_, true))) { PROMPT_AFTER_WAKE_NS } else { PROMPT_NS };
            // A write after the one that has woken the server does not shorten the time.
            self.prompt_until.fetch_max(monotonic_ns().saturating_add(prompt), Ordering::Relaxed);
            match pushed {
                Ok((true, false)) => return Ok(true),
                // Wakes the server.
                Ok((true, true)) => {
                    return self
                        .send(&mut exchange, true, &Request::RegionWriteMulti(Vec::new()), &[])
                        .map(|_| true);
                }
                Ok((false, _)) => {}
                Err(error) => return Err(self.ring_failed(&error)),
            }
            drop(exchange);
            // Full: the reply comes after the writes.
            self.ask(&Request::RegionWriteMulti(Vec::new()), &[], |reply, _| match reply {
                Reply::RegionWriteMulti(0) => Ok(()),
                _ => Err(protocol("a reply that counts writes of another message")),
            })?;
        }
    }

    /// Ends the connection: the server has written to its part of the ring what cannot be.
    fn ring_failed(&self, error: &RingError) -> ServerError {
        tracing::debug!(%error, "the ring of register writes");
        self.end("SHARE_WRITES", protocol("an impossible position in the ring of register writes"))
    }
}
