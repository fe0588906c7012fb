//! A card of a kind, and what happens to it.

use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use fpga_card::fault_plan::FaultsDescription;
use fpga_driver::{Card, UserInterrupt};
use fpga_sim::served::CardServer;
use fpga_sim::{CardDescription, CardFailure, SimNetwork, ThreadOptions};

/// Way in which a card runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// In the waiting thread, in virtual time.
    Mock,
    /// In a thread of its own.
    Threaded,
    /// Behind a socket.
    Served,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Mock, Self::Threaded, Self::Served];
}

/// Card 0 of a network, opened with interrupts. Card 1 is a peer in this process.
pub(super) struct Scene {
    pub(super) card: Card,
    pub(super) network: SimNetwork,
    /// Lines with which threads wait.
    pub(super) lines: Mutex<Vec<UserInterrupt>>,
    server: Option<(OwnedFd, JoinHandle<()>)>,
}

#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
impl Scene {
    pub(super) fn open(kind: Kind, streams: bool) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let builder = if streams {
            SimNetwork::builder().card(CardDescription::builtin("us-plus-x8-stream").unwrap())
        } else {
            SimNetwork::builder().cards(2)
        };
        let builder =
            if kind == Kind::Threaded { builder.threaded(ThreadOptions::default()) } else { builder };
        let network = builder.build().unwrap();
        let mut server = None;
        let card = if kind == Kind::Served {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let socket =
                std::env::temp_dir().join(format!("fpga-waits-{}-{number}.sock", std::process::id()));
            let listening = CardServer::bind(&socket).unwrap();
            let (stopped, stop) = rustix::pipe::pipe().unwrap();
            let served = network.clone();
            let serving = std::thread::spawn(move || _ = listening.run(&served, 0, stopped));
            server = Some((stop, serving));
            Card::open(&format!("vfio-user:{}", socket.display())).unwrap()
        } else {
            Card::from_backend(network.backend(0)).unwrap()
        };
        card.enable_interrupts().unwrap();
        Self { card, network, lines: Mutex::default(), server }
    }

    /// Injects faults, as a card file lists them.
    pub(super) fn inject(&self, faults: &str) {
        let faults: FaultsDescription = serde_yaml::from_str(&format!("list: [{faults}]")).unwrap();
        let plan = faults.plan().unwrap();
        self.network.with_card(0, |card| card.set_fault_plan(&plan)).unwrap();
    }

    pub(super) fn remove(&self) {
        self.fail(CardFailure::Gone);
    }

    pub(super) fn fail(&self, failure: CardFailure) {
        self.network.fail(0, failure);
    }

    pub(super) fn end_server(&mut self) {
        let (stop, serving) = self.server.take().unwrap();
        drop(stop);
        serving.join().unwrap();
    }

    /// Keeps a handle of a line, by which another thread masks it.
    pub(super) fn keep(&self, line: &UserInterrupt) {
        self.lines.lock().unwrap().push(line.clone());
    }

    pub(super) fn disable_lines(&self) {
        self.lines.lock().unwrap().iter().for_each(|line| line.disable().unwrap());
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some((stop, serving)) = self.server.take() {
            drop(stop);
            let _ = serving.join();
        }
    }
}
