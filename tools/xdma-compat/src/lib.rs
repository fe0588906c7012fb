//! Runs programs that use the device files of the vendor's XDMA driver, without the kernel module.
//!
//! The program and all its children run below a seccomp filter (`seccomp(2)`, `seccomp_unotify(2)`). System calls that may concern a device
//! file stop in the kernel until this process, the *supervisor*, has answered them. It answers those on device files of a card itself, and
//! lets the kernel execute all others. The programs may therefore be of any language, linked dynamically or statically; they are neither
//! changed nor traced.
//!
//! | Part | Method |
//! |---|---|
//! | Paths | The supervisor follows them as the kernel does for the caller: symbolic links, relative paths, descriptors of folders, mounts. It finds device files that do not exist. |
//! | `open` of a device file | The program gets an empty, sealed memory file, the *stand-in* of the device file. The kernel keeps position, flags, locks, mode and owner; `fcntl` shows the flags of a character device. |
//! | `stat`, `chmod`, `access` and so on | The call is executed on the stand-in, and reports a character device. Creation and removal are refused. |
//! | `read`, `write` and their variants on it | The data moves between the program's memory and DMA memory (`process_vm_readv(2)`), and the supervisor's channel transfers it. |
//! | `mmap` of registers | The kernel maps the empty file, so that each access raises SIGBUS. A tracer executes the instruction's access on the card ([`ptrace(2)`]). It attaches to a program at its first `mmap` of registers. |
//! | `io_submit` | The supervisor executes the transfer, and answers `io_getevents`. |
//! | `poll`, `select`, `epoll` on events | The program gets the read end of a pipe, which is readable while an event is pending. |
//!
//! Costs of one intercepted call: two context switches and two system calls of the supervisor; with a transfer, three more (the descriptor,
//! the copy, whether the caller still waits); of a call by name, up to ten more. The supervisor does not poll for calls: caller and
//! supervisor alternate on one CPU, which is faster than to wake another one.
//!
//! Nothing is remembered of a program's address space and threads, and of a descriptor nothing that is not compared at each use: the kernel
//! is asked at each call and each access. Before a write to a caller's memory, and after a read from it, the supervisor checks that the
//! caller still waits.
//!
//! A process between the supervisor and the program, the *guardian*, ends the program and all its descendants if the supervisor ends.
//!
//! [`ptrace(2)`]: https://man7.org/linux/man-pages/man2/ptrace.2.html
#![expect(unsafe_code, reason = "system calls on the memory and registers of foreign programs")]

mod aio;
mod calls;
mod completions;
mod descriptions;
mod descriptors;
mod device;
mod dma;
mod events;
mod files;
mod filter;
mod folders;
mod foreign;
mod guardian;
mod ioctl;
mod layout;
mod listener;
mod lock;
mod memory;
mod moves;
mod names;
mod node;
mod opens;
mod ordinary;
mod performance;
mod process;
mod registers;
mod reported;
mod run;
mod server;
mod stat;
mod trap;
mod walk;

pub use device::Device;
pub use run::{RunError, run};
