//! Freeing a buffer: deregisters it from its channels first.

use core::sync::atomic::Ordering;

use crate::abi::Status;
use crate::buffer::Buffer;
use crate::call::duration;
use crate::channel::Channel;
use crate::error::Failure;
use crate::handle;

/// Maximum time to wait for calls of other threads with a channel of the buffer, in nanoseconds.
const MAX_FREE_WAIT_NS: u64 = 10_000_000;

pub(crate) fn fpga_buffer_free(buffer: u64) -> Result<(), Failure> {
    let began = std::time::Instant::now();
    loop {
        match free(buffer) {
            // The buffer is not entered between attempts: the other thread may be about to register it.
            Err(failure)
                if failure.status() == Status::Concurrent && began.elapsed() < duration(MAX_FREE_WAIT_NS) =>
            {
                std::thread::yield_now();
            }
            result => return result,
        }
    }
}

fn free(handle_of: u64) -> Result<(), Failure> {
    let mut entered = handle::enter_shared::<Buffer>(handle_of)?;
    let buffer = entered.get::<Buffer>()?;
    while let Some(channel) = buffer.channels.last().copied() {
        let deregistered = handle::with(channel, |channel: &mut Channel| channel.deregister(handle_of));
        match deregistered {
            Ok(()) => {}
            // A closed channel has deregistered its memory.
            Err(failure) if failure.status() == Status::Handle => {}
            Err(failure) if failure.status() == Status::Concurrent => {
                let text = "another thread is in a call with a channel that has used the buffer";
                return Err(Failure::of(Status::Concurrent, text));
            }
            Err(failure) => return Err(failure),
        }
        buffer.channels.pop();
    }
    let (released, name) = (buffer.released.clone(), buffer.card.name().to_owned());
    handle::finish::<Buffer>(handle_of, entered)?;
    if released.is_some_and(|released| !released.load(Ordering::Acquire)) {
        let text = "the card may still reach the memory, because an engine did not stop: do not free it";
        return Err(Failure::on_card(Status::Wedged, &text, &name));
    }
    Ok(())
}
