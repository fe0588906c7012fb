//! Runs programs that use the device files of the vendor's XDMA driver, without the kernel module.
//!
//! The program and all its children run below a seccomp filter (`seccomp(2)`, `seccomp_unotify(2)`). System calls that may concern a device
//! file stop in the kernel until this process, the *supervisor*, has answered them. It answers those on device files of a card itself, and
//! lets the kernel execute all others. The programs may therefore be of any language, linked dynamically or statically; they are neither
//! changed nor traced.
//!
//! | Part | Method |
//! |---|---|
//! | `open` of a device file | The program gets an empty memory file, whose name says which device file it stands for. It survives `dup`, `fork` and `exec`. |
//! | `read`, `write` and their variants on it | The data moves between the program's memory and DMA memory (`process_vm_readv(2)`), and the supervisor's channel transfers it. |
//! | `mmap` of registers | The kernel maps the empty file, so that each access raises SIGBUS. A tracer executes the instruction's access on the card ([`ptrace(2)`]). It attaches to a program at its first `mmap` of registers. |
//! | `poll`, `select`, `epoll` on events | The program gets the read end of a pipe, which is readable while an event is pending. |
//!
//! Costs of one intercepted call: two context switches, some microseconds.
//!
//! [`ptrace(2)`]: https://man7.org/linux/man-pages/man2/ptrace.2.html
#![expect(unsafe_code, reason = "system calls on the memory and registers of foreign programs")]

mod calls;
mod device;
mod dma;
mod events;
mod files;
mod filter;
mod ioctl;
mod layout;
mod listener;
mod memory;
mod node;
mod path;
mod performance;
mod registers;
mod run;
mod server;
mod stat;
mod trap;

pub use device::Device;
pub use run::{RunError, run};
