//! States that worlds have reached, counted.

use std::collections::BTreeMap;
use std::fmt;

/// Counts of states, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<String, Count>);

/// Count of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of times.
    pub times: u64,
    /// Number of worlds.
    pub worlds: u64,
}

impl Coverage {
    /// Counts a state of one world.
    pub fn count(&mut self, name: &str, times: u64) {
        match self.0.get_mut(name) {
            Some(count) => count.times += times,
            None => {
                self.0.insert(name.to_owned(), Count { times, worlds: 1 });
            }
        }
    }

    /// Adds the counts of other parts of the same world.
    pub fn join(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            self.count(name, count.times);
        }
    }

    /// Adds the counts of another world.
    pub fn add_world(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            let sum = self.0.entry(name.clone()).or_default();
            sum.times += count.times;
            sum.worlds += u64::from(count.times > 0);
        }
    }

    /// Returns the count of a state.
    #[must_use]
    pub fn get(&self, name: &str) -> Count {
        self.0.get(name).copied().unwrap_or_default()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>12} {:>9}  state", "times", "worlds")?;
        for (name, count) in &self.0 {
            writeln!(f, "{:>12} {:>9}  {name}", count.times, count.worlds)?;
        }
        Ok(())
    }
}
