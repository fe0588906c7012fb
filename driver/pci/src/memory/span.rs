//! Batches of copies between shared memory and private memory of this program, for data that will not be used soon.

use super::{CopyRoutine, CopyRoutines, PageKind, RoutineTable, SharedSlice, copy};

/// Span of shared memory, with the offset of its bytes in private memory of this program.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// Bytes in shared memory.
    pub shared: SharedSlice<'a>,
    /// Offset of the first byte in the private memory.
    pub offset: usize,
}

/// Fence after streaming stores, made when it is dropped, also after a panic.
#[derive(Default)]
struct StreamingFence {
    needed: bool,
}

impl StreamingFence {
    /// Routine for the next copy, of `length` bytes.
    fn routine(&mut self, table: &RoutineTable, length: usize) -> CopyRoutine {
        let routine = table.for_length(length);
        self.needed |= routine.is_streaming();
        routine
    }
}

impl Drop for StreamingFence {
    fn drop(&mut self) {
        if self.needed {
            copy::fence();
        }
    }
}

/// Copies every span into `into`, in order, by the fastest routine for data beyond the caches. Data that is in the caches already, or is
/// used at once, moves faster through them: [`SharedSlice::read`]. `pages` are the pages behind the spans.
///
/// Large batches pay: the call waits only once, at the end, until all stores are complete. The first call of a process for a kind of
/// pages measures the routines ([`CopyRoutines::of_pages`]).
///
/// Returns the number of spans copied: all, or those before the first one that does not lie in `into`.
pub fn gather<'a>(into: &mut [u8], pages: PageKind, spans: impl IntoIterator<Item = Span<'a>>) -> usize {
    // No other code, not even the iterator, sees `into` before this function returns, because it is borrowed: therefore one fence is
    // enough.
    let mut fence = StreamingFence::default();
    let table = CopyRoutines::get().of_pages(pages);
    let mut count = 0;
    let mut spans = spans.into_iter().peekable();
    while let Some(span) = spans.next() {
        let bytes = span.shared.atomics();
        let Some(place) = into.get_mut(span.offset..span.offset.saturating_add(bytes.len())) else {
            break;
        };
        let routine = fence.routine(table, bytes.len());
        copy::load_with(routine, bytes, place, spans.peek().map(|next| next.shared.atomics()));
        count += 1;
    }
    count
}

/// Reverse of [`gather`]: fills every span from `from`. Others see the bytes arrive in any order, and all of them before later stores of
/// this thread.
///
/// Returns the number of spans filled: all, or those before the first one that does not lie in `from`.
pub fn scatter<'a>(from: &[u8], pages: PageKind, spans: impl IntoIterator<Item = Span<'a>>) -> usize {
    let part = |span: &Span<'_>| from.get(span.offset..span.offset.saturating_add(span.shared.len()));
    let mut fence = StreamingFence::default();
    let table = CopyRoutines::get().of_pages(pages);
    let mut count = 0;
    let mut spans = spans.into_iter().peekable();
    while let Some(span) = spans.next() {
        let Some(bytes) = part(&span) else { break };
        let routine = fence.routine(table, bytes.len());
        copy::store_with(routine, span.shared.atomics(), bytes, spans.peek().and_then(part));
        count += 1;
    }
    count
}
