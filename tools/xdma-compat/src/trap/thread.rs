//! A tracer and its processes.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::instruction::AccessError;
use super::mappings::Mapped;
use super::request::request;
use super::{Shared, instruction};
use crate::listener::last_error;
use crate::process::{has_ended, is_traced_here};

/// Events that stop a traced thread. Traced programs end with the supervisor.
const OPTIONS: libc::c_int = libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_EXITKILL;
/// SIGBUS because of an access behind the end of a file (`asm-generic/siginfo.h`).
const BUS_ADRERR: i32 = 2;

/// Number of accesses after which a tracer checks on which CPU its program runs.
const FOLLOW: u32 = 64;

/// Processes of one tracer.
pub(super) struct Tracees {
    shared: Arc<Shared>,
    /// Number of accesses so far, and the CPU that this thread is bound to.
    accesses: u32,
    cpu: Option<usize>,
}

impl Tracees {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, accesses: 0, cpu: None }
    }

    /// Traces `process` and what comes of it, until all have ended.
    pub(super) fn trace(mut self, process: i32, ready: &Sender<Result<(), String>>) {
        let seized = seize(process).map_err(|error| match error {
            Errno::PERM => {
                "the program is traced by another one (a debugger), or ptrace is forbidden here".to_owned()
            }
            error => format!("ptrace: {error}"),
        });
        let failed = seized.is_err();
        let _ = ready.send(seized);
        if failed {
            return;
        }
        loop {
            let mut status = 0;
            // SAFETY: `status` is valid for a write.
            let thread = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
            if thread < 0 {
                if last_error() == Errno::INTR {
                    continue;
                }
                return;
            }
            if libc::WIFSTOPPED(status) {
                self.stopped(thread, status);
            }
        }
    }

    /// Lets a stopped thread continue.
    fn stopped(&mut self, thread: i32, status: i32) {
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            libc::PTRACE_EVENT_EXEC => {
                // The new program has no mapping of registers. If it makes one, a tracer comes again.
                let _ = request(libc::PTRACE_DETACH, thread, 0);
            }
            // First stop of a new thread or process.
            libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => {
                let _ = request(libc::PTRACE_CONT, thread, 0);
            }
            // The terminal or a signal has stopped the whole process: it remains stopped until SIGCONT.
            libc::PTRACE_EVENT_STOP => {
                let _ = request(libc::PTRACE_LISTEN, thread, 0);
            }
            0 => {
                let signal = if signal == libc::SIGBUS && self.execute(thread) { 0 } else { signal };
                let _ = request(libc::PTRACE_CONT, thread, signal);
            }
            _ => {
                let _ = request(libc::PTRACE_CONT, thread, 0);
            }
        }
    }

    /// Moves this thread to the CPU on which `thread` runs: the two wait for each other, and an idle CPU takes tens of microseconds to wake.
    fn follow(&mut self, thread: i32) {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{thread}/stat")) else { return };
        // The fields behind the name, which is in parentheses and may contain any character; `processor` is the 39th of all (proc(5)).
        let fields = status.rsplit_once(')').map_or("", |(_, fields)| fields);
        let cpu = fields.split_ascii_whitespace().nth(36).and_then(|cpu| cpu.parse().ok());
        if let Some(cpu) = cpu.filter(|cpu| self.cpu != Some(*cpu) && *cpu < CpuSet::MAX_CPU) {
            let mut set = CpuSet::new();
            set.set(cpu);
            // A CPU set that excludes it only costs speed.
            let _ = sched_setaffinity(None, &set);
            self.cpu = Some(cpu);
        }
    }

    /// Executes the access that raised SIGBUS. Returns `false` if the signal is the program's own.
    fn execute(&mut self, thread: i32) -> bool {
        let Some(address) = fault_address(thread) else { return false };
        if self.accesses.is_multiple_of(FOLLOW) {
            self.follow(thread);
        }
        self.accesses = self.accesses.wrapping_add(1);
        let Some(mapped) = Mapped::find(thread, &self.shared.files, address) else { return false };
        let file = mapped.file;
        let device = self.shared.devices.get(file.card);
        let Some(bar) = device.and_then(|device| device.bar(file.node)) else { return false };
        match instruction::execute(thread, address, &mapped, bar) {
            // A thread that was killed has no more signals.
            Ok(()) | Err(AccessError::Trace(Errno::SRCH)) => true,
            Err(reason) => {
                tracing::error!(
                    "{file}, offset {:#x}: {reason}; the program gets SIGBUS",
                    mapped.offset_of(address)
                );
                false
            }
        }
    }
}

/// Attaches to all threads of a process, without stopping them.
fn seize(process: i32) -> Result<(), Errno> {
    let mut seized = std::collections::HashSet::new();
    // A thread that is not traced yet may start another one meanwhile.
    loop {
        let mut found = false;
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).map_err(|_| Errno::SRCH)?;
        let threads = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
        for thread in threads.filter(|thread| !seized.contains(thread)).collect::<Vec<i32>>() {
            match request(libc::PTRACE_SEIZE, thread, OPTIONS) {
                // Ended meanwhile; or started by a traced thread, so that the kernel traces it already.
                Ok(()) | Err(Errno::SRCH) => {}
                Err(Errno::PERM)
                    if is_traced_here(thread.unsigned_abs()) || has_ended(thread.unsigned_abs()) => {}
                Err(error) => return Err(error),
            }
            seized.insert(thread);
            found = true;
        }
        if !found {
            return Ok(());
        }
    }
}

/// Address of the access that raised SIGBUS.
fn fault_address(thread: i32) -> Option<u64> {
    // SAFETY: the structure consists of integers and pointers that are not dereferenced.
    let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes the structure.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, thread, 0, &raw mut info) };
    // SAFETY: a SIGBUS of this code has an address.
    (result == 0 && info.si_code == BUS_ADRERR).then(|| unsafe { info.si_addr() }.addr() as u64)
}
