//! Completion of a transfer as a future.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use fpga_pci::Backoff;

use super::{Completion, Engine, Ticket};
use crate::error::{At as _, ChannelError, Error};

/// Maximum sleep inside a poll: the executor's thread has other tasks.
const MAX_SLEEP: Duration = Duration::from_micros(50);

/// Future of a completion; see [`H2cChannel::completion`](super::H2cChannel::completion).
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub(crate) struct CompletionFuture<'a> {
    engine: &'a mut Engine,
    ticket: Ticket,
    backoff: Backoff,
}

impl<'a> CompletionFuture<'a> {
    pub(crate) const fn new(engine: &'a mut Engine, ticket: Ticket) -> Self {
        Self { engine, ticket, backoff: Backoff::new().max_sleep(MAX_SLEEP) }
    }
}

impl Future for CompletionFuture<'_> {
    type Output = Result<Completion, Error<ChannelError>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ticket = self.ticket;
        match self.engine.poll_for(ticket).transpose() {
            Some(ended) => Poll::Ready(ended.at(|| self.engine.place())),
            None => {
                // No other caller polls this channel, so no other caller could wake the task.
                let Self { engine, backoff, .. } = &mut *self;
                if engine.back_off(backoff) {
                    engine.force_stall_check();
                }
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}
