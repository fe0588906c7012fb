//! Answers to system calls: which call is about which device file.

use std::os::fd::AsFd as _;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::dma::{Request, TransferError};
use crate::files::OpenFile;
use crate::listener::{Answer, Call};
use crate::memory::{Memory, Part};
use crate::node::{DeviceFile, Node, PREFIX};
use crate::registers::Access;
use crate::server::{Supervisor, Turn, lock};
use crate::{path, registers, stat};

/// Offset of a call without one of its own: the file position counts.
const AT_POSITION: u64 = u64::MAX;

/// Data of a `read` or `write` call.
#[derive(Debug)]
struct Data {
    access: Access,
    parts: Parts,
    offset: Option<u64>,
}

/// Where a call names its memory.
#[derive(Debug, Clone, Copy)]
enum Parts {
    One(Part),
    List { address: u64, count: u64 },
}

impl Supervisor {
    /// Answers a call. `turn` is given up before the answer takes long.
    pub(crate) fn answer(&self, call: &Call, turn: &mut Turn<'_>) -> Answer {
        let [a, b, c, d, e, f] = call.arguments;
        match call.number {
            libc::SYS_read
            | libc::SYS_write
            | libc::SYS_pread64
            | libc::SYS_pwrite64
            | libc::SYS_readv
            | libc::SYS_writev
            | libc::SYS_preadv
            | libc::SYS_pwritev
            | libc::SYS_preadv2
            | libc::SYS_pwritev2 => match self.files.find(call.thread, a) {
                Some(open) => self.move_data(call, &open, turn).into(),
                None => Answer::Continue,
            },
            libc::SYS_openat => self.open(call, a, b, c),
            libc::SYS_openat2 => match Memory::of(call.thread).value(c) {
                Ok(flags) => self.open(call, a, b, u64::from_ne_bytes(flags)),
                Err(_) => Answer::Continue,
            },
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => self.open(call, path::CURRENT, a, b),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_creat => self.open(
                call,
                path::CURRENT,
                a,
                u64::from((OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC).bits()),
            ),
            libc::SYS_lseek => self.with_file(call, a, |open| seek(open, b, c)),
            libc::SYS_ioctl => self.with_file(call, a, |open| self.control(call, open, b, c, turn)),
            libc::SYS_mmap => self.map(call, b, d, e, f),
            libc::SYS_fstat => self.with_file(call, a, |open| stat::write(call, open.file, b)),
            libc::SYS_newfstatat => match self.named(call, a, b) {
                Some(file) => stat::write(call, file, c).into(),
                None => Answer::Continue,
            },
            libc::SYS_statx => match self.named(call, a, b) {
                Some(file) => stat::write_extended(call, file, e).into(),
                None => Answer::Continue,
            },
            #[cfg(target_arch = "x86_64")]
            libc::SYS_stat | libc::SYS_lstat => match self.named(call, path::CURRENT, a) {
                Some(file) => stat::write(call, file, b).into(),
                None => Answer::Continue,
            },
            #[cfg(target_arch = "x86_64")]
            libc::SYS_access => match self.named(call, path::CURRENT, a) {
                Some(_) => access(b).into(),
                None => Answer::Continue,
            },
            libc::SYS_faccessat | libc::SYS_faccessat2 => match self.named(call, a, b) {
                Some(_) => access(c).into(),
                None => Answer::Continue,
            },
            // What the kernel answers for a character device.
            libc::SYS_ftruncate => self.with_file(call, a, |_| Err(Errno::INVAL)),
            libc::SYS_fallocate => self.with_file(call, a, |_| Err(Errno::NODEV)),
            // Programs copy by read and write then.
            libc::SYS_sendfile | libc::SYS_splice | libc::SYS_copy_file_range => {
                let second = if call.number == libc::SYS_sendfile { b } else { c };
                let ours = [a, second]
                    .into_iter()
                    .any(|descriptor| self.files.find(call.thread, descriptor).is_some());
                if ours { Answer::Failure(Errno::INVAL) } else { Answer::Continue }
            }
            libc::SYS_io_submit => self.submit(call, b, c, turn),
            // Its requests would pass by the filter.
            libc::SYS_io_uring_setup => Answer::Failure(Errno::NOSYS),
            libc::SYS_execve => path::check_exec(call, path::CURRENT, a),
            libc::SYS_execveat => path::check_exec(call, a, b),
            _ => Answer::Continue,
        }
    }

    fn with_file(
        &self,
        call: &Call,
        descriptor: u64,
        answer: impl FnOnce(&OpenFile) -> Result<u64, Errno>,
    ) -> Answer {
        match self.files.find(call.thread, descriptor) {
            Some(open) => answer(&open).into(),
            None => Answer::Continue,
        }
    }

    /// Device file of an existing card at the path of a call, or behind its directory descriptor if the path is empty.
    fn named(&self, call: &Call, directory: u64, address: u64) -> Option<DeviceFile> {
        let path = Memory::of(call.thread).path(address).ok()?;
        if path.is_empty() {
            return self.files.find(call.thread, directory).map(|open| open.file);
        }
        self.at_path(call, directory, &path)
    }

    fn at_path(&self, call: &Call, directory: u64, path: &[u8]) -> Option<DeviceFile> {
        // Most paths are decided here, without further system calls.
        let start = PREFIX.get(b"/dev/".len()..)?;
        if !path.windows(start.len()).any(|part| part == start) {
            return None;
        }
        let file = DeviceFile::of_path(&path::absolute(call, directory, path)?)?;
        self.devices.get(file.card)?.has(file.node).then_some(file)
    }

    fn open(&self, call: &Call, directory: u64, address: u64, flags: u64) -> Answer {
        let Ok(path) = Memory::of(call.thread).path(address) else { return Answer::Continue };
        let Some(file) = self.at_path(call, directory, &path) else { return Answer::Continue };
        // Flags have 32 bits.
        let flags = OFlags::from_bits_retain(u32::try_from(flags & u64::from(u32::MAX)).unwrap_or(0));
        match self.open_file(call, file, flags) {
            Ok(()) => Answer::Sent,
            Err(error) => Answer::Failure(error),
        }
    }

    fn open_file(&self, call: &Call, file: DeviceFile, flags: OFlags) -> Result<(), Errno> {
        let close = flags.contains(OFlags::CLOEXEC);
        let Node::Events(line) = file.node else {
            return self.listener.answer_with(call, self.files.create(file, flags)?.as_fd(), close);
        };
        let device = self.devices.get(file.card).ok_or(Errno::NODEV)?;
        let (line, new) = device.lines.open(&device.card, line).map_err(|error| {
            tracing::error!("{file}: {error}");
            Errno::NODEV
        })?;
        if new {
            self.files.add_pipe(file, line.descriptor())?;
        }
        self.listener.answer_with(call, line.descriptor().as_fd(), close)
    }

    /// `mmap` of a device file: the kernel maps the empty memory file, and the tracer executes its accesses.
    fn map(&self, call: &Call, length: u64, flags: u64, descriptor: u64, offset: u64) -> Answer {
        if flags & u64::from(libc::MAP_ANONYMOUS.unsigned_abs()) != 0 {
            return Answer::Continue;
        }
        let Some(open) = self.files.find(call.thread, descriptor) else { return Answer::Continue };
        let bar = self.devices.get(open.file.card).and_then(|device| device.bar(open.file.node));
        let Some(bar) = bar else { return Answer::Failure(Errno::NODEV) };
        // The kernel maps whole pages of a BAR, even if the BAR is shorter.
        let page = rustix::param::page_size() as u64;
        let size = bar.size().next_multiple_of(page);
        if offset.checked_add(length).is_none_or(|end| end > size) {
            return Answer::Failure(Errno::INVAL);
        }
        match self.tracer.attach(call.thread) {
            Ok(()) => Answer::Continue,
            Err(reason) => {
                tracing::error!("{}: its registers cannot be mapped: {reason}", open.file);
                Answer::Failure(Errno::NODEV)
            }
        }
    }

    /// A `read` or `write` call of any form.
    fn move_data(&self, call: &Call, open: &OpenFile, turn: &mut Turn<'_>) -> Result<u64, Errno> {
        let Data { access, parts, offset } = data(call).ok_or(Errno::INVAL)?;
        let wrong = if access == Access::Read { OFlags::WRONLY } else { OFlags::RDONLY };
        if open.flags & OFlags::RWMODE == wrong {
            return Err(Errno::BADF);
        }
        let memory = Memory::of(call.thread);
        let list;
        let parts = match parts {
            Parts::One(ref part) => core::slice::from_ref(part),
            Parts::List { address, count } => {
                list = memory.parts(address, count)?;
                &list
            }
        };
        let device = self.devices.get(open.file.card).ok_or(Errno::NODEV)?;
        match open.file.node {
            Node::Events(line) => {
                self.read_event(call, device.lines.get(line).ok_or(Errno::NODEV)?.as_ref(), parts, turn)
            }
            Node::H2c(_) | Node::C2h(_) => self.transfer(call, open, access, parts, offset, turn),
            Node::Control | Node::User | Node::Bypass | Node::BypassOf(..) => {
                let bar = device.bar(open.file.node).ok_or(Errno::NODEV)?;
                let whole = matches!(open.file.node, Node::Bypass | Node::BypassOf(..));
                let at = offset.unwrap_or_else(|| open.position());
                let moved = registers::access(bar, access, memory, parts, at, whole)?;
                if offset.is_none() {
                    open.set_position(at.wrapping_add(moved));
                }
                Ok(moved)
            }
        }
    }

    /// Transfer on a channel.
    pub(crate) fn transfer(
        &self,
        call: &Call,
        open: &OpenFile,
        access: Access,
        parts: &[Part],
        offset: Option<u64>,
        turn: &mut Turn<'_>,
    ) -> Result<u64, Errno> {
        if (access == Access::Write) != matches!(open.file.node, Node::H2c(_)) {
            return Err(Errno::INVAL);
        }
        let device = self.devices.get(open.file.card).ok_or(Errno::NODEV)?;
        let channel = device.channel(open.file.node).ok_or(Errno::NODEV)?;
        let address = offset.unwrap_or_else(|| open.position());
        let mut channel = lock(channel, turn);
        let mut request = Request {
            memory: Memory::of(call.thread),
            parts,
            address,
            timeout: device.timeout,
            blocks: &mut || turn.give_up(),
        };
        match channel.transfer(&device.card, &mut request) {
            Ok(moved) => {
                if offset.is_none() && open.advances() {
                    open.set_position(address.wrapping_add(moved));
                }
                Ok(moved)
            }
            Err(TransferError::Refused(error)) => Err(error),
            Err(TransferError::Failed(reason)) => {
                tracing::error!("{}: {reason}", open.file);
                Err(Errno::IO)
            }
        }
    }

    /// The vendor's driver: exactly four bytes, which are 1 (`char_events_read`).
    fn read_event(
        &self,
        call: &Call,
        line: &crate::events::Line,
        parts: &[Part],
        turn: &mut Turn<'_>,
    ) -> Result<u64, Errno> {
        let [part] = parts else { return Err(Errno::INVAL) };
        if part.length != 4 {
            return Err(Errno::PROTO);
        }
        while !line.take()? {
            if path::is_nonblocking(call) {
                return Err(Errno::AGAIN);
            }
            turn.give_up();
            line.is_pending(crate::events::SIGNAL_CHECK);
            if !self.listener.is_waiting(call) || path::has_signal(call) {
                return Err(Errno::INTR);
            }
        }
        Memory::of(call.thread).write(part.address, &1_u32.to_ne_bytes())?;
        Ok(4)
    }
}

/// Parameters of a `read` or `write` call of any form.
fn data(call: &Call) -> Option<Data> {
    let [_, address, count, offset, _, _] = call.arguments;
    let one = Parts::One(Part { address, length: count.min(i32::MAX as u64 & !0xFFF) });
    let list = Parts::List { address, count };
    let at_position = |offset| (offset != AT_POSITION).then_some(offset);
    let (access, parts, offset) = match call.number {
        libc::SYS_read => (Access::Read, one, None),
        libc::SYS_write => (Access::Write, one, None),
        libc::SYS_pread64 => (Access::Read, one, Some(offset)),
        libc::SYS_pwrite64 => (Access::Write, one, Some(offset)),
        libc::SYS_readv => (Access::Read, list, None),
        libc::SYS_writev => (Access::Write, list, None),
        libc::SYS_preadv => (Access::Read, list, Some(offset)),
        libc::SYS_pwritev => (Access::Write, list, Some(offset)),
        libc::SYS_preadv2 => (Access::Read, list, at_position(offset)),
        libc::SYS_pwritev2 => (Access::Write, list, at_position(offset)),
        _ => return None,
    };
    Some(Data { access, parts, offset })
}

/// `lseek`, with the end that the vendor's driver assumes (`char_sgdma_llseek`).
fn seek(open: &OpenFile, offset: u64, whence: u64) -> Result<u64, Errno> {
    if matches!(open.file.node, Node::Events(_)) {
        return Err(Errno::SPIPE);
    }
    // Offsets are signed.
    let base = match i32::try_from(whence).map_err(|_| Errno::INVAL)? {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => open.position(),
        libc::SEEK_END => u64::from(u32::MAX),
        _ => return Err(Errno::INVAL),
    };
    let at = base.wrapping_add(offset);
    // A card address may have its highest bit set only if it is given as an absolute one.
    if i64::try_from(at).is_err() {
        return Err(Errno::INVAL);
    }
    open.set_position(at);
    Ok(at)
}

/// `access`: everybody who runs the program may read and write.
const fn access(mode: u64) -> Result<u64, Errno> {
    if mode & libc::X_OK as u64 != 0 { Err(Errno::ACCESS) } else { Ok(0) }
}
