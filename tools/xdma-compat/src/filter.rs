//! The seccomp filter: a program for the kernel's packet filter machine (`seccomp(2)`, `linux/filter.h`).

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};

/// Architecture of the system calls (`linux/audit.h`): the machine's number, 64 bits, little-endian.
#[cfg(target_arch = "x86_64")]
pub(crate) const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
pub(crate) const ARCHITECTURE: u32 = 0xC000_00B7;

/// Offsets in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
/// Mark of the x32 interface in the number of a call.
const X32: u32 = 0x4000_0000;

/// Array of system call numbers.
macro_rules! numbers {
    ($($name:ident)*) => { &[$(libc::$name),*] };
}

/// System calls that move data.
pub(crate) const MOVES_DATA: &[libc::c_long] = numbers![
    SYS_read SYS_write SYS_pread64 SYS_pwrite64 SYS_readv SYS_writev SYS_preadv SYS_pwritev SYS_preadv2
    SYS_pwritev2
];

/// Other system calls with descriptors that wait for the supervisor's answer.
const BY_DESCRIPTOR: &[libc::c_long] = numbers![
    SYS_lseek SYS_ioctl SYS_mmap SYS_fstat SYS_fsync SYS_fdatasync SYS_ftruncate SYS_fallocate
    SYS_fsetxattr SYS_fcntl SYS_flock SYS_fchmod SYS_fchown SYS_sendfile SYS_splice SYS_tee
    SYS_copy_file_range SYS_getdents64 SYS_io_submit SYS_io_getevents SYS_io_destroy SYS_io_uring_setup
    SYS_io_uring_enter SYS_io_uring_register SYS_prctl
];

/// System calls with names that wait for the supervisor's answer.
const BY_NAME: &[libc::c_long] = numbers![
    SYS_openat SYS_openat2 SYS_newfstatat SYS_statx SYS_statfs SYS_faccessat SYS_faccessat2 SYS_fchmodat
    SYS_fchownat SYS_utimensat SYS_readlinkat SYS_truncate SYS_mkdirat SYS_mknodat SYS_symlinkat
    SYS_linkat SYS_unlinkat SYS_renameat SYS_renameat2 SYS_chdir SYS_chroot SYS_execve SYS_execveat
    SYS_getxattr SYS_lgetxattr SYS_listxattr SYS_llistxattr SYS_setxattr SYS_lsetxattr SYS_removexattr
    SYS_lremovexattr SYS_inotify_add_watch SYS_name_to_handle_at SYS_bind
];

/// Further system calls with names, of older architectures.
#[cfg(target_arch = "x86_64")]
const BY_NAME_OLD: &[libc::c_long] = numbers![
    SYS_open SYS_creat SYS_stat SYS_lstat SYS_access SYS_chmod SYS_chown SYS_lchown SYS_utime SYS_utimes
    SYS_futimesat SYS_readlink SYS_mkdir SYS_mknod SYS_symlink SYS_link SYS_unlink SYS_rmdir SYS_rename
];
#[cfg(not(target_arch = "x86_64"))]
const BY_NAME_OLD: &[libc::c_long] = &[];

/// System calls that are not in the C library's tables of all architectures: `io_pgetevents` and `fchmodat2`.
const OTHERS: &[libc::c_long] = &[SYS_IO_PGETEVENTS, SYS_FCHMODAT2];
pub(crate) const SYS_FCHMODAT2: libc::c_long = 452;

#[cfg(target_arch = "x86_64")]
pub(crate) const SYS_IO_PGETEVENTS: libc::c_long = 333;
#[cfg(target_arch = "aarch64")]
pub(crate) const SYS_IO_PGETEVENTS: libc::c_long = 292;

/// Arguments of a 32-bit program's call that may name a device file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// The path in the first argument, or in the second one from the folder in the first.
    Path,
    PathAt,
    /// The descriptor in the first argument.
    Descriptor,
    /// Descriptors in the first three arguments.
    TwoDescriptors,
    /// The descriptor in the fifth argument, or in the fifth word of a structure.
    Map,
    #[cfg(target_arch = "x86_64")]
    OldMap,
    /// `io_uring`.
    Ring,
}

/// Calls of 32-bit programs that have the same number on i386 and in the EABI of ARM.
const FOREIGN: &[(libc::c_long, Foreign)] = &[
    (5, Foreign::Path),
    (8, Foreign::Path),
    (437, Foreign::PathAt),
    (192, Foreign::Map),
    (187, Foreign::TwoDescriptors),
    (239, Foreign::TwoDescriptors),
    (425, Foreign::Ring),
    (3, Foreign::Descriptor),
    (4, Foreign::Descriptor),
    (19, Foreign::Descriptor),
    (54, Foreign::Descriptor),
    (140, Foreign::Descriptor),
    (145, Foreign::Descriptor),
    (146, Foreign::Descriptor),
    (180, Foreign::Descriptor),
    (181, Foreign::Descriptor),
];

/// Further calls of 32-bit programs on the same machine: i386.
#[cfg(target_arch = "x86_64")]
const FOREIGN_OWN: &[(libc::c_long, Foreign)] = &[
    (295, Foreign::PathAt),
    (90, Foreign::OldMap),
    (313, Foreign::TwoDescriptors),
    (377, Foreign::TwoDescriptors),
    (333, Foreign::Descriptor),
    (334, Foreign::Descriptor),
    (378, Foreign::Descriptor),
    (379, Foreign::Descriptor),
];
/// Further calls of 32-bit programs on the same machine: EABI.
#[cfg(target_arch = "aarch64")]
const FOREIGN_OWN: &[(libc::c_long, Foreign)] = &[
    (322, Foreign::PathAt),
    (340, Foreign::TwoDescriptors),
    (391, Foreign::TwoDescriptors),
    (361, Foreign::Descriptor),
    (362, Foreign::Descriptor),
    (392, Foreign::Descriptor),
    (393, Foreign::Descriptor),
];

impl Foreign {
    /// Returns the arguments for a call's number.
    pub(crate) fn of(number: libc::c_long) -> Option<Self> {
        FOREIGN.iter().chain(FOREIGN_OWN).find(|(known, _)| *known == number).map(|(_, kind)| *kind)
    }
}

/// System calls that wait for the supervisor's answer.
fn supervised() -> impl Iterator<Item = libc::c_long> {
    [MOVES_DATA, BY_DESCRIPTOR, BY_NAME, BY_NAME_OLD, OTHERS].into_iter().flatten().copied()
}

/// Returns the filter: supervised calls, and those of 32-bit and x32 programs that may name a device file, wait for the supervisor; all others are
/// executed.
pub(crate) fn program() -> Vec<sock_filter> {
    let statement = |code: u32, k| sock_filter { code: code_of(code), jt: 0, jf: 0, k };
    let jump = |test: u32, k, jt, jf| sock_filter { code: code_of(BPF_JMP | test | BPF_K), jt, jf, k };
    // No number has the sign bit or more than 32 bits; one that had would match no call.
    let word = |number: libc::c_long| u32::try_from(number).unwrap_or(u32::MAX);
    let foreign: Vec<u32> = FOREIGN.iter().chain(FOREIGN_OWN).map(|(number, _)| word(*number)).collect();
    let own: Vec<u32> = supervised().map(word).collect();
    // Comparisons with the numbers, and the answers behind them.
    let list = |numbers: &[u32]| {
        let mut part = Vec::new();
        for (index, number) in numbers.iter().enumerate() {
            // Over the remaining comparisons and the statement that allows the call.
            let distance = u8::try_from(numbers.len() - index).unwrap_or(u8::MAX);
            part.push(jump(BPF_JEQ, *number, distance, 0));
        }
        part.push(statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW));
        part.push(statement(BPF_RET | BPF_K, libc::SECCOMP_RET_USER_NOTIF));
        part
    };
    let foreign = list(&foreign);
    let over_foreign = u8::try_from(foreign.len() + 1).unwrap_or(u8::MAX);
    let mut program = vec![
        statement(BPF_LD | BPF_W | BPF_ABS, ARCHITECTURE_AT),
        jump(BPF_JEQ, ARCHITECTURE, over_foreign, 0),
        statement(BPF_LD | BPF_W | BPF_ABS, NUMBER_AT),
    ];
    program.extend(foreign);
    program.push(statement(BPF_LD | BPF_W | BPF_ABS, NUMBER_AT));
    program.push(jump(BPF_JSET, X32, 0, 1));
    program.push(statement(BPF_RET | BPF_K, libc::SECCOMP_RET_USER_NOTIF));
    program.extend(list(&own));
    program
}

/// The field has 16 bits, the constants have 32.
fn code_of(code: u32) -> u16 {
    u16::try_from(code).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result of the filter, by a machine that knows its instructions.
    fn result(architecture: u32, number: u32) -> u32 {
        let program = program();
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            match u32::from(code) {
                code if code == BPF_LD | BPF_W | BPF_ABS => {
                    accumulator = if k == NUMBER_AT { number } else { architecture };
                }
                code if code == BPF_JMP | BPF_JEQ | BPF_K => {
                    at += usize::from(if accumulator == k { jt } else { jf });
                }
                code if code == BPF_JMP | BPF_JSET | BPF_K => {
                    at += usize::from(if accumulator & k != 0 { jt } else { jf });
                }
                code if code == BPF_RET | BPF_K => return k,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn filter_stops_supervised_calls_only() {
        let verdict = |stops| if stops { libc::SECCOMP_RET_USER_NOTIF } else { libc::SECCOMP_RET_ALLOW };
        for number in 0..1000 {
            let call = libc::c_long::from(number);
            let own = supervised().any(|number| number == call);
            assert_eq!(result(ARCHITECTURE, number), verdict(own), "call {number}");
            // 32-bit programs, and the x32 interface.
            assert_eq!(
                result(0x4000_0003, number),
                verdict(Foreign::of(call).is_some()),
                "32-bit call {number}"
            );
            assert_eq!(result(ARCHITECTURE, number | X32), libc::SECCOMP_RET_USER_NOTIF);
        }
    }
}
