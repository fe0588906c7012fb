//! Network that the caller supplies in place of the one with impairments.

use fpga_protocol::time::Nanos;

/// Network between the cards of a [`SimNetwork`](crate::SimNetwork), for tests that control every frame: links of their own for each pair of
/// cards, partitions, frames that are cut or lost.
///
/// Frames are encoded packets; their bytes 8 to 11 are the number of the destination node. Time is virtual, and a frame may be delivered at any time from
/// its offer on.
pub trait Fabric: core::fmt::Debug + Send {
    /// Takes a frame of card `sender` at time `now`.
    fn offer(&mut self, now: Nanos, sender: usize, frame: Vec<u8>);

    /// Returns the next frame that is due at `now`, with the number of the card that has sent it.
    fn poll(&mut self, now: Nanos) -> Option<(usize, Vec<u8>)>;

    /// Returns the time of the next delivery; `None` if no frame is in flight.
    fn poll_timeout(&self) -> Option<Nanos>;

    /// Returns the number of frames in flight.
    fn in_flight(&self) -> usize;
}
