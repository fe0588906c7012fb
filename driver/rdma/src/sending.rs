//! Sender selection: the host sends under the registry scheme, the card's NI under any message scheme, or both are active.

use fpga_firmware::event::Event;
use fpga_firmware::generated::Scheme;
use fpga_protocol::Nanos;
use fpga_protocol::scheme::commands::{CommandTable, Withdrawal};
use fpga_protocol::sender::{
    Command, CommandCompletion, CommandError, SendTicket, Sender, SenderCounters, TransferView, Transmit,
};

use super::SendOptions;
use super::segment_choice::SegmentChoice;

/// Host sender, table of the card's transfers, or both. Their tickets are distinct.
#[derive(Debug)]
pub(super) struct SenderSet {
    host: Option<Box<Sender>>,
    /// Rule for the host's segment lengths.
    segments: SegmentChoice,
    card: Option<Box<CommandTable>>,
    default: Scheme,
    /// The card is served next, so that neither side blocks the other from windows.
    card_is_next: bool,
}

impl SenderSet {
    pub(super) fn new(
        host: Option<Sender>,
        segments: SegmentChoice,
        card: Option<CommandTable>,
        default: Scheme,
    ) -> Self {
        Self { host: host.map(Box::new), segments, card: card.map(Box::new), default, card_is_next: false }
    }

    /// Returns the host sender, if any transfer may use it.
    pub(super) fn host(&self) -> Option<&Sender> {
        self.host.as_deref()
    }

    /// Queues a transfer under the scheme of its options, or under the endpoint's default scheme. `mask_bits`: width of the receiver's
    /// mask, if known.
    pub(super) fn submit(
        &mut self,
        now: Nanos,
        command: Command,
        options: &SendOptions,
        mask_bits: Option<u16>,
    ) -> Result<SendTicket, CommandError> {
        let scheme = options.scheme;
        let chosen = scheme.unwrap_or(self.default);
        let not_on = CommandError::Scheme { scheme: chosen };
        if chosen == Scheme::Registry {
            let segment = self.segments.of(command.length, mask_bits);
            let segment = options.segment_size.map_or(segment, |limit| segment.min(limit));
            self.host.as_mut().ok_or(not_on)?.submit_segmented(now, command, segment)
        } else {
            self.card.as_mut().ok_or(not_on)?.submit(now, command, scheme)
        }
    }

    pub(super) fn cancel(&mut self, now: Nanos, ticket: SendTicket) -> Withdrawal {
        if CommandTable::owns(ticket) {
            return self.card.as_mut().map_or(Withdrawal::Ended, |commands| commands.cancel(now, ticket));
        }
        let cancelled = self.host.as_mut().is_some_and(|sender| sender.cancel(now, ticket));
        if cancelled { Withdrawal::AtHost } else { Withdrawal::Ended }
    }

    pub(super) fn handle_event(&mut self, now: Nanos, event: &Event) -> bool {
        self.host.as_mut().is_some_and(|sender| sender.handle_event(now, event))
            || self.card.as_mut().is_some_and(|commands| commands.handle_event(now, event))
    }

    /// Handles the host sender's timers; the card has its own.
    pub(super) fn handle_timeout(&mut self, now: Nanos) {
        if let Some(sender) = &mut self.host {
            sender.handle_timeout(now);
        }
    }

    /// Returns the time of the host sender's next timer.
    pub(super) fn poll_timeout(&self) -> Option<Nanos> {
        self.host.as_ref()?.poll_timeout()
    }

    pub(super) fn poll_transmit(&mut self, now: Nanos) -> Option<Transmit> {
        let Some(commands) = &mut self.card else { return self.host.as_mut()?.poll_transmit(now) };
        let card_is_next = std::mem::replace(&mut self.card_is_next, false);
        if card_is_next && let Some(transmit) = commands.poll_transmit(now) {
            return Some(transmit);
        }
        if let Some(transmit) = self.host.as_mut().and_then(|sender| sender.poll_transmit(now)) {
            self.card_is_next = true;
            return Some(transmit);
        }
        commands.poll_transmit(now)
    }

    pub(super) fn poll_completion(&mut self) -> Option<CommandCompletion> {
        self.host
            .as_mut()
            .and_then(|sender| sender.poll_completion())
            .or_else(|| self.card.as_mut()?.poll_completion())
    }

    pub(super) fn counters(&self) -> SenderCounters {
        let host = self.host.as_ref().map(|sender| *sender.counters()).unwrap_or_default();
        self.card.as_ref().map_or(host, |commands| host.merged(commands.counters()))
    }

    /// Returns the segment length of a transfer of `length` bytes under the registry scheme to a node with a mask of `mask_bits`.
    pub(super) fn segment_of(&self, length: u64, mask_bits: Option<u16>) -> u32 {
        self.segments.of(length, mask_bits)
    }

    /// Returns the size of a full segment or message in bytes; the smaller one if both are active.
    pub(super) fn segment_size(&self) -> u32 {
        let segment = self.host.as_ref().map(|sender| sender.config().segment_size);
        let message =
            self.card.as_ref().map(|commands| u32::try_from(commands.message_size()).unwrap_or(u32::MAX));
        [segment, message].into_iter().flatten().min().unwrap_or(0)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.host.as_ref().is_none_or(|sender| sender.is_idle())
            && self.card.as_ref().is_none_or(|commands| commands.is_idle())
    }

    pub(super) fn transfers(&self) -> Vec<TransferView> {
        let host = self.host.iter().flat_map(|sender| sender.transfers());
        host.chain(self.card.iter().flat_map(|commands| commands.transfers())).collect()
    }
}
