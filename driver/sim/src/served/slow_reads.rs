//! Reads that wait for the design, on a thread of their own: the client's other requests are answered meanwhile, as a root port completes
//! reads of other addresses while one is outstanding.
//!
//! Replies are then not in the order of the requests, which vfio-user permits for requests that do not conflict. These reads are executed in
//! the order of their requests. Writes are posted, and pass them.

use fpga_registers::cast::index;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use fpga_card::DesignAccess;
use fpga_vfio_user::wire::{RegionAccess, Reply, encode_reply};

use super::client::ClientConnection;
use super::device;
use crate::network::SimNetwork;

/// Maximum number of reads that wait. Beyond it, the client's other requests wait, too.
const MAX_QUEUED: usize = 64;

/// Read of a register or of card memory, by one request.
#[derive(Debug)]
pub(super) struct SlowRead {
    /// Number of the request.
    pub(super) id: u16,
    pub(super) access: RegionAccess,
    pub(super) design: DesignAccess,
}

/// Thread that executes the reads of one client, also those whose client has gone since: the design sees every request.
#[derive(Debug)]
pub(super) struct SlowReads {
    queue: Option<SyncSender<SlowRead>>,
    thread: Option<JoinHandle<()>>,
    peer: Arc<ClientConnection>,
    network: SimNetwork,
}

impl SlowReads {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread.
    pub(super) fn start(
        network: &SimNetwork,
        card: usize,
        peer: &Arc<ClientConnection>,
    ) -> std::io::Result<Self> {
        let (queue, reads) = sync_channel(MAX_QUEUED);
        let (at, client) = (network.clone(), Arc::clone(peer));
        let work = move || execute(&at, card, &client, &reads);
        let thread = std::thread::Builder::new().name("slow reads".to_owned()).spawn(work)?;
        Ok(Self {
            queue: Some(queue),
            thread: Some(thread),
            peer: Arc::clone(peer),
            network: network.clone(),
        })
    }

    /// Executes a read, and sends the reply. Returns the read if there is no thread any more: the connection has ended.
    pub(super) fn queue(&self, read: SlowRead) -> Result<(), SlowRead> {
        match &self.queue {
            Some(queue) => queue.send(read).map_err(|unsent| unsent.0),
            None => Err(read),
        }
    }
}

impl Drop for SlowReads {
    fn drop(&mut self) {
        self.queue = None;
        // A child of a fork has neither the thread nor the connection for itself.
        if self.network.is_own() {
            // Ends the wait for the design: the requester has gone.
            self.peer.shut_down();
            if let Some(thread) = self.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

fn execute(network: &SimNetwork, card: usize, peer: &ClientConnection, reads: &Receiver<SlowRead>) {
    let (mut data, mut out) = (Vec::new(), Vec::new());
    for SlowRead { id, access, design } in reads {
        data.clear();
        data.resize(index(access.count), 0);
        design.read(&mut data);
        note_read(network, card, access, &data);
        out.clear();
        encode_reply(id, &Reply::RegionRead(access, &data), &mut out);
        if peer.send(&out).is_err() {
            // The serving thread finds the end of the connection. The design gets the other reads that were requested.
            peer.shut_down();
        }
    }
}

/// Counts and logs a read that the design has answered.
fn note_read(network: &SimNetwork, card: usize, access: RegionAccess, data: &[u8]) {
    if let Some(slot) = network.lock().slots.get_mut(card) {
        device::observe(slot, access.region, access.offset, data, false);
        let bar = u8::try_from(access.region).unwrap_or(u8::MAX);
        slot.card.note_design_access(bar, access.offset, data, false);
    }
}
