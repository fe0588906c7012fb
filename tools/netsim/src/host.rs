//! Host of any scheme.

use fpga_firmware::wire::Message;
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{self, AccessTable, MemoryFault, ReceiveMemory};
use fpga_protocol::scheme::messages;
use fpga_protocol::scheme::traits::{
    Action, Header, OutgoingPacket, RegistrySender, SchemeReceiver, SchemeSender,
};
use fpga_protocol::sender::{Command, CommandCompletion, CommandError, SendTicket};
use fpga_registers::CardAddr;

use crate::scheme::receiver_counter::ReceiverCounterConfig;
use crate::scheme::sender_window::SenderWindowConfig;

/// Sender of any scheme.
#[derive(Debug)]
pub(crate) enum AnySender {
    Registry(Box<RegistrySender>),
    Card(Box<messages::Sender>),
    SenderWindow(Box<messages::Sender<SenderWindowConfig>>),
    ReceiverCounter(Box<messages::Sender<ReceiverCounterConfig>>),
}

/// Receiver of any scheme.
#[derive(Debug)]
pub(crate) enum AnyReceiver {
    Registry(Box<receiver::Receiver>),
    Card(Box<messages::Receiver>),
    SenderWindow(Box<messages::Receiver<SenderWindowConfig>>),
    ReceiverCounter(Box<messages::Receiver<ReceiverCounterConfig>>),
}

macro_rules! either {
    ($side:expr, $it:ident => $body:expr) => {
        match $side {
            Self::Registry($it) => $body,
            Self::Card($it) => $body,
            Self::SenderWindow($it) => $body,
            Self::ReceiverCounter($it) => $body,
        }
    };
}

impl AnySender {
    /// Waits for an answer that timed out, and refusals as "busy".
    pub(crate) fn timeouts_and_refusals(&self) -> (u64, u64) {
        let of = |counters: &messages::SenderCounters| (counters.timeouts, counters.busy);
        match self {
            Self::Registry(sender) => {
                let counters = sender.inner().counters();
                (counters.timeouts, counters.busy)
            }
            Self::Card(sender) => of(sender.counters()),
            Self::SenderWindow(sender) => of(sender.counters()),
            Self::ReceiverCounter(sender) => of(sender.counters()),
        }
    }
}

impl SchemeSender for AnySender {
    fn submit(&mut self, now: Nanos, command: Command) -> Result<SendTicket, CommandError> {
        either!(self, side => side.submit(now, command))
    }

    fn handle_packet(&mut self, now: Nanos, header: &Header) {
        either!(self, side => side.handle_packet(now, header));
    }

    fn handle_timeout(&mut self, now: Nanos) {
        either!(self, side => side.handle_timeout(now));
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        either!(self, side => side.poll_timeout())
    }

    fn poll_packet(&mut self, now: Nanos) -> Option<OutgoingPacket> {
        either!(self, side => side.poll_packet(now))
    }

    fn poll_completion(&mut self) -> Option<CommandCompletion> {
        either!(self, side => side.poll_completion())
    }
}

impl SchemeReceiver for AnyReceiver {
    fn handle_packet(
        &mut self,
        now: Nanos,
        header: &Header,
        payload: &[u8],
        memory: &mut (impl ReceiveMemory + ?Sized),
    ) {
        either!(self, side => SchemeReceiver::handle_packet(&mut **side, now, header, payload, memory));
    }

    fn handle_timeout(&mut self, now: Nanos) {
        either!(self, side => SchemeReceiver::handle_timeout(&mut **side, now));
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        either!(self, side => SchemeReceiver::poll_timeout(&**side))
    }

    fn poll_action(&mut self) -> Option<Action> {
        either!(self, side => side.poll_action())
    }

    fn access_mut(&mut self) -> &mut AccessTable {
        either!(self, side => SchemeReceiver::access_mut(&mut **side))
    }
}

/// Memory that counts the written bytes.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    pub(crate) bytes: u64,
}

impl ReceiveMemory for Counting {
    fn write(&mut self, _at: CardAddr, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// One host.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) sender: AnySender,
    pub(crate) receiver: AnyReceiver,
    pub(crate) memory: Counting,
    pub(crate) wake: WakeTimer,
    /// Wake timer for deliveries of its link.
    pub(crate) deliver: WakeTimer,
    pub(crate) jumps: Jumps,
}

/// Largest jump between the indices of data packets that arrive one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Jumps {
    last: Option<u16>,
    largest: u16,
}

impl Jumps {
    pub(crate) const fn note(&mut self, header: &Header) {
        let Header::Message(Message::Data(data)) = header else { return };
        if let Some(last) = self.last {
            let jump = last.abs_diff(data.index);
            if jump > self.largest {
                self.largest = jump;
            }
        }
        self.last = Some(data.index);
    }

    /// Degree of disorder: the largest jump, less one.
    pub(crate) fn disorder(self) -> u32 {
        self.largest.saturating_sub(1).into()
    }
}

/// Times at which a host is polled again: the earliest two such events in the queue, in picoseconds. Two, because a packet that leaves now
/// repeatedly precedes a timer: the timer's event need not be queued again each time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WakeTimer([u64; 2]);

impl WakeTimer {
    /// No event is queued.
    pub(crate) const NONE: Self = Self([u64::MAX; 2]);

    /// Returns whether an event for `at` has to be queued, because the next queued one is later.
    pub(crate) const fn set(&mut self, at: u64) -> bool {
        let [first, _] = self.0;
        let sooner = at < first;
        if sooner {
            self.0 = [at, first];
        }
        sooner
    }

    /// Handles the event for `at`. Returns whether it is the expected one; otherwise an earlier one came in between.
    pub(crate) const fn take(&mut self, at: u64) -> bool {
        let [first, second] = self.0;
        let right = at == first;
        if right {
            self.0 = [second, u64::MAX];
        }
        right
    }
}
