//! Sets of packets, one bit each.

use alloc::boxed::Box;

/// Returns the lowest `count` bits set.
#[must_use]
pub const fn low(count: u32) -> u128 {
    match count {
        0 => 0,
        1..128 => u128::MAX >> (128 - count),
        _ => u128::MAX,
    }
}

/// Limits a window to the bits of one word; at least one packet.
#[must_use]
pub const fn width(window: u32) -> u32 {
    match window {
        0 => 1,
        1..=128 => window,
        _ => 128,
    }
}

/// Shifts `bits` down by `count`, which may exceed the width.
#[must_use]
pub const fn down(bits: u128, count: u32) -> u128 {
    match bits.checked_shr(count) {
        Some(bits) => bits,
        None => 0,
    }
}

/// Returns bit `index`; zero beyond the width.
#[must_use]
pub const fn bit(index: u32) -> u128 {
    match 1_u128.checked_shl(index) {
        Some(bit) => bit,
        None => 0,
    }
}

/// Set of packets of a message of up to 4096.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PacketSet {
    words: Box<[u64]>,
    count: u32,
}

impl PacketSet {
    /// Creates an empty set for packets 0 to `size - 1`.
    #[must_use]
    pub fn new(size: u32) -> Self {
        let words = fpga_registers::cast::index(size.div_ceil(64));
        Self { words: alloc::vec![0; words].into_boxed_slice(), count: 0 }
    }

    /// Returns the bytes of the heap memory.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// Returns the number of packets in the set.
    #[must_use]
    #[inline]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Whether packet `index` is in the set.
    #[must_use]
    #[inline]
    pub fn contains(&self, index: u32) -> bool {
        self.words
            .get(fpga_registers::cast::index(index / 64))
            .is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    /// Inserts a packet. Returns whether it is new; false for a packet beyond the size.
    #[inline]
    pub fn insert(&mut self, index: u32) -> bool {
        let Some(word) = self.words.get_mut(fpga_registers::cast::index(index / 64)) else { return false };
        let new = *word >> (index % 64) & 1 == 0;
        *word |= 1 << (index % 64);
        self.count += u32::from(new);
        new
    }

    /// Removes and returns the lowest packet.
    #[inline]
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

    /// Removes a packet.
    #[inline]
    pub fn remove(&mut self, index: u32) {
        if let Some(word) = self.words.get_mut(fpga_registers::cast::index(index / 64)) {
            let there = *word >> (index % 64) & 1;
            *word &= !(1 << (index % 64));
            self.count -= u32::from(there != 0);
        }
    }

    /// Returns the lowest packet from `first` on, or else the lowest of all.
    #[must_use]
    #[inline]
    pub fn next_from(&self, first: u32) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        let words = || (0_u32..).zip(&*self.words);
        let lowest = |number: u32, word: u64| number * 64 + word.trailing_zeros();
        let ahead = words().skip(fpga_registers::cast::index(first / 64)).find_map(|(number, word)| {
            let keep = if number == first / 64 { u64::MAX << (first % 64) } else { u64::MAX };
            (word & keep != 0).then(|| lowest(number, word & keep))
        });
        ahead.or_else(|| words().find_map(|(number, word)| (*word != 0).then(|| lowest(number, *word))))
    }

    /// Removes all packets from `first` on.
    pub fn clear_from(&mut self, first: u32) {
        for (number, word) in (0_u32..).zip(&mut *self.words) {
            let keep = first.saturating_sub(number * 64);
            let kept = if keep >= 64 { *word } else { *word & !(u64::MAX << keep) };
            self.count -= (*word ^ kept).count_ones();
            *word = kept;
        }
    }

    /// Removes all packets.
    pub fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }
}

/// Number of words of a [`PacketWindow`].
const WORDS: usize = 8;

/// Set of packets less than [`PacketWindow::WIDTH`] ahead of a base that the caller keeps. There is one bit per packet,
/// indexed by the low bits of its number, so that no bit moves when the base does. A caller that moves the base removes
/// the packets that it passes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PacketWindow([u64; WORDS]);

impl PacketWindow {
    /// Maximum number of packets.
    pub const WIDTH: u32 = 512;
    /// The empty set.
    pub const EMPTY: Self = Self([0; WORDS]);

    fn word(&self, index: u32) -> u64 {
        self.0.get(fpga_registers::cast::index(index / 64) % WORDS).copied().unwrap_or(0)
    }

    fn word_mut(&mut self, index: u32) -> &mut u64 {
        &mut self.0[fpga_registers::cast::index(index / 64) % WORDS]
    }

    /// Returns the number of packets.
    #[must_use]
    pub fn count(&self) -> u32 {
        // Most words are 0, and counting takes many instructions on processors without one for it.
        self.0.iter().filter(|word| **word != 0).map(|word| word.count_ones()).sum()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Whether packet `index` is in the set.
    #[must_use]
    pub fn contains(&self, index: u32) -> bool {
        self.word(index) >> (index % 64) & 1 != 0
    }

    /// Inserts a packet.
    pub fn insert(&mut self, index: u32) {
        *self.word_mut(index) |= 1 << (index % 64);
    }

    /// Removes a packet.
    pub fn remove(&mut self, index: u32) {
        *self.word_mut(index) &= !(1 << (index % 64));
    }

    /// Returns the 128 packets from `first` on as bits: bit `i` is packet `first + i`.
    #[must_use]
    pub fn bits(&self, first: u32) -> u128 {
        let [low, high, beyond] = [0, 64, 128].map(|ahead| u128::from(self.word(first.wrapping_add(ahead))));
        let shift = first % 64;
        let bits = (low | high << 64) >> shift;
        if shift == 0 { bits } else { bits | beyond << (128 - shift) }
    }

    /// Calls `change` with each word that holds packets from `first` to before `end`, at most [`Self::WIDTH`] of them,
    /// and with their bits.
    fn each_word(&mut self, first: u32, end: u32, mut change: impl FnMut(&mut u64, u64)) {
        let mut at = first;
        while at < end {
            let span = (64 - at % 64).min(end - at);
            change(self.word_mut(at), u64::MAX >> (64 - span) << (at % 64));
            at += span;
        }
    }

    /// Removes all packets from `first` to before `end`. Returns how many were in the set.
    pub fn clear(&mut self, first: u32, end: u32) -> u32 {
        let mut there = 0;
        self.each_word(first, end, |word, bits| {
            there += (*word & bits).count_ones();
            *word &= !bits;
        });
        there
    }

    /// Inserts those of 128 packets from `first` on whose bits are set. Returns how many are new.
    pub fn insert_bits(&mut self, first: u32, bits: u128) -> u32 {
        let new = bits & !self.bits(first);
        let mut left = bits;
        let mut at = first;
        while left != 0 {
            let span = 64 - at % 64;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the low half; the next word has the high half"
            )]
            let low = left as u64;
            *self.word_mut(at) |= low << (at % 64);
            left >>= span;
            at = at.wrapping_add(span);
        }
        new.count_ones()
    }

    /// Removes the packets of another set.
    pub fn take_out(&mut self, other: &Self) {
        for (word, out) in self.0.iter_mut().zip(&other.0) {
            *word &= !out;
        }
    }

    /// Returns the number of consecutive packets in the set from `first` on.
    #[must_use]
    pub fn run(&self, first: u32) -> u32 {
        let mut run = 0;
        while run < Self::WIDTH {
            let at = first.wrapping_add(run);
            let span = 64 - at % 64;
            let ones = (self.word(at) >> (at % 64)).trailing_ones();
            run += ones;
            if ones < span {
                break;
            }
        }
        run.min(Self::WIDTH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn bits_shifts_of_word_width_and_more_are_defined() {
        assert_eq!(
            (low(0), low(1), low(127), low(128), low(200)),
            (0, 1, u128::MAX >> 1, u128::MAX, u128::MAX)
        );
        assert_eq!((down(u128::MAX, 127), down(u128::MAX, 128), down(6, 1)), (1, 0, 3));
        assert_eq!((bit(0), bit(127), bit(128)), (1, 1 << 127, 0));
    }

    /// Compares with a set of numbers, while the base passes over the words several times.
    #[test]
    fn packet_window_matches_set_across_wraps() {
        let mut state = 7_u64;
        let mut random = |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from((state >> 33) % u64::from(below)).unwrap()
        };
        let (mut window, mut model, mut base) = (PacketWindow::EMPTY, BTreeSet::new(), 0_u32);
        for _ in 0..20_000 {
            let index = base + random(PacketWindow::WIDTH);
            match random(8) {
                0 => {
                    window.remove(index);
                    model.remove(&index);
                }
                1 => {
                    let bits =
                        u128::from(random(u32::MAX)) << random(96) & low(base + PacketWindow::WIDTH - index);
                    let all = (0..128).filter(|at| bits >> at & 1 != 0);
                    let new = all.filter(|at| model.insert(index + at)).count();
                    assert_eq!(window.insert_bits(index, bits), u32::try_from(new).unwrap());
                }
                2 => {
                    let end = base + random(90);
                    let there = model.range(base..end).count();
                    assert_eq!(window.clear(base, end), u32::try_from(there).unwrap());
                    model = model.split_off(&end);
                    base = end;
                }
                _ => {
                    window.insert(index);
                    model.insert(index);
                }
            }
            let from = base + random(PacketWindow::WIDTH - 128);
            let expected =
                (0..128).filter(|at| model.contains(&(from + at))).fold(0, |all, at| all | bit(at));
            assert_eq!(window.bits(from), expected);
            let run = (base..base + PacketWindow::WIDTH).take_while(|index| model.contains(index)).count();
            assert_eq!(window.run(base), u32::try_from(run).unwrap());
            assert_eq!((window.contains(from), window.is_empty()), (model.contains(&from), model.is_empty()));
        }
    }

    #[test]
    fn packet_set_matches_ordered_set() {
        let mut state = 1_u64;
        let mut random = |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from((state >> 33) % u64::from(below)).unwrap()
        };
        for size in [1, 63, 64, 65, 300] {
            let (mut set, mut model) = (PacketSet::new(size), BTreeSet::new());
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
