//! Number of the next incarnation: later than every earlier one of this node (docs/protocol.md 6.4).
//!
//! It is the latest of the following, compared in serial number arithmetic of 32 bits:
//!
//! | Source | Outlasts |
//! |---|---|
//! | seconds of the system clock since 1970, modulo 2^32 | everything, while the clock is not set back |
//! | one more than the card's register `INCARNATION` | this program, until the card's hardware reset |
//! | one more than the last number of this process | |
//! | one more than the number in the state file | restarts of the host, and a clock that was set back |
//!
//! Without a usable state file, 2^16 is added to the clock: a lost file may have held a number that was ahead of the clock, because the node
//! started more often than once per second. The file gets every number that is chosen, so that the lead does not grow.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use fpga_firmware::Incarnation;
use rustix::fs::{FlockOperation, flock};

/// Added to the clock when the state file may have been lost: starts beyond one per second since the clock was last ahead.
const LEAD: u32 = 1 << 16;

/// Characters of the state file: ten digits and a line feed, so that every write replaces the whole content.
const CONTENT: usize = 11;

/// Latest number of this process; 0: none yet.
static LAST: AtomicU32 = AtomicU32::new(0);

/// Returns the number of the next incarnation of the node whose card has had incarnation `card`, 0 for none. `files`: candidates for the
/// state file, of which the first usable one is taken; empty: this node keeps no state.
pub(super) fn next(card: Incarnation, files: &[PathBuf]) -> Incarnation {
    next_at(clock(), card, files, &LAST)
}

/// Makes the next incarnation later than `newest`, which another node knows of this one.
pub(super) fn raise(newest: Incarnation, files: &[PathBuf]) {
    next_at(newest, newest, files, &LAST);
}

/// Returns the default candidates for the state file.
pub(super) fn default_files() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let user = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or(home);
    let directories = [Some(PathBuf::from("/var/lib")), user];
    directories.into_iter().flatten().map(|directory| directory.join("fpga/incarnation")).collect()
}

fn clock() -> Incarnation {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Incarnation::new(u32::try_from(since.as_secs() & u64::from(u32::MAX)).unwrap_or(0))
}

fn next_at(clock: Incarnation, card: Incarnation, files: &[PathBuf], last: &AtomicU32) -> Incarnation {
    let state = files.iter().find_map(|path| StateFile::open(path));
    let stored = state.as_ref().and_then(StateFile::read);
    let lead = if files.is_empty() || stored.is_some() { 0 } else { LEAD };
    let mut number = Incarnation::new(clock.get().wrapping_add(lead));
    let used = |number: Incarnation| (number != Incarnation::new(0)).then(|| number.next());
    for other in [used(card), stored.map(Incarnation::next)].into_iter().flatten() {
        number = later(number, other);
    }
    let choose = |last: u32| used(Incarnation::new(last)).map_or(number, |other| later(number, other));
    let choose = |last: u32| Some(choose(last)).map(|chosen| chosen.get().max(1));
    let before = last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, choose);
    let number = Incarnation::new(before.ok().and_then(choose).unwrap_or(number.get()));
    if let Some(state) = state {
        state.write(number);
    }
    number
}

/// Returns the later one of two numbers.
fn later(one: Incarnation, other: Incarnation) -> Incarnation {
    if one.is_earlier_than(other) { other } else { one }
}

/// State file, locked until it is dropped.
struct StateFile(File);

impl StateFile {
    /// Opens or creates the file and waits for its lock; `None` if this user may not, or the path has no directory that can be created.
    fn open(path: &Path) -> Option<Self> {
        std::fs::create_dir_all(path.parent()?).ok()?;
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(path).ok()?;
        flock(&file, FlockOperation::LockExclusive).ok()?;
        Some(Self(file))
    }

    /// Returns the stored number; `None` if the file is new or damaged.
    fn read(&self) -> Option<Incarnation> {
        let mut content = [0; CONTENT];
        self.0.read_exact_at(&mut content, 0).ok()?;
        let number = std::str::from_utf8(&content).ok()?.trim_end().parse().ok()?;
        (number != 0).then(|| Incarnation::new(number))
    }

    /// Stores a number. A failure is ignored: the next start then takes the clock with its lead.
    fn write(&self, number: Incarnation) {
        let content = format!("{:010}\n", number.get());
        let written = self.0.write_all_at(content.as_bytes(), 0).and_then(|()| self.0.sync_data());
        if written.is_err() {
            // A number that is too small would be taken for the last one.
            let _ = self.0.set_len(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Incarnation = Incarnation::new(0);

    fn at(seconds: u32) -> Incarnation {
        Incarnation::new(seconds)
    }

    /// A run of a program on its own: the process knows no earlier number.
    fn run(clock: u32, card: Incarnation, files: &[PathBuf]) -> u32 {
        next_at(at(clock), card, files, &AtomicU32::new(0)).get()
    }

    fn file(name: &str) -> Vec<PathBuf> {
        let directory = std::env::temp_dir().join(format!("fpga-incarnation-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        vec![directory.join("state/incarnation")]
    }

    #[test]
    fn state_file_keeps_order_when_clock_is_set_back() {
        let files = file("back");
        let first = run(1_000_000, NONE, &files);
        assert_eq!(first, 1_000_000 + LEAD, "a file that may have been lost");
        assert_eq!(run(1_000_000, NONE, &files), first + 1);
        assert_eq!(run(5, NONE, &files), first + 2);
        assert_eq!(run(first + 100, NONE, &files), first + 100);
        // Lost again, after fewer starts than the lead: still later.
        std::fs::remove_file(&files[0]).unwrap();
        assert!(run(first + 101, NONE, &files) > first + 102);
        std::fs::remove_dir_all(files[0].ancestors().nth(2).unwrap()).unwrap();
    }

    #[test]
    fn state_file_damaged_counts_as_lost() {
        let files = file("damaged");
        for content in ["", "x", "0000000000\n", "99999999999", "4294967296\n"] {
            run(7, NONE, &files);
            std::fs::write(&files[0], content).unwrap();
            assert_eq!(run(1_000_000, NONE, &files), 1_000_000 + LEAD, "{content:?}");
        }
        std::fs::remove_dir_all(files[0].ancestors().nth(2).unwrap()).unwrap();
    }

    #[test]
    fn card_register_and_process_keep_order_without_file() {
        assert_eq!(run(100, NONE, &[]), 100);
        assert_eq!(run(100, at(100), &[]), 101);
        assert_eq!(run(100, at(7), &[]), 100);
        let last = AtomicU32::new(0);
        let numbers: Vec<_> = (0..3).map(|_| next_at(at(100), NONE, &[], &last).get()).collect();
        assert_eq!(numbers, [100, 101, 102]);
        // No directory can be created below a file: the clock with its lead, in order all the same.
        let unusable = [PathBuf::from("/dev/null/incarnation")];
        assert_eq!(run(100, NONE, &unusable), 100 + LEAD);
    }

    #[test]
    fn number_wraps_and_is_never_zero() {
        assert_eq!(run(u32::MAX, at(u32::MAX), &[]), 1);
        assert_eq!(run(0, NONE, &[]), 1);
        assert_eq!(run(3, at(u32::MAX), &[]), 3, "the clock has wrapped");
    }

    #[test]
    fn raise_makes_next_number_later_than_known_one() {
        let files = file("raise");
        let first = run(1_000, NONE, &files);
        next_at(at(first + 5_000), at(first + 5_000), &files, &AtomicU32::new(0));
        assert!(run(1_001, NONE, &files) > first + 5_000);
        std::fs::remove_dir_all(files[0].ancestors().nth(2).unwrap()).unwrap();
    }
}
