//! Ports: addresses, opening and closing.

use super::CardMessenger;
use crate::address::Address;
use crate::completion::Failure;
use crate::error::{MessengerError, card_error};
use crate::layout::{HELLO_KEY, MAX_PORTS, PortNumber};
use crate::peer::{Payload, QueuedRecord};
use crate::port::{Port, PortOptions};
use crate::wire::{Header, Kind};
use fpga_driver::NodeId;
use std::time::{Duration, Instant};

/// Maximum time for which closing a port waits until the card no longer uses the memory of its operations.
const MAX_CLOSE_WAIT: Duration = Duration::from_secs(1);
/// Maximum time for which peers are expected to acknowledge that their session ends.
const MAX_CLOSED_WAIT: Duration = Duration::from_millis(20);
/// The same in virtual time, as a number of steps: the same in every run, and few, since other processes do not work meanwhile.
const MAX_CLOSED_STEPS: u32 = 100;

impl CardMessenger {
    /// Opens the next port.
    pub(crate) fn open_port(&mut self, options: PortOptions) -> Result<PortNumber, MessengerError> {
        if let Some(failure) = &self.failed {
            return Err(card_error(failure));
        }
        let number = self.ports.next().ok_or(MessengerError::TooManyPorts { ports: MAX_PORTS })?;
        let slots = self.side.layout.hello(number);
        let window = self.side.endpoint.open_region_with_key(NodeId::ANY, slots, HELLO_KEY);
        self.ports.add(Port::new(options, Some(window.map_err(card_error)?)));
        Ok(number)
    }

    /// Returns the address of a port.
    pub(crate) fn address(&self, port: PortNumber) -> Address {
        let address = || Address::of_card(self.side.endpoint.node(), self.side.layout.hello(port).start);
        self.side.link_address.unwrap_or_else(address)
    }

    /// Tells the peers of a port that their sessions end. A peer that does not acknowledge it in time finds out by itself.
    pub(crate) fn announce_close(&mut self, port: PortNumber) {
        for id in self.peers.ids() {
            let peer = &self.peers[id];
            // Behind records that wait for space it would come too late.
            if peer.port == port && peer.open_remote().is_some() && peer.queue.is_empty() {
                let header = Header::new(Kind::Closed);
                self.submit(id, QueuedRecord { header, payload: Payload::None, operation: None });
            }
        }
        let begun = Instant::now();
        let mut steps = 0..MAX_CLOSED_STEPS;
        while self.has_unsent(port) && self.failed.is_none() {
            let is_over = if self.side.is_real_time {
                begun.elapsed() >= MAX_CLOSED_WAIT
            } else {
                steps.next().is_none()
            };
            if is_over {
                break;
            }
            self.progress();
        }
    }

    /// Ends the sessions of a port, which has no further completions. Nothing uses its memory afterwards.
    pub(crate) fn close_port(&mut self, port: PortNumber) {
        let failure = Failure::Cancelled;
        for id in self.peers.ids() {
            if self.peers[id].port != port {
                continue;
            }
            self.end_session(id, &failure);
            if let Some(area) = self.peers[id].area.take() {
                self.areas.release(area, self.now);
            }
        }
        self.by_name.retain(|name, _| name.port != port);
        let begun = Instant::now();
        while self.closing.iter().any(|(operation, _)| self.is_of(port, operation.peer))
            && self.failed.is_none()
            && begun.elapsed() < MAX_CLOSE_WAIT
        {
            self.progress();
        }
        let closed = self.ports.close(port);
        if let Some(window) = closed.hello_window
            && let Err(error) = self.side.endpoint.close_region(&window)
        {
            self.fail_card(&error.to_string());
        }
        self.has_no_window = false;
    }

    /// Number of open ports.
    pub(crate) fn open_ports(&self) -> usize {
        self.ports.count_open()
    }
}
