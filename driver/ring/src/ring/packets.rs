//! Packets of a C2H stream, put together from the metadata that the engine writes back for every descriptor.
//!
//! The ring's entries are buffers of one size, posted in a circle: descriptor `n` (a running count) fills buffer `n mod entries`
//! and reports at the metadata slot of the same number (PG195, "C2H Stream": magic, EOP, bytes received). A packet is the
//! descriptors up to one with EOP. The completed count says how many to look at; metadata is written before it counts.
//!
//! Nothing in metadata is believed: not the magic number, not a length beyond the buffer, not that a descriptor was closed early
//! without the end of its packet. Where it cannot be true the packet is lost, and so is everything up to the next EOP, from which
//! on packets are whole again. The same holds for a packet that is longer than all buffers together.

use alloc::boxed::Box;

use fpga_registers::xdma::StreamWriteback;

use fpga_registers::cast::{index, low32};

/// Memory that the engine writes metadata to: slot `index` is two little-endian words at `32 x index`.
pub trait MetadataMemory {
    /// The two words of a slot.
    fn read(&self, index: u32) -> [u32; 2];

    /// Zeroes a slot, before its descriptor is posted: what is not written again is seen to be missing.
    fn clear(&mut self, index: u32);
}

/// The descriptors of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSpan {
    /// Its first descriptor, as a running count.
    pub first: u64,
    /// How many there are.
    pub descriptors: u32,
    /// Bytes in all of them.
    pub bytes: u64,
}

/// Metadata that cannot be true, or a packet that does not fit. What was gathered of the packet is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketFault {
    /// The descriptor counts as complete, but nothing was written back for it.
    #[error(
        "descriptor {entry} counts as complete without metadata; is the write-back disabled (control bit 27), or its address mapped read-only?"
    )]
    Missing {
        /// Entry of the ring.
        entry: u32,
    },
    /// The first word has another magic number than 0x52B4.
    #[error(
        "descriptor {entry}: {word:#010x} is no metadata (0x52b4 in bits 31:16); something else wrote there"
    )]
    Magic {
        /// Entry of the ring.
        entry: u32,
        /// The word found.
        word: u32,
    },
    /// More bytes than the buffer has.
    #[error("descriptor {entry}: {length} bytes are reported for a buffer of {buffer}")]
    Length {
        /// Entry of the ring.
        entry: u32,
        /// Bytes reported.
        length: u32,
        /// Bytes of the buffer.
        buffer: u32,
    },
    /// The end of a packet without a byte: a last beat has at least one (PG195, TKEEP).
    #[error(
        "descriptor {entry}: an end of packet without any byte; was only a part of the metadata written?"
    )]
    Empty {
        /// Entry of the ring.
        entry: u32,
    },
    /// Closed before it was full, yet the packet does not end: only the write flush timeout does that, and it is off.
    #[error(
        "descriptor {entry}: {length} of {buffer} bytes and no end of packet, though the write flush timeout is off: the end was lost"
    )]
    NoEnd {
        /// Entry of the ring.
        entry: u32,
        /// Bytes reported.
        length: u32,
        /// Bytes of the buffer.
        buffer: u32,
    },
    /// The packet has filled every buffer and goes on.
    #[error(
        "a packet is longer than all buffers of the ring together ({bytes} bytes so far); take more or larger ones"
    )]
    TooLong {
        /// Bytes until then.
        bytes: u64,
    },
}

/// Puts packets together; see the module's description.
#[derive(Debug)]
pub struct Packets {
    entry_mask: u32,
    buffer: u32,
    /// Descriptors that were looked at.
    seen: u64,
    /// The first descriptor of the packet being gathered: all before it were handed out or given up.
    first: u64,
    bytes: u64,
    /// Everything up to the next end of packet is given up.
    discarding: bool,
    discarded: u64,
    /// Bytes by entry, checked.
    lengths: Box<[u32]>,
}

impl Packets {
    /// For a ring of `entries` buffers (a power of two) of `buffer` bytes each.
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

    /// Descriptors before this one need not be kept for a packet that is being gathered: their buffers can be posted again, once
    /// whoever got their packets is done with them.
    #[must_use]
    #[inline]
    pub const fn free(&self) -> u64 {
        self.first
    }

    /// Descriptors that were looked at.
    #[must_use]
    #[inline]
    pub const fn seen(&self) -> u64 {
        self.seen
    }

    /// Whether everything up to the next end of packet is given up.
    #[must_use]
    pub const fn is_discarding(&self) -> bool {
        self.discarding
    }

    /// Bytes that were given up.
    #[must_use]
    pub const fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Bytes in descriptor `count`, one of a packet that was handed out.
    #[must_use]
    #[inline]
    pub fn length(&self, count: u64) -> u32 {
        self.lengths.get(index(low32(count) & self.entry_mask)).copied().unwrap_or(0)
    }

    /// The next packet among the `done` descriptors that count as complete; `None` if its end is not among them. `flushed`: the
    /// write flush timeout may have closed descriptors.
    ///
    /// # Errors
    /// [`PacketFault`], once for each packet that is lost; call again for what follows.
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

    /// The one descriptor `count`, which was posted alone with a buffer of `buffer` bytes for a whole packet: bytes received. `None`:
    /// it got a part of a packet that is given up.
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

    /// The engine was stopped: descriptors before `posted` that were not looked at never completed. A packet that was being
    /// gathered is given up.
    pub fn restart(&mut self, posted: u64) {
        // A descriptor without any byte, closed by the flush timeout, is no beginning.
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
        // While packets are given up only ends count; a lost one was told of before.
        if !ends && length < buffer && !flushed && !self.discarding {
            return Err(PacketFault::NoEnd { entry, length, buffer });
        }
        Ok((length, ends))
    }
}
