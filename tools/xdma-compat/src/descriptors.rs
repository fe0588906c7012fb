//! Calls on the descriptors of device files themselves: flags, locks.
//!
//! The kernel executes them on the stand-in, apart from those that would show that it is one.

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::files::{Object, duplicate, is_event};
use crate::listener::{Answer, Call};
use crate::node::DeviceFile;
use crate::server::Supervisor;

/// Commands on the number of a descriptor, also of one that was opened only as a name: F_DUPFD, F_GETFD, F_SETFD, F_DUPFD_CLOEXEC,
/// F_DUPFD_QUERY (`linux/fcntl.h`).
const OF_NUMBER: [u64; 5] = [0, 1, 2, 1030, 1027];
const F_GETFL: u64 = 3;
const F_SETFL: u64 = 4;
const F_ADD_SEALS: u64 = 1033;
/// Commands for regular files only: F_SETLEASE, F_ADD_SEALS, F_GET_SEALS.
const OF_REGULAR: [u64; 3] = [1024, F_ADD_SEALS, 1034];
/// Locks of open file descriptions: F_OFD_SETLK, F_OFD_SETLKW.
const OF_DESCRIPTION: [u64; 2] = [37, 38];
/// Commands for pipes only: F_SETPIPE_SZ, F_GETPIPE_SZ.
const OF_PIPE: [u64; 2] = [1031, 1032];

impl Supervisor {
    /// Object behind a descriptor, and the flags of its stand-in. Programs that cannot be inspected have no device files.
    fn described(&self, call: &Call, descriptor: u64) -> Option<(Object, OFlags)> {
        let object = self.files.object(call.thread, descriptor).ok().flatten()?;
        let number = u32::try_from(descriptor & u64::from(u32::MAX)).ok()?;
        let (_, flags) = crate::process::descriptor(call.thread, number)?;
        Some((object, flags))
    }

    /// Leaves a call to the kernel, unless the descriptor is of a device file that was opened only as a name.
    pub(crate) fn unless_name(&self, call: &Call, descriptor: u64) -> Answer {
        match self.described(call, descriptor) {
            Some((object, flags)) if object.is_name(flags) => Answer::Failure(Errno::BADF),
            _ => Answer::Continue,
        }
    }

    /// `flock`: the kernel locks the stand-in.
    pub(crate) fn lock_file(&self, call: &Call, descriptor: u64) -> Answer {
        let answer = self.unless_name(call, descriptor);
        if answer == Answer::Continue && matches!(self.files.object(call.thread, descriptor), Ok(Some(_))) {
            self.files.descriptions.close();
        }
        answer
    }

    /// `fcntl`.
    pub(crate) fn control_descriptor(
        &self,
        call: &Call,
        descriptor: u64,
        command: u64,
        value: u64,
    ) -> Answer {
        let command = command & u64::from(u32::MAX);
        if OF_NUMBER.contains(&command) {
            return Answer::Continue;
        }
        let Some((object, flags)) = self.described(call, descriptor) else { return Answer::Continue };
        let is_pipe = matches!(object, Object::File(file) if is_event(file));
        match command {
            F_GETFL => Answer::Value(object.seen(flags).bits().into()),
            _ if object.is_name(flags) => Answer::Failure(Errno::BADF),
            F_SETFL => match object {
                Object::File(file) => set_flags(call, descriptor, file, flags, value).into(),
                Object::Folder(_) => Answer::Continue,
            },
            // The kernel checks the access first.
            F_ADD_SEALS if flags & OFlags::RWMODE == OFlags::RDONLY => Answer::Failure(Errno::PERM),
            _ if OF_REGULAR.contains(&command) => Answer::Failure(Errno::INVAL),
            _ if is_pipe && OF_PIPE.contains(&command) => Answer::Failure(Errno::BADF),
            _ if OF_DESCRIPTION.contains(&command) => {
                self.files.descriptions.close();
                Answer::Continue
            }
            _ => Answer::Continue,
        }
    }
}

/// Sets the flags that can be changed, and keeps the marks of the stand-in.
fn set_flags(
    call: &Call,
    descriptor: u64,
    file: DeviceFile,
    flags: OFlags,
    value: u64,
) -> Result<u64, Errno> {
    let value = OFlags::from_bits_retain(u32::try_from(value & u64::from(u32::MAX)).unwrap_or(0));
    // A character device without this ability.
    if value.contains(OFlags::DIRECT) && !is_event(file) {
        return Err(Errno::INVAL);
    }
    let kept = flags & OFlags::NOATIME | value & (OFlags::APPEND | OFlags::NONBLOCK);
    rustix::fs::fcntl_setfl(duplicate(call.thread, descriptor)?, kept).map(|()| 0)
}
