//! `card share`: clients without number.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fpga_driver::{BarOffset, Card, CardAddr};
use rustix::process::{Pid, Signal, kill_process};

use crate::share::Owner;
use crate::support::fpgactl;

const LONG: Duration = Duration::from_secs(120);

#[test]
fn share_thousand_connections_leave_nothing_behind() {
    let owner = Owner::start(&[]);
    let (card, socket) = (owner.card(), owner.folder.path().join("card"));
    let neighbour = Card::open(&card).unwrap();
    let mut h2c = neighbour.h2c(0).unwrap();
    let mut buffer = neighbour.buffer(5000).unwrap();
    let before = owner.resources();
    for number in 0..1000 {
        match number % 5 {
            // A whole client, which ends with a transfer in flight.
            0 => {
                let client = Card::open(&card).unwrap();
                let mut channel = client.h2c(1).unwrap();
                let _ = channel.submit(client.buffer(100_000).unwrap(), CardAddr::new(1 << 20)).unwrap();
                channel.poll().unwrap();
            }
            1 => drop(UnixStream::connect(&socket).unwrap()),
            // Parts of a header, and garbage. The owner may have ended the connection before all is written.
            other => {
                let mut client = UnixStream::connect(&socket).unwrap();
                let _ = client.write_all(&vec![0xA5; [0, 0, 7, 16, 4096][other]]);
            }
        }
        buffer = h2c.write(buffer, CardAddr::new(0)).unwrap();
    }
    let began = Instant::now();
    while owner.resources() > before {
        assert!(began.elapsed() < LONG, "{before:?} before, {:?} after", owner.resources());
        std::thread::sleep(Duration::from_millis(10));
    }
    h2c.write(buffer, CardAddr::new(0)).unwrap();
}

/// A client in a loop of errors does not fill the owner's log.
#[test]
fn share_errors_of_client_are_logged_with_limit() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("messages");
    let mut owner = Owner::start_in(folder, &["--no-ni"], Stdio::from(File::create(&log).unwrap()));
    let client = Card::open(&owner.card()).unwrap();
    let user = client.user_bar().unwrap();
    let began = Instant::now();
    for value in 0..3000 {
        user.write32(BarOffset::new(0x100), value).unwrap();
    }
    let mut h2c = client.h2c(0).unwrap();
    for _ in 0..100 {
        h2c.write(client.buffer(64).unwrap(), CardAddr::new(1 << 50)).unwrap_err();
    }
    // The owner is alive, and has executed all writes.
    fpgactl(&["info", "--card", &owner.card()]).ok();
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap();
    kill_process(Pid::from_child(&owner.child), Signal::TERM).unwrap();
    owner.child.wait().unwrap();
    let text = std::fs::read_to_string(&log).unwrap();
    for part in ["a client's write of the user BAR is refused", "the transfer of a client failed", "client=0"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Of each subject eight, one per second, and the numbers of those that were suppressed; a failed transfer is on any of four channels.
    assert!(text.lines().count() < 5 * (2 * 8 + 2 * (seconds + 1)), "{text}");
}
