//! The event loop: jump to the next point in time at which anything can happen, let it happen, repeat.

use fpga_core::Nanos;
use fpga_core::impair::{BitRate, Link};
use fpga_core::receiver::{MemoryFault, MemoryWindow, Output, ReceiveMemory, Receiver};
use fpga_core::sender::{Command, Completion, Sender, SubmitError, TransferError, Transmit};
use fpga_firmware::event::EventKind;
use fpga_firmware::generated::Permissions;
use fpga_firmware::wire::Control;
use fpga_registers::CardAddr;

use crate::frame::{self, Frame, LIFE, Told};
use crate::scenario::{RECEIVER, SENDER, Scenario, ScenarioError};

/// Key of the receiver's only memory window.
const KEY: u64 = 1;
/// Frames on their way in one direction: more than an op table of the default size ever has.
const LINK_CAPACITY: usize = 1 << 16;
/// Where the transfer goes at the receiver.
const TARGET: CardAddr = CardAddr::new(0x1000);
/// Counts what is written.
#[derive(Debug, Default)]
struct Counting {
    bytes: u64,
}

impl ReceiveMemory for Counting {
    fn write(&mut self, _at: CardAddr, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// What a run has shown. Times are since the transfer was submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Data packets sent for the first time.
    pub packets: u64,
    /// Data packets sent again.
    pub retransmits: u64,
    /// Why: packets whose deadline passed without an answer.
    pub timeouts: u64,
    /// And packets that the receiver had no room for, in its registry or in its escape channel.
    pub refusals: u64,
    /// Bytes on the wire from sender to receiver, headers and checksums included.
    pub bytes_there: u64,
    /// Bytes on the wire from receiver to sender.
    pub bytes_back: u64,
    /// When the receiving application was told.
    pub received: Nanos,
    /// When the sender knew.
    pub completed: Nanos,
    /// Payload over the time until the receiving application was told.
    pub goodput: BitRate,
    /// Most registry entries in use at once.
    pub registry_high_water: u32,
    /// Most packets that waited at once for their segment's first one.
    pub escape_high_water: u16,
}

/// A run failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// The scenario cannot be.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The sender does not take the transfer.
    #[error("the transfer was not taken: {0}")]
    Submit(#[from] SubmitError),
    /// The transfer failed: a result too, where timers are shorter than the path.
    #[error("the transfer failed after {at}: {source}")]
    Transfer {
        /// When.
        at: Nanos,
        /// Why.
        source: TransferError,
    },
    /// Nothing is left that could happen, and the transfer has not ended at both ends.
    #[error(
        "nothing happens any more after {at} with {written} of {length} bytes written: a defect of the scheme or of the simulator"
    )]
    Stalled {
        /// When.
        at: Nanos,
        /// Bytes that reached the receiver's memory.
        written: u64,
        /// Bytes of the transfer.
        length: u64,
    },
}

/// Two nodes and the paths between them.
#[derive(Debug)]
pub struct Simulation {
    sender: Sender,
    receiver: Receiver,
    there: Link<Frame>,
    back: Link<Frame>,
    memory: Counting,
    now: Nanos,
    length: u64,
    completion: Option<Completion>,
    received: Option<Nanos>,
}

impl Simulation {
    /// Sets up `scenario` and submits its transfer at time zero.
    ///
    /// # Errors
    /// [`SimulationError::Scenario`], [`SimulationError::Submit`].
    pub fn new(scenario: &Scenario) -> Result<Self, SimulationError> {
        if scenario.length == 0 {
            return Err(ScenarioError::Empty.into());
        }
        if scenario.rate.get() == 0 {
            return Err(ScenarioError::NoRate.into());
        }
        let mut receiver = scenario.receiver;
        receiver.node = RECEIVER;
        receiver.packet_size_log2 = scenario.sender.packet_size_log2;
        receiver.mask_bits = scenario.sender.mask_bits;
        let mut receiver = Receiver::new(receiver).map_err(ScenarioError::from)?;
        let window = MemoryWindow {
            source: SENDER,
            base: TARGET,
            length: scenario.length,
            key: KEY,
            permissions: Permissions::WRITE,
        };
        // The only way for this to fail is a transfer that leaves the address space, which the sender then refuses.
        let _ = receiver.access_mut().install(0, window);
        let mut sender = Sender::new(scenario.sender, LIFE).map_err(ScenarioError::from)?;
        sender.submit(
            Nanos::ZERO,
            Command {
                source: TARGET,
                node: RECEIVER,
                destination: TARGET,
                length: scenario.length,
                key: KEY,
                notify: scenario.notify,
                deadline: None,
                priority: 0,
            },
        )?;
        let link = |seed| Link::new(scenario.impairments(), LINK_CAPACITY, seed).map_err(ScenarioError::from);
        Ok(Self {
            sender,
            receiver,
            there: link(scenario.seed)?,
            // Another sequence than the way there, and none that a neighbouring seed has.
            back: link(!scenario.seed)?,
            memory: Counting::default(),
            now: Nanos::ZERO,
            length: scenario.length,
            completion: None,
            received: None,
        })
    }

    /// Runs until both ends know that the transfer has ended.
    ///
    /// # Errors
    /// [`SimulationError::Transfer`], [`SimulationError::Stalled`].
    pub fn run(mut self) -> Result<Report, SimulationError> {
        loop {
            self.step();
            if let Some(Completion { result: Err(source), finished, .. }) = self.completion {
                return Err(SimulationError::Transfer { at: finished, source });
            }
            if let (Some(completion), Some(received)) = (self.completion, self.received) {
                return Ok(self.report(&completion, received));
            }
            if self.release() {
                continue;
            }
            match self.next() {
                Some(at) => self.now = self.now.max(at),
                None => {
                    let (at, written, length) = (self.now, self.memory.bytes, self.length);
                    return Err(SimulationError::Stalled { at, written, length });
                }
            }
        }
    }

    /// Everything that happens now. The order within one instant is part of the definition of a run: arrivals first, so that
    /// an answer that is here is no time-out; then timers; then new packets.
    fn step(&mut self) {
        let now = self.now;
        while let Some(frame) = self.there.poll(now) {
            self.at_receiver(&frame);
        }
        while let Some(frame) = self.back.poll(now) {
            self.at_sender(&frame);
        }
        if self.receiver.poll_timeout().is_some_and(|at| at <= now) {
            self.receiver.handle_timeout(now);
            self.receiver_outputs();
        }
        if self.sender.poll_timeout().is_some_and(|at| at <= now) {
            self.sender.handle_timeout(now);
        }
        while self.there.free_at() <= now
            && let Some(transmit) = self.sender.poll_transmit(now)
        {
            self.send(&transmit);
        }
        while let Some(completion) = self.sender.poll_completion() {
            self.completion = Some(completion);
        }
    }

    /// Where nothing else can arrive, frames that wait for company to be shuffled with are let go. Returns whether any was.
    fn release(&mut self) -> bool {
        let pending = [self.there.poll_timeout(), self.back.poll_timeout()];
        if pending.iter().any(Option::is_some) || self.there.free_at() > self.now {
            return false;
        }
        if let Some(frame) = self.there.poll_any() {
            self.at_receiver(&frame);
        } else if let Some(frame) = self.back.poll_any() {
            self.at_sender(&frame);
        } else {
            return false;
        }
        true
    }

    /// When something can happen next.
    fn next(&self) -> Option<Nanos> {
        let link = Some(self.there.free_at()).filter(|at| *at > self.now);
        let timers = [
            link,
            self.there.poll_timeout(),
            self.back.poll_timeout(),
            self.sender.poll_timeout(),
            self.receiver.poll_timeout(),
        ];
        timers.into_iter().flatten().min()
    }

    /// What a network interface makes of a transmit window goes to the link.
    fn send(&mut self, transmit: &Transmit) {
        let Self { there, now, .. } = self;
        frame::packets(transmit, LIFE, |packet| {
            // A full link loses it.
            let _ = there.offer(*now, packet);
        });
    }

    fn at_receiver(&mut self, frame: &Frame) {
        match frame {
            Frame::Data { header, payload } => {
                self.receiver.handle_packet(self.now, header, frame::payload(*payload), &mut self.memory);
            }
            Frame::Control(Control::Arrived(arrived)) => self.receiver.handle_arrived(self.now, arrived),
            Frame::Control(_) | Frame::Damaged => {}
        }
        self.receiver_outputs();
    }

    fn receiver_outputs(&mut self) {
        while let Some(output) = self.receiver.poll_output() {
            match *output {
                Output::Send(control) => {
                    let _ = self.back.offer(self.now, Frame::Control(control));
                }
                Output::Event(event) if event.kind == EventKind::Notice => {
                    self.received.get_or_insert(self.now);
                }
                _ => {}
            }
        }
    }

    fn at_sender(&mut self, frame: &Frame) {
        let now = self.now;
        let Frame::Control(control) = frame else { return };
        if let Some((answer, told)) = frame::answer(control) {
            match told {
                Told::Here => self.sender.handle_ack(now, answer),
                Told::Refused(reason) => self.sender.handle_nack(now, answer, reason),
                Told::Done(transfer, segment) => {
                    self.sender.handle_segment_done(now, answer, transfer, segment);
                }
            }
        }
    }

    fn report(&self, completion: &Completion, received: Nanos) -> Report {
        let counters = self.receiver.counters();
        Report {
            packets: completion.packets,
            retransmits: completion.retransmits,
            timeouts: self.sender.counters().timeouts,
            refusals: self.sender.counters().busy,
            bytes_there: self.there.counters().bytes,
            bytes_back: self.back.counters().bytes,
            received,
            completed: completion.finished,
            goodput: BitRate::of(self.length, received),
            registry_high_water: counters.registry_high_water,
            escape_high_water: counters.escape_high_water,
        }
    }
}
