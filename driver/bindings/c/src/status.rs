//! Status codes. Their numbers are part of the ABI: a new code gets the next number, and none changes its meaning.

/// Result of a call; `fpga_status` in C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// An argument is null, or has an impossible value.
    Argument = 1,
    /// The handle is not open, or names an object of another kind.
    Handle = 2,
    /// Another thread is in a call with the handle.
    Concurrent = 3,
    /// The card cannot be opened.
    Open = 4,
    /// The resource has an owner, or the buffer has a transfer in flight.
    InUse = 5,
    /// The card has no such resource, or not this function.
    Unsupported = 6,
    /// The range is not inside the memory, the BAR or the card.
    Range = 7,
    /// Memory or descriptors are used up.
    NoMemory = 8,
    /// The ring is full: poll, then submit again.
    Full = 9,
    /// The time is over; what was submitted stays in flight.
    TimedOut = 10,
    /// The engine reported an error in a transfer.
    Fault = 11,
    /// The engine does not stop. The card has to be reset.
    Wedged = 12,
    /// The card does not answer, or was reset since it was opened.
    Gone = 13,
    /// The ticket is unknown.
    Ticket = 14,
    /// The system refused a request.
    System = 15,
    /// A defect of this library.
    Internal = 16,
    /// The stream was stopped or has ended, and has nothing more.
    Stopped = 17,
    /// A packet of a stream is lost; receiving continues.
    Lost = 18,
    /// Another node does not answer, or refuses.
    Peer = 19,
    /// The program has ended the wait, or withdrawn the transfer.
    Cancelled = 20,
    /// The handle belongs to another process: to the parent, before a fork.
    Process = 21,
}

impl Status {
    /// All codes, by number.
    pub(crate) const ALL: [(Self, &'static core::ffi::CStr); 22] = [
        (Self::Ok, c"ok"),
        (Self::Argument, c"invalid argument"),
        (Self::Handle, c"invalid handle"),
        (Self::Concurrent, c"handle in use by another thread"),
        (Self::Open, c"card cannot be opened"),
        (Self::InUse, c"in use"),
        (Self::Unsupported, c"not supported by this card"),
        (Self::Range, c"out of range"),
        (Self::NoMemory, c"out of memory"),
        (Self::Full, c"ring is full"),
        (Self::TimedOut, c"timed out"),
        (Self::Fault, c"transfer failed"),
        (Self::Wedged, c"engine does not stop"),
        (Self::Gone, c"card is gone"),
        (Self::Ticket, c"unknown ticket"),
        (Self::System, c"system error"),
        (Self::Internal, c"internal error"),
        (Self::Stopped, c"stream has ended"),
        (Self::Lost, c"packet is lost"),
        (Self::Peer, c"other node does not answer or refuses"),
        (Self::Cancelled, c"cancelled"),
        (Self::Process, c"handle of another process"),
    ];
}
