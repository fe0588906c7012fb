//! Calls with paths, on a device file, a folder of links or a link in it.
//!
//! Most calls are executed on the stand-in, which has an owner, a mode and times; the kernel checks their flags.

use core::ffi::c_long;
use std::ffi::CString;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;

use crate::files::{Object, path_of};
use crate::filter::SYS_FCHMODAT2;
use crate::listener::{Answer, Call, last_error};
use crate::node::DeviceFile;
use crate::server::Supervisor;
use crate::stat;
use crate::walk::{CURRENT, PathEnd, Rules};

const NOFOLLOW: u64 = AtFlags::SYMLINK_NOFOLLOW.bits() as u64;
const FOLLOW: u64 = AtFlags::SYMLINK_FOLLOW.bits() as u64;
const EMPTY: u64 = AtFlags::EMPTY_PATH.bits() as u64;

/// A name in a call.
#[derive(Debug, Clone, Copy)]
struct Name {
    directory: u64,
    path: u64,
    follow: bool,
    /// Whether an empty path means the directory descriptor itself.
    empty: bool,
}

/// Operation of a call on the file that its path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Stat {
        to: u64,
        flags: u64,
    },
    StatExtended {
        flags: u64,
        mask: u64,
        to: u64,
    },
    StatFileSystem {
        to: u64,
    },
    Access {
        mode: u64,
        flags: u64,
    },
    Mode {
        mode: u64,
        flags: u64,
    },
    Owner {
        user: u64,
        group: u64,
        flags: u64,
    },
    /// Change of times, which are at the address `at`.
    Times {
        at: u64,
        unit: Unit,
        flags: u64,
    },
    ReadLink {
        to: u64,
        size: u64,
    },
    Truncate,
    /// Creation of something with this name.
    Create,
    /// Removal or renaming.
    Remove,
    /// Working directory or root.
    Enter,
    Execute,
    GetAttribute,
    ListAttributes,
    SetAttribute,
    /// Anything else.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "units of calls of older architectures"))]
enum Unit {
    Nanoseconds,
    Microseconds,
    Seconds,
}

impl Supervisor {
    /// Answers a call by name; `None` for calls of other kinds.
    pub(crate) fn by_name(&self, call: &Call) -> Option<Answer> {
        let names = names(call)?;
        for (name, action) in names.into_iter().flatten() {
            match self.named(call, name) {
                Ok(PathEnd::OtherFile) => {}
                Ok(place) => return Some(self.act(call, place, action)),
                Err(answer) => return Some(answer),
            }
        }
        Some(Answer::Continue)
    }

    fn named(&self, call: &Call, name: Name) -> Result<PathEnd, Answer> {
        let path = match self.memory(call).path(name.path) {
            Ok(path) => path,
            // `statx` and its relatives accept no path, too.
            Err(Errno::FAULT) if name.path == 0 && name.empty => Vec::new(),
            Err(error) => return Err(self.unreadable(call, error)),
        };
        if path.is_empty() {
            if !name.empty || name.directory & u64::from(u32::MAX) == CURRENT & u64::from(u32::MAX) {
                return Ok(PathEnd::OtherFile);
            }
            let object = self.files.object(call.thread, name.directory);
            let object = object.map_err(|error| self.unreadable(call, error))?;
            return Ok(object.map_or(PathEnd::OtherFile, PathEnd::Object));
        }
        let rules = Rules { follow: name.follow, ..Rules::default() };
        let walk = self.walk(call).map_err(|error| self.unreadable(call, error))?;
        Ok(walk.path_end(name.directory, &path, rules))
    }

    fn act(&self, call: &Call, place: PathEnd, action: Action) -> Answer {
        let result = match place {
            PathEnd::OtherFile => return Answer::Continue,
            PathEnd::Refused(error) => Err(error),
            PathEnd::Link(file) => self.on_link(call, file, action),
            PathEnd::Parent => self.on_parent(call, action),
            PathEnd::Object(object) => self.on_object(call, object, action),
        };
        result.into()
    }

    fn on_link(&self, call: &Call, file: DeviceFile, action: Action) -> Result<u64, Errno> {
        let target = file.link_target();
        match action {
            Action::Stat { to, .. } => {
                stat::write(self.memory(call), to, &self.files, stat::Kind::Link(file))
            }
            Action::StatExtended { flags, mask, to } => {
                stat::write_extended(self.memory(call), to, &self.files, stat::Kind::Link(file), flags, mask)
            }
            Action::ReadLink { to, size } => {
                let size = usize::try_from(size)
                    .ok()
                    .filter(|size| (1..1 << 31).contains(size))
                    .ok_or(Errno::INVAL)?;
                let text = target.as_bytes().get(..size).unwrap_or(target.as_bytes());
                self.memory(call).write(to, text)?;
                Ok(text.len() as u64)
            }
            Action::Create => Err(Errno::EXIST),
            Action::Enter => Err(Errno::NOTDIR),
            Action::ListAttributes => Ok(0),
            Action::GetAttribute => Err(Errno::NODATA),
            _ => Err(Errno::PERM),
        }
    }

    /// Executes an action on the folder of device files, reached from a folder of links: programs that list a folder read its status.
    fn on_parent(&self, call: &Call, action: Action) -> Result<u64, Errno> {
        let memory = self.memory(call);
        match action {
            Action::Stat { to, .. } => stat::write(memory, to, &self.files, stat::Kind::Parent),
            Action::StatExtended { flags, mask, to } => {
                stat::write_extended(memory, to, &self.files, stat::Kind::Parent, flags, mask)
            }
            Action::StatFileSystem { to } => stat::write_file_system(memory, to),
            Action::Create => Err(Errno::EXIST),
            Action::ListAttributes => Ok(0),
            Action::GetAttribute => Err(Errno::NODATA),
            _ => Err(Errno::NOENT),
        }
    }

    fn on_object(&self, call: &Call, object: Object, action: Action) -> Result<u64, Errno> {
        let memory = self.memory(call);
        let is_folder = matches!(object, Object::Folder(_));
        // The name of a link was followed.
        let plain = |flags: u64| (flags & !(NOFOLLOW | EMPTY)).cast_signed();
        let stand_in = self.files.stand_in(object)?;
        match action {
            Action::Stat { to, flags } if plain(flags) & !i64::from(libc::AT_NO_AUTOMOUNT) == 0 => {
                stat::write(memory, to, &self.files, stat::Kind::Object(object))
            }
            Action::Stat { .. } => Err(Errno::INVAL),
            Action::StatExtended { flags, mask, to } => {
                stat::write_extended(memory, to, &self.files, stat::Kind::Object(object), flags, mask)
            }
            Action::StatFileSystem { to } => stat::write_file_system(memory, to),
            Action::Access { mode, flags } => {
                on_stand_in(&stand_in, libc::SYS_faccessat2, [mode.cast_signed(), plain(flags), 0])
            }
            Action::Mode { mode, flags: 0 } => {
                on_stand_in(&stand_in, libc::SYS_fchmodat, [mode.cast_signed(), 0, 0])
            }
            Action::Mode { mode, flags } => {
                on_stand_in(&stand_in, SYS_FCHMODAT2, [mode.cast_signed(), plain(flags), 0])
            }
            Action::Owner { user, group, flags } => on_stand_in(
                &stand_in,
                libc::SYS_fchownat,
                [user.cast_signed(), group.cast_signed(), plain(flags)],
            ),
            Action::Times { at, unit, flags } => {
                let times = times(memory, at, unit)?;
                let times = times.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
                on_stand_in(
                    &stand_in,
                    libc::SYS_utimensat,
                    [times.expose_provenance().cast_signed() as i64, plain(flags), 0],
                )
            }
            Action::Truncate if is_folder => Err(Errno::ISDIR),
            Action::ReadLink { .. } | Action::Truncate => Err(Errno::INVAL),
            Action::Create => Err(Errno::EXIST),
            Action::Enter if is_folder => Err(Errno::ACCESS),
            Action::Enter => Err(Errno::NOTDIR),
            Action::Execute => Err(Errno::ACCESS),
            Action::ListAttributes => Ok(0),
            Action::GetAttribute => Err(Errno::NODATA),
            Action::Remove | Action::SetAttribute | Action::Other => Err(Errno::PERM),
        }
    }
}

/// Executes a call by name on a stand-in. The kernel's result is the answer.
fn on_stand_in(stand_in: &OwnedFd, number: c_long, arguments: [i64; 3]) -> Result<u64, Errno> {
    let path = CString::new(path_of(stand_in)).map_err(|_| Errno::INVAL)?;
    let [a, b, c] = arguments;
    // SAFETY: the path and, of `utimensat`, the times live during the call; all other arguments are numbers.
    let result = unsafe { libc::syscall(number, CWD.as_raw_fd(), path.as_ptr(), a, b, c) };
    u64::try_from(result).map_err(|_| last_error())
}

/// Times of a call, in seconds and nanoseconds. `None`: the present.
fn times(memory: crate::memory::Memory<'_>, at: u64, unit: Unit) -> Result<Option<[[i64; 2]; 2]>, Errno> {
    if at == 0 {
        return Ok(None);
    }
    let mut bytes = [0; 32];
    let length = if unit == Unit::Seconds { 16 } else { 32 };
    memory.read(at, bytes.get_mut(..length).unwrap_or_default())?;
    let word = |index: usize| crate::layout::word(&bytes, 8 * index).cast_signed();
    Ok(Some(match unit {
        Unit::Nanoseconds => [[word(0), word(1)], [word(2), word(3)]],
        Unit::Seconds => [[word(0), 0], [word(1), 0]],
        Unit::Microseconds => {
            let valid =
                |index| Some(word(index)).filter(|parts| (0..1_000_000).contains(parts)).ok_or(Errno::INVAL);
            [[word(0), valid(1)? * 1000], [word(2), valid(3)? * 1000]]
        }
    }))
}

/// The names in a call, and what it does with each of them.
fn names(call: &Call) -> Option<[Option<(Name, Action)>; 2]> {
    let [a, b, c, d, e, _] = call.arguments;
    let at = |directory, path, follow| Name { directory, path, follow, empty: false };
    let with = |directory, path, flags: u64| Name {
        directory,
        path,
        follow: flags & NOFOLLOW == 0,
        empty: flags & EMPTY != 0,
    };
    // One name; the second one is that of a link or of a new name.
    let (name, action) = match call.number {
        libc::SYS_newfstatat => (with(a, b, d), Action::Stat { to: c, flags: d }),
        libc::SYS_statx => (with(a, b, c), Action::StatExtended { flags: c, mask: d, to: e }),
        libc::SYS_statfs => (at(CURRENT, a, true), Action::StatFileSystem { to: b }),
        libc::SYS_faccessat => (at(a, b, true), Action::Access { mode: c, flags: 0 }),
        libc::SYS_faccessat2 => (with(a, b, d), Action::Access { mode: c, flags: d }),
        libc::SYS_fchmodat => (at(a, b, true), Action::Mode { mode: c, flags: 0 }),
        SYS_FCHMODAT2 => (with(a, b, d), Action::Mode { mode: c, flags: d }),
        libc::SYS_fchownat => (with(a, b, e), Action::Owner { user: c, group: d, flags: e }),
        // Without a path it is about the descriptor, which the kernel knows.
        libc::SYS_utimensat if b == 0 => return Some([None, None]),
        libc::SYS_utimensat => (with(a, b, d), Action::Times { at: c, unit: Unit::Nanoseconds, flags: d }),
        libc::SYS_readlinkat => {
            (Name { empty: true, ..at(a, b, false) }, Action::ReadLink { to: c, size: d })
        }
        libc::SYS_truncate => (at(CURRENT, a, true), Action::Truncate),
        libc::SYS_mkdirat | libc::SYS_mknodat => (at(a, b, false), Action::Create),
        libc::SYS_symlinkat => (at(b, c, false), Action::Create),
        libc::SYS_unlinkat => (at(a, b, false), Action::Remove),
        libc::SYS_chdir | libc::SYS_chroot => (at(CURRENT, a, true), Action::Enter),
        libc::SYS_execve => (at(CURRENT, a, true), Action::Execute),
        libc::SYS_execveat => (with(a, b, e), Action::Execute),
        libc::SYS_getxattr => (at(CURRENT, a, true), Action::GetAttribute),
        libc::SYS_lgetxattr => (at(CURRENT, a, false), Action::GetAttribute),
        libc::SYS_listxattr => (at(CURRENT, a, true), Action::ListAttributes),
        libc::SYS_llistxattr => (at(CURRENT, a, false), Action::ListAttributes),
        libc::SYS_setxattr | libc::SYS_removexattr => (at(CURRENT, a, true), Action::SetAttribute),
        libc::SYS_lsetxattr | libc::SYS_lremovexattr => (at(CURRENT, a, false), Action::SetAttribute),
        libc::SYS_inotify_add_watch => (at(CURRENT, b, true), Action::Other),
        libc::SYS_name_to_handle_at => (with(a, b, NOFOLLOW ^ FOLLOW), Action::Other),
        libc::SYS_renameat | libc::SYS_renameat2 => {
            return Some([Some((at(a, b, false), Action::Remove)), Some((at(c, d, false), Action::Remove))]);
        }
        libc::SYS_linkat => {
            let old = Name { directory: a, path: b, follow: e & FOLLOW != 0, empty: e & EMPTY != 0 };
            return Some([Some((old, Action::Other)), Some((at(c, d, false), Action::Create))]);
        }
        _ => return old_names(call),
    };
    Some([Some((name, action)), None])
}

/// The same for calls that only older architectures have.
#[cfg(target_arch = "x86_64")]
fn old_names(call: &Call) -> Option<[Option<(Name, Action)>; 2]> {
    let [a, b, c, ..] = call.arguments;
    let at = |path, follow| Name { directory: CURRENT, path, follow, empty: false };
    let (name, action) = match call.number {
        libc::SYS_stat => (at(a, true), Action::Stat { to: b, flags: 0 }),
        libc::SYS_lstat => (at(a, false), Action::Stat { to: b, flags: 0 }),
        libc::SYS_access => (at(a, true), Action::Access { mode: b, flags: 0 }),
        libc::SYS_chmod => (at(a, true), Action::Mode { mode: b, flags: 0 }),
        libc::SYS_chown => (at(a, true), Action::Owner { user: b, group: c, flags: 0 }),
        libc::SYS_lchown => (at(a, false), Action::Owner { user: b, group: c, flags: 0 }),
        libc::SYS_utime => (at(a, true), Action::Times { at: b, unit: Unit::Seconds, flags: 0 }),
        libc::SYS_utimes => (at(a, true), Action::Times { at: b, unit: Unit::Microseconds, flags: 0 }),
        libc::SYS_futimesat => {
            let name = Name { directory: a, path: b, follow: true, empty: false };
            (name, Action::Times { at: c, unit: Unit::Microseconds, flags: 0 })
        }
        libc::SYS_readlink => (at(a, false), Action::ReadLink { to: b, size: c }),
        libc::SYS_mkdir | libc::SYS_mknod => (at(a, false), Action::Create),
        libc::SYS_symlink => (at(b, false), Action::Create),
        libc::SYS_unlink | libc::SYS_rmdir => (at(a, false), Action::Remove),
        libc::SYS_rename => {
            return Some([Some((at(a, false), Action::Remove)), Some((at(b, false), Action::Remove))]);
        }
        libc::SYS_link => {
            return Some([Some((at(a, false), Action::Other)), Some((at(b, false), Action::Create))]);
        }
        _ => return None,
    };
    Some([Some((name, action)), None])
}

#[cfg(not(target_arch = "x86_64"))]
const fn old_names(_: &Call) -> Option<[Option<(Name, Action)>; 2]> {
    None
}
