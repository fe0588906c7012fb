//! Resolution of paths as the kernel does it for the caller, in which the device files and their folders exist.
//!
//! The folder of device files is recognised by its identity, so that every way to it counts: symbolic links, relative paths, descriptors of
//! folders, and mounts at other places.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use crate::device::Device;
use crate::files::{Files, Inode, Object};
use crate::listener::Call;
use crate::node::{DeviceFile, Folder};
use crate::process;

/// Directory descriptor for the current directory (`AT_FDCWD`), as a system call's argument.
pub(crate) const CURRENT: u64 = (-100_i64).cast_unsigned();
/// Maximum number of symbolic links in one path (`MAXSYMLINKS`).
const MAX_LINKS: u32 = 40;
/// Type of `/proc`, and the inode of its root (`linux/magic.h`, `linux/proc_fs.h`).
const PROC: u64 = 0x9FA0;
const PROC_ROOT: u64 = 1;
/// Handle of a file that need not be readable.
const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// End of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathEnd {
    /// A device file, or a folder of links.
    Object(Object),
    /// Link to a device file, in such a folder.
    Link(DeviceFile),
    /// The folder of device files, out of a folder that the kernel does not know.
    Parent,
    /// Any other file, or none: the kernel executes the call.
    OtherFile,
    /// The path leads through a device file, or out of a folder that the kernel does not know.
    Refused(Errno),
}

/// How a call resolves its path.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rules {
    /// Whether a symbolic link at the end is followed.
    pub(crate) follow: bool,
    /// Restrictions of `openat2`.
    pub(crate) resolve: ResolveFlags,
}

/// Directory during the resolution of a path.
enum Directory {
    Real(OwnedFd, Inode),
    Virtual(Folder),
}

/// Root, mount namespace and `/dev` of this process.
#[derive(Debug)]
pub(crate) struct View {
    root: Option<Inode>,
    mounts: Option<Inode>,
    dev: Option<Inode>,
}

impl View {
    /// Reads the present state.
    pub(crate) fn of_this_process() -> Self {
        let inode = |path| Inode::at(CWD, path, AtFlags::empty()).ok();
        Self { root: inode("/"), mounts: inode("/proc/self/ns/mnt"), dev: inode("/dev") }
    }

    /// Whether a file is the folder of the device files: `/dev` of this process or of `thread`.
    pub(crate) fn is_dev(&self, thread: u32, inode: Inode) -> bool {
        let of_thread = || Inode::at(CWD, format!("/proc/{thread}/root/dev"), AtFlags::empty()).ok();
        self.dev == Some(inode) || of_thread() == Some(inode)
    }
}

/// Resolves paths.
pub(crate) struct Walk<'a> {
    devices: &'a [Device],
    files: &'a Files,
    view: &'a View,
    call: &'a Call,
    root: Inode,
    /// Whether the caller has the supervisor's root and mounts.
    same_view: bool,
}

impl<'a> Walk<'a> {
    /// For the paths of `call`.
    ///
    /// # Errors
    /// `EACCES` or `EPERM`: the caller cannot be inspected.
    pub(crate) fn new(
        devices: &'a [Device],
        files: &'a Files,
        view: &'a View,
        call: &'a Call,
    ) -> Result<Self, Errno> {
        let thread = call.thread;
        let root = Inode::at(CWD, format!("/proc/{thread}/root"), AtFlags::empty())?;
        let mounts = Inode::at(CWD, format!("/proc/{thread}/ns/mnt"), AtFlags::empty())?;
        let same_view = view.root == Some(root) && view.mounts == Some(mounts);
        Ok(Self { devices, files, view, call, root, same_view })
    }

    /// Follows `path` from the directory descriptor `directory` of the caller.
    pub(crate) fn path_end(&self, directory: u64, path: &[u8], rules: Rules) -> PathEnd {
        self.resolve(directory, path, rules).unwrap_or(PathEnd::OtherFile)
    }

    /// # Errors
    /// The kernel comes to the same result.
    fn resolve(&self, directory: u64, path: &[u8], rules: Rules) -> Result<PathEnd, Errno> {
        if path.is_empty() {
            return Ok(PathEnd::OtherFile);
        }
        let start = if path.starts_with(b"/") {
            if self.same_view && self.exists(CWD, path, rules) {
                return Ok(PathEnd::OtherFile);
            }
            self.root()?
        } else {
            let base = self.base(directory)?;
            let inode = Inode::at(&base, "", AtFlags::EMPTY_PATH)?;
            match self.files.of_inode(inode) {
                Some(Object::Folder(folder)) => Directory::Virtual(folder),
                Some(Object::File(_)) => return Ok(PathEnd::Refused(Errno::NOTDIR)),
                None if self.same_view && self.exists(&base, path, rules) => return Ok(PathEnd::OtherFile),
                None => Directory::Real(base, inode),
            }
        };
        let limits = ResolveFlags::BENEATH | ResolveFlags::IN_ROOT | ResolveFlags::NO_XDEV;
        Ok(match self.follow(start, path, rules)? {
            // The caller repeats it without this flag.
            PathEnd::Object(_) if rules.resolve.contains(ResolveFlags::CACHED) => {
                PathEnd::Refused(Errno::AGAIN)
            }
            PathEnd::Object(_) if rules.resolve.intersects(limits) => PathEnd::Refused(Errno::XDEV),
            end => end,
        })
    }

    fn root(&self) -> Result<Directory, Errno> {
        let root = openat(CWD, format!("/proc/{}/root", self.call.thread), HANDLE, Mode::empty())?;
        Ok(Directory::Real(root, self.root))
    }

    /// Directory that a relative path starts from.
    fn base(&self, directory: u64) -> Result<OwnedFd, Errno> {
        let thread = self.call.thread;
        // The kernel takes the low 32 bits, with sign.
        let low = directory & u64::from(u32::MAX);
        let name = if low == CURRENT & u64::from(u32::MAX) {
            format!("/proc/{thread}/cwd")
        } else {
            format!("/proc/{thread}/fd/{low}")
        };
        openat(CWD, name, HANDLE, Mode::empty())
    }

    /// Whether the kernel finds a file that is neither a device file nor a folder of them. Decides most paths.
    fn exists(&self, base: impl AsFd, path: &[u8], rules: Rules) -> bool {
        let flags = if rules.follow { HANDLE } else { HANDLE | OFlags::NOFOLLOW };
        let Ok(found) = openat2(base, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) else {
            return false;
        };
        let Ok((inode, mode)) = Inode::with_mode(&found, "", AtFlags::EMPTY_PATH) else { return false };
        // Device files of the vendor's module may exist, too.
        FileType::from_raw_mode(mode) != FileType::CharacterDevice && self.files.of_inode(inode).is_none()
    }

    /// # Errors
    /// The kernel's.
    fn follow(&self, start: Directory, path: &[u8], rules: Rules) -> Result<PathEnd, Errno> {
        let mut rest = VecDeque::new();
        prepend(&mut rest, path);
        let (mut here, mut links, mut has_left) = (start, 0, false);
        while let Some(name) = rest.pop_front() {
            let is_last = rest.is_empty();
            match (&here, &*name) {
                (_, b"." | b"") => continue,
                (Directory::Virtual(Folder::Card(_)), b"..") => here = Directory::Virtual(Folder::Cards),
                (Directory::Virtual(Folder::Cards), b"..") => {
                    let dev = format!("/proc/{}/root/dev", self.call.thread);
                    here = directory(openat(CWD, dev, HANDLE, Mode::empty())?)?;
                    has_left = true;
                }
                (Directory::Real(_, inode), b"..") if *inode == self.root => {}
                (Directory::Real(real, _), b"..") => {
                    here = directory(openat(real, "..", HANDLE | OFlags::DIRECTORY, Mode::empty())?)?;
                }
                (Directory::Virtual(folder), name) => match self.in_folder(*folder, name) {
                    Some(Object::Folder(folder)) => here = Directory::Virtual(folder),
                    // The links lead to device files only.
                    Some(Object::File(file)) if is_last && !rules.follow => return Ok(PathEnd::Link(file)),
                    Some(_) if rules.resolve.contains(ResolveFlags::NO_SYMLINKS) => {
                        return Ok(PathEnd::Refused(Errno::LOOP));
                    }
                    Some(Object::File(file)) => return Ok(end(file, is_last)),
                    None => return Ok(PathEnd::Refused(Errno::NOENT)),
                },
                (Directory::Real(real, inode), name) => {
                    let is_named = name.starts_with(Folder::NAME.as_bytes());
                    if is_named && self.view.is_dev(self.call.thread, *inode) {
                        match self.in_dev(name) {
                            Some(Object::File(file)) => return Ok(end(file, is_last)),
                            Some(Object::Folder(folder)) => {
                                here = Directory::Virtual(folder);
                                continue;
                            }
                            None => {}
                        }
                    }
                    let found = openat(real, name, HANDLE | OFlags::NOFOLLOW, Mode::empty())?;
                    let (inode, mode) = Inode::with_mode(&found, "", AtFlags::EMPTY_PATH)?;
                    match FileType::from_raw_mode(mode) {
                        FileType::Directory => here = Directory::Real(found, inode),
                        FileType::Symlink if is_last && !rules.follow => break,
                        FileType::Symlink if rules.resolve.contains(ResolveFlags::NO_SYMLINKS) => break,
                        FileType::Symlink => {
                            links += 1;
                            if links > MAX_LINKS {
                                return Err(Errno::LOOP);
                            }
                            match self.target(real, &found, name)? {
                                Some(target) => {
                                    if target.starts_with(b"/") {
                                        here = self.root()?;
                                    }
                                    prepend(&mut rest, &target);
                                }
                                None if rules.resolve.contains(ResolveFlags::NO_MAGICLINKS) => break,
                                None => {
                                    let found = openat(real, name, HANDLE, Mode::empty())?;
                                    let inode = Inode::at(&found, "", AtFlags::EMPTY_PATH)?;
                                    here = match self.files.of_inode(inode) {
                                        Some(Object::File(file)) => return Ok(end(file, is_last)),
                                        Some(Object::Folder(folder)) => Directory::Virtual(folder),
                                        None => Directory::Real(found, inode),
                                    };
                                }
                            }
                        }
                        _ => break,
                    }
                }
            }
        }
        Ok(match here {
            Directory::Virtual(folder) => PathEnd::Object(Object::Folder(folder)),
            Directory::Real(_, inode) if has_left && self.view.is_dev(self.call.thread, inode) => {
                PathEnd::Parent
            }
            Directory::Real(..) if has_left => PathEnd::Refused(Errno::NOENT),
            Directory::Real(..) => PathEnd::OtherFile,
        })
    }

    /// Text of a symbolic link; `None` for one of `/proc` that leads to a file directly.
    fn target(&self, folder: &OwnedFd, link: &OwnedFd, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        // The type has the same value in all widths of the field.
        #[expect(clippy::cast_sign_loss, reason = "a bit pattern")]
        let is_proc = rustix::fs::fstatfs(folder)?.f_type as u64 == PROC;
        if !is_proc {
            return Ok(Some(rustix::fs::readlinkat(link, "", Vec::new())?.into_bytes()));
        }
        if rustix::fs::fstat(folder)?.st_ino != PROC_ROOT {
            return Ok(None);
        }
        let thread = self.call.thread;
        let process = || process::process_of(thread).ok_or(Errno::SRCH);
        Ok(Some(match name {
            // They depend on who reads them.
            b"self" => process()?.to_string().into_bytes(),
            b"thread-self" => format!("{}/task/{thread}", process()?).into_bytes(),
            _ => rustix::fs::readlinkat(link, "", Vec::new())?.into_bytes(),
        }))
    }

    /// Entry of the folder of device files.
    fn in_dev(&self, name: &[u8]) -> Option<Object> {
        if name == Folder::NAME.as_bytes() {
            return Some(Object::Folder(Folder::Cards));
        }
        self.existing(DeviceFile::of_name(name)?)
    }

    /// Entry of a folder of links; of a link, the device file that it leads to.
    fn in_folder(&self, folder: Folder, name: &[u8]) -> Option<Object> {
        match folder {
            Folder::Cards => {
                let card = Folder::card(name).filter(|card| *card < self.devices.len())?;
                Some(Object::Folder(Folder::Card(card)))
            }
            Folder::Card(card) => self.existing(DeviceFile::of_link(card, name)?),
        }
    }

    fn existing(&self, file: DeviceFile) -> Option<Object> {
        self.devices.get(file.card)?.has(file.node).then_some(Object::File(file))
    }
}

/// A directory on the way, from its handle.
fn directory(handle: OwnedFd) -> Result<Directory, Errno> {
    let inode = Inode::at(&handle, "", AtFlags::EMPTY_PATH)?;
    Ok(Directory::Real(handle, inode))
}

/// A device file at the end of a path, or in its middle, also before a slash.
const fn end(file: DeviceFile, is_last: bool) -> PathEnd {
    if is_last { PathEnd::Object(Object::File(file)) } else { PathEnd::Refused(Errno::NOTDIR) }
}

/// Puts the parts of `path` in front. A slash at the end leaves an empty last part.
fn prepend(rest: &mut VecDeque<Vec<u8>>, path: &[u8]) {
    for part in path.split(|byte| *byte == b'/').rev() {
        rest.push_front(part.to_vec());
    }
}
