//! Number of the next incarnation: later than every earlier one of this node (docs/protocol.md 6.4).
//!
//! It is the latest of the following, compared in serial number arithmetic of 32 bits:
//!
//! | Source | Outlasts |
//! |---|---|
//! | sixteenths of a second of the system clock since 1970, modulo 2^32 | everything, while the clock is not set back |
//! | one more than the card's register `INCARNATION` | this program, until the card's hardware reset |
//! | one more than the last number of this process | |
//! | one more than the number in the state file | restarts of the host, and a clock that was set back |
//!
//! Without a usable state file, 2^16 is added to the clock: a lost file may have held a number that was ahead of the clock, because the node
//! started more often than once per tick. The file gets every number that is chosen, so that the lead does not grow.
//!
//! Two starts with the *same* number would be one incarnation to other nodes, which would take new transfers for completed ones. A start
//! whose number no file keeps therefore waits until the clock is past it, unless the card is simulated in virtual time: other nodes then
//! end with this process.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fpga_firmware::Incarnation;
use rustix::fs::{FlockOperation, flock};

/// Unit of the clock. The order holds for nodes that start at least once in 2^31 of them, four years; after that a refusal restores it.
const TICK: Duration = Duration::from_millis(1000 / TICKS_PER_SECOND as u64);
const TICKS_PER_SECOND: u32 = 16;

/// Maximum wait for the clock, in ticks. A number is further ahead only if another node knows a later one, which then refuses a repetition.
const MAX_WAIT: u32 = 8;

/// Added to the clock when the state file may have been lost: starts beyond one per tick since the clock was last ahead.
const LEAD: u32 = 1 << 16;

/// Characters of the state file: ten digits and a line feed, so that every write replaces the whole content.
const CONTENT: usize = 11;

/// Latest number of this process; 0: none yet.
static LAST: AtomicU32 = AtomicU32::new(0);

/// Returns the number of the next incarnation of the node whose card has had incarnation `card`, 0 for none. `files`: candidates for the
/// state file, of which the first usable one is taken; empty: this node keeps no state. `pause` waits; without it, other nodes do not
/// outlast this process.
pub(super) fn next(card: Incarnation, files: &[PathBuf], pause: Option<impl FnMut(Duration)>) -> Incarnation {
    let chosen = next_at(clock(), card, files, &LAST);
    if let Some(pause) = pause {
        settle(&chosen, clock, pause);
    }
    chosen.number
}

/// Makes the next incarnation later than `newest`, which another node knows of this one.
pub(super) fn raise(newest: Incarnation, files: &[PathBuf]) {
    next_at(newest, newest, files, &LAST);
}

/// Waits until a later start has a later number, unless a file ensures it.
fn settle(chosen: &Chosen, mut clock: impl FnMut() -> Incarnation, mut pause: impl FnMut(Duration)) {
    let Chosen { number, stored, lead } = *chosen;
    for _ in 0..MAX_WAIT {
        let next = Incarnation::new(clock().get().wrapping_add(lead));
        if stored || number.is_earlier_than(next) {
            return;
        }
        pause(TICK);
    }
}

/// Number of an incarnation.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    number: Incarnation,
    /// Whether the state file has it.
    stored: bool,
    /// Number of ticks added to the clock.
    lead: u32,
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
    let ticks = since.as_millis() * u128::from(TICKS_PER_SECOND) / 1000;
    Incarnation::new(u32::try_from(ticks & u128::from(u32::MAX)).unwrap_or(0))
}

fn next_at(clock: Incarnation, card: Incarnation, files: &[PathBuf], last: &AtomicU32) -> Chosen {
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
    let stored = state.is_some_and(|state| state.write(number));
    Chosen { number, stored, lead }
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

    /// Stores a number; returns whether that worked. Otherwise the next start takes the clock with its lead.
    fn write(&self, number: Incarnation) -> bool {
        let content = format!("{:010}\n", number.get());
        let written = self.0.write_all_at(content.as_bytes(), 0).and_then(|()| self.0.sync_data());
        if written.is_err() {
            // A number that is too small would be taken for the last one.
            let _ = self.0.set_len(0);
        }
        written.is_ok()
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
        next_at(at(clock), card, files, &AtomicU32::new(0)).number.get()
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
        let numbers: Vec<_> = (0..3).map(|_| next_at(at(100), NONE, &[], &last).number.get()).collect();
        assert_eq!(numbers, [100, 101, 102]);
        // No directory can be created below a file: the clock with its lead, in order all the same.
        let unusable = [PathBuf::from("/dev/null/incarnation")];
        assert_eq!(run(100, NONE, &unusable), 100 + LEAD);
    }

    /// Starts without state: each waits until the clock is past its number, so that the next process has a later one.
    #[test]
    fn start_without_state_waits_until_clock_is_past_number() {
        let unusable = [PathBuf::from("/dev/null/incarnation")];
        for files in [&[][..], &unusable] {
            let now = std::cell::Cell::new(u32::MAX - 2);
            let mut last = None;
            for _ in 0..6 {
                let chosen = next_at(at(now.get()), NONE, files, &AtomicU32::new(0));
                assert!(
                    last.is_none_or(|last: Incarnation| last.is_earlier_than(chosen.number)),
                    "{chosen:?}"
                );
                settle(&chosen, || at(now.get()), |_| now.set(now.get().wrapping_add(1)));
                last = Some(chosen.number);
            }
            // One tick each; the number 0 is skipped.
            assert!((3..=4).contains(&now.get()), "{now:?}");
        }
    }

    #[test]
    fn start_with_state_or_known_newer_number_waits_no_longer_than_limit() {
        let files = file("settle");
        let stored = next_at(at(1_000), NONE, &files, &AtomicU32::new(0));
        settle(&stored, || at(1_000), |_| unreachable!("the file has the number"));
        std::fs::remove_dir_all(files[0].ancestors().nth(2).unwrap()).unwrap();
        let ahead = next_at(at(1_000), at(5_000), &[], &AtomicU32::new(0));
        let mut waits = 0;
        settle(&ahead, || at(1_000), |_| waits += 1);
        assert_eq!(waits, MAX_WAIT);
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
