//! Connection of two programs in this process, for joins.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes in one direction.
#[derive(Debug, Default)]
struct Way {
    bytes: VecDeque<u8>,
    is_closed: bool,
}

/// Maximum number of bytes in one direction: messages are written in parts.
const CAPACITY: usize = 32;

/// One end of a connection. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    incoming: Arc<Mutex<Way>>,
    outgoing: Arc<Mutex<Way>>,
}

fn with<T>(way: &Mutex<Way>, access: impl FnOnce(&mut Way) -> T) -> T {
    access(&mut way.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Returns the two ends of a new connection.
pub(crate) fn pipe() -> (Pipe, Pipe) {
    let ways = [(); 2].map(|()| Arc::new(Mutex::new(Way::default())));
    let end = |one: usize| Pipe { incoming: Arc::clone(&ways[one]), outgoing: Arc::clone(&ways[1 - one]) };
    (end(0), end(1))
}

impl io::Read for Pipe {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        with(&self.incoming, |way| {
            if way.bytes.is_empty() {
                return if way.is_closed { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
            }
            io::Read::read(&mut way.bytes, bytes)
        })
    }
}

impl io::Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        with(&self.outgoing, |way| {
            if way.is_closed {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let count = bytes.len().min(CAPACITY - way.bytes.len().min(CAPACITY));
            way.bytes.extend(bytes.iter().take(count));
            if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        for way in [&self.incoming, &self.outgoing] {
            with(way, |way| way.is_closed = true);
        }
    }
}
