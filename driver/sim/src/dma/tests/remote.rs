//! Remote memory: every access is a request to the owner, and an answer may be short.

use super::*;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

/// Owner whose memory begins at an address; records the requests.
#[derive(Debug)]
pub(super) struct RemoteOwner {
    start: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bytes: Vec<u8>,
    /// Address from which on it neither reads nor writes.
    end: u64,
    /// First address, bytes, and whether it was a write.
    asked: Vec<(u64, usize, bool)>,
}

impl RemoteOwner {
    pub(super) fn new(start: u64, pages: u64) -> Arc<Self> {
        let bytes = vec![0; usize::try_from(pages * PAGE).unwrap()];
        let state = State { bytes, end: u64::MAX, asked: Vec::new() };
        Arc::new(Self { start, state: Mutex::new(state) })
    }

    pub(super) fn zero(&self, at: u64, length: u64) {
        let mut state = self.state();
        let first = usize::try_from(at - self.start).unwrap();
        state.bytes[first..][..usize::try_from(length).unwrap()].fill(0);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn ends_at(&self, end: u64) {
        self.state().end = end;
    }

    fn asked(&self) -> Vec<(u64, usize, bool)> {
        std::mem::take(&mut self.state().asked)
    }

    /// Records the request and returns the available bytes of it.
    fn answer(&self, state: &mut State, at: Iova, length: usize, write: bool) -> Range<usize> {
        state.asked.push((at.get(), length, write));
        let room = usize::try_from(state.end.saturating_sub(at.get())).unwrap_or(usize::MAX).min(length);
        let first = usize::try_from(at.get() - self.start).unwrap();
        first..first + room
    }
}

impl RemoteMemory for RemoteOwner {
    fn read(&self, at: Iova, into: &mut [u8]) -> usize {
        let mut state = self.state();
        let range = self.answer(&mut state, at, into.len(), false);
        into[..range.len()].copy_from_slice(&state.bytes[range.clone()]);
        range.len()
    }

    fn write(&self, at: Iova, from: &[u8]) -> usize {
        let mut state = self.state();
        let range = self.answer(&mut state, at, from.len(), true);
        state.bytes[range.clone()].copy_from_slice(&from[..range.len()]);
        range.len()
    }
}

fn remote(owner: &Arc<RemoteOwner>) -> ClientMemory {
    ClientMemory::Remote(Arc::<RemoteOwner>::clone(owner))
}

fn mapped(owner: &Arc<RemoteOwner>, pages: u64, access: DmaAccess) -> DmaMap {
    let mut map = DmaMap::default();
    map.map_client(Iova::new(BASE), pages * PAGE, remote(owner), access).unwrap();
    map
}

/// Accesses near both ends of a mapping: the owner is asked for the bytes inside, by its own addresses, and never for a byte outside. The
/// fault names the first missing byte.
#[test]
fn remote_memory_access_outside_mapping_asks_nothing() {
    let owner = RemoteOwner::new(BASE - PAGE, 4);
    let mut map = mapped(&owner, 2, DmaAccess::Both);
    let (first, end) = (BASE, BASE + 2 * PAGE);
    for at in (first - 9..first + 9).chain(end - 9..end + 9) {
        for length in 0..18_usize {
            let inside = (first..end).contains(&at);
            let fits = length == 0 || (inside && at + length as u64 <= end);
            let missing = if inside { end } else { at };
            for write in [false, true] {
                let mut bytes = vec![1; length];
                let result = if write {
                    map.write(Iova::new(at), &bytes)
                } else {
                    map.read(Iova::new(at), &mut bytes)
                };
                let fault = DmaFault { at: Iova::new(missing), write };
                assert_eq!(result, if fits { Ok(()) } else { Err(fault) }, "{length} bytes at {at:#x}");
                let part = usize::try_from(end.saturating_sub(at)).unwrap().min(length);
                let question = (inside && length > 0).then_some((at, part, write));
                assert_eq!(owner.asked(), question.into_iter().collect::<Vec<_>>());
            }
        }
    }
    let state = owner.state();
    let page = usize::try_from(PAGE).unwrap();
    assert!(state.bytes[..page].iter().chain(&state.bytes[3 * page..]).all(|byte| *byte == 0));
}

#[test]
fn remote_memory_short_answer_faults_at_its_end() {
    let owner = RemoteOwner::new(BASE - PAGE, 4);
    let mut map = mapped(&owner, 2, DmaAccess::Both);
    let begin = BASE + 100;
    for kept in 0..=64 {
        owner.ends_at(begin + kept);
        let expected = |write| match kept {
            64 => Ok(()),
            kept => Err(DmaFault { at: Iova::new(begin + kept), write }),
        };
        assert_eq!(map.write(Iova::new(begin), &[kept.to_le_bytes()[0]; 64]), expected(true));
        assert_eq!(map.read(Iova::new(begin), &mut [0; 64]), expected(false));
    }
    assert_eq!(map.refused(), RefusedAccesses { reads: 64, writes: 64 });
    // A refusal is not cached: the owner is asked again.
    owner.ends_at(u64::MAX);
    assert_eq!(map.read(Iova::new(begin), &mut [0; 64]), Ok(()));
}

#[test]
fn remote_memory_forbidden_access_asks_nothing() {
    for (access, writes) in [(DmaAccess::ReadByDevice, false), (DmaAccess::WriteByDevice, true)] {
        let owner = RemoteOwner::new(BASE - PAGE, 4);
        let mut map = mapped(&owner, 1, access);
        let at = Iova::new(BASE + 8);
        // Twice, so that the second access finds the cached mapping.
        for _ in 0..2 {
            let (read, written) = (map.read(at, &mut [0; 8]), map.write(at, &[7; 8]));
            let (allowed, refused) = if writes { (written, read) } else { (read, written) };
            assert_eq!((allowed, refused), (Ok(()), Err(DmaFault { at, write: !writes })), "{access:?}");
        }
        assert_eq!(owner.asked(), [(at.get(), 8, writes); 2], "{access:?}");
    }
}

/// One access over memory of the process, of a file and of an owner: each serves its part, in order, up to the first refusal.
#[test]
fn dma_access_spans_process_file_and_remote_memory() {
    let owner = RemoteOwner::new(BASE - PAGE, 8);
    let client = file(1, false);
    let own = memory(1);
    let mut map = DmaMap::default();
    let page = |number: u64| Iova::new(BASE + number * PAGE);
    map.map(page(0), &own, DmaAccess::Both).unwrap();
    map.map_client(page(1), PAGE, remote(&owner), DmaAccess::Both).unwrap();
    map.map_client(page(2), PAGE, ClientMemory::File(client.try_clone().unwrap(), 0), DmaAccess::Both)
        .unwrap();
    map.map_client(page(3), PAGE, remote(&owner), DmaAccess::ReadByDevice).unwrap();
    let bytes: Vec<u8> = (0..2 * PAGE + 16).map(|n| (n % 251).to_le_bytes()[0]).collect();
    let at = Iova::new(page(1).get() - 16);
    map.write(at, &bytes).unwrap();
    assert_eq!(owner.asked(), [(page(1).get(), 4096, true)]);
    let mut back = vec![0; bytes.len()];
    map.read(at, &mut back).unwrap();
    assert_eq!(back, bytes);
    let over = Iova::new(page(3).get() - 8);
    assert_eq!(map.write(over, &[1; 16]), Err(DmaFault { at: page(3), write: true }));
    assert_eq!(map.read(over, &mut [0; 16]), Ok(()));
    assert_eq!(owner.asked(), [(page(1).get(), 4096, false), (page(3).get(), 8, false)]);
}

#[test]
fn remote_mappings_do_not_overlap_and_end_separately() {
    let owner = RemoteOwner::new(BASE - PAGE, 8);
    let mut map = DmaMap::default();
    let at = |number: u64| Iova::new(BASE + number * PAGE);
    map.map_client(at(1), 2 * PAGE, remote(&owner), DmaAccess::Both).unwrap();
    for (number, pages) in [(0, 2), (1, 1), (1, 2), (2, 1), (2, 3), (0, 5)] {
        let (iova, length) = (at(number), pages * PAGE);
        let refused = map.map_client(iova, length, remote(&owner), DmaAccess::Both);
        assert_eq!(refused, Err(DmaMapError::Overlap { iova, length }.into()), "{number} {pages}");
    }
    map.map_client(at(3), PAGE, remote(&owner), DmaAccess::Both).unwrap();
    // All memory of one owner is one backing for all its mappings.
    assert_eq!((map.sizes(), map.mapped_bytes()), ((2, 1), 3 * PAGE));
    assert_eq!(Arc::strong_count(&owner), 2);
    for (number, pages) in [(1, 1), (2, 1), (2, 2), (0, 2)] {
        let (iova, length) = (at(number), pages * PAGE);
        let refusal = Err(DmaMapError::NotMapped { iova, length });
        assert_eq!(map.unmap_range(iova, length), refusal, "{number} {pages}");
        assert_eq!(map.unmap(iova, length), refusal.map(|_| ()), "{number} {pages}");
    }
    assert_eq!(map.unmap(at(1), 2 * PAGE), Ok(()));
    assert_eq!(map.read(at(2), &mut [0; 4]), Err(DmaFault { at: at(2), write: false }));
    assert_eq!(map.read(at(3), &mut [0; 4]), Ok(()));
    assert_eq!(map.unmap_range(at(0), 8 * PAGE), Ok(PAGE));
    assert_eq!((map.sizes(), map.mapped_bytes()), ((0, 0), 0));
    assert_eq!(Arc::strong_count(&owner), 1, "the map releases the owner");
    assert_eq!(owner.asked(), [(at(3).get(), 4, false)]);
}
