//! Callers that the supervisor does not serve: those it cannot inspect, and calls of 32-bit programs. They get an error, and each of their
//! processes one line on standard error.

use rustix::io::Errno;
use rustix::process::geteuid;

use crate::filter::Foreign;
use crate::listener::{Answer, Call};
use crate::process;
use crate::server::Supervisor;
use crate::walk::{CURRENT, PathEnd, Rules};

/// Mark of a call of the x32 interface in its number.
pub(crate) const X32: libc::c_long = 0x4000_0000;

impl Supervisor {
    /// Answer to a call whose descriptors or memory the supervisor could not read.
    pub(crate) fn unreadable(&self, call: &Call, error: Errno) -> Answer {
        if !matches!(error, Errno::ACCESS | Errno::PERM) {
            // A wrong address or no caller: the kernel finds out itself.
            return Answer::Continue;
        }
        self.reported.report(
            call,
            "it cannot be inspected (PR_SET_DUMPABLE, another user, or a program that may not be read), so it cannot use device \
             files; run `fpgactl run` as root with CAP_SYS_PTRACE",
        );
        // A descriptor may be that of a device file, and a path the name of one.
        if self.files.are_opened() { Answer::Failure(Errno::PERM) } else { Answer::Continue }
    }

    /// Answers a call of another interface.
    pub(crate) fn foreign(&self, call: &Call) -> Answer {
        let text = "a 32-bit program cannot use device files; build it for 64 bits";
        if !call.is_foreign {
            if call.number > 0 {
                self.reported.report(call, text);
            }
            return Answer::Failure(Errno::NOSYS);
        }
        let [a, b, c, _, e, _] = call.arguments;
        let object = |descriptor| self.files.object(call.thread, descriptor);
        let is_ours = match Foreign::of(call.number) {
            Some(Foreign::Path) => self.is_at(call, CURRENT, a),
            Some(Foreign::PathAt) => self.is_at(call, a, b),
            Some(Foreign::Descriptor) => object(a).map(|object| object.is_some()),
            Some(Foreign::TwoDescriptors) => [a, b, c]
                .into_iter()
                .map(object)
                .try_fold(false, |found, object| Ok(found || object?.is_some())),
            Some(Foreign::Map) => object(e).map(|object| object.is_some()),
            #[cfg(target_arch = "x86_64")]
            Some(Foreign::OldMap) => {
                let fifth = self.memory(call).value(a.wrapping_add(16)).map(u32::from_ne_bytes);
                fifth.and_then(|descriptor| object(descriptor.into())).map(|object| object.is_some())
            }
            Some(Foreign::Ring) => return Answer::Failure(Errno::NOSYS),
            None => Ok(false),
        };
        match is_ours {
            Ok(false) => Answer::Continue,
            Ok(true) => {
                self.reported.report(call, text);
                Answer::Failure(Errno::OPNOTSUPP)
            }
            Err(error) => self.unreadable(call, error),
        }
    }

    fn is_at(&self, call: &Call, directory: u64, path: u64) -> Result<bool, Errno> {
        let path = match self.memory(call).path(path) {
            Err(error @ (Errno::ACCESS | Errno::PERM)) => return Err(error),
            Err(_) => return Ok(false),
            Ok(path) => path,
        };
        let rules = Rules { follow: true, ..Rules::default() };
        Ok(self.walk(call)?.path_end(directory, &path, rules) != PathEnd::OtherFile)
    }

    /// `prctl`: a process that is not inspectable any more could not use its device files.
    pub(crate) fn process_control(&self, call: &Call) -> Answer {
        let [option, value, ..] = call.arguments;
        let hides = option == u64::from(libc::PR_SET_DUMPABLE.unsigned_abs()) && value != 1;
        if !hides || process::may_inspect_all() {
            return Answer::Continue;
        }
        self.reported.report(
            call,
            "PR_SET_DUMPABLE is refused below `fpgactl run`, which could not inspect the process; run `fpgactl run` as root",
        );
        Answer::Failure(Errno::PERM)
    }

    /// Refuses a program that changes its user: the kernel would run it without that right (`no_new_privs`), or without its filter. Also
    /// one that cannot be read, which could not be inspected.
    pub(crate) fn check_exec(&self, call: &Call, directory: u64, address: u64) -> Answer {
        if geteuid().is_root() {
            return Answer::Continue;
        }
        let Ok(path) = self.memory(call).path(address) else { return Answer::Continue };
        let low = directory & u64::from(u32::MAX);
        let base = if path.starts_with(b"/") {
            "root".to_owned()
        } else if low == CURRENT & u64::from(u32::MAX) {
            "cwd".to_owned()
        } else {
            format!("fd/{low}")
        };
        let whole = [format!("/proc/{}/{base}/", call.thread).as_bytes(), &path].concat();
        let Ok(stat) = rustix::fs::stat(&*whole) else { return Answer::Continue };
        let mode = rustix::fs::Mode::from_raw_mode(stat.st_mode);
        let changes = |bit, new, own| mode.contains(bit) && new != own;
        let user = changes(rustix::fs::Mode::SUID, stat.st_uid, geteuid().as_raw());
        let group = changes(rustix::fs::Mode::SGID, stat.st_gid, rustix::process::getegid().as_raw());
        let path = String::from_utf8_lossy(&path);
        if user || group {
            tracing::error!(
                "{path} runs as another user (setuid), which is impossible below `fpgactl run`; run `fpgactl run` itself as that user"
            );
            return Answer::Failure(Errno::PERM);
        }
        if rustix::fs::access(&*whole, rustix::fs::Access::READ_OK) == Err(Errno::ACCESS)
            && rustix::fs::access(&*whole, rustix::fs::Access::EXEC_OK).is_ok()
        {
            tracing::error!(
                "{path} is executable but not readable, so `fpgactl run` could not inspect it; give read permission (chmod +r)"
            );
            return Answer::Failure(Errno::PERM);
        }
        Answer::Continue
    }
}
