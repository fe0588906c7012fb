//! Test bed of the receiver tests of `fpga-protocol`, whose packets `ni_receive` gets as well.
//!
//! Files of those tests are compiled with this module in place of their own `common`. A [`Recorder`] is the protocol engine's receiver; it
//! records the calls, and at its end replays them in lockstep. The module has the sizes of [`super::RECORDED`] for all tests.

use std::ops::Deref;

use fpga_firmware::wire::{Arrived, DataHeader};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{
    MemoryFault, MemoryWindow, Output, ReceiveMemory, Receiver, ReceiverConfig, WindowError,
};
use fpga_registers::CardAddr;

use super::RECORDED;
use super::lockstep::{Input, Lockstep};

#[path = "../../../../firmware-bindings/protocol/tests/common/mod.rs"]
mod original;

pub(crate) use original::{
    BASE, INCARNATION, KEY, Memory, RECEIVER, SENDER, Shape, acks, config, dones, events, nacks, pattern,
};

/// A receiver, its memory, and its outputs.
pub(crate) struct TestBed {
    pub(crate) receiver: Recorder,
    pub(crate) memory: Memory,
    pub(crate) now: Nanos,
}

impl TestBed {
    pub(crate) fn new(config: ReceiverConfig) -> Self {
        let mut receiver =
            Recorder { receiver: original::receiver(config), inputs: Vec::new(), refused: false };
        let window = *receiver.receiver.access().get(0).unwrap();
        receiver.inputs.push(Input::Install { index: 0, window });
        Self { receiver, memory: Memory::default(), now: Nanos::ZERO }
    }

    pub(crate) fn deliver(&mut self, packet: &(DataHeader, Vec<u8>)) -> Vec<Output> {
        self.receiver.handle_packet(self.now, &packet.0, &packet.1, &mut self.memory);
        self.drain()
    }

    pub(crate) fn send(&mut self, shape: &Shape, index: u16) -> Vec<Output> {
        self.deliver(&shape.packet(index))
    }

    pub(crate) fn advance(&mut self, span: Nanos) -> Vec<Output> {
        self.now = self.now.saturating_add(span);
        self.receiver.handle_timeout(self.now);
        self.drain()
    }

    pub(crate) fn drain(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.receiver.receiver.poll_output().copied()).collect()
    }
}

/// Receiver that records its inputs.
pub(crate) struct Recorder {
    receiver: Receiver,
    inputs: Vec<Input>,
    /// The test's memory has refused a write. The memory of the lockstep refuses addresses of its own.
    refused: bool,
}

/// Memory of a test, with a record of refusals.
struct RecordedMemory<'a, M> {
    memory: &'a mut M,
    refused: &'a mut bool,
}

impl<M: ReceiveMemory> ReceiveMemory for RecordedMemory<'_, M> {
    fn write(&mut self, at: CardAddr, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.memory.write(at, bytes).inspect_err(|_| *self.refused = true)
    }
}

impl Deref for Recorder {
    type Target = Receiver;

    fn deref(&self) -> &Receiver {
        &self.receiver
    }
}

impl Recorder {
    pub(crate) fn handle_packet<M: ReceiveMemory>(
        &mut self,
        now: Nanos,
        header: &DataHeader,
        payload: &[u8],
        memory: &mut M,
    ) {
        self.inputs.push(Input::Packet { now: now.get(), header: *header, payload: payload.to_vec() });
        let mut memory = RecordedMemory { memory, refused: &mut self.refused };
        self.receiver.handle_packet(now, header, payload, &mut memory);
    }

    pub(crate) fn handle_trimmed<M: ReceiveMemory>(
        &mut self,
        now: Nanos,
        header: &DataHeader,
        memory: &mut M,
    ) {
        self.inputs.push(Input::Packet { now: now.get(), header: *header, payload: Vec::new() });
        self.receiver.handle_trimmed(now, header, memory);
    }

    pub(crate) fn handle_arrived(&mut self, now: Nanos, arrived: &Arrived) {
        self.inputs.push(Input::Arrived { now: now.get(), arrived: *arrived });
        self.receiver.handle_arrived(now, arrived);
    }

    pub(crate) fn handle_timeout(&mut self, now: Nanos) {
        self.inputs.push(Input::Time(now.get()));
        self.receiver.handle_timeout(now);
    }

    pub(crate) fn set_timeouts(&mut self, escape: Nanos, registry: Nanos, packet_lifetime: Nanos) {
        let [escape_ns, registry_ns, lifetime] = [escape, registry, packet_lifetime].map(Nanos::get);
        self.inputs.push(Input::Timeouts { escape: escape_ns, registry: registry_ns, lifetime });
        self.receiver.set_timeouts(escape, registry, packet_lifetime);
    }

    pub(crate) fn set_notice_slots(&mut self, slots: u32) {
        self.inputs.push(Input::NoticeSlots(slots));
        self.receiver.set_notice_slots(slots);
    }

    pub(crate) fn access_mut(&mut self) -> RecordedWindows<'_> {
        RecordedWindows(self)
    }
}

/// Memory windows of a [`Recorder`].
pub(crate) struct RecordedWindows<'a>(&'a mut Recorder);

impl RecordedWindows<'_> {
    pub(crate) fn install(&mut self, index: u16, window: MemoryWindow) -> Result<(), WindowError> {
        self.0.inputs.push(Input::Install { index, window });
        self.0.receiver.access_mut().install(index.into(), window)
    }

    pub(crate) fn remove(&mut self, index: u16) -> Result<(), WindowError> {
        self.0.inputs.push(Input::Remove(index));
        self.0.receiver.access_mut().remove(index.into())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if std::thread::panicking() || self.refused {
            return;
        }
        let Some(program) = RECORDED.build() else { return };
        let config = *self.receiver.config();
        let mut sizes = RECORDED.config();
        (sizes.node, sizes.incarnation, sizes.packet_events) =
            (config.node, config.incarnation, config.packet_events);
        let mut both = Lockstep::new(&program, sizes, 1, 0);
        for input in self.inputs.drain(..) {
            both.input(input);
        }
        both.compare_tables();
        both.sync();
    }
}
