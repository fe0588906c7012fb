//! A server in a thread, and its clients.

use fpga_sim::SimNetwork;
use fpga_sim::served::{CardServer, ServeCounts};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) use super::raw::*;

/// The built-in card, served on a socket.
pub(crate) struct Served {
    pub(crate) network: SimNetwork,
    pub(crate) path: PathBuf,
    _folder: tempfile::TempDir,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<ServeCounts>>,
}

impl Served {
    pub(crate) fn start() -> Self {
        Self::of(SimNetwork::builder().cards(1).build().unwrap())
    }

    pub(crate) fn of(network: SimNetwork) -> Self {
        Self::with(network, |server| server)
    }

    /// Starts a server that `configure` has configured.
    pub(crate) fn with(network: SimNetwork, configure: impl FnOnce(CardServer) -> CardServer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("card");
        let server = configure(CardServer::bind(&path).unwrap());
        assert_eq!(server.path(), path);
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn({
            let network = network.clone();
            move || server.run(&network, 0, stopped).unwrap()
        });
        Self { network, path, _folder: folder, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(&self.path)
    }

    /// Ends the server.
    pub(crate) fn stop(mut self) -> ServeCounts {
        self.stop = None;
        let counts = self.thread.take().unwrap().join().unwrap();
        assert!(!self.path.exists(), "the socket's file was not removed");
        counts
    }
}

/// Waits until `done`, which depends on the server's thread; the card does not signal its counters. Polling takes the card's lock, so there
/// is a pause between two polls.
pub(crate) fn until(mut done: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !done() {
        assert!(began.elapsed() < LONG);
        std::thread::sleep(Duration::from_micros(200));
    }
}
