//! The seccomp filter: a program for the kernel's packet filter machine (`seccomp(2)`, `linux/filter.h`).

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};

/// Architecture of the system calls (`linux/audit.h`): the machine's number, 64 bits, little-endian. Programs of another one on the same
/// machine (32-bit programs) are not supervised.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// Offsets in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// System calls that stop for the supervisor's answer.
pub(crate) const SUPERVISED: &[libc::c_long] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
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
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_copy_file_range,
    libc::SYS_io_submit,
    libc::SYS_io_uring_setup,
    libc::SYS_execve,
    libc::SYS_execveat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
];

/// The filter: [`SUPERVISED`] calls wait for the supervisor, all others are executed.
pub(crate) fn program() -> Vec<sock_filter> {
    let statement = |code: u32, k| sock_filter { code: code_of(code), jt: 0, jf: 0, k };
    let jump = |k, jt, jf| sock_filter { code: code_of(BPF_JMP | BPF_JEQ | BPF_K), jt, jf, k };
    let mut program = vec![
        statement(BPF_LD | BPF_W | BPF_ABS, ARCHITECTURE_AT),
        jump(ARCHITECTURE, 1, 0),
        statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW),
        statement(BPF_LD | BPF_W | BPF_ABS, NUMBER_AT),
    ];
    for (index, number) in SUPERVISED.iter().enumerate() {
        // Over the remaining comparisons and the statement that allows the call.
        let distance = u8::try_from(SUPERVISED.len() - index).unwrap_or(u8::MAX);
        // No number has the sign bit or more than 32 bits; one that had would match no call.
        program.push(jump(u32::try_from(*number).unwrap_or(u32::MAX), distance, 0));
    }
    program.push(statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW));
    program.push(statement(BPF_RET | BPF_K, libc::SECCOMP_RET_USER_NOTIF));
    program
}

/// The field has 16 bits, the constants have 32.
fn code_of(code: u32) -> u16 {
    u16::try_from(code).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result of the filter, by a machine that knows its three instructions.
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
                code if code == BPF_RET | BPF_K => return k,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn filter_stops_supervised_calls_only() {
        for number in 0..1000 {
            let expected = if SUPERVISED.contains(&libc::c_long::from(number)) {
                libc::SECCOMP_RET_USER_NOTIF
            } else {
                libc::SECCOMP_RET_ALLOW
            };
            assert_eq!(result(ARCHITECTURE, number), expected, "call {number}");
            // 32-bit programs, and the x32 interface.
            assert_eq!(result(0x4000_0003, number), libc::SECCOMP_RET_ALLOW);
            assert_eq!(result(ARCHITECTURE, number | 0x4000_0000), libc::SECCOMP_RET_ALLOW);
        }
    }
}
