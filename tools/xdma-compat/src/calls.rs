//! Answers to system calls: which call is about which device file.

use std::os::fd::AsFd as _;

use rustix::fs::{OFlags, ResolveFlags, SeekFrom};
use rustix::io::Errno;

use crate::dma::{Request, TransferError};
use crate::files::{Object, OpenFile, duplicate, is_event, path_of};
use crate::filter::SYS_IO_PGETEVENTS;
use crate::foreign::X32;
use crate::listener::{Answer, Call};
use crate::memory::{Memory, Part};
use crate::node::{DeviceFile, Node};
use crate::process::Wait;
use crate::registers::Access;
use crate::server::{Reply, Supervisor, Turn};
use crate::walk::{CURRENT, Place, Rules, Walk};
use crate::{registers, stat};

/// Offset of a call without one of its own: the file position counts.
const AT_POSITION: u64 = u64::MAX;
/// Flags of `preadv2` and `pwritev2` that a character device without further abilities accepts: RWF_HIPRI, DSYNC, SYNC, APPEND, NOAPPEND
/// (`linux/fs.h`).
const CALL_FLAGS: u64 = 0x1 | 0x2 | 0x4 | 0x10 | 0x20;
/// `ioctl`s on descriptors, which the kernel executes itself (`asm-generic/ioctls.h`): FIOCLEX, FIONCLEX, FIONBIO, FIOASYNC.
const OF_DESCRIPTORS: [u64; 4] = [0x5451, 0x5450, 0x5421, 0x5452];
/// Calls that move data.
const MOVES_DATA: [libc::c_long; 10] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
];
/// Maximum size of the structure of `openat2` (`struct open_how`).
const HOW_BYTES: u64 = 4096;

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

impl OpenFile {
    /// Checks that the file is open for an access.
    ///
    /// # Errors
    /// `EBADF`.
    pub(crate) fn check(&self, access: Access) -> Result<(), Errno> {
        let wrong = if access == Access::Read { OFlags::WRONLY } else { OFlags::RDONLY };
        let mode = self.flags & OFlags::RWMODE;
        // Neither reading nor writing is allowed with both bits.
        if mode == wrong || mode == OFlags::RWMODE {
            return Err(Errno::BADF);
        }
        Ok(())
    }
}

impl Supervisor {
    /// Answers a call. `turn` is given up before the answer takes long.
    pub(crate) fn answer(&self, call: &Call, turn: &mut Turn<'_>) -> Answer {
        if call.is_foreign || call.number & X32 != 0 {
            return self.foreign(call);
        }
        let [a, b, c, ..] = call.arguments;
        match call.number {
            number if MOVES_DATA.contains(&number) => {
                self.with_file(call, a, |open| self.move_data(call, open, turn))
            }
            libc::SYS_openat => self.open(call, a, b, c, ResolveFlags::empty()),
            libc::SYS_openat2 => self.open_with(call),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => self.open(call, CURRENT, a, b, ResolveFlags::empty()),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_creat => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
                self.open(call, CURRENT, a, flags.bits().into(), ResolveFlags::empty())
            }
            libc::SYS_lseek => match c & u64::from(u32::MAX) {
                // The kernel keeps the position.
                0 | 1 => self.with_file(call, a, |open| match is_event(open.file) {
                    true => Err(Errno::SPIPE),
                    false => Ok(Answer::Continue),
                }),
                whence => self.with_file(call, a, |open| seek_end(call, open, b, whence).map(Answer::Value)),
            },
            libc::SYS_ioctl if OF_DESCRIPTORS.contains(&(b & u64::from(u32::MAX))) => Answer::Continue,
            libc::SYS_ioctl => {
                self.with_file(call, a, |open| self.control(call, open, b, c, turn).map(Answer::Value))
            }
            libc::SYS_mmap => self.map(call),
            libc::SYS_fstat => self.with_object(call, a, |object| {
                stat::write(self.memory(call), b, &self.files, stat::Kind::Object(object)).map(Answer::Value)
            }),
            // What the kernel answers for a character device.
            libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_ftruncate => {
                self.with_file(call, a, |_| Err(Errno::INVAL))
            }
            libc::SYS_fallocate => self.with_file(call, a, |_| Err(Errno::NODEV)),
            libc::SYS_fsetxattr => self.with_object(call, a, |_| Err(Errno::PERM)),
            // Programs copy by read and write then.
            libc::SYS_sendfile | libc::SYS_splice | libc::SYS_tee | libc::SYS_copy_file_range => {
                let second = if matches!(call.number, libc::SYS_sendfile | libc::SYS_tee) { b } else { c };
                match self.with_file(call, a, |_| Err(Errno::INVAL)) {
                    Answer::Continue => self.with_file(call, second, |_| Err(Errno::INVAL)),
                    answer => answer,
                }
            }
            libc::SYS_getdents64 => self.list(call, a, b, c),
            libc::SYS_io_submit => self.submit(call, turn),
            libc::SYS_io_getevents | SYS_IO_PGETEVENTS => self.completed(call, turn),
            libc::SYS_io_destroy => {
                self.destroy(call);
                Answer::Continue
            }
            // Its requests would pass by the filter.
            libc::SYS_io_uring_setup | libc::SYS_io_uring_enter | libc::SYS_io_uring_register => {
                Answer::Failure(Errno::NOSYS)
            }
            libc::SYS_prctl => self.process_control(call),
            libc::SYS_bind => self.bind(call, b, c),
            libc::SYS_execve | libc::SYS_execveat => {
                let (directory, path) = if call.number == libc::SYS_execve { (CURRENT, a) } else { (a, b) };
                match self.check_exec(call, directory, path) {
                    Answer::Continue => self.by_name(call).unwrap_or(Answer::Continue),
                    answer => answer,
                }
            }
            _ => self.by_name(call).unwrap_or(Answer::Continue),
        }
    }

    /// Memory of the caller.
    pub(crate) fn memory<'a>(&'a self, call: &'a Call) -> Memory<'a> {
        Memory::of(&self.listener, call)
    }

    /// Paths of the caller.
    pub(crate) fn walk<'a>(&'a self, call: &'a Call) -> Result<Walk<'a>, Errno> {
        Walk::new(&self.devices, &self.files, &self.view, call)
    }

    fn with_object(
        &self,
        call: &Call,
        descriptor: u64,
        answer: impl FnOnce(Object) -> Result<Answer, Errno>,
    ) -> Answer {
        match self.files.object(call.thread, descriptor) {
            Ok(Some(object)) => answer(object).unwrap_or_else(Answer::Failure),
            Ok(None) => Answer::Continue,
            Err(error) => self.unreadable(call, error),
        }
    }

    fn with_file(
        &self,
        call: &Call,
        descriptor: u64,
        answer: impl FnOnce(&OpenFile) -> Result<Answer, Errno>,
    ) -> Answer {
        match self.files.find(call.thread, descriptor) {
            // The calls that move data check their offset first.
            Ok(Some(open)) if open.is_name() && !MOVES_DATA.contains(&call.number) => {
                Answer::Failure(Errno::BADF)
            }
            Ok(Some(open)) => answer(&open).unwrap_or_else(Answer::Failure),
            Ok(None) => Answer::Continue,
            Err(error) => self.unreadable(call, error),
        }
    }

    /// `openat2`: the kernel's checks of the structure, and `open`.
    fn open_with(&self, call: &Call) -> Answer {
        let [directory, path, address, size, ..] = call.arguments;
        let Ok(how) = self.memory(call).value::<24>(address) else { return Answer::Continue };
        let field = |at| crate::layout::word(&how, at);
        let Some(resolve) = ResolveFlags::from_bits(field(16)) else { return Answer::Continue };
        let (flags, mode) = (field(0), field(8));
        // The kernel refuses other sizes, unknown flags, and a mode without a file to create.
        let known = u64::from(OFlags::all().bits());
        let creates = flags
            & u64::from(OFlags::CREATE.bits() | OFlags::TMPFILE.bits() & !OFlags::DIRECTORY.bits())
            != 0;
        let is_valid = size == 24 && flags & !known == 0 && (creates || mode == 0) && mode & !0o7777 == 0;
        if !is_valid || size > HOW_BYTES {
            // It finds the error, or that the path leads nowhere.
            return match self.open(call, directory, path, flags, resolve | ResolveFlags::NO_XDEV) {
                Answer::Failure(Errno::XDEV) => Answer::Failure(Errno::INVAL),
                answer => answer,
            };
        }
        self.open(call, directory, path, flags, resolve)
    }

    fn open(&self, call: &Call, directory: u64, address: u64, flags: u64, resolve: ResolveFlags) -> Answer {
        let path = match self.memory(call).path(address) {
            Ok(path) => path,
            Err(error) => return self.unreadable(call, error),
        };
        // Flags have 32 bits.
        let flags = OFlags::from_bits_retain(u32::try_from(flags & u64::from(u32::MAX)).unwrap_or(0));
        let creates_only = flags.contains(OFlags::CREATE | OFlags::EXCL);
        let rules = Rules { follow: !flags.contains(OFlags::NOFOLLOW) && !creates_only, resolve };
        let walk = match self.walk(call) {
            Ok(walk) => walk,
            Err(error) => return self.unreadable(call, error),
        };
        let result = match walk.place(directory, &path, rules) {
            Place::Elsewhere => return Answer::Continue,
            Place::Refused(error) => Err(error),
            Place::Link(_) if creates_only => Err(Errno::EXIST),
            Place::Link(_) => Err(Errno::LOOP),
            Place::Object(object) => self.open_object(call, object, flags),
        };
        match result {
            Ok(()) => Answer::Sent,
            Err(error) => Answer::Failure(error),
        }
    }

    fn open_object(&self, call: &Call, object: Object, flags: OFlags) -> Result<(), Errno> {
        let close = flags.contains(OFlags::CLOEXEC);
        // Also for an event, whose mode its stand-in has.
        let opened = self.files.open(object, flags)?;
        let Object::File(DeviceFile { card, node: Node::Events(line) }) = object else {
            return self.listener.answer_with(call, opened.as_fd(), close);
        };
        if flags.contains(OFlags::PATH) {
            return self.listener.answer_with(call, opened.as_fd(), close);
        }
        let device = self.devices.get(card).ok_or(Errno::NODEV)?;
        let (line, new) = device.lines.open(&device.card, line).map_err(|error| {
            tracing::error!("event {line} of card {card}: {error}");
            Errno::NODEV
        })?;
        if new {
            self.files.add(line.descriptor(), object)?;
        }
        // Each open file has flags of its own.
        let flags = flags & OFlags::NONBLOCK | OFlags::RDONLY | OFlags::CLOEXEC;
        let pipe = rustix::fs::open(path_of(line.descriptor()), flags, rustix::fs::Mode::empty())?;
        self.listener.answer_with(call, pipe.as_fd(), close)
    }

    /// `bind`: a socket cannot have the name of a device file.
    fn bind(&self, call: &Call, address: u64, length: u64) -> Answer {
        let Ok(length) = usize::try_from(length) else { return Answer::Continue };
        let mut bytes = vec![0; length.min(110)];
        if self.memory(call).read(address, &mut bytes).is_err() {
            return Answer::Continue;
        }
        let family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or_default().to_ne_bytes();
        let Some(name) = bytes.strip_prefix(&family) else { return Answer::Continue };
        let path = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let place = self.walk(call).map(|walk| walk.place(CURRENT, path, Rules::default()));
        match place {
            Ok(Place::Elsewhere) | Err(_) => Answer::Continue,
            Ok(_) => Answer::Failure(Errno::ADDRINUSE),
        }
    }

    /// `mmap` of a device file: the kernel maps the empty stand-in, and the tracer executes the accesses.
    fn map(&self, call: &Call) -> Answer {
        let [_, length, protection, flags, descriptor, offset] = call.arguments;
        if flags & u64::from(libc::MAP_ANONYMOUS.unsigned_abs()) != 0 {
            return Answer::Continue;
        }
        self.with_file(call, descriptor, |open| {
            let bar = self.devices.get(open.file.card).and_then(|device| device.bar(open.file.node));
            let bar = bar.ok_or(Errno::NODEV)?;
            // The kernel maps whole pages of a BAR, even if the BAR is shorter.
            let page = rustix::param::page_size() as u64;
            let size = bar.size().next_multiple_of(page);
            let length = length.checked_next_multiple_of(page).ok_or(Errno::NOMEM)?;
            if offset.checked_add(length).is_none_or(|end| end > size) {
                return Err(Errno::INVAL);
            }
            // What a program writes to a private mapping would not reach the card.
            let writes = protection & u64::from(libc::PROT_WRITE.unsigned_abs()) != 0;
            let kind = flags & u64::from(libc::MAP_TYPE.unsigned_abs());
            if writes && kind == u64::from(libc::MAP_PRIVATE.unsigned_abs()) {
                return Err(Errno::INVAL);
            }
            self.tracer.attach(call.thread).map_err(|reason| {
                if self.listener.is_waiting(call) {
                    tracing::error!("{}: its registers cannot be mapped: {reason}", open.file);
                }
                Errno::NODEV
            })?;
            Ok(Answer::Continue)
        })
    }

    /// A `read` or `write` call of any form.
    fn move_data(&self, call: &Call, open: &OpenFile, turn: &mut Turn<'_>) -> Result<Answer, Errno> {
        let Data { access, parts, offset } = data(call)?;
        open.check(access)?;
        let memory = self.memory(call);
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
            // A pipe has no position.
            Node::Events(_) if offset.is_some() => Err(Errno::SPIPE),
            Node::Events(line) => {
                self.read_event(call, open, device.lines.get(line).ok_or(Errno::NODEV)?.as_ref(), parts, turn)
            }
            Node::H2c(_) | Node::C2h(_) => self
                .transfer(call, open, access, parts, offset, Reply::Now, turn)
                .map(|moved| turn.answer(moved)),
            Node::Control | Node::User | Node::Bypass | Node::BypassOf(..) => {
                let bar = device.bar(open.file.node).ok_or(Errno::NODEV)?;
                let whole = matches!(open.file.node, Node::Bypass | Node::BypassOf(..));
                let at = offset.unwrap_or(open.position);
                memory.check()?;
                let moved = registers::access(bar, access, memory, parts, at, whole)?;
                if offset.is_none() && moved > 0 {
                    set_position(call, at.wrapping_add(moved))?;
                }
                Ok(Answer::Value(moved))
            }
        }
    }

    /// Transfer on a channel.
    #[expect(clippy::too_many_arguments, reason = "the parameters of a call")]
    pub(crate) fn transfer(
        &self,
        call: &Call,
        open: &OpenFile,
        access: Access,
        parts: &[Part],
        offset: Option<u64>,
        reply: Reply,
        turn: &mut Turn<'_>,
    ) -> Result<u64, Errno> {
        if (access == Access::Write) != matches!(open.file.node, Node::H2c(_)) {
            return Err(Errno::INVAL);
        }
        let device = self.devices.get(open.file.card).ok_or(Errno::NODEV)?;
        let channel = device.channel(open.file.node).ok_or(Errno::NODEV)?;
        let address = offset.unwrap_or(open.position);
        let advances = offset.is_none() && open.advances();
        let mut wait = Wait::new(&self.listener, call);
        let mut used = channel.lock_for(|| turn.give_up(), &mut wait)?;
        let channel = &mut *used.channel;
        let mut request = Request {
            memory: self.memory(call),
            parts,
            address,
            timeout: device.timeout,
            wait: Some(wait),
            blocks: &mut || turn.give_up(),
        };
        request.memory.check()?;
        let moved = match channel.transfer(&device.card, &mut request) {
            Ok(moved) => moved,
            Err(TransferError::Refused(error)) => return Err(error),
            // The kernel must not start it again: part of it may have been transferred.
            Err(TransferError::Interrupted) => return Err(Errno::INTR),
            Err(TransferError::Failed(reason)) => {
                tracing::error!("{}: {reason}", open.file);
                return Err(Errno::IO);
            }
        };
        if advances && moved > 0 {
            set_position(call, address.wrapping_add(moved))?;
        }
        // What a packet's reader did not get is for the next one.
        match reply {
            Reply::Now if channel.has_rest() => {
                if self.listener.answer(call, Answer::Value(moved)).is_ok() {
                    channel.take_rest(moved);
                }
                turn.has_answered = true;
            }
            _ => channel.take_rest(moved),
        }
        Ok(moved)
    }

    /// The vendor's driver: exactly four bytes, which are 1 (`char_events_read`).
    fn read_event(
        &self,
        call: &Call,
        open: &OpenFile,
        line: &crate::events::Line,
        parts: &[Part],
        turn: &mut Turn<'_>,
    ) -> Result<Answer, Errno> {
        let [part] = parts else { return Err(Errno::INVAL) };
        if part.length != 4 {
            return Err(Errno::PROTO);
        }
        let mut wait = Wait::new(&self.listener, call);
        loop {
            if wait.has_ended() {
                return Err(Errno::INTR);
            }
            if line.take()? {
                break;
            }
            if open.flags.contains(OFlags::NONBLOCK) {
                return Err(Errno::AGAIN);
            }
            turn.give_up();
            line.is_pending(crate::events::SIGNAL_CHECK);
            if let Some(error) = wait.interruption() {
                return Err(error);
            }
        }
        // An event that its reader did not get is for the next one.
        let written = self.memory(call).write(part.address, &1_u32.to_ne_bytes());
        let answered =
            written.and_then(|()| self.listener.answer(call, Answer::Value(4)).map_err(|_| Errno::SRCH));
        if answered.is_err() {
            line.put_back();
        }
        match answered {
            Err(Errno::FAULT) => Err(Errno::FAULT),
            _ => Ok(Answer::Sent),
        }
    }
}

/// Parameters of a `read` or `write` call of any form.
fn data(call: &Call) -> Result<Data, Errno> {
    let [_, address, count, offset, _, flags] = call.arguments;
    let one = Parts::One(Part { address, length: count.min(i32::MAX as u64 & !0xFFF) });
    let list = Parts::List { address, count };
    let at_position = (offset != AT_POSITION).then_some(offset);
    let (access, parts, offset) = match call.number {
        libc::SYS_read => (Access::Read, one, None),
        libc::SYS_write => (Access::Write, one, None),
        libc::SYS_pread64 => (Access::Read, one, Some(offset)),
        libc::SYS_pwrite64 => (Access::Write, one, Some(offset)),
        libc::SYS_readv => (Access::Read, list, None),
        libc::SYS_writev => (Access::Write, list, None),
        libc::SYS_preadv => (Access::Read, list, Some(offset)),
        libc::SYS_pwritev => (Access::Write, list, Some(offset)),
        libc::SYS_preadv2 | libc::SYS_pwritev2 => {
            if flags & u64::from(u32::MAX) & !CALL_FLAGS != 0 {
                return Err(Errno::OPNOTSUPP);
            }
            let access = if call.number == libc::SYS_preadv2 { Access::Read } else { Access::Write };
            (access, list, at_position)
        }
        _ => return Err(Errno::INVAL),
    };
    // Offsets are signed.
    if offset.is_some_and(|offset| i64::try_from(offset).is_err()) {
        return Err(Errno::INVAL);
    }
    if matches!(parts, Parts::One(_)) && i64::try_from(count).is_err() {
        return Err(Errno::FAULT);
    }
    Ok(Data { access, parts, offset })
}

/// `lseek` from the end that the vendor's driver assumes (`char_sgdma_llseek`).
fn seek_end(call: &Call, open: &OpenFile, offset: u64, whence: u64) -> Result<u64, Errno> {
    if is_event(open.file) {
        return Err(Errno::SPIPE);
    }
    if whence != libc::SEEK_END as u64 {
        return Err(Errno::INVAL);
    }
    let at = i64::from(u32::MAX).checked_add(offset.cast_signed()).and_then(|at| u64::try_from(at).ok());
    let at = at.ok_or(Errno::INVAL)?;
    set_position(call, at)?;
    Ok(at)
}

/// Sets the position of the open file in the first argument of a call. Not locked during calls, as with the vendor's driver: of calls at the
/// same time the last one counts.
fn set_position(call: &Call, position: u64) -> Result<(), Errno> {
    let [descriptor, ..] = call.arguments;
    let file = duplicate(call.thread, descriptor).inspect_err(|error| {
        if *error == Errno::PERM {
            tracing::error!("the file position cannot be set here: pidfd_getfd is forbidden (a container needs SYS_PTRACE)");
        }
    })?;
    rustix::fs::seek(file, SeekFrom::Start(position)).map(|_| ())
}
