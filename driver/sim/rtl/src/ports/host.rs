//! The card's side of the ports: accesses begin here, and the host's requesters wait here.

use std::sync::Weak;
use std::time::Instant;

use fpga_pci::lock;
use fpga_registers::CardAddr;
use fpga_sim::{AxiAccess, Design, DesignError, Requester, StreamBytes, Unit};

use super::{CHECK, Ports};
use crate::lite::{LiteAccess, WHOLE};
use crate::options::ClockMode;
use crate::stream::StreamPorts;

/// Cycles for which a register write keeps its requester waiting. After it, the write counts as posted.
const POSTED_AFTER: u64 = 2048;

impl Ports {
    fn with_stream<T>(&self, channel: u8, act: impl FnOnce(&mut StreamPorts, bool) -> T) -> Option<T> {
        let mut state = lock(&self.state);
        let is_simulator = state.simulator == Some(std::thread::current().id());
        let result = state.streams.get_mut(usize::from(channel)).map(|port| act(port, is_simulator));
        let wakes = !is_simulator && state.has_unadmitted();
        drop(state);
        if wakes {
            self.to_simulator.notify_all();
        }
        result
    }

    fn begin(&self, access: AxiAccess, is_write: bool, data: Vec<u8>) -> DesignError {
        let mut state = lock(&self.state);
        let is_admitted =
            self.clock == ClockMode::Free || state.simulator == Some(std::thread::current().id());
        tracing::debug!(cycle = state.cycle, is_write, is_admitted, length = data.len(), "m_axi: {access:?}");
        state.bus.begin(access, is_write, data, is_admitted);
        drop(state);
        self.to_simulator.notify_all();
        DesignError::Pending
    }

    /// Returns whether the requester of an access that `began` then has gone.
    fn has_gone(&self, began: Instant) -> bool {
        began.elapsed() >= CHECK
            && lock(&self.requester)
                .as_ref()
                .and_then(Weak::upgrade)
                .is_some_and(|requester| requester.has_gone())
    }

    /// Makes an access of the bypass BAR and waits for its result.
    fn access_bypass(
        &self,
        at: CardAddr,
        is_write: bool,
        data: Vec<u8>,
        into: &mut [u8],
    ) -> Result<(), DesignError> {
        let _turn = lock(&self.bypass_turn);
        let access = AxiAccess { unit: Unit::Xdma, at, fixed: None };
        let mut state = lock(&self.state);
        state.bypass.begin(access, is_write, data, false);
        let begin = state.cycle;
        self.to_simulator.notify_all();
        let began = Instant::now();
        loop {
            match state.bypass.take(access.unit, into) {
                Err(DesignError::Pending)
                    if self.is_overdue(state.cycle.saturating_sub(begin), began) || self.has_gone(began) =>
                {
                    state.bypass.abandon(access.unit);
                    return Err(DesignError::Decode);
                }
                Err(DesignError::Pending) if !state.is_ended => state = self.wait(&self.to_host, state),
                Err(DesignError::Pending) => return Err(DesignError::Decode),
                result => return result,
            }
        }
    }

    /// Makes a register access and waits for its answer.
    fn access_register(&self, access: LiteAccess, limit: Option<u64>) -> u32 {
        let mut state = lock(&self.state);
        let ticket = state.lite.begin(access, limit);
        let begin = state.cycle;
        self.to_simulator.notify_all();
        let began = Instant::now();
        loop {
            if let Some(answer) = state.lite.answer(ticket) {
                return answer;
            }
            if self.has_gone(began) {
                state.lite.abandon(ticket);
                return u32::MAX;
            }
            if access.value.is_none() && self.is_overdue(state.cycle.saturating_sub(begin), began) {
                state.lite.give_up(ticket);
                return u32::MAX;
            }
            if state.is_ended {
                return u32::MAX;
            }
            state = self.wait(&self.to_host, state);
        }
    }
}

impl Design for Ports {
    fn read(&self, access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError> {
        Err(self.begin(access, false, vec![0; into.len()]))
    }

    fn write(&self, access: AxiAccess, from: &[u8]) -> Result<(), DesignError> {
        Err(self.begin(access, true, from.to_vec()))
    }

    fn outcome(&self, access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError> {
        let mut state = lock(&self.state);
        // Register writes of the host wake the channel, too. The simulator's thread alone continues it, in the cycle of the response.
        if state.simulator != Some(std::thread::current().id()) {
            return Err(DesignError::Pending);
        }
        state.bus.take(access.unit, into)
    }

    fn send_stream(&self, channel: u8, from: &[u8], ends: bool) -> Result<(), DesignError> {
        let free = self.clock == ClockMode::Free;
        self.with_stream(channel, |port, is_simulator| port.send(from, ends, is_simulator || free));
        Err(DesignError::Pending)
    }

    fn stream_sent(&self, channel: u8) -> Result<(), DesignError> {
        let sent = |port: &mut StreamPorts, is_simulator: bool| {
            if is_simulator { port.sent() } else { Err(DesignError::Pending) }
        };
        self.with_stream(channel, sent).unwrap_or(Ok(()))
    }

    fn receive_stream(&self, channel: u8, into: &mut [u8]) -> Result<StreamBytes, DesignError> {
        self.with_stream(channel, |port, is_simulator| port.receive(into, is_simulator))
            .unwrap_or(Err(DesignError::Pending))
    }

    fn stop_stream(&self, channel: u8) {
        self.with_stream(channel, |port, _| port.stop());
    }

    fn has_slow_reads(&self) -> bool {
        true
    }

    fn read_register(&self, offset: u64) -> u32 {
        self.access_register(LiteAccess { at: offset, value: None, strobes: 0 }, Some(self.read_limit()))
    }

    fn write_register(&self, offset: u64, value: u32) {
        self.write_register_bytes(offset, value, WHOLE);
    }

    fn write_register_bytes(&self, offset: u64, value: u32, strobes: u8) {
        self.access_register(LiteAccess { at: offset, value: Some(value), strobes }, Some(POSTED_AFTER));
    }

    fn read_bypass(&self, at: CardAddr, into: &mut [u8]) -> Result<(), DesignError> {
        self.access_bypass(at, false, vec![0; into.len()], into)
    }

    fn write_bypass(&self, at: CardAddr, from: &[u8]) -> Result<(), DesignError> {
        self.access_bypass(at, true, from.to_vec(), &mut [])
    }

    fn set_requester(&self, requester: Weak<dyn Requester>) {
        *lock(&self.requester) = Some(requester);
    }

    fn descriptor_wanted(&self, _unit: Unit) {
        lock(&self.state).is_descriptor_wanted = true;
        self.to_simulator.notify_all();
    }

    fn interrupts_acknowledged(&self, lines: u32) {
        let mut state = lock(&self.state);
        state.acknowledged |= lines;
        tracing::debug!(cycle = state.cycle, "usr_irq_ack: {lines:#x}");
        drop(state);
        self.to_simulator.notify_all();
    }

    fn reset(&self) {
        let mut state = lock(&self.state);
        state.bus.reset();
        state.bypass.reset();
        state.lite.reset();
        state.streams.iter_mut().for_each(StreamPorts::reset);
        state.acknowledged = 0;
        state.defects = 0;
        state.is_reset_requested = true;
        drop(state);
        self.to_simulator.notify_all();
        self.to_host.notify_all();
    }
}
