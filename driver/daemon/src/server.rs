//! The owner: accepts clients, and serves each its view.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use fpga_driver::errors::Cause;
use fpga_driver::{Card, NodeId, SharedSocket};
use fpga_sim::SimNetworkError;
use fpga_sim::link::{Link, LinkError, LinkKey, Switch};
use fpga_sim::served::{CardServer, Listener, ServeError, SocketFile};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;

use crate::card::SharedCard;
use crate::error::ShareError;
use crate::interrupts::{Views, forward};
use crate::view::View;

/// Interval at which the owner notices that its last client has gone.
const CHECK: Duration = Duration::from_millis(100);

/// Maximum time until the first client of an owner that ends with its last.
pub const FIRST_CLIENT: Duration = Duration::from_secs(60);

/// Number of descriptors that must be free for a new client: those of its view, and of its memory. With fewer it is refused with the reason; later
/// it would only see the end of its connection.
const CLIENT_DESCRIPTORS: usize = 32;

/// Options of an owner.
#[derive(Debug, Clone)]
pub struct OwnerOptions {
    /// Maximum duration of a client's access to the card.
    pub timeout: Duration,
    /// End with the last client, or if none comes in the first [`FIRST_CLIENT`], instead of waiting for others.
    pub ends_with_last: bool,
    /// Socket whose lock is taken before the end: openers that hold it are waited for.
    pub lock: Option<SharedSocket>,
    /// Network interfaces of the views of a card that has one.
    pub interface: ViewInterface,
    /// Key of the links of views.
    pub link_key: Option<LinkKey>,
}

/// Network interfaces of views.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViewInterface {
    /// Each view has one, with a link that receives at this machine's address.
    #[default]
    Linked,
    /// Each view has one, with a link that receives at this address, at a port of its own.
    LinkedAt(IpAddr),
    /// Views have none.
    Absent,
}

impl ViewInterface {
    /// Opens the link of a view: a port of `switch`, with a link to other processes.
    fn open(self, switch: &Switch, key: Option<LinkKey>) -> Result<Option<(NodeId, Link)>, LinkError> {
        let listen = match self {
            Self::Linked => None,
            Self::LinkedAt(ip) => Some(SocketAddr::new(ip, 0)),
            Self::Absent => return Ok(None),
        };
        let (outside, neighbours) = Link::neighbouring(listen, key)?;
        let node = neighbours.node();
        let link = Link::on_switch(switch, node, Some(outside.with_neighbours(neighbours)))?;
        Ok(Some((node, link)))
    }
}

impl Default for OwnerOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            ends_with_last: false,
            lock: None,
            interface: ViewInterface::default(),
            link_key: None,
        }
    }
}

/// Returns whether a client runs as the user of this process.
fn is_own(connection: &OwnedFd) -> bool {
    socket_peercred(connection).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Checks that a client can have its descriptors.
fn check_descriptors(any: BorrowedFd<'_>) -> Result<(), Errno> {
    (0..CLIENT_DESCRIPTORS)
        .map(|_| rustix::io::fcntl_dupfd_cloexec(any, 0))
        .collect::<Result<Vec<_>, _>>()
        .map(drop)
}

/// Reasons why a card is not shared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// The card cannot be shared.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// The socket cannot be used.
    #[error(transparent)]
    Socket(#[from] ServeError),
    /// The lock of its socket cannot be used.
    #[error(transparent)]
    Lock(#[from] Cause),
    /// Waiting for clients failed.
    #[error("{path}: {source}")]
    Wait {
        /// Path of the socket.
        path: String,
        /// Reason.
        source: std::io::Error,
    },
}

impl OwnerError {
    /// Returns what to do about it; `None` if the problem leaves nothing to advise.
    #[must_use]
    pub const fn help(&self) -> Option<&'static str> {
        match self {
            Self::Socket(inner) => inner.help(),
            _ => None,
        }
    }
}

/// Owner of a shared card.
#[derive(Debug)]
pub struct Owner {
    card: Arc<SharedCard>,
    switch: Switch,
    listener: Listener,
    options: OwnerOptions,
    views: Arc<Views>,
}

impl Owner {
    /// Shares `card` on a socket at `socket`, which only this user can open: clients can connect from now on.
    ///
    /// # Errors
    /// [`OwnerError`].
    pub fn bind(card: Card, socket: &Path, options: OwnerOptions) -> Result<Self, OwnerError> {
        let card = Arc::new(SharedCard::new(card, options.timeout)?);
        let listener = Listener::bind_private(socket)?;
        let views = Arc::new(Views::default());
        forward(card.card(), &views);
        Ok(Self { card, switch: Switch::new(), listener, options, views })
    }

    /// Returns the socket's file, to be removed by a program that ends without dropping the owner.
    #[must_use]
    pub fn file(&self) -> SocketFile {
        self.listener.file()
    }

    /// Serves clients until `stop` is readable, or until the last one has gone if the options say so.
    ///
    /// Returns the lock of [`OwnerOptions::lock`] if it was taken: dropped after the card is closed, it permits another owner.
    ///
    /// # Errors
    /// [`OwnerError::Wait`], [`OwnerError::Lock`].
    pub fn run(&self, stop: impl AsFd) -> Result<Option<File>, OwnerError> {
        let stop = stop.as_fd();
        let wait_error = |error: Errno| OwnerError::Wait {
            path: self.listener.path().display().to_string(),
            source: error.into(),
        };
        let (ended, ends): (Sender<u64>, Receiver<u64>) = channel();
        let mut started = 0;
        let mut present = 0;
        // Of the end: clients that connect while it is held have to be served.
        let mut lock = None;
        let begin = Instant::now();
        // Closed to accept, and to refuse with the reason, a client for which there is no other descriptor.
        let mut spare: Option<OwnedFd> = None;
        loop {
            let mut ready = [
                PollFd::from_borrowed_fd(stop, PollFlags::IN),
                PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
            ];
            let check = Timespec { tv_sec: 0, tv_nsec: i64::from(CHECK.subsec_nanos()) };
            let check = if lock.is_some() { Timespec { tv_sec: 0, tv_nsec: 0 } } else { check };
            match poll(&mut ready, Some(&check)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(wait_error(error)),
            }
            // Another client may have left since.
            spare = spare.or_else(|| stop.try_clone_to_owned().ok());
            let [stopped, connected] = ready.map(|ready| !ready.revents().is_empty());
            self.card.poll_streams();
            for number in ends.try_iter() {
                present = self.views.remove(number);
            }
            if stopped {
                return Ok(lock);
            }
            if !connected {
                if !self.options.ends_with_last
                    || present > 0
                    || started == 0 && begin.elapsed() < FIRST_CLIENT
                {
                    continue;
                }
                let Some(socket) = self.options.lock.as_ref().filter(|_| lock.is_none()) else {
                    self.listener.file().remove();
                    return Ok(lock);
                };
                lock = socket.try_lock()?;
                continue;
            }
            lock = None;
            match self.listener.accept() {
                Ok(None) => {}
                Ok(Some(connection)) if !is_own(&connection) => {
                    tracing::warn!("a client of another user was refused");
                }
                Ok(Some(connection)) => match check_descriptors(stop) {
                    Ok(()) => match self.serve(connection, started, ended.clone(), stop) {
                        Ok(()) => {
                            started += 1;
                            present += 1;
                        }
                        Err(reason) => tracing::warn!("a client cannot be served: {reason}"),
                    },
                    Err(reason) => {
                        tracing::warn!(%reason, "a client is refused");
                        CardServer::refuse(connection, reason);
                    }
                },
                Err(error) => {
                    tracing::warn!(%error, "a client could not be accepted");
                    spare = None;
                    if let Ok(Some(connection)) = self.listener.accept() {
                        CardServer::refuse(connection, Errno::from_raw_os_error(error.raw()));
                    } else {
                        std::thread::sleep(CHECK);
                    }
                }
            }
        }
    }

    /// Creates a view.
    fn view(&self, number: u64) -> Result<View, SimNetworkError> {
        let has_ni = self.card.card().info().ni.is_some();
        let interface = if has_ni { self.options.interface } else { ViewInterface::Absent };
        let link = interface.open(&self.switch, self.options.link_key.clone()).unwrap_or_else(|error| {
            tracing::warn!(%error, "a client gets no network interface");
            None
        });
        let (node, link) = link.unzip();
        View::new(&self.card, number, node, link)
    }

    /// Serves one client on a thread of its own.
    fn serve(
        &self,
        connection: OwnedFd,
        number: u64,
        ended: Sender<u64>,
        stop: BorrowedFd<'_>,
    ) -> Result<(), String> {
        let view = self.view(number).map_err(|error| error.to_string())?;
        let stop = stop.try_clone_to_owned().map_err(|error| error.to_string())?;
        let server = CardServer::accepted(connection, self.listener.path());
        self.views.add(number, view.network().clone());
        let serving = move || {
            if let Err(error) = server.run(view.network(), 0, stop.as_fd()) {
                tracing::warn!(%error, "a client is not served any more");
            }
            view.end();
            // After the owner's end there is no receiver.
            let _ = ended.send(number);
        };
        let started = std::thread::Builder::new().name(format!("client-{number}")).spawn(serving);
        started.map(drop).map_err(|error| {
            self.views.remove(number);
            error.to_string()
        })
    }
}
