//! Simulated cards that belong to one process each, linked with each other: two threads serve them.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use fpga_sim::link::{ShmLink, ShmLinkOptions};
use fpga_sim::served::CardServer;
use fpga_sim::{CardDescription, CardFailure, SimNetwork};

pub(crate) struct Exclusive {
    folder: tempfile::TempDir,
    networks: Vec<Arc<SimNetwork>>,
    stop: Vec<UnixStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Exclusive {
    /// Two cards.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut cards = Self { folder, networks: Vec::new(), stop: Vec::new(), threads: Vec::new() };
        for number in [0, 1] {
            let (network, stop, thread) = serve(cards.folder.path(), number);
            cards.networks.push(network);
            cards.stop.push(stop);
            cards.threads.push(thread);
        }
        cards
    }

    /// Removes a card from its slot.
    pub(crate) fn remove(&self, number: usize) {
        self.networks[number].fail(0, CardFailure::Gone);
    }

    /// Name of a card without its number, for clients.
    pub(crate) fn cards(&self) -> String {
        format!("vfio-user:{}", self.folder.path().join("card").display())
    }
}

fn serve(folder: &Path, number: u32) -> (Arc<SimNetwork>, UnixStream, JoinHandle<()>) {
    let link = |number: u32| folder.join(format!("link{number}"));
    let mut card = CardDescription::default();
    card.ni.node_id = number + 1;
    let link = ShmLink::bind(&ShmLinkOptions::new(link(number)).peer(link(1 - number))).unwrap();
    let network = SimNetwork::builder().card(card).link(link).build().unwrap();
    let network = Arc::new(network);
    let served = Arc::clone(&network);
    let server = CardServer::bind(&folder.join(format!("card{number}"))).unwrap();
    let (stop, stopped) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        server.run(&served, 0, stopped).unwrap();
    });
    (network, stop, thread)
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        self.stop.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
