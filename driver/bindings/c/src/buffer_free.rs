//! End of a buffer: it is deregistered from its channels first.

use core::sync::atomic::Ordering;

use crate::buffer::Buffer;
use crate::call::{call, duration};
use crate::channel::Channel;
use crate::error::Failure;
use crate::handle;
use crate::status::Status;

/// Time for which freeing a buffer waits for calls of other threads with its channels, in nanoseconds.
const FREE_PATIENCE_NS: u64 = 10_000_000;

/// Frees a buffer. Refused while a transfer of it is in flight.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_buffer_free(buffer: u64) -> Status {
    call(|| {
        let began = std::time::Instant::now();
        loop {
            match free(buffer) {
                // The other thread may be about to register the buffer, so this one lets go of it meanwhile.
                Err(failure)
                    if failure.status() == Status::Concurrent
                        && began.elapsed() < duration(FREE_PATIENCE_NS) =>
                {
                    std::thread::yield_now();
                }
                result => return result,
            }
        }
    })
}

fn free(handle_of: u64) -> Result<(), Failure> {
    let mut entered = handle::enter_shared::<Buffer>(handle_of)?;
    let buffer = entered.get::<Buffer>()?;
    while let Some(channel) = buffer.channels.last().copied() {
        let deregistered = handle::with(channel, |channel: &mut Channel| channel.deregister(handle_of));
        match deregistered {
            Ok(()) => {}
            // A closed channel has let go of its memory.
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
