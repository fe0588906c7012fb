//! Owner of a simulated card, on a thread.

use std::io::PipeWriter;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use fpga_driver::Card;
use fpga_sim::{CardDescription, SimNetwork, ThreadOptions};
use fpgad::{Owner, OwnerOptions, ViewInterface};

pub(crate) struct Served {
    folder: Option<tempfile::TempDir>,
    socket: PathBuf,
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut served = Self::at(&folder.path().join("card"));
        served.folder = Some(folder);
        served
    }

    /// Serves a card at a socket.
    pub(crate) fn at(socket: &Path) -> Self {
        let network = SimNetwork::builder().card(CardDescription::default());
        let network = network.threaded(ThreadOptions::default()).build().unwrap();
        let card = Card::from_backend(network.backend(0)).unwrap();
        let interface = ViewInterface::LinkedAt("127.0.0.1".parse().unwrap());
        let options = OwnerOptions { interface, ..OwnerOptions::default() };
        let owner = Owner::bind(card, socket, options).unwrap();
        let (stopped, stop) = std::io::pipe().unwrap();
        let thread = std::thread::spawn(move || drop(owner.run(&stopped).unwrap()));
        Self { folder: None, socket: socket.to_owned(), stop: Some(stop), thread: Some(thread) }
    }

    /// Name of the card for clients.
    pub(crate) fn card(&self) -> String {
        format!("vfio-user:{}", self.socket.display())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
