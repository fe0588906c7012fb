//! Public interface: joining, frames, events. One thread receives for each subscriber.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::bootstrap::is_waiting;
use crate::error::{InvalidData, StreamError};
use crate::node::NodeCounts;
use crate::stream::{Found, Stream};
use fpga_frames_wire::blocks::{BLOCK, FrameHeader};

/// Maximum length of a datagram in bytes.
pub(crate) const MAX_DATAGRAM: usize = 1 << 16;

/// Event of a subscriber, in the order of the stream.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A frame.
    Frame(Frame),
    /// Frames that this subscriber does not get: it had no free slot, or they were lost in the network.
    Gap {
        /// Number of missed frames.
        missed: u64,
        /// Sequence number of the first missed frame.
        first: u64,
    },
    /// The publisher sent something invalid; the stream continues.
    Fault(InvalidData),
    /// The publisher has ended the stream, and all frames of it were read. Returned again by every further call.
    Ended {
        /// Sequence number that the next frame would have had.
        next: u64,
    },
}

/// Statistics of a subscriber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Frames read.
    pub frames: u64,
    /// Bytes of data in them.
    pub bytes: u64,
    /// Gaps.
    pub gaps: u64,
    /// Frames missed in them.
    pub missed: u64,
    /// Credits sent, without repetitions.
    pub credits: u64,
    /// Packets.
    pub node: NodeCounts,
}

/// State shared by the receiving thread, the reader and its frames.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) socket: UdpSocket,
    stream: Mutex<Stream>,
    /// Signalled when an event or an answer has arrived.
    arrived: Condvar,
}

impl Shared {
    pub(crate) const fn new(socket: UdpSocket, stream: Stream) -> Self {
        Self { socket, stream: Mutex::new(stream), arrived: Condvar::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Stream> {
        // The state is consistent after every statement that could panic: there is none.
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a function that sends datagrams. One that the system does not accept is lost, as it may be in the network.
    pub(crate) fn sender(&self) -> impl FnMut(&[u8]) + '_ {
        |datagram| {
            let _ = self.socket.send(datagram);
        }
    }

    /// Receives until the subscriber ends.
    fn run(&self) {
        let mut buffer = vec![0; MAX_DATAGRAM];
        let mut timeout = Duration::ZERO;
        loop {
            let due = self.lock().interval();
            if due != timeout && self.socket.set_read_timeout(Some(due)).is_ok() {
                timeout = due;
            }
            let received = self.socket.recv(&mut buffer);
            let now = Instant::now();
            let mut stream = self.lock();
            if stream.stop {
                return;
            }
            let send = &mut self.sender();
            let quiet = received.is_err();
            match received {
                Ok(length) => stream.receive(now, buffer.get(..length).unwrap_or_default(), send),
                Err(error) if is_waiting(error.kind()) => {}
                // Delayed report that an earlier datagram met no receiver.
                Err(error) if is_unreached(&error) => {
                    drop(stream);
                    std::thread::sleep(Duration::from_millis(1));
                    stream = self.lock();
                }
                Err(error) => {
                    stream.failed = Some(StreamError::Socket(error.kind()));
                    self.arrived.notify_all();
                    return;
                }
            }
            stream.tick(now, quiet, send);
            let has_events = stream.has_events();
            drop(stream);
            if has_events {
                self.arrived.notify_all();
            }
        }
    }
}

fn is_unreached(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable)
}

/// Received frame. Dropping it returns its slot to the publisher, from any thread. A frame that is kept occupies a slot.
#[derive(Debug)]
pub struct Frame {
    shared: Arc<Shared>,
    position: u32,
    header: FrameHeader,
    memory: Vec<u8>,
}

impl Frame {
    /// Header of the frame.
    #[must_use]
    pub const fn header(&self) -> &FrameHeader {
        &self.header
    }

    /// Sequence number of the frame.
    #[must_use]
    pub const fn sequence(&self) -> u64 {
        self.header.sequence.get()
    }

    /// The value that the publisher computed from the data, such as a digest.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.part(0, self.header.value_length.into())
    }

    /// The data.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.part(self.header.max_value_length.into(), self.header.data_length)
    }

    fn part(&self, offset: u64, length: u64) -> &[u8] {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).saturating_add(BLOCK);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        // The lengths were checked against the received length.
        self.memory.get(start..start.saturating_add(length)).unwrap_or_default()
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let mut stream = self.shared.lock();
        stream.put_back(self.position, std::mem::take(&mut self.memory));
        stream.tick(Instant::now(), false, &mut self.shared.sender());
    }
}

/// Subscriber to the frames of one publisher.
///
/// A thread receives packets, acknowledges them and writes frames into their slots, whether the program reads them or not. If the
/// subscriber is dropped, it leaves without notice; [`leave`](Self::leave) notifies the publisher.
#[derive(Debug)]
pub struct Subscriber {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    counts: Counts,
}

impl Subscriber {
    /// Starts the receiving thread.
    pub(crate) fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let receiver = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("frames".to_owned()).spawn(move || receiver.run())?;
        Ok(Self { shared, thread: Some(thread), counts: Counts::default() })
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Local address of the UDP socket.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.shared.socket.local_addr()
    }

    /// Statistics since it joined.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let stream = self.shared.lock();
        let credits = stream.joined.as_ref().map_or(0, |joined| joined.credit.count);
        Counts { credits, node: stream.node.counts(), ..self.counts }
    }

    /// Returns the next event if there is one. Never waits.
    ///
    /// # Errors
    /// See [`StreamError`]. Frames and events that arrived before are returned first.
    pub fn poll(&mut self) -> Result<Option<Event>, StreamError> {
        self.next(Duration::ZERO)
    }

    /// Waits for the next event, for `timeout` at most. `None`: there was no event in this time.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Event>, StreamError> {
        let until = Instant::now().checked_add(timeout);
        let mut stream = self.shared.lock();
        let found = loop {
            if let Some(found) = stream.next_event() {
                break found;
            }
            let now = Instant::now();
            if let Some(error) = stream.take_failure(now) {
                return Err(error);
            }
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(now));
            if left.is_zero() {
                return Ok(None);
            }
            // Silence is detected without an arrival.
            let step = left.min(stream.numbers.heartbeat);
            let waited = self.shared.arrived.wait_timeout(stream, step);
            stream = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(stream);
        Ok(Some(self.event(found)))
    }

    fn event(&mut self, found: Found) -> Event {
        match found {
            Found::Frame { position, header, memory } => {
                self.counts.frames += 1;
                self.counts.bytes += header.data_length;
                Event::Frame(Frame { shared: Arc::clone(&self.shared), position, header, memory })
            }
            Found::Gap { missed, first } => {
                self.counts.gaps += 1;
                self.counts.missed += missed;
                Event::Gap { missed, first }
            }
            Found::Fault(error) => Event::Fault(error),
            Found::Ended { next } => Event::Ended { next },
        }
    }

    /// Leaves the stream: notifies the publisher, which sends nothing more. Unread frames are dropped. If the publisher has ended the
    /// stream, no notification is needed.
    ///
    /// # Errors
    /// [`StreamError::TimedOut`] if the publisher does not accept it within `timeout`. The subscriber has left in any case.
    pub fn leave(self, timeout: Duration) -> Result<Counts, StreamError> {
        let until = Instant::now().checked_add(timeout);
        let mut stream = self.shared.lock();
        stream.begin_leaving();
        while !stream.left {
            let now = Instant::now();
            stream.tick(now, false, &mut self.shared.sender());
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(now));
            if left.is_zero() {
                return Err(StreamError::TimedOut);
            }
            let step = left.min(Duration::from_millis(10));
            let waited = self.shared.arrived.wait_timeout(stream, step);
            stream = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(stream);
        Ok(self.counts())
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        if let Some(thread) = self.thread.take() {
            // It ends within its receive timeout.
            let _ = thread.join();
        }
    }
}
