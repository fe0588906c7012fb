//! Opening and mapping device files.

use std::os::fd::AsFd as _;

use rustix::fs::{OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::files::{Object, path_of};
use crate::listener::{Answer, Call, last_error};
use crate::node::{DeviceFile, Node};
use crate::server::Supervisor;
use crate::walk::{CURRENT, PathEnd, Rules};

/// Size of the structure of `openat2` (`struct open_how`).
const HOW_BYTES: usize = 24;

impl Supervisor {
    /// `openat2`: the kernel's checks of the structure, and `open`.
    pub(crate) fn open_with(&self, call: &Call) -> Answer {
        let [directory, path, address, size, ..] = call.arguments;
        // The kernel reads no more than a page.
        let length = usize::try_from(size).map_or(usize::MAX, |size| size).min(rustix::param::page_size());
        let mut how = vec![0; length.max(HOW_BYTES)];
        if let Err(error) = self.memory(call).read(address, how.get_mut(..length).unwrap_or_default()) {
            return self.unreadable(call, error);
        }
        // Without a path, the kernel finds only what is wrong with the structure.
        // SAFETY: the path and `how` live during the call; of a larger `size` the kernel reads nothing.
        unsafe { libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, c"".as_ptr(), how.as_ptr(), size) };
        match last_error() {
            Errno::NOENT => {}
            error => return Answer::Failure(error),
        }
        let field = |at| crate::layout::word(&how, at);
        self.open(call, directory, path, field(0), ResolveFlags::from_bits_retain(field(16)))
    }

    pub(crate) fn open(
        &self,
        call: &Call,
        directory: u64,
        address: u64,
        flags: u64,
        resolve: ResolveFlags,
    ) -> Answer {
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
        let result = match walk.path_end(directory, &path, rules) {
            PathEnd::OtherFile => return Answer::Continue,
            PathEnd::Refused(error) => Err(error),
            PathEnd::Parent => Err(Errno::NOENT),
            PathEnd::Link(_) if creates_only => Err(Errno::EXIST),
            PathEnd::Link(_) => Err(Errno::LOOP),
            PathEnd::Object(object) => self.open_object(call, object, flags),
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
    pub(crate) fn bind(&self, call: &Call, address: u64, length: u64) -> Answer {
        let Ok(length) = usize::try_from(length) else { return Answer::Continue };
        let mut bytes = vec![0; length.min(110)];
        if self.memory(call).read(address, &mut bytes).is_err() {
            return Answer::Continue;
        }
        let family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or_default().to_ne_bytes();
        let Some(name) = bytes.strip_prefix(&family) else { return Answer::Continue };
        let path = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let place = self.walk(call).map(|walk| walk.path_end(CURRENT, path, Rules::default()));
        match place {
            Ok(PathEnd::OtherFile) | Err(_) => Answer::Continue,
            Ok(_) => Answer::Failure(Errno::ADDRINUSE),
        }
    }

    /// `mmap` of a device file: the kernel maps the empty stand-in, and the tracer executes the accesses.
    pub(crate) fn map(&self, call: &Call) -> Answer {
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
}
