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

/// System calls that stop for the supervisor's answer.
pub(crate) const SUPERVISED: &[libc::c_long] = &[
    // By descriptor.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_ioctl,
    libc::SYS_mmap,
    libc::SYS_fstat,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsetxattr,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_fchmod,
    libc::SYS_fchown,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_copy_file_range,
    libc::SYS_getdents64,
    libc::SYS_io_submit,
    libc::SYS_io_getevents,
    SYS_IO_PGETEVENTS,
    libc::SYS_io_destroy,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_prctl,
    // By name.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fchmodat,
    452,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_readlinkat,
    libc::SYS_truncate,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_chdir,
    libc::SYS_chroot,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_inotify_add_watch,
    libc::SYS_name_to_handle_at,
    libc::SYS_bind,
];

/// The same, of older architectures.
#[cfg(target_arch = "x86_64")]
const SUPERVISED_OLD: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_mknod,
    libc::SYS_symlink,
    libc::SYS_link,
    libc::SYS_unlink,
    libc::SYS_rmdir,
    libc::SYS_rename,
];
#[cfg(not(target_arch = "x86_64"))]
const SUPERVISED_OLD: &[libc::c_long] = &[];

/// Not in the C library's table of all architectures.
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

/// The filter: calls of the three lists wait for the supervisor, all others are executed.
pub(crate) fn program() -> Vec<sock_filter> {
    let statement = |code: u32, k| sock_filter { code: code_of(code), jt: 0, jf: 0, k };
    let jump = |test: u32, k, jt, jf| sock_filter { code: code_of(BPF_JMP | test | BPF_K), jt, jf, k };
    // No number has the sign bit or more than 32 bits; one that had would match no call.
    let word = |number: libc::c_long| u32::try_from(number).unwrap_or(u32::MAX);
    let foreign: Vec<u32> = FOREIGN.iter().chain(FOREIGN_OWN).map(|(number, _)| word(*number)).collect();
    let own: Vec<u32> = SUPERVISED.iter().chain(SUPERVISED_OLD).map(|number| word(*number)).collect();
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
            let own = SUPERVISED.contains(&call) || SUPERVISED_OLD.contains(&call);
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
