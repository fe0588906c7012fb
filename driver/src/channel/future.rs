//! Completion as a future.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use super::{Completion, Engine, Ticket};
use crate::error::ChannelError;

/// See [`H2cChannel::completion`](super::H2cChannel::completion).
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct CompletionFuture<'a> {
    engine: &'a mut Engine,
    ticket: Ticket,
}

impl<'a> CompletionFuture<'a> {
    pub(crate) const fn new(engine: &'a mut Engine, ticket: Ticket) -> Self {
        Self { engine, ticket }
    }
}

impl Future for CompletionFuture<'_> {
    type Output = Result<Completion, ChannelError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ticket = self.ticket;
        match self.engine.poll_for(ticket).transpose() {
            Some(ended) => Poll::Ready(ended),
            None => {
                // Nobody else polls this channel, so nobody else could wake the task.
                self.engine.relax();
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}
