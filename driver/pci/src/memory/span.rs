//! Many copies between shared memory and a memory of this program's own, for data that will not be used soon.

use super::{SharedSlice, copy};

/// A stretch of shared memory, and where its bytes are in a memory of this program's own.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// The bytes.
    pub shared: SharedSlice<'a>,
    /// Where the first of them is (goes) in the other memory.
    pub offset: usize,
}

/// Streaming stores come to an end with this, whatever happens meanwhile.
struct StreamingFence;

impl Drop for StreamingFence {
    fn drop(&mut self) {
        copy::fence();
    }
}

/// Copies every stretch into `into`, in order, past the caches if the machine can: for more data than they hold. What is in the
/// caches already, or is used at once, moves faster through them: [`SharedSlice::read`].
///
/// Much data at a time pays: the machine is waited for once, at the end, until all is stored.
///
/// Returns how many stretches were copied: all, or those before the first one that does not lie in `into`.
pub fn gather<'a>(into: &mut [u8], stretches: impl IntoIterator<Item = Span<'a>>) -> usize {
    // Nobody else sees `into` before this function is done, not even the iterator: its borrow is why one fence is enough.
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

/// The reverse of [`gather`]: fills every stretch from `from`. Others see the bytes arrive in any order, and all of them before
/// anything that is stored after this.
///
/// Returns how many stretches were filled: all, or those before the first one that does not lie in `from`.
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
