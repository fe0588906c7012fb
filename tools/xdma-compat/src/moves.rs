//! Calls that move data, and those on the file position.

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::dma::{Request, TransferError};
use crate::files::{OpenFile, is_event};
use crate::listener::{Answer, Call};
use crate::memory::Part;
use crate::node::Node;
use crate::process::Wait;
use crate::registers::{self, Access};
use crate::server::{Reply, Supervisor, Turn};

/// Offset of a call without one of its own: the file position counts.
const AT_POSITION: u64 = u64::MAX;
/// Flags of `preadv2` and `pwritev2` that a character device without further abilities accepts: RWF_HIPRI, DSYNC, SYNC, APPEND, NOAPPEND
/// (`linux/fs.h`).
const CALL_FLAGS: u64 = 0x1 | 0x2 | 0x4 | 0x10 | 0x20;

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
    /// A `read` or `write` call of any form.
    pub(crate) fn move_data(
        &self,
        call: &Call,
        open: &OpenFile,
        turn: &mut Turn<'_>,
    ) -> Result<Answer, Errno> {
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
                let at = offset.map_or_else(|| open.position(), Ok)?;
                memory.check()?;
                // A register of a design, or of a server, may answer late.
                turn.give_up();
                let moved = registers::access(bar, access, memory, parts, at, whole)?;
                if offset.is_none() && moved > 0 {
                    open.set_position(call, at.wrapping_add(moved))?;
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
        let address = offset.map_or_else(|| open.position(), Ok)?;
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
        // A read from a program's memory is checked itself.
        if access == Access::Read {
            request.memory.check()?;
        }
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
            open.set_position(call, address.wrapping_add(moved))?;
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
        let mut has_waited = false;
        loop {
            if wait.has_ended() {
                return Err(Errno::INTR);
            }
            if line.take()? {
                if has_waited && wait.is_killed() {
                    line.put_back();
                    return Err(Errno::INTR);
                }
                break;
            }
            has_waited = true;
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
pub(crate) fn seek_end(call: &Call, open: &OpenFile, offset: u64, whence: u64) -> Result<u64, Errno> {
    if is_event(open.file) {
        return Err(Errno::SPIPE);
    }
    if whence != libc::SEEK_END as u64 {
        return Err(Errno::INVAL);
    }
    let at = i64::from(u32::MAX).checked_add(offset.cast_signed()).and_then(|at| u64::try_from(at).ok());
    let at = at.ok_or(Errno::INVAL)?;
    open.set_position(call, at)?;
    Ok(at)
}
