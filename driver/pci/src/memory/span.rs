//! Batches of copies between shared memory and private memory of this program, for data that will not be used soon.

use super::{SharedSlice, copy};

/// Span of shared memory, with the offset of its bytes in private memory of this program.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// Bytes in shared memory.
    pub shared: SharedSlice<'a>,
    /// Offset of the first byte in the private memory.
    pub offset: usize,
}

/// Guard that fences streaming stores when it is dropped, also after a panic.
struct StreamingFence;

impl Drop for StreamingFence {
    fn drop(&mut self) {
        copy::fence();
    }
}

/// Copies every span into `into`, in order, past the caches if the machine can: for more data than they hold. Data that is in the caches
/// already, or is used at once, moves faster through them: [`SharedSlice::read`].
///
/// Large batches pay: the call waits only once, at the end, until all stores are complete.
///
/// Returns the number of spans copied: all, or those before the first one that does not lie in `into`.
pub fn gather<'a>(into: &mut [u8], stretches: impl IntoIterator<Item = Span<'a>>) -> usize {
    // No other code, not even the iterator, sees `into` before this function returns, because it is borrowed: therefore one fence is
    // enough.
    let _fenced = StreamingFence;
    let mut count = 0;
    let mut stretches = stretches.into_iter().peekable();
    while let Some(stretch) = stretches.next() {
        let bytes = stretch.shared.atomics();
        let Some(place) = into.get_mut(stretch.offset..stretch.offset.saturating_add(bytes.len())) else {
            break;
        };
        copy::stream_load(bytes, place, stretches.peek().map(|next| next.shared.atomics()));
        count += 1;
    }
    count
}

/// Reverse of [`gather`]: fills every span from `from`. Others see the bytes arrive in any order, and all of them before later stores of
/// this thread.
///
/// Returns the number of spans filled: all, or those before the first one that does not lie in `from`.
pub fn scatter<'a>(from: &[u8], stretches: impl IntoIterator<Item = Span<'a>>) -> usize {
    let part =
        |stretch: &Span<'_>| from.get(stretch.offset..stretch.offset.saturating_add(stretch.shared.len()));
    let _fenced = StreamingFence;
    let mut count = 0;
    let mut stretches = stretches.into_iter().peekable();
    while let Some(stretch) = stretches.next() {
        let Some(bytes) = part(&stretch) else { break };
        copy::stream_store(stretch.shared.atomics(), bytes, stretches.peek().and_then(part));
        count += 1;
    }
    count
}
