//! Copies made of relaxed atomic words of 8 bytes, with single bytes at the ends: for machines without a specific implementation.

use super::CopyRoutine;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Size of the stack buffer for copies between two memories whose words are not aligned with each other.
const BOUNCE: usize = 512;

/// Splits into single bytes up to the first 8-byte boundary, whole words, and the remaining bytes.
#[inline]
fn split(bytes: &[AtomicU8]) -> (&[AtomicU8], &[AtomicU64], &[AtomicU8]) {
    // SAFETY: eight AtomicU8 may be viewed as one AtomicU64: same memory, all values valid, alignment arranged by
    // align_to. For accesses of different sizes see `SharedSlice::word32`.
    unsafe { bytes.align_to::<AtomicU64>() }
}

/// Returns `bytes` as a single 4-byte word, if it is one.
#[inline]
fn single(bytes: &[AtomicU8]) -> Option<&AtomicU32> {
    // SAFETY: as in `split`, for four bytes.
    match unsafe { bytes.align_to::<AtomicU32>() } {
        ([], [word], []) => Some(word),
        _ => None,
    }
}

pub(super) fn load(from: &[AtomicU8], into: &mut [u8]) {
    let length = from.len().min(into.len());
    let (from, into) = (&from[..length], &mut into[..length]);
    if let (Some(word), Some(place)) = (single(from), into.first_chunk_mut::<4>()) {
        *place = word.load(Ordering::Relaxed).to_ne_bytes();
        return;
    }
    let (head, words, tail) = split(from);
    let (into_head, rest) = into.split_at_mut(head.len());
    let (into_words, into_tail) = rest.split_at_mut(words.len() * 8);
    load_bytes(head, into_head);
    load_lines(words, into_words);
    load_bytes(tail, into_tail);
}

pub(super) fn store(into: &[AtomicU8], from: &[u8]) {
    let length = from.len().min(into.len());
    let (into, from) = (&into[..length], &from[..length]);
    if let (Some(place), Some(word)) = (single(into), from.first_chunk::<4>()) {
        place.store(u32::from_ne_bytes(*word), Ordering::Relaxed);
        return;
    }
    let (head, words, tail) = split(into);
    let (from_head, rest) = from.split_at(head.len());
    let (from_words, from_tail) = rest.split_at(words.len() * 8);
    store_bytes(head, from_head);
    store_lines(words, from_words);
    store_bytes(tail, from_tail);
}

/// There is one routine only for these machines.
pub(super) fn load_with(_: CopyRoutine, from: &[AtomicU8], into: &mut [u8], _next: Option<&[AtomicU8]>) {
    load(from, into);
}

/// As [`load_with`].
pub(super) fn store_with(_: CopyRoutine, into: &[AtomicU8], from: &[u8], _next: Option<&[u8]>) {
    store(into, from);
}

/// Ordinary stores need only the barriers that callers make anyway.
pub(super) const fn fence() {}

pub(super) fn fill(into: &[AtomicU8], value: u8) {
    let (head, words, tail) = split(into);
    let word = u64::from_ne_bytes([value; 8]);
    head.iter().chain(tail).for_each(|byte| byte.store(value, Ordering::Relaxed));
    words.iter().for_each(|place| place.store(word, Ordering::Relaxed));
}

pub(super) fn between(into: &[AtomicU8], from: &[AtomicU8]) {
    let length = from.len().min(into.len());
    let (into, from) = (&into[..length], &from[..length]);
    if let (Some(place), Some(word)) = (single(into), single(from)) {
        place.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
        return;
    }
    let (to_head, to_words, to_tail) = split(into);
    let (from_head, from_words, from_tail) = split(from);
    if to_head.len() == from_head.len() && to_words.len() == from_words.len() {
        copy_bytes(to_head, from_head);
        copy_lines(to_words, from_words);
        copy_bytes(to_tail, from_tail);
        return;
    }
    let mut bounce = [0; BOUNCE];
    for (to, from) in into.chunks(BOUNCE).zip(from.chunks(BOUNCE)) {
        let part = &mut bounce[..to.len()];
        load(from, part);
        store(to, part);
    }
}

// The compiler does not unroll loops over atomics. Explicit lines of eight words are about twice as fast.

fn load_lines(from: &[AtomicU64], into: &mut [u8]) {
    let (from_lines, from_rest) = from.as_chunks::<8>();
    let (into_words, _) = into.as_chunks_mut::<8>();
    let (into_lines, into_rest) = into_words.as_chunks_mut::<8>();
    for (line, places) in from_lines.iter().zip(into_lines) {
        *places = line.each_ref().map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
    }
    for (word, place) in from_rest.iter().zip(into_rest) {
        *place = word.load(Ordering::Relaxed).to_ne_bytes();
    }
}

fn store_lines(into: &[AtomicU64], from: &[u8]) {
    let (into_lines, into_rest) = into.as_chunks::<8>();
    let (from_words, _) = from.as_chunks::<8>();
    let (from_lines, from_rest) = from_words.as_chunks::<8>();
    for (places, line) in into_lines.iter().zip(from_lines) {
        for (place, bytes) in places.iter().zip(line) {
            place.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }
    for (place, bytes) in into_rest.iter().zip(from_rest) {
        place.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
}

fn copy_lines(into: &[AtomicU64], from: &[AtomicU64]) {
    let (into_lines, into_rest) = into.as_chunks::<8>();
    let (from_lines, from_rest) = from.as_chunks::<8>();
    for (places, line) in into_lines.iter().zip(from_lines) {
        for (place, word) in places.iter().zip(line) {
            place.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
    for (place, word) in into_rest.iter().zip(from_rest) {
        place.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

fn load_bytes(from: &[AtomicU8], into: &mut [u8]) {
    for (byte, place) in from.iter().zip(into) {
        *place = byte.load(Ordering::Relaxed);
    }
}

fn store_bytes(into: &[AtomicU8], from: &[u8]) {
    for (place, byte) in into.iter().zip(from) {
        place.store(*byte, Ordering::Relaxed);
    }
}

fn copy_bytes(into: &[AtomicU8], from: &[AtomicU8]) {
    for (place, byte) in into.iter().zip(from) {
        place.store(byte.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
