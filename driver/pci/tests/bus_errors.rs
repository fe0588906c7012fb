//! BAR that vanishes during an access: with the handler on, the access returns a typed error and the process survives; every other bus
//! error has its earlier effect.
//!
//! A file in memory stands in for the device: truncated after it was mapped, it raises SIGBUS where a device raises it.
#![expect(clippy::unwrap_used, reason = "a test's helpers fail as the test does")]
#![expect(unsafe_code, reason = "handlers of the test's own, and faults outside every BAR")]

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use fpga_pci::mmio::{Liveness, MappedBar};
use fpga_pci::{Bar, Mmio, MmioError, SharedMemory, catch_bus_errors};
use fpga_registers::BarOffset;
use rustix::fs::MemfdFlags;

const SIZE: u64 = 0x4000;

/// Device that answers in configuration space, in any state of its BARs.
struct Device(AtomicU64);

impl Liveness for Device {
    fn is_present(&self) -> bool {
        true
    }

    fn generation(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn bar() -> (Bar, Arc<Device>, Arc<OwnedFd>) {
    let file = Arc::new(rustix::fs::memfd_create("bar", MemfdFlags::CLOEXEC).unwrap());
    rustix::fs::ftruncate(&*file, SIZE).unwrap();
    let device = Arc::new(Device(AtomicU64::new(1)));
    let presence: Arc<dyn Liveness> = Arc::<Device>::clone(&device);
    let whole = core::ops::Range { start: 0, end: SIZE };
    let mapped = MappedBar::map(Arc::clone(&file), 0, SIZE, &[whole], presence).unwrap();
    let mapped: Arc<dyn Mmio> = Arc::new(mapped);
    (Bar::new(mapped), device, file)
}

fn at(offset: u64) -> BarOffset {
    BarOffset::new(offset)
}

fn gone(offset: u64) -> MmioError {
    MmioError::Gone { at: at(offset) }
}

#[test]
fn bus_error_removed_device_access_is_error() {
    catch_bus_errors().unwrap();
    catch_bus_errors().unwrap();
    let (bar, _, file) = bar();
    bar.write32(at(0x1000), 7).unwrap();
    assert_eq!(bar.read32(at(0x1000)), Ok(7));
    rustix::fs::ftruncate(&*file, 0).unwrap();
    assert_eq!(bar.read32(at(0x1000)), Err(gone(0x1000)), "although configuration space answers");
    assert_eq!(bar.read64(at(0x1000)), Err(gone(0x1000)));
    assert_eq!(bar.write32(at(0x3000), 1), Err(gone(0x3000)), "known from now on");
    let mut block = [0; 64];
    assert_eq!(bar.read_block(at(0), &mut block), Err(gone(0)));
    // The BAR returns: the handle stays unusable, a new one works.
    rustix::fs::ftruncate(&*file, SIZE).unwrap();
    assert_eq!(bar.read32(at(0x1000)), Err(gone(0x1000)));
}

#[test]
fn bus_error_lost_doorbell_is_not_read_back() {
    catch_bus_errors().unwrap();
    let (bar, _, file) = bar();
    rustix::fs::ftruncate(&*file, 0).unwrap();
    assert_eq!(bar.write32(at(0x2000), 0x1234), Ok(()), "posted, like any write");
    assert_eq!(bar.read32(at(0x2000)), Err(gone(0x2000)), "the number is not what the device says");
    assert_eq!(bar.write32(at(0x2000), 0x1234), Err(gone(0x2000)));
}

#[test]
fn bus_error_reopened_bar_is_not_mistaken_for_old() {
    catch_bus_errors().unwrap();
    for _ in 0..100 {
        let (old, _, file) = bar();
        rustix::fs::ftruncate(&*file, 0).unwrap();
        assert_eq!(old.read32(at(0)), Err(gone(0)));
        drop(old);
        let (new, device, _file) = bar();
        new.write32(at(0), 3).unwrap();
        assert_eq!(new.read32(at(0)), Ok(3));
        device.0.store(2, Ordering::Relaxed);
        assert_eq!(new.read32(at(0)), Err(MmioError::Stale { at: at(0) }), "reset is not removal");
    }
}

#[test]
fn bus_error_many_threads_lose_bars_at_once() {
    catch_bus_errors().unwrap();
    let (shared, _, shared_file) = bar();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let shared = shared.clone();
            scope.spawn(move || {
                // Until the other thread truncates the file.
                while shared.read32(at(0)).is_ok() {}
                assert_eq!(shared.read32(at(0)), Err(gone(0)));
            });
            scope.spawn(|| {
                for _ in 0..200 {
                    let (own, _, file) = bar();
                    assert_eq!(own.read32(at(0x3000)), Ok(0));
                    rustix::fs::ftruncate(&*file, 0).unwrap();
                    assert_eq!(own.read32(at(0x3000)), Err(gone(0x3000)));
                }
            });
        }
        rustix::fs::ftruncate(&*shared_file, 0).unwrap();
    });
}

#[test]
fn bus_error_truncated_file_reads_zeros_and_is_lost() {
    const PAGE: usize = 4096;
    catch_bus_errors().unwrap();
    let made = || {
        let file = rustix::fs::memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 4 * PAGE as u64).unwrap();
        file
    };
    let file = made();
    let memory = SharedMemory::from_file(file.try_clone().unwrap(), 0, 4 * PAGE).unwrap();
    let part = memory.part(3 * PAGE, PAGE).unwrap();
    memory.fill(0, 4 * PAGE, 7).unwrap();
    assert!(!memory.is_lost() && !part.is_lost());
    rustix::fs::ftruncate(&file, PAGE as u64).unwrap();
    assert_eq!(memory.load_u32(0), Ok(0x0707_0707), "what is still there");
    assert!(!memory.is_lost());
    assert!(memory.view().slice(PAGE, 3 * PAGE).unwrap().to_vec().iter().all(|byte| *byte == 0));
    assert!(memory.is_lost() && part.is_lost());
    memory.fill(0, 4 * PAGE, 9).unwrap();
    assert_eq!(part.load_u32(0), Ok(0x0909_0909), "private memory takes the place");
    // The address range of memory that was unmapped is no longer watched.
    drop((memory, part));
    let other = SharedMemory::from_file(made(), 0, 4 * PAGE).unwrap();
    other.fill(0, 4 * PAGE, 1).unwrap();
    assert!(!other.is_lost());
}

/// Runs one of the cases below in a separate process.
fn run(case: &str) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "bus_error_child_process", "--nocapture", "--test-threads=1"])
        .env("BUS_ERROR_CASE", case);
    command.output().unwrap().status
}

/// Raises a bus error where there is no BAR.
fn fault_elsewhere() {
    let file = rustix::fs::memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 0x1000).unwrap();
    let map = memmap2::MmapOptions::new().len(0x1000).map_raw(file.as_raw_fd()).unwrap();
    rustix::fs::ftruncate(&file, 0).unwrap();
    // SAFETY: the address is mapped; its backing file is truncated, which is what this case tests.
    let value = unsafe { map.as_ptr().read_volatile() };
    println!("read {value}");
}

extern "C" fn own_handler(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    assert!(!info.is_null());
    // SAFETY: ends the process, as a handler may.
    unsafe { libc::_exit(42) };
}

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn counting_handler(_: i32) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

fn install(handler: usize, flags: i32) {
    // SAFETY: the action is all zeros except for a handler of the signature that the flags declare.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGBUS, &raw const action, core::ptr::null_mut()), 0);
    }
}

/// Not a test: body of the child processes of the other tests.
#[test]
fn bus_error_child_process() {
    let Ok(case) = std::env::var("BUS_ERROR_CASE") else { return };
    let raise = || {
        // SAFETY: sends a signal to this thread.
        unsafe { libc::raise(libc::SIGBUS) };
    };
    match case.as_str() {
        "fault" => {
            install(libc::SIG_DFL, 0);
            catch_bus_errors().unwrap();
            fault_elsewhere();
        }
        "sent" => {
            install(libc::SIG_DFL, 0);
            catch_bus_errors().unwrap();
            raise();
        }
        "ignored" => {
            install(libc::SIG_IGN, 0);
            catch_bus_errors().unwrap();
            raise();
        }
        "ignored fault" => {
            install(libc::SIG_IGN, 0);
            catch_bus_errors().unwrap();
            fault_elsewhere();
        }
        "chained" => {
            install(own_handler as *const () as usize, libc::SA_SIGINFO);
            catch_bus_errors().unwrap();
            let (bar, _, file) = bar();
            rustix::fs::ftruncate(&*file, 0).unwrap();
            assert_eq!(bar.read32(at(0)), Err(gone(0)), "not the other handler's");
            fault_elsewhere();
        }
        "counted" => {
            install(counting_handler as *const () as usize, 0);
            catch_bus_errors().unwrap();
            raise();
            raise();
            assert_eq!(SIGNALS.load(Ordering::Relaxed), 2);
        }
        "rust" => {
            // The standard library's handler, which detects stack overflows.
            catch_bus_errors().unwrap();
            fault_elsewhere();
        }
        "after" => {
            let (bar, _, file) = bar();
            drop(bar);
            catch_bus_errors().unwrap();
            drop(file);
            fault_elsewhere();
        }
        "off" => {
            let (bar, _, file) = bar();
            rustix::fs::ftruncate(&*file, 0).unwrap();
            let _ = bar.read32(at(0));
        }
        other => panic!("no case {other}"),
    }
}

#[test]
fn bus_error_foreign_fault_uses_previous_handler() {
    for case in ["fault", "sent", "ignored fault", "rust", "after"] {
        assert_eq!(run(case).signal(), Some(libc::SIGBUS), "{case}");
    }
    for (case, code) in [("ignored", 0), ("counted", 0), ("chained", 42)] {
        assert_eq!(run(case).code(), Some(code), "{case}");
    }
}

/// A mapping without the handler behaves as documented, which is the reason for the handler.
#[test]
fn bus_error_without_handler_kills_process() {
    assert_eq!(run("off").signal(), Some(libc::SIGBUS));
}
