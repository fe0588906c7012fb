//! A design outside the model, behind the card's AXI ports.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fpga_registers::CardAddr;

use crate::bars::{read_dwords, write_bytes, write_dwords};
use crate::config_space::BarRole;
use crate::fault_log::Unit;

/// Reason why an access of a design has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DesignError {
    /// DECERR: no slave at this address.
    Decode,
    /// SLVERR: the slave refused.
    Slave,
    /// The access has begun and has no response yet. [`Design::outcome`] returns the result, after [`crate::Card::wake_channels`].
    Pending,
}

/// Result of [`Design::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DesignPoll {
    /// No access waits for a response that only `poll` finds.
    Idle,
    /// [`Design::outcome`] has a result that it did not have before.
    Responded,
    /// An access waits. Poll again after this time.
    Waiting(Duration),
}

/// Memory access at the AXI master of the DMA engine, or of the copy engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AxiAccess {
    /// The channel, or the copy engine. It has at most one access in progress, besides those that are begun ahead.
    pub unit: Unit,
    /// First byte.
    pub at: CardAddr,
    /// Bytes per beat if every beat goes to the same address; `None` for incrementing addresses.
    pub fixed: Option<u32>,
}

/// Design behind a card's AXI ports, in place of the model's memory and of the network interface's registers, or beyond them
/// ([`crate::Card::with_design_beyond`]): another card, or a simulation of user logic. The DMA engines, interrupts and configuration space remain those of the model.
///
/// The memory accesses are made by the thread on which the card works. Three kinds of design:
///
/// * A blocking one returns when the access is over. The card does nothing else meanwhile.
/// * Another one returns [`DesignError::Pending`] and calls [`crate::Card::wake_channels`] when a response has arrived. Meanwhile the other
///   channels work and registers answer. An access without a response hangs its channel until the card is reset.
/// * A third one has no thread for responses: whoever drives the card in real time calls [`poll`](Self::poll).
///
/// Register accesses block the caller, which does not hold the card (see [`crate::Card::design_access`]).
pub trait Design: fmt::Debug + Send + Sync {
    /// Reads memory, at most 64 KiB.
    ///
    /// # Errors
    /// [`DesignError`]; all except `Pending` end the descriptor.
    fn read(&self, access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError>;

    /// Writes memory likewise.
    ///
    /// # Errors
    /// [`DesignError`]; all except `Pending` end the descriptor.
    fn write(&self, access: AxiAccess, from: &[u8]) -> Result<(), DesignError>;

    /// As [`read`](Self::read), of a channel's descriptor with `rest` bytes beyond this access. The design may read ahead of them: if `rest`
    /// is not 0, the access has 64 KiB.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_part(&self, access: AxiAccess, rest: u32, into: &mut [u8]) -> Result<(), DesignError> {
        let _ = rest;
        self.read(access, into)
    }

    /// As [`write`](Self::write), of a channel's descriptor with `rest` bytes beyond this access. If `rest` is not 0, the design may return
    /// before the access is over, and report its error with a later one of the descriptor.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn write_part(&self, access: AxiAccess, rest: u32, from: &[u8]) -> Result<(), DesignError> {
        let _ = rest;
        self.write(access, from)
    }

    /// Returns whether [`write_ahead`](Self::write_ahead) or [`read_ahead`](Self::read_ahead) can begin an access of channel `unit`.
    fn accepts_ahead(&self, unit: Unit) -> bool {
        let _ = unit;
        false
    }

    /// Begins the write of a descriptor that the channel executes later, after the one that is `Pending` and those begun before. Returns
    /// whether it has begun: [`outcome`](Self::outcome) then returns its result, and there is no [`write_part`](Self::write_part) for it.
    /// Memory must be written in the order of the descriptors.
    fn write_ahead(&self, access: AxiAccess, from: &[u8]) -> bool {
        let _ = (access, from);
        false
    }

    /// Begins the read of a later descriptor likewise. [`read_part`](Self::read_part) follows in its turn.
    fn read_ahead(&self, access: AxiAccess, length: usize) -> bool {
        let _ = (access, length);
        false
    }

    /// The descriptors of channel `unit` that were begun ahead are not executed: the channel has failed or was reset, or they read. Called with the card held: it
    /// must not block.
    fn drop_ahead(&self, unit: Unit) {
        let _ = unit;
    }

    /// Looks for responses of accesses that were `Pending`. Called with the card held: it must not block.
    fn poll(&self) -> DesignPoll {
        DesignPoll::Idle
    }

    /// Returns the result of an access that was `Pending`. `into` receives the data of a read and is empty for a write.
    ///
    /// # Errors
    /// [`DesignError`]; `Pending` if there is still no response. A blocking design is never asked.
    fn outcome(&self, access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError> {
        let _ = (access, into);
        Err(DesignError::Slave)
    }

    /// Takes stream channel `unit` for this card, or releases it, where several cards have one design. Returns `false` if another card has
    /// it. Called with the card held: it must not block.
    fn claim_stream(&self, unit: Unit, takes: bool) -> bool {
        let _ = (unit, takes);
        true
    }

    /// Sends bytes, at most 64 KiB, into the stream port of an H2C channel (AXI4-Stream builds). `ends`: TLAST at the last byte.
    ///
    /// # Errors
    /// [`DesignError::Pending`] while the port has not accepted all of them; [`Self::stream_sent`] returns the result. Others end the
    /// descriptor. A stream has no error responses: they mean that the card cannot use the port.
    fn send_stream(&self, channel: u8, from: &[u8], ends: bool) -> Result<(), DesignError> {
        let _ = (channel, from, ends);
        Ok(())
    }

    /// Returns whether the port of H2C channel `channel` has accepted the bytes of [`Self::send_stream`].
    ///
    /// # Errors
    /// [`DesignError::Pending`] if it has not.
    fn stream_sent(&self, channel: u8) -> Result<(), DesignError> {
        let _ = channel;
        Ok(())
    }

    /// Takes bytes of one packet from the stream port of a C2H channel, at most `into.len()`, which is not 0. The port is stalled (TREADY
    /// low) except between a call that returned `Pending` and the arrival of those bytes or of the packet's end.
    ///
    /// # Errors
    /// [`DesignError::Pending`] if none has arrived. Call [`crate::Card::wake_channels`] when some have. Others as of
    /// [`send_stream`](Self::send_stream).
    fn receive_stream(&self, channel: u8, into: &mut [u8]) -> Result<StreamBytes, DesignError> {
        let _ = (channel, into);
        Err(DesignError::Pending)
    }

    /// C2H stream channel `channel` has stopped: its port is stalled until the next [`receive_stream`](Self::receive_stream). Called with the
    /// card held: it must not block.
    fn stop_stream(&self, channel: u8) {
        let _ = channel;
    }

    /// Channel `unit`, whose descriptors come from user logic ([`crate::Card::load_descriptor`]), waits for one. Called with the card held:
    /// it must not block.
    fn descriptor_wanted(&self, unit: Unit) {
        let _ = unit;
    }

    /// Reads memory through the bypass BAR. `at` is the AXI address.
    ///
    /// # Errors
    /// [`DesignError::Decode`] or [`DesignError::Slave`]; the host reads all ones.
    fn read_bypass(&self, at: CardAddr, into: &mut [u8]) -> Result<(), DesignError> {
        self.read(AxiAccess { unit: Unit::Xdma, at, fixed: None }, into)
    }

    /// Writes memory through the bypass BAR.
    ///
    /// # Errors
    /// As [`Self::read_bypass`]; the host does not see them, because the write is posted.
    fn write_bypass(&self, at: CardAddr, from: &[u8]) -> Result<(), DesignError> {
        self.write(AxiAccess { unit: Unit::Xdma, at, fixed: None }, from)
    }

    /// Whether reads of registers and of the bypass BAR may wait long for a response, so that the host's other accesses are answered
    /// meanwhile.
    fn has_slow_reads(&self) -> bool {
        false
    }

    /// Reads the register at byte `offset`, a multiple of 4, of the AXI-Lite master (user BAR).
    fn read_register(&self, offset: u64) -> u32;

    /// Writes that register.
    fn write_register(&self, offset: u64, value: u32);

    /// Writes those bytes of the register that have a bit in `strobes` (WSTRB). The default drops the write.
    fn write_register_bytes(&self, offset: u64, value: u32, strobes: u8) {
        let _ = (offset, value, strobes);
    }

    /// The lines of `usr_irq_req` in `lines` were acknowledged (`usr_irq_ack`). Called with the card held: it must not block.
    fn interrupts_acknowledged(&self, lines: u32) {
        let _ = lines;
    }

    /// The program whose register and bypass accesses the design answers from now on. A design that waits without limit for a response
    /// ends the wait when the [requester has gone](Requester::has_gone): another program may follow.
    fn set_requester(&self, requester: Weak<dyn Requester>) {
        let _ = requester;
    }

    /// The card was reset: accesses in progress have no requester any more. Called with the card held: it must not block.
    fn reset(&self) {}
}

/// Program at the other side of the BARs.
pub trait Requester: fmt::Debug + Send + Sync {
    /// Returns whether it has gone: it receives no results of its accesses.
    fn has_gone(&self) -> bool;
}

/// Descriptor that user logic loads at a descriptor bypass port ([`crate::Card::load_descriptor`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LoadedDescriptor {
    /// Source address: host (H2C), card or write-back (C2H).
    pub source: u64,
    /// Destination address.
    pub destination: u64,
    /// Length in bytes, 28 bits.
    pub length: u32,
    /// Bits of the descriptor's control word: Stop 0, Completed 1, EOP 4.
    pub control: u32,
}

/// Bytes that a stream port has delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamBytes {
    /// Number of bytes, at least 1.
    pub count: usize,
    /// The packet ends with them (TLAST).
    pub ends: bool,
}

/// Access of the user BAR or the bypass BAR that a design answers ([`crate::Card::design_access`]).
#[derive(Clone, Debug)]
pub struct DesignAccess {
    design: Arc<dyn Design>,
    target: Target,
}

#[derive(Clone, Copy, Debug)]
enum Target {
    Register(u64),
    Memory(CardAddr),
}

impl DesignAccess {
    /// Access at `offset` of a BAR whose first byte has the AXI address `base`. `None` if no design answers there.
    pub(crate) fn new(design: Arc<dyn Design>, role: BarRole, offset: u64, base: u64) -> Option<Self> {
        let target = match role {
            BarRole::User => Target::Register(offset),
            BarRole::Bypass => Target::Memory(CardAddr::new(base.wrapping_add(offset))),
            BarRole::Dma => return None,
        };
        Some(Self { design, target })
    }

    /// Returns whether a read may wait long ([`Design::has_slow_reads`]).
    #[must_use]
    pub fn has_slow_reads(&self) -> bool {
        self.design.has_slow_reads()
    }

    /// Reads `into.len()` bytes. An error response reads as all ones.
    pub fn read(&self, into: &mut [u8]) {
        match self.target {
            Target::Register(offset) => read_dwords(offset, into, |at, _| self.design.read_register(at)),
            Target::Memory(at) => {
                if self.design.read_bypass(at, into).is_err() {
                    into.fill(0xFF);
                }
            }
        }
    }

    /// Writes `from`: whole dwords, or single bytes of registers with strobes. Returns whether all of it was accepted.
    #[must_use]
    pub fn write(&self, from: &[u8]) -> bool {
        match self.target {
            Target::Memory(at) => self.design.write_bypass(at, from).is_ok(),
            Target::Register(offset) => {
                if !write_dwords(offset, from, |at, value| self.design.write_register(at, value)) {
                    write_bytes(offset, from, |at, value, strobes| {
                        self.design.write_register_bytes(at, value, strobes);
                    });
                }
                true
            }
        }
    }
}
