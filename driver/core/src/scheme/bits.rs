//! Sets of packets, one bit each.

use alloc::boxed::Box;

/// The lowest `count` bits.
#[must_use]
pub const fn low(count: u32) -> u128 {
    match count {
        0 => 0,
        1..128 => u128::MAX >> (128 - count),
        _ => u128::MAX,
    }
}

/// A window that a word of bits has room for: at least one packet.
#[must_use]
pub const fn width(window: u32) -> u32 {
    match window {
        0 => 1,
        1..=128 => window,
        _ => 128,
    }
}

/// `bits` moved down by `count`, which may be all of them.
#[must_use]
pub const fn down(bits: u128, count: u32) -> u128 {
    match bits.checked_shr(count) {
        Some(bits) => bits,
        None => 0,
    }
}

/// Bit `index`, if there is one.
#[must_use]
pub const fn bit(index: u32) -> u128 {
    match 1_u128.checked_shl(index) {
        Some(bit) => bit,
        None => 0,
    }
}

/// A set of packets of a message of up to 4096.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Set {
    words: Box<[u64]>,
    count: u32,
}

impl Set {
    /// An empty set for packets 0 to `size - 1`.
    #[must_use]
    pub fn new(size: u32) -> Self {
        let words = crate::cast::index(size.div_ceil(64));
        Self { words: alloc::vec![0; words].into_boxed_slice(), count: 0 }
    }

    /// How many are in it.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Whether this one is.
    #[must_use]
    pub fn contains(&self, index: u32) -> bool {
        self.words.get(crate::cast::index(index / 64)).is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    /// Puts it in; whether it was not there before. One that has no place is never there.
    pub fn insert(&mut self, index: u32) -> bool {
        let Some(word) = self.words.get_mut(crate::cast::index(index / 64)) else { return false };
        let new = *word >> (index % 64) & 1 == 0;
        *word |= 1 << (index % 64);
        self.count += u32::from(new);
        new
    }

    /// Takes the lowest one out.
    pub fn pop(&mut self) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        let (number, word) = (0_u32..).zip(&mut *self.words).find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros();
        *word &= *word - 1;
        self.count -= 1;
        Some(number * 64 + bit)
    }

    /// Takes this one out.
    pub fn remove(&mut self, index: u32) {
        if let Some(word) = self.words.get_mut(crate::cast::index(index / 64)) {
            let there = *word >> (index % 64) & 1;
            *word &= !(1 << (index % 64));
            self.count -= u32::from(there != 0);
        }
    }

    /// The lowest one from `first` on, or else the lowest of all.
    #[must_use]
    pub fn next_from(&self, first: u32) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        let words = || (0_u32..).zip(&*self.words);
        let lowest = |number: u32, word: u64| number * 64 + word.trailing_zeros();
        let ahead = words().skip(crate::cast::index(first / 64)).find_map(|(number, word)| {
            let keep = if number == first / 64 { u64::MAX << (first % 64) } else { u64::MAX };
            (word & keep != 0).then(|| lowest(number, word & keep))
        });
        ahead.or_else(|| words().find_map(|(number, word)| (*word != 0).then(|| lowest(number, *word))))
    }

    /// Takes all out from `first` on.
    pub fn clear_from(&mut self, first: u32) {
        for (number, word) in (0_u32..).zip(&mut *self.words) {
            let keep = first.saturating_sub(number * 64);
            let kept = if keep >= 64 { *word } else { *word & !(u64::MAX << keep) };
            self.count -= (*word ^ kept).count_ones();
            *word = kept;
        }
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn widths_that_shifts_do_not_have() {
        assert_eq!(
            (low(0), low(1), low(127), low(128), low(200)),
            (0, 1, u128::MAX >> 1, u128::MAX, u128::MAX)
        );
        assert_eq!((down(u128::MAX, 127), down(u128::MAX, 128), down(6, 1)), (1, 0, 3));
        assert_eq!((bit(0), bit(127), bit(128)), (1, 1 << 127, 0));
    }

    #[test]
    fn does_what_an_ordered_set_does() {
        let mut state = 1_u64;
        let mut random = |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from((state >> 33) % u64::from(below)).unwrap()
        };
        for size in [1, 63, 64, 65, 300] {
            let (mut set, mut model) = (Set::new(size), BTreeSet::new());
            for _ in 0..2000 {
                let index = random(size);
                let next = model.range(index..).next().or_else(|| model.first()).copied();
                assert_eq!(set.next_from(index), next);
                match random(20) {
                    8..10 => {
                        set.remove(index);
                        model.remove(&index);
                    }
                    0 => {
                        set.clear_from(index);
                        model.split_off(&index);
                    }
                    1 => {
                        set.clear();
                        model.clear();
                    }
                    2..8 => assert_eq!(set.pop(), model.pop_first()),
                    _ => assert_eq!(set.insert(index), model.insert(index)),
                }
                assert_eq!(set.count() as usize, model.len());
                assert_eq!(set.contains(index), model.contains(&index));
            }
        }
    }
}
