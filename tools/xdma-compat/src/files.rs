//! Stand-ins: the files that programs get in place of device files and of the folders with the driver's links.
//!
//! There is one stand-in for each device file: an empty memory file that is sealed, so that it can never take data. Each `open` of a program
//! opens it anew. The kernel therefore keeps all state of an open device file itself (position, flags, locks, mode, owner), through `dup`,
//! `fork`, `exec` and descriptors that are sent to other processes, and the supervisor has nothing to remember of it; duplicates
//! ([`descriptions`](crate::descriptions)) only save system calls. Programs open an event as a pipe, which is readable while the event is
//! pending.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustix::fs::{
    AtFlags, CWD, MemfdFlags, Mode, OFlags, SealFlags, SeekFrom, StatxFlags, memfd_create, statx,
};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::descriptions::{Descriptions, Duplicate};
use crate::listener::Call;
use crate::node::{DeviceFile, Folder, Node};
use crate::process;

/// Mark of an open stand-in whose position advances; the kernel keeps it with the flags of the file and ignores it otherwise.
const ADVANCES: OFlags = OFlags::NOATIME;
/// Mark of one that was opened only as a name (`O_PATH`), which cannot be given to another process: a file open for neither reading nor
/// writing.
const NAME: OFlags = OFlags::RWMODE.union(OFlags::NOATIME);
/// Flags of a program's `open` that its stand-in has, too.
const KEPT: OFlags =
    OFlags::RWMODE.union(OFlags::NONBLOCK).union(OFlags::APPEND).union(OFlags::DSYNC).union(OFlags::SYNC);
/// A pidfd of a thread (`PIDFD_THREAD`, Linux 6.9).
const OF_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(OFlags::EXCL.bits());

/// Identity of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Inode {
    device: (u32, u32),
    number: u64,
}

impl Inode {
    pub(crate) const fn new(major: u32, minor: u32, number: u64) -> Self {
        Self { device: (major, minor), number }
    }

    /// Identity of the file at `path` in `folder`. Asks no server of a file system.
    ///
    /// # Errors
    /// Those of `statx(2)`.
    pub(crate) fn at(folder: impl AsFd, path: impl rustix::path::Arg, flags: AtFlags) -> Result<Self, Errno> {
        Ok(Self::with_mode(folder, path, flags)?.0)
    }

    /// The same, with the file's mode.
    ///
    /// # Errors
    /// Those of `statx(2)`.
    pub(crate) fn with_mode(
        folder: impl AsFd,
        path: impl rustix::path::Arg,
        flags: AtFlags,
    ) -> Result<(Self, u32), Errno> {
        let status =
            statx(folder, path, flags | AtFlags::STATX_DONT_SYNC, StatxFlags::INO | StatxFlags::TYPE)?;
        let inode = Self::new(status.stx_dev_major, status.stx_dev_minor, status.stx_ino);
        Ok((inode, status.stx_mode.into()))
    }
}

/// Object behind a stand-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Object {
    File(DeviceFile),
    Folder(Folder),
}

impl Object {
    /// Whether a stand-in with these flags was opened only as a name (`O_PATH`). A folder cannot be opened for neither reading nor writing.
    pub(crate) const fn is_name(self, flags: OFlags) -> bool {
        match self {
            Self::File(_) => flags.contains(NAME),
            Self::Folder(_) => flags.contains(OFlags::NOATIME),
        }
    }

    /// Flags of the file that the program sees, from those of its stand-in.
    pub(crate) const fn seen(self, flags: OFlags) -> OFlags {
        if self.is_name(flags) {
            return OFlags::PATH.union(flags.intersection(OFlags::DIRECTORY));
        }
        flags.difference(OFlags::NOATIME.union(OFlags::CLOEXEC))
    }
}

/// Open device file of a program.
#[derive(Debug, Clone)]
pub(crate) struct OpenFile {
    /// The device file.
    pub(crate) file: DeviceFile,
    /// Flags of the open file.
    pub(crate) flags: OFlags,
    state: State,
}

/// Where the file position is found.
#[derive(Debug, Clone)]
enum State {
    /// The supervisor has a duplicate.
    Own(Arc<OwnedFd>),
    /// Position, and descriptor of the program.
    Of(u64),
}

impl OpenFile {
    /// Whether it was opened only as a name (`O_PATH`).
    pub(crate) const fn is_name(&self) -> bool {
        Object::File(self.file).is_name(self.flags)
    }

    /// Whether transfers of a channel advance the file position. With the vendor's driver they do not, and its programs, which open their
    /// channels for reading and writing, rely on that. Programs that know nothing of the driver (dd, xxd, cat) open a file for one
    /// direction, or as one that may have to be created, and expect a position that advances.
    pub(crate) fn advances(&self) -> bool {
        self.flags & OFlags::RWMODE != OFlags::RDWR || self.flags.contains(ADVANCES)
    }

    /// File position.
    ///
    /// # Errors
    /// Those of `lseek(2)`.
    pub(crate) fn position(&self) -> Result<u64, Errno> {
        match &self.state {
            State::Own(own) => rustix::fs::tell(own),
            State::Of(position) => Ok(*position),
        }
    }

    /// Sets the position of the open file, which is the first argument of `call`. Not locked during calls, as with the vendor's driver: of
    /// calls at the same time the last one counts.
    ///
    /// # Errors
    /// Those of `lseek(2)` and `pidfd_getfd(2)`.
    pub(crate) fn set_position(&self, call: &Call, position: u64) -> Result<(), Errno> {
        let [descriptor, ..] = call.arguments;
        let to = SeekFrom::Start(position);
        if let State::Own(own) = &self.state {
            return rustix::fs::seek(own, to).map(|_| ());
        }
        let file = duplicate(call.thread, descriptor).inspect_err(|error| {
            if *error == Errno::PERM {
                tracing::error!("the file position cannot be set here: pidfd_getfd is forbidden (a container needs SYS_PTRACE)");
            }
        })?;
        rustix::fs::seek(file, to).map(|_| ())
    }
}

/// Stand-ins of all device files.
#[derive(Debug, Default)]
pub(crate) struct Files {
    objects: RwLock<HashMap<Inode, Object>>,
    stand_ins: Mutex<HashMap<Object, Arc<OwnedFd>>>,
    /// Whether any program has opened a device file.
    opened: AtomicBool,
    pub(crate) descriptions: Descriptions,
}

impl Files {
    /// The stand-in of `object`.
    ///
    /// # Errors
    /// Those of `memfd_create(2)` and `mkdir(2)`.
    pub(crate) fn stand_in(&self, object: Object) -> Result<Arc<OwnedFd>, Errno> {
        let mut stand_ins = self.stand_ins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = stand_ins.get(&object) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(match object {
            Object::File(file) => sealed(file)?,
            Object::Folder(_) => removed_folder()?,
        });
        self.add(&file, object)?;
        stand_ins.insert(object, Arc::clone(&file));
        Ok(file)
    }

    /// Records that `file` stands for `object`.
    ///
    /// # Errors
    /// Those of `statx(2)`.
    pub(crate) fn add(&self, file: impl AsFd, object: Object) -> Result<(), Errno> {
        let inode = Inode::at(file, "", AtFlags::EMPTY_PATH)?;
        self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(inode, object);
        Ok(())
    }

    /// Opens the stand-in of `object`, with the flags of a program's `open`.
    ///
    /// # Errors
    /// As for a character device: those of unknown or contradictory flags, `EACCES` if its mode forbids it.
    pub(crate) fn open(&self, object: Object, flags: OFlags) -> Result<OwnedFd, Errno> {
        let stand_in = self.stand_in(object)?;
        let path = path_of(&*stand_in);
        let kept = match object {
            Object::Folder(_) if flags.contains(OFlags::CREATE | OFlags::EXCL) => return Err(Errno::EXIST),
            Object::Folder(_) if flags.contains(OFlags::CREATE) => return Err(Errno::ISDIR),
            Object::Folder(_) => KEPT | OFlags::DIRECTORY,
            Object::File(_) => {
                // Which flags a device file refuses, the kernel decides.
                let like = flags.difference(OFlags::TRUNC) | OFlags::NOCTTY | OFlags::CLOEXEC;
                rustix::fs::open("/dev/null", like, Mode::empty())?;
                KEPT
            }
        };
        let own = match (object, flags.contains(OFlags::PATH), flags.contains(OFlags::CREATE)) {
            (Object::File(_), true, _) => NAME,
            (Object::Folder(_), true, _) => flags & OFlags::DIRECTORY | OFlags::NOATIME,
            (_, false, true) => flags & kept | ADVANCES,
            (_, false, false) => flags & kept,
        };
        let opened = rustix::fs::open(path, own | OFlags::CLOEXEC, Mode::empty())?;
        self.opened.store(true, Ordering::Relaxed);
        Ok(opened)
    }

    /// Whether any program has opened a device file.
    pub(crate) fn are_opened(&self) -> bool {
        self.opened.load(Ordering::Relaxed)
    }

    /// Object behind a thread's descriptor.
    ///
    /// # Errors
    /// `EACCES` or `EPERM`: the thread's files cannot be inspected.
    pub(crate) fn object(&self, thread: u32, descriptor: u64) -> Result<Option<Object>, Errno> {
        // The kernel's calls take the low 32 bits.
        let descriptor = descriptor & u64::from(u32::MAX);
        match Inode::at(CWD, format!("/proc/{thread}/fd/{descriptor}"), AtFlags::empty()) {
            Ok(inode) => Ok(self.of_inode(inode)),
            Err(error @ (Errno::ACCESS | Errno::PERM)) => Err(error),
            // No such descriptor or no such thread: the kernel answers.
            Err(_) => Ok(None),
        }
    }

    /// The open device file behind the descriptor of a thread.
    ///
    /// # Errors
    /// As [`object`](Self::object).
    pub(crate) fn find(&self, thread: u32, descriptor: u64) -> Result<Option<OpenFile>, Errno> {
        // The kernel's calls take the low 32 bits.
        let number = u32::try_from(descriptor & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        let with = |known: Duplicate| OpenFile {
            file: known.file,
            flags: known.flags,
            state: State::Own(known.own),
        };
        if let Some(known) = self.descriptions.find(thread, number) {
            return Ok(Some(with(known)));
        }
        let Some(Object::File(file)) = self.object(thread, descriptor)? else { return Ok(None) };
        if let Some(duplicate) = self.keep(thread, number, file) {
            return Ok(Some(with(duplicate)));
        }
        let state = process::descriptor(thread, number);
        Ok(state.map(|(position, flags)| OpenFile { file, flags, state: State::Of(position) }))
    }

    /// Keeps a duplicate of the descriptor of `file`. `None`: it is another file now, or duplicates are not possible.
    fn keep(&self, thread: u32, descriptor: u32, file: DeviceFile) -> Option<Duplicate> {
        // An event's flags change (O_NONBLOCK).
        if is_event(file) || !self.descriptions.are_kept() {
            return None;
        }
        let own = duplicate(thread, descriptor.into()).ok()?;
        let inode = Inode::at(&own, "", AtFlags::EMPTY_PATH).ok()?;
        if self.of_inode(inode) != Some(Object::File(file)) {
            return None;
        }
        let flags = rustix::fs::fcntl_getfl(&own).ok()?;
        let duplicate = Duplicate { file, flags, own: Arc::new(own) };
        self.descriptions.add(thread, descriptor, duplicate.clone());
        Some(duplicate)
    }

    /// Object behind a file.
    pub(crate) fn of_inode(&self, inode: Inode) -> Option<Object> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).get(&inode).copied()
    }
}

/// Name under which this process opens one of its own descriptors anew.
pub(crate) fn path_of(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// An empty memory file that takes no data.
fn sealed(file: DeviceFile) -> Result<OwnedFd, Errno> {
    let sealed = memfd_create(file.to_string(), MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::fcntl_add_seals(&sealed, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    rustix::fs::fchmod(&sealed, Mode::from_raw_mode(0o666))?;
    Ok(sealed)
}

/// A folder without a name, in which nothing can be created.
fn removed_folder() -> Result<OwnedFd, Errno> {
    let parents = [std::env::temp_dir(), "/dev/shm".into()];
    let mut result = Err(Errno::NOENT);
    for number in 0..16 {
        for parent in &parents {
            let name = parent.join(format!(".xdma-{}-{number}", std::process::id()));
            result = rustix::fs::mkdir(&name, Mode::from_raw_mode(0o755)).and_then(|()| {
                let folder = rustix::fs::open(&name, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
                rustix::fs::rmdir(&name)?;
                folder
            });
            if result.is_ok() {
                return result;
            }
        }
    }
    result
}

/// Duplicates the descriptor of another process's thread.
///
/// # Errors
/// Those of `pidfd_getfd(2)`, Linux 5.6.
pub(crate) fn duplicate(thread: u32, descriptor: u64) -> Result<OwnedFd, Errno> {
    let number = |number: u32| i32::try_from(number).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH);
    let process = match pidfd_open(number(thread)?, OF_THREAD) {
        Err(Errno::INVAL) => {
            pidfd_open(number(process::process_of(thread).ok_or(Errno::SRCH)?)?, PidfdFlags::empty())
        }
        opened => opened,
    }?;
    let descriptor = i32::try_from(descriptor & u64::from(u32::MAX)).map_err(|_| Errno::BADF)?;
    pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty())
}

/// Whether a file is one for waiting on events.
pub(crate) const fn is_event(file: DeviceFile) -> bool {
    matches!(file.node, Node::Events(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Object = Object::File(DeviceFile { card: 0, node: Node::User });

    #[test]
    fn stand_in_takes_no_data_by_any_call() {
        let files = Files::default();
        let open = files.open(USER, OFlags::RDWR).unwrap();
        assert_eq!(rustix::io::write(&open, b"x"), Err(Errno::PERM));
        assert_eq!(rustix::io::pwrite(&open, b"x", 4096), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&open, 1), Err(Errno::PERM));
        assert_eq!(rustix::fs::fallocate(&open, rustix::fs::FallocateFlags::empty(), 0, 1), Err(Errno::PERM));
        let seals = rustix::fs::fcntl_add_seals(&open, SealFlags::WRITE);
        assert_eq!(seals, Err(Errno::PERM), "the seals are final");
        assert_eq!(rustix::fs::fstat(&open).unwrap().st_size, 0);
    }

    #[test]
    fn stand_in_is_one_file_with_state_per_open() {
        let files = Files::default();
        let (one, other) =
            (files.open(USER, OFlags::RDWR).unwrap(), files.open(USER, OFlags::RDONLY).unwrap());
        let seen = |open: &OwnedFd| {
            files.find(std::process::id(), open.as_raw_fd().unsigned_abs().into()).unwrap().unwrap()
        };
        rustix::fs::seek(&one, rustix::fs::SeekFrom::Start(8)).unwrap();
        let (first, second) = (seen(&one), seen(&other));
        assert_eq!((first.position(), first.advances()), (Ok(8), false));
        assert_eq!((second.position(), second.advances()), (Ok(0), true));
        assert_eq!(Object::File(first.file), USER);
        assert!(seen(&files.open(USER, OFlags::RDWR | OFlags::CREATE).unwrap()).advances());
        // A program's own memory file of the same name is not a device file.
        let own = memfd_create("xdma0_user", MemfdFlags::CLOEXEC).unwrap();
        assert!(files.find(std::process::id(), own.as_raw_fd().unsigned_abs().into()).unwrap().is_none());
    }

    #[test]
    fn stand_in_is_opened_as_character_device() {
        let files = Files::default();
        let error = |flags| files.open(USER, flags).unwrap_err();
        assert_eq!(error(OFlags::RDWR | OFlags::DIRECTORY), Errno::NOTDIR);
        assert_eq!(error(OFlags::PATH | OFlags::DIRECTORY), Errno::NOTDIR);
        assert_eq!(error(OFlags::RDWR | OFlags::CREATE | OFlags::EXCL), Errno::EXIST);
        let folder = files.open(Object::Folder(Folder::Cards), OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
        let created = rustix::fs::openat(&folder, "x", OFlags::CREATE | OFlags::RDWR, Mode::empty());
        assert_eq!(created.unwrap_err(), Errno::NOENT);
    }
}
