//! Who makes packets of transfers: this host, by the registry's rules, or the card's interface, by any other's.

use fpga_core::Nanos;
use fpga_core::scheme::commands::{Commands, Withdrawal};
use fpga_core::sender::{
    Command, Completion, Sender, SenderCounters, SubmitError, Ticket, TransferView, Transmit,
};
use fpga_firmware::event::Event;

/// A sender, or what stands for the card's.
#[derive(Debug)]
pub(super) enum Sending {
    Host(Box<Sender>),
    Card(Box<Commands>),
}

macro_rules! either {
    ($sending:expr, $it:ident => $body:expr) => {
        match $sending {
            Sending::Host($it) => $body,
            Sending::Card($it) => $body,
        }
    };
}

impl Sending {
    pub(super) fn submit(&mut self, now: Nanos, command: Command) -> Result<Ticket, SubmitError> {
        either!(self, it => it.submit(now, command))
    }

    pub(super) fn cancel(&mut self, now: Nanos, ticket: Ticket) -> Withdrawal {
        match self {
            Self::Host(sender) => {
                if sender.cancel(now, ticket) {
                    Withdrawal::Here
                } else {
                    Withdrawal::Ended
                }
            }
            Self::Card(commands) => commands.cancel(now, ticket),
        }
    }

    pub(super) fn handle_event(&mut self, now: Nanos, event: &Event) -> bool {
        either!(self, it => it.handle_event(now, event))
    }

    /// The card's has timers of its own.
    pub(super) fn handle_timeout(&mut self, now: Nanos) {
        if let Self::Host(sender) = self {
            sender.handle_timeout(now);
        }
    }

    /// When the next timer runs out.
    pub(super) fn poll_timeout(&self) -> Option<Nanos> {
        match self {
            Self::Host(sender) => sender.poll_timeout(),
            Self::Card(_) => None,
        }
    }

    pub(super) fn poll_transmit(&mut self, now: Nanos) -> Option<Transmit> {
        either!(self, it => it.poll_transmit(now))
    }

    pub(super) fn poll_completion(&mut self) -> Option<Completion> {
        either!(self, it => it.poll_completion())
    }

    pub(super) fn counters(&self) -> &SenderCounters {
        either!(self, it => it.counters())
    }

    /// Bytes of a full segment, or message.
    pub(super) fn segment_size(&self) -> u32 {
        match self {
            Self::Host(sender) => sender.config().segment_size,
            Self::Card(commands) => u32::try_from(commands.message_size()).unwrap_or(u32::MAX),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        either!(self, it => it.is_idle())
    }

    pub(super) fn transfers(&self) -> Vec<TransferView> {
        either!(self, it => it.transfers().collect())
    }
}
