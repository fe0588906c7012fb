//! Work for linked cards while their owner does not poll.
//!
//! The cards of a simulated network without a thread work while their owner polls. An owner that computes for long would let them fall silent:
//! peers would resend, and give up. An attendant does the cards' work in such times, as real cards do it by themselves. It does not poll
//! endpoints. The same holds for a program that waits for a card's descriptors in an event loop, and so does not poll.

use crate::network::SimNetwork;
use fpga_pci::Process;
use fpga_protocol::time::Nanos;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Thread that works for the cards of a network after `interval` without a poll of their owner. It ends when it is dropped.
#[derive(Debug)]
pub struct Attendant {
    /// Its end stops the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    process: Process,
}

impl Attendant {
    /// Starts the thread. It looks for polls of the owner once per `interval`.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn start(network: &SimNetwork, interval: Duration) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let network = network.clone();
        let thread = std::thread::Builder::new()
            .name("fpga-attendant".into())
            .spawn(move || attend(&network, interval, &stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread), process: Process::current() })
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // The thread is the parent's.
            core::mem::forget((self.stop.take(), self.thread.take()));
            return;
        }
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A card's panic was reported when it occurred.
            let _ = thread.join();
        }
    }
}

fn attend(network: &SimNetwork, interval: Duration, stopped: &Receiver<()>) {
    // Time of the last work that was seen: it stands still while no thread works.
    let mut seen = network.now();
    while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        if network.now() == seen {
            // In virtual time, cards work no faster than in real time.
            network.pause(Nanos::from(interval));
        }
        seen = network.now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{UdpLink, UdpLinkOptions};
    use std::time::Instant;

    #[test]
    fn attendant_works_while_nobody_polls() {
        let link = UdpLink::bind(UdpLinkOptions::new("127.0.0.1:0".parse().unwrap())).unwrap();
        let network = SimNetwork::builder().cards(1).link(link).build().unwrap();
        let before = network.now();
        let attendant = Attendant::start(&network, Duration::from_millis(1)).unwrap();
        let begun = Instant::now();
        while network.now() == before {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        drop(attendant);
        let after = network.now();
        std::thread::yield_now();
        assert_eq!(network.now(), after);
    }
}
