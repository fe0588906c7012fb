//! Transfers and reads in progress: handles with one completion each.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use fpga_driver::Error;
use fpga_pci::Waited;

use super::{
    EndpointError, IdleWait, ReadCompletion, ReadTicket, SendCompletion, SendTicket, SharedEndpoint,
};

/// Defines a handle whose completion `Inner::$take` returns and the map `Inner::$kept` keeps.
macro_rules! pending {
    ($(#[$attribute:meta])* $name:ident, $ticket:ty, $completion:ty, $take:ident, $kept:ident) => {
        $(#[$attribute])*
        #[derive(Debug)]
        pub struct $name {
            pub(super) endpoint: SharedEndpoint,
            pub(super) ticket: $ticket,
            /// Backoff state of the task that polls it.
            pub(super) idle: Option<IdleWait>,
        }

        impl $name {
            /// Returns the completion, once, if it has ended. Drives the endpoint.
            ///
            /// # Errors
            /// The endpoint has failed, and it had not ended.
            pub fn try_take(&mut self) -> Result<Option<$completion>, Error<EndpointError>> {
                Ok(self.endpoint.drive_once(&mut self.endpoint.lock(), |inner| inner.$take(self.ticket))?.ok())
            }

            /// Waits for the completion.
            ///
            /// # Errors
            /// [`EndpointError::TimedOut`] leaves it in progress, and the handle can wait again. Any other error means that the endpoint
            /// has failed.
            pub fn wait(&mut self, timeout: Duration) -> Result<$completion, Error<EndpointError>> {
                let late = || EndpointError::TimedOut { waited: Waited::of(self.endpoint.backend(), timeout) };
                self.endpoint.wait_for(timeout, late, |inner| inner.$take(self.ticket))
            }
        }

        impl Future for $name {
            type Output = Result<$completion, Error<EndpointError>>;

            /// Requests another poll whenever it has not ended: the result appears in memory, and nothing signals it to a task. Backs off
            /// between two polls as [`Endpoint::completion`](crate::Endpoint::completion) does. Must not be polled again after it was
            /// ready.
            fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
                let Self { endpoint, ticket, idle } = self.get_mut();
                endpoint.poll_task(idle, context, |inner| inner.$take(*ticket))
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // Another thread may have held the lock at a fork.
                if self.endpoint.card.check_process().is_ok() {
                    self.endpoint.lock().$kept.remove(&self.ticket);
                }
            }
        }
    };
}

pending! {
    /// Transfer in progress, with its one completion: await it, wait for it, or poll it.
    ///
    /// Dropping it leaves the transfer in progress and discards its completion; [`cancel`](Self::cancel) withdraws the transfer.
    #[must_use = "if dropped, the transfer continues and its completion is discarded"]
    PendingSend, SendTicket, SendCompletion, take_send, sends
}

pending! {
    /// Read in progress, with its one completion; otherwise as [`PendingSend`].
    #[must_use = "if dropped, the read continues and its completion is discarded"]
    PendingRead, ReadTicket, ReadCompletion, take_read, reads
}

impl PendingSend {
    /// Returns the ticket of the transfer.
    #[must_use]
    pub const fn ticket(&self) -> SendTicket {
        self.ticket
    }

    /// Withdraws the transfer; its completion reports this. Returns whether the transfer had not ended before.
    pub fn cancel(&self) -> bool {
        self.endpoint.change(|inner| inner.endpoint.cancel(self.ticket))
    }
}
