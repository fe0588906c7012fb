//! Assembly of C2H stream packets from the metadata that the engine writes back for every descriptor.
//!
//! The ring's entries are buffers of one size, posted in a circle: descriptor `n` (a running count) fills buffer `n mod entries` and
//! reports at the metadata slot of the same number (PG195, "C2H Stream": magic, EOP, bytes received). A packet consists of the descriptors
//! up to one with EOP. The completed count limits the descriptors to read; metadata is written before the count.
//!
//! Metadata is fully validated: the magic number, the length against the buffer, and that a descriptor closed early ends its packet.
//! Invalid metadata discards the packet and everything up to the next EOP, after which packets are whole again. A packet that is longer
//! than all buffers together is discarded in the same way.

use alloc::boxed::Box;
use fpga_registers::invariant::DebugExpect as _;

use fpga_registers::quantity;
use fpga_registers::xdma::StreamWriteback;

use fpga_registers::cast::{index, low32};

/// Memory to which the engine writes metadata: slot `index` is two little-endian words at `32 x index`.
pub trait MetadataMemory {
    /// Returns the two words of a slot.
    fn read(&self, index: u32) -> [u32; 2];

    /// Zeroes a slot before its descriptor is posted, so that a missing write-back is detected.
    fn clear(&mut self, index: u32);
}

/// Descriptors of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSpan {
    /// Its first descriptor, as a running count.
    pub first: u64,
    /// Number of descriptors.
    pub descriptors: u32,
    /// Total length in bytes.
    pub bytes: u64,
}

/// Invalid metadata, or a packet that does not fit. The collected part of the packet is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketFault {
    /// The descriptor counts as complete, but no metadata was written back for it.
    #[error("descriptor {entry} counts as complete without metadata")]
    Missing {
        /// Entry of the ring.
        entry: u32,
    },
    /// The magic number in the first word is not 0x52B4.
    #[error("descriptor {entry}: {word:#010x} is not metadata (0x52b4 in bits 31:16)")]
    Magic {
        /// Entry of the ring.
        entry: u32,
        /// The value found.
        word: u32,
    },
    /// More bytes than the buffer has.
    #[error(
        "descriptor {entry}: the device reports {length} for a buffer of {buffer}",
        length = quantity(*length, "byte"),
        buffer = quantity(*buffer, "byte"),
    )]
    Length {
        /// Entry of the ring.
        entry: u32,
        /// Bytes reported.
        length: u32,
        /// Bytes of the buffer.
        buffer: u32,
    },
    /// An end of packet without any byte: a last beat has at least one (PG195, TKEEP).
    #[error("descriptor {entry}: end of packet with 0 bytes; the metadata may be incomplete")]
    Empty {
        /// Entry of the ring.
        entry: u32,
    },
    /// Closed before it was full, without an end of packet: only the write flush timeout does that, and it is off.
    #[error(
        "descriptor {entry}: {length} of {buffer} without end of packet while the write flush timeout is off: the end was lost",
        buffer = quantity(*buffer, "byte"),
    )]
    NoEnd {
        /// Entry of the ring.
        entry: u32,
        /// Bytes reported.
        length: u32,
        /// Bytes of the buffer.
        buffer: u32,
    },
    /// The packet has filled every buffer and continues.
    #[error(
        "a packet is longer than all buffers of the ring together ({bytes} so far)",
        bytes = quantity(*bytes, "byte"),
    )]
    TooLong {
        /// Bytes so far.
        bytes: u64,
    },
}

impl PacketFault {
    /// Returns what to do about it.
    #[must_use]
    pub const fn help(&self) -> &'static str {
        match self {
            Self::Missing { .. } => {
                "check that the write-back is enabled (control bit 27) and its address mapped writable"
            }
            Self::Magic { .. } => "check for another writer to this memory",
            Self::Length { .. } | Self::Empty { .. } | Self::NoEnd { .. } => "recover the channel",
            Self::TooLong { .. } => "use more or larger buffers",
        }
    }
}

/// Assembles packets; see the module's description.
#[derive(Debug)]
pub struct Packets {
    entry_mask: u32,
    buffer: u32,
    /// Number of descriptors that were read.
    seen: u64,
    /// First descriptor of the packet being collected: all earlier ones were returned or discarded.
    first: u64,
    bytes: u64,
    /// Whether everything up to the next end of packet is discarded.
    discarding: bool,
    discarded: u64,
    /// Length by entry in bytes, checked.
    lengths: Box<[u32]>,
}

impl Packets {
    /// Creates the state for a ring of `entries` buffers (a power of two) of `buffer` bytes each.
    #[must_use]
    pub fn new(entries: u32, buffer: u32) -> Self {
        Self {
            entry_mask: entries.saturating_sub(1),
            buffer,
            seen: 0,
            first: 0,
            bytes: 0,
            discarding: false,
            discarded: 0,
            lengths: alloc::vec![0; index(entries)].into_boxed_slice(),
        }
    }

    /// First descriptor that the packet being collected needs: the buffers of earlier ones can be posted again when the receivers of their
    /// packets have finished with them.
    #[must_use]
    #[inline]
    pub const fn free(&self) -> u64 {
        self.first
    }

    /// Returns the number of descriptors that were read.
    #[must_use]
    #[inline]
    pub const fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns whether everything up to the next end of packet is discarded.
    #[must_use]
    pub const fn is_discarding(&self) -> bool {
        self.discarding
    }

    /// Returns the number of discarded bytes.
    #[must_use]
    pub const fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Returns the number of bytes in descriptor `count`, which belongs to a returned packet.
    #[must_use]
    #[inline]
    pub fn length(&self, count: u64) -> u32 {
        self.lengths
            .get(index(low32(count) & self.entry_mask))
            .debug_expect("a length for each entry")
            .copied()
            .unwrap_or(0)
    }

    /// Returns the next packet among the `done` completed descriptors; `None` if its end is not among them. `flushed`: the write flush
    /// timeout may have closed descriptors.
    ///
    /// # Errors
    /// [`PacketFault`], once for each lost packet; call again for the next one.
    #[inline]
    pub fn next<M: MetadataMemory + ?Sized>(
        &mut self,
        done: u64,
        memory: &M,
        flushed: bool,
    ) -> Result<Option<PacketSpan>, PacketFault> {
        while self.seen < done {
            let entry = low32(self.seen) & self.entry_mask;
            self.seen += 1;
            let (length, ends) = match self.check(entry, memory.read(entry), self.buffer, flushed) {
                Ok(metadata) => metadata,
                Err(fault) => {
                    self.give_up(0);
                    return Err(fault);
                }
            };
            if let Some(place) = self.lengths.get_mut(index(entry)) {
                *place = length;
            }
            self.bytes += u64::from(length);
            if self.discarding {
                self.give_up(0);
                self.discarding = !ends;
            } else if ends {
                let descriptors = low32(self.seen - self.first);
                let packet = PacketSpan { first: self.first, descriptors, bytes: self.bytes };
                (self.first, self.bytes) = (self.seen, 0);
                return Ok(Some(packet));
            } else if self.seen - self.first > u64::from(self.entry_mask) {
                let bytes = self.bytes;
                self.give_up(0);
                return Err(PacketFault::TooLong { bytes });
            }
        }
        Ok(None)
    }

    /// Returns the received bytes of the single descriptor `count`, which was posted alone with a buffer of `buffer` bytes for a whole
    /// packet. `None`: it received a part of a packet that is discarded.
    ///
    /// # Errors
    /// [`PacketFault`]. A packet that does not end in the buffer is [`PacketFault::TooLong`].
    pub fn single<M: MetadataMemory + ?Sized>(
        &mut self,
        count: u64,
        buffer: u32,
        memory: &M,
        flushed: bool,
    ) -> Result<Option<u32>, PacketFault> {
        let entry = low32(count) & self.entry_mask;
        (self.seen, self.first) = (count + 1, count + 1);
        let (length, ends) = match self.check(entry, memory.read(entry), buffer, flushed) {
            Ok(metadata) => metadata,
            Err(fault) => {
                self.give_up(0);
                return Err(fault);
            }
        };
        if self.discarding {
            self.give_up(length.into());
            self.discarding = !ends;
            return Ok(None);
        }
        if !ends {
            self.give_up(length.into());
            return Err(PacketFault::TooLong { bytes: length.into() });
        }
        Ok(Some(length))
    }

    /// Returns the received bytes of the single descriptor `count`, whatever packet they belong to, and whether a packet ends with them. If
    /// none does, everything up to the next end of packet is discarded for [`next`](Self::next) and [`single`](Self::single).
    ///
    /// # Errors
    /// [`PacketFault`], except [`PacketFault::TooLong`].
    pub fn part<M: MetadataMemory + ?Sized>(
        &mut self,
        count: u64,
        buffer: u32,
        memory: &M,
        flushed: bool,
    ) -> Result<(u32, bool), PacketFault> {
        let entry = low32(count) & self.entry_mask;
        (self.seen, self.first, self.bytes) = (count + 1, count + 1, 0);
        let (length, ends) = self.check(entry, memory.read(entry), buffer, flushed).inspect_err(|_| {
            self.discarding = true;
        })?;
        self.discarding = !ends && (self.discarding || length > 0);
        Ok((length, ends))
    }

    /// Returns whether a packet has begun that has not ended: the next byte of the stream continues it.
    #[must_use]
    pub const fn is_inside_packet(&self) -> bool {
        self.discarding || self.bytes > 0
    }

    /// Begins inside a packet: everything up to the next end of packet is discarded.
    pub const fn begin_inside_packet(&mut self) {
        self.discarding = true;
    }

    /// Resynchronises after the engine was stopped: descriptors before `posted` that were not read never completed. A packet that was being
    /// collected is discarded.
    pub fn restart(&mut self, posted: u64) {
        // A descriptor without any byte, closed by the flush timeout, does not begin a packet.
        let begun = self.bytes > 0 || self.discarding;
        self.discarded += self.bytes;
        (self.seen, self.first, self.bytes) = (posted, posted, 0);
        self.discarding = begun;
    }

    fn give_up(&mut self, more: u64) {
        self.discarded += self.bytes + more;
        (self.first, self.bytes, self.discarding) = (self.seen, 0, true);
    }

    #[inline]
    fn check(
        &self,
        entry: u32,
        words: [u32; 2],
        buffer: u32,
        flushed: bool,
    ) -> Result<(u32, bool), PacketFault> {
        let metadata = StreamWriteback::from_words(words);
        let (length, ends) = (metadata.length, metadata.status.eop());
        if !metadata.has_magic() {
            return Err(match words {
                [0, _] => PacketFault::Missing { entry },
                [word, _] => PacketFault::Magic { entry, word },
            });
        }
        if length > buffer {
            return Err(PacketFault::Length { entry, length, buffer });
        }
        if ends && length == 0 {
            return Err(PacketFault::Empty { entry });
        }
        // While packets are discarded only their ends count; the lost packet was reported before.
        if !ends && length < buffer && !flushed && !self.discarding {
            return Err(PacketFault::NoEnd { entry, length, buffer });
        }
        Ok((length, ends))
    }
}
