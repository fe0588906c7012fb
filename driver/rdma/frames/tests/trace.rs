//! `publish` makes no system call. Shown twice: by a thread that the kernel kills at its first system call (seccomp), which every Linux
//! kernel supports, and by a run under strace, whose threads are the publisher's, the subscribers' and the cards'.

use crate::stream::bed;

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use fpga_frames::{PublishError, Publisher, Subscriber, SubscriberOptions};
use fpga_pci::testing::skipped;
use fpga_sim::{SimNetwork, ThreadOptions};
use rustix::thread::SecureComputingMode;

const FRAMES: usize = 1_000;
/// System call that marks the trace before and after each `publish`; no other code here makes it.
const MARK: &str = "getppid";

/// Variable of the traced program.
const CHILD: &str = "FPGA_TRACE_CHILD";

/// Traced program of [`publish_makes_no_system_call`]; does nothing without its variable.
#[test]
fn trace_child_publishes_between_marks() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let network = SimNetwork::builder().cards(3).threaded(ThreadOptions::default()).build().unwrap();
    let mut publisher = Publisher::new(bed::endpoint(&network, 0, 1), bed::options()).unwrap();
    let address = publisher.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let (stop, together) = (AtomicBool::new(false), AtomicBool::new(false));
    let (sent, refused) = std::thread::scope(|scope| {
        for card in [1, 2] {
            let (network, stop, together) = (&network, &stop, &together);
            scope.spawn(move || {
                let end = bed::endpoint(network, card, 1);
                let mut subscriber = Subscriber::join(end, address, SubscriberOptions::default()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    // At times no subscriber polls, so that frames are skipped, too.
                    if together.load(Ordering::Relaxed) || subscriber.poll().unwrap().is_none() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        while publisher.subscribers().count() < 2 {
            publisher.poll().unwrap();
        }
        let (mut sent, mut refused) = (0, 0);
        for number in 0..FRAMES {
            together.store(number % 100 >= 80, Ordering::Relaxed);
            let mut frame = publisher.take().unwrap();
            let data = frame.data();
            data.fill(0, data.len(), 7).unwrap();
            let _ = rustix::process::getppid();
            let published = publisher.publish(frame);
            let _ = rustix::process::getppid();
            match published {
                Ok(published) => sent += published.sent.len(),
                Err(PublishError::NoFreeSlot { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            for _ in 0..20 {
                publisher.poll().unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
        (sent, refused)
    });
    println!("{sent} sent, {refused} refused");
    assert!(sent > 0 && refused > 0);
}

/// Returns the system calls of each thread between its marks, and the number of marks.
fn between_marks(trace: &str) -> (BTreeSet<String>, usize) {
    let (mut open, mut found, mut marks) = (BTreeMap::new(), BTreeSet::new(), 0);
    for line in trace.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        // The later result of a call is not a call, and neither is the end of a thread.
        if call.starts_with("<...") || call.starts_with("+++") || call.starts_with("---") {
            continue;
        }
        let name = call.split('(').next().unwrap_or_default();
        let inside = open.entry(thread).or_insert(false);
        if name == MARK {
            *inside = !*inside;
            marks += 1;
        } else if *inside {
            found.insert(name.to_owned());
        }
    }
    (found, marks)
}

/// Thread that may only read, write and exit: the kernel kills it at any other system call. Frames in slots and in ordinary memory, sent at
/// once, queued behind others, and refused because there is no free slot.
#[test]
fn publish_under_seccomp_makes_no_system_call() {
    static THREAD: AtomicI32 = AtomicI32::new(0);
    static SENT: AtomicU32 = AtomicU32::new(0);
    static REFUSED: AtomicU32 = AtomicU32::new(0);
    static DONE: AtomicBool = AtomicBool::new(false);
    let mut bed = bed::TestBed::new(2, bed::options());
    let mut frames: Vec<_> = (0..20).map(|_| bed.publisher.take().unwrap()).collect();
    // The last four are in ordinary memory.
    frames.swap(4, 19);
    assert_eq!(frames.iter().filter(|frame| frame.is_on_heap()).count(), 4);
    assert!(frames[4].is_on_heap());
    // Never joined: the kernel kills it, and its memory is not freed.
    let thread = std::thread::Builder::new().name("publish_under_seccomp_makes_no_system_call".to_owned());
    let publish = move || {
        THREAD.store(rustix::thread::gettid().as_raw_pid(), Ordering::Release);
        if let Err(error) = rustix::thread::set_secure_computing_mode(SecureComputingMode::Strict) {
            skipped(format_args!("seccomp is not available: {error}"));
            DONE.store(true, Ordering::Release);
            return;
        }
        for frame in frames.drain(..) {
            match bed.publisher.publish(frame) {
                Ok(published) => SENT.fetch_add(published.sent.len(), Ordering::Relaxed),
                Err(_) => REFUSED.fetch_add(1, Ordering::Relaxed),
            };
        }
        DONE.store(true, Ordering::Release);
        // Ends here; otherwise it would have to free its memory.
        let _ = rustix::process::getppid();
        REFUSED.store(u32::MAX, Ordering::Release);
    };
    thread.spawn(publish).unwrap();
    // It has started and has ended.
    let is_there = |thread| std::path::Path::new(&format!("/proc/self/task/{thread}")).exists();
    loop {
        let thread = THREAD.load(Ordering::Acquire);
        if thread != 0 && !is_there(thread) {
            break;
        }
        std::thread::yield_now();
    }
    assert!(DONE.load(Ordering::Acquire), "publish() made a system call, and the kernel ended its thread");
    if SENT.load(Ordering::Relaxed) > 0 {
        // Eight slots of each subscriber, and then none is free.
        assert_eq!((SENT.load(Ordering::Relaxed), REFUSED.load(Ordering::Relaxed)), (16, 12));
    }
}

#[test]
fn publish_makes_no_system_call() {
    let folder = std::env::temp_dir().join(format!("fpga-frames-trace-{}", std::process::id()));
    let works = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !works {
        return skipped(
            "strace is not installed, or not permitted to trace (Debian: apt-get install strace)",
        );
    }
    let output = Command::new("strace")
        .args(["-f", "-o"])
        .arg(&folder)
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "trace::trace_child_publishes_between_marks", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let trace = std::fs::read_to_string(&folder).unwrap();
    std::fs::remove_file(&folder).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (mut found, marks) = between_marks(&trace);
    assert_eq!(marks, 2 * FRAMES);
    // Where the kernel offers no clock without a system call, this is one; it does not block.
    found.remove("clock_gettime");
    assert!(found.is_empty(), "publish() calls {found:?}");
    println!(
        "{FRAMES} calls of publish(), {} system calls in the trace, none of them inside a call",
        trace.lines().count()
    );
}

#[test]
fn trace_calls_between_marks_are_found() {
    let trace = "1 getppid() = 0\n2 futex(0x1) = 0\n1 write(3) = 1\n1 <... read resumed>) = 0\n1 getppid() = 0\n1 poll() = 0";
    assert_eq!(between_marks(trace), (BTreeSet::from(["write".to_owned()]), 2));
}
