//! Asynchronous I/O on device files (`io_submit(2)`).
//!
//! A transfer is executed when it is submitted, and so are requests on ordinary files in the same list; `io_getevents` reports it. The kernel knows nothing of these events, so the supervisor keeps
//! them, and waits for a program that has a device file open, until there are some.

use std::time::{Duration, Instant};

use rustix::io::{Errno, ReadWriteFlags};

use crate::completions::{Context, EVENT_BYTES};
use crate::files::duplicate;
use crate::layout::{half, put, word};
use crate::listener::{Answer, Call};
use crate::memory::Part;
use crate::node::Node;
use crate::ordinary::{self, Operation};
use crate::process::{self, Wait};
use crate::registers::Access;
use crate::server::{Reply, Supervisor, Turn};

/// Bytes of `struct iocb` (`linux/aio_abi.h`).
const REQUEST_BYTES: usize = 64;
/// Maximum number of requests of one call.
const MAX_REQUESTS: u64 = 1 << 16;
/// Maximum number of parts that the kernel copies at once (`UIO_MAXIOV`).
const MAX_PARTS: u64 = 1024;
/// Offset of the magic number in a context's ring, by which the C library finds out whether it may read the ring itself.
const RING_MAGIC: usize = 16;
/// That number, and the length of the ring's header, which is in its last word (`fs/aio.c`).
const MAGIC: u32 = 0xA10A_10A1;
const RING_HEADER: u32 = 32;
const RING_BYTES: usize = 32;
/// Interval at which a wait checks for the kernel's own events and for signals.
const CHECK: Duration = Duration::from_millis(5);

/// A request of `io_submit`.
#[derive(Debug)]
struct Request {
    address: u64,
    bytes: [u8; REQUEST_BYTES],
}

impl Request {
    fn descriptor(&self) -> u64 {
        half(&self.bytes, 20).into()
    }

    /// Number of the operation (`linux/aio_abi.h`).
    fn opcode(&self) -> u32 {
        half(&self.bytes, 16) & 0xFFFF
    }

    /// Operation of the request: IOCB_CMD_PREAD, PWRITE, FSYNC, FDSYNC, PREADV, PWRITEV.
    fn operation(&self) -> Result<Operation, Errno> {
        match self.opcode() {
            0 | 7 => Ok(Operation::Read),
            1 | 8 => Ok(Operation::Write),
            2 => Ok(Operation::Sync),
            3 => Ok(Operation::SyncData),
            _ => Err(Errno::INVAL),
        }
    }

    /// Whether the request names a list of buffers.
    fn has_list(&self) -> bool {
        matches!(self.opcode(), 7 | 8)
    }
}

impl Supervisor {
    /// `io_submit`: all requests of a list with a device file, up to one that cannot be executed here.
    pub(crate) fn submit(&self, call: &Call, turn: &mut Turn<'_>) -> Answer {
        let [number, count, list, ..] = call.arguments;
        let count = count.min(MAX_REQUESTS);
        let (requests, unreadable) = self.requests(call, count, list);
        let is_ours =
            |request: &Request| matches!(self.files.find(call.thread, request.descriptor()), Ok(Some(_)));
        if !requests.iter().any(is_ours) {
            return Answer::Continue;
        }
        let Some(process) = process::process_of(call.thread) else { return Answer::Continue };
        let context = Context { process, number };
        if let Err(error) = self.take_over(call, number) {
            return Answer::Failure(error);
        }
        let mut done = 0;
        for request in requests.iter().map(Ok).chain(unreadable.map(Err)) {
            let submitted = request.and_then(|request| self.submit_one(call, context, request, turn));
            match submitted {
                Ok(()) => done += 1,
                // Programs submit the remaining ones again.
                Err(_) if done > 0 => break,
                Err(error) => return Answer::Failure(error),
            }
        }
        Answer::Value(done)
    }

    /// The requests of a list up to the first that cannot be read, and why that cannot.
    fn requests(&self, call: &Call, count: u64, list: u64) -> (Vec<Request>, Option<Errno>) {
        let memory = self.memory(call);
        let mut requests = Vec::new();
        let mut rest = 0..count;
        while !rest.is_empty() {
            let part = rest.start..count.min(rest.start + MAX_PARTS);
            let known = requests.len();
            let addresses = memory.values(part.clone().map(|index| list.wrapping_add(8 * index)));
            let read = addresses.and_then(|addresses| {
                let addresses: Vec<u64> = addresses.into_iter().map(u64::from_ne_bytes).collect();
                let bytes = memory.values(addresses.iter().copied())?;
                requests.extend(
                    addresses.into_iter().zip(bytes).map(|(address, bytes)| Request { address, bytes }),
                );
                Ok(())
            });
            if let Err(error) = read {
                return (requests, Some(error));
            }
            if ((requests.len() - known) as u64) < part.end - part.start {
                return (requests, Some(Errno::FAULT));
            }
            rest.start = part.end;
        }
        (requests, None)
    }

    /// Executes a request. A failure that the kernel reports at once is an error here; others are reported by the event.
    fn submit_one(
        &self,
        call: &Call,
        context: Context,
        request: &Request,
        turn: &mut Turn<'_>,
    ) -> Result<(), Errno> {
        let found = self.files.find(call.thread, request.descriptor())?;
        let result = match found {
            Some(open) => self.execute(call, request, open, turn),
            None => self.execute_ordinary(call, request, turn),
        };
        let result = match result {
            Ok(moved) => moved.cast_signed(),
            Err(error @ (Errno::INVAL | Errno::BADF)) => return Err(error),
            Err(error) => i64::from(-error.raw_os_error()),
        };
        self.complete(call, context, request, result)
    }

    fn execute(
        &self,
        call: &Call,
        request: &Request,
        open: crate::files::OpenFile,
        turn: &mut Turn<'_>,
    ) -> Result<u64, Errno> {
        if !matches!(open.file.node, Node::H2c(_) | Node::C2h(_)) {
            return Err(Errno::INVAL);
        }
        let access = match request.operation()? {
            Operation::Read => Access::Read,
            Operation::Write => Access::Write,
            Operation::Sync | Operation::SyncData => return Err(Errno::INVAL),
        };
        open.check(access)?;
        let (parts, offset) = self.parts(call, request)?;
        self.transfer(call, &open, access, &parts, Some(offset), Reply::Later, turn)
    }

    /// Executes a request on an ordinary file.
    fn execute_ordinary(&self, call: &Call, request: &Request, turn: &mut Turn<'_>) -> Result<u64, Errno> {
        let file = duplicate(call.thread, request.descriptor())?;
        let operation = request.operation()?;
        if !ordinary::is_supported(&file) {
            tracing::error!("one io_submit with a device file and a pipe or socket is not supported");
            return Err(Errno::INVAL);
        }
        let (parts, offset) = match operation {
            Operation::Read | Operation::Write => self.parts(call, request)?,
            Operation::Sync | Operation::SyncData => (Vec::new(), 0),
        };
        let flags = ReadWriteFlags::from_bits_retain(half(&request.bytes, 12));
        turn.give_up();
        ordinary::execute(&file, operation, self.memory(call), &parts, offset, flags)
    }

    /// Memory of a request, and its offset.
    fn parts(&self, call: &Call, request: &Request) -> Result<(Vec<Part>, u64), Errno> {
        let bytes = &request.bytes;
        let (address, length, offset) = (word(bytes, 24), word(bytes, 32), word(bytes, 40));
        if i64::try_from(offset).is_err() {
            return Err(Errno::INVAL);
        }
        let parts = if request.has_list() {
            self.memory(call).parts(address, length)?
        } else {
            vec![Part { address, length }]
        };
        Ok((parts, offset))
    }

    /// Makes the C library ask the kernel, and so the supervisor, for the events of a context, whose ring it would read itself otherwise.
    fn take_over(&self, call: &Call, number: u64) -> Result<(), Errno> {
        let memory = self.memory(call);
        let ring: [u8; RING_BYTES] = memory.value(number).map_err(|_| Errno::INVAL)?;
        match (half(&ring, RING_MAGIC), half(&ring, 28)) {
            (MAGIC, RING_HEADER) => memory.write(number.wrapping_add(RING_MAGIC as u64), &[0; 4]),
            (0, RING_HEADER) => Ok(()),
            _ => Err(Errno::INVAL),
        }
    }

    /// Adds the event of a request, and signals the eventfd that the request may name.
    fn complete(&self, call: &Call, context: Context, request: &Request, result: i64) -> Result<(), Errno> {
        let mut event = [0; EVENT_BYTES];
        put(&mut event, 0, &word(&request.bytes, 0).to_ne_bytes());
        put(&mut event, 8, &request.address.to_ne_bytes());
        put(&mut event, 16, &result.to_ne_bytes());
        self.completions.add(context, event);
        // IOCB_FLAG_RESFD.
        if half(&request.bytes, 56) & 1 != 0 {
            let eventfd = duplicate(call.thread, half(&request.bytes, 60).into())?;
            rustix::io::write(eventfd, &1_u64.to_ne_bytes())?;
        }
        Ok(())
    }

    /// `io_getevents` and `io_pgetevents`.
    pub(crate) fn completed(&self, call: &Call, turn: &mut Turn<'_>) -> Answer {
        let [number, at_least, at_most, address, timeout, _] = call.arguments;
        let Some(process) = process::process_of(call.thread) else { return Answer::Continue };
        let context = Context { process, number };
        if !self.completions.has(context) && !self.has_device_files(call) {
            return Answer::Continue;
        }
        let memory = self.memory(call);
        let limit = match timeout {
            0 => None,
            at => match memory.value::<16>(at) {
                Ok(bytes) => Some(Duration::new(
                    word(&bytes, 0).min(u64::from(u32::MAX)),
                    u32::try_from(word(&bytes, 8)).unwrap_or(0).min(999_999_999),
                )),
                Err(_) => return Answer::Continue,
            },
        };
        let end = limit.map(|limit| Instant::now() + limit);
        let mut wait = Wait::new(&self.listener, call);
        loop {
            let events = self.completions.take(context, at_most);
            if !events.is_empty() {
                let bytes = events.concat();
                if let Err(error) = memory.write(address, &bytes) {
                    self.completions.put_back(context, events);
                    return Answer::Failure(error);
                }
                let count = events.len() as u64;
                if self.listener.answer(call, Answer::Value(count)).is_err() {
                    self.completions.put_back(context, events);
                }
                return Answer::Sent;
            }
            // Head and tail of the kernel's ring.
            let ring: [u8; 16] = memory.value(number).unwrap_or_default();
            if half(&ring, 8) != half(&ring, 12) || ring == [0; 16] || at_least == 0 {
                return Answer::Continue;
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return Answer::Value(0);
            }
            if wait.interruption().is_some() {
                return Answer::Failure(Errno::INTR);
            }
            turn.give_up();
            self.completions.wait(CHECK);
        }
    }

    /// `io_destroy`.
    pub(crate) fn destroy(&self, call: &Call) {
        let [number, ..] = call.arguments;
        if let Some(process) = process::process_of(call.thread) {
            self.completions.remove(Context { process, number });
        }
    }

    /// Whether the process of a call has device files open.
    fn has_device_files(&self, call: &Call) -> bool {
        if !self.files.are_opened() {
            return false;
        }
        let files = std::fs::read_dir(format!("/proc/{}/fd", call.thread)).into_iter().flatten().flatten();
        let mut numbers = files.filter_map(|file| file.file_name().to_str()?.parse().ok());
        numbers.any(|number: u64| matches!(self.files.object(call.thread, number), Ok(Some(_))))
    }
}
