//! Dispatch of supervised system calls by number.

use rustix::fs::{OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::files::{Object, OpenFile, is_event};
use crate::filter::{MOVES_DATA, SYS_IO_PGETEVENTS};
use crate::foreign::X32;
use crate::listener::{Answer, Call};
use crate::memory::Memory;
use crate::moves::seek_end;
use crate::server::{Supervisor, Turn};
use crate::stat;
use crate::walk::{CURRENT, Walk};

/// `ioctl`s on descriptors, which the kernel executes itself (`asm-generic/ioctls.h`): FIOCLEX, FIONCLEX, FIONBIO, FIOASYNC.
const OF_DESCRIPTORS: [u64; 4] = [0x5451, 0x5450, 0x5421, 0x5452];
impl Supervisor {
    /// Answers a call. `turn` is passed to another thread before the answer takes long.
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
            libc::SYS_ioctl if OF_DESCRIPTORS.contains(&(b & u64::from(u32::MAX))) => {
                self.unless_name(call, a)
            }
            libc::SYS_fcntl => self.control_descriptor(call, a, b, c),
            libc::SYS_flock => self.lock_file(call, a),
            libc::SYS_fchmod | libc::SYS_fchown => self.unless_name(call, a),
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

    pub(crate) fn with_object(
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

    pub(crate) fn with_file(
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
}
