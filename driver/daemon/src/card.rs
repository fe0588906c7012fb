//! The shared card.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use fpga_driver::{Card, Direction};
use fpga_pci::{Bar, LogLimit, lock, log_limited};
use fpga_registers::BarOffset;

use crate::error::ShareError;
use crate::lane::Lane;
use crate::stream_in::InPort;
use crate::stream_out::OutPort;

/// Write flush timeout of the card: 2 to this power clocks, about a millisecond.
const FLUSH_EXPONENT: u8 = 18;

/// A card that several views access.
///
/// Each access becomes a transfer on the channel of its direction with the fewest transfers in flight. Stream channels have one client at a
/// time.
#[derive(Debug)]
pub struct SharedCard {
    card: Card,
    user: Option<Bar>,
    /// The user BAR has registers with addresses of host memory.
    has_ni: bool,
    h2c: Vec<Mutex<Lane>>,
    c2h: Vec<Mutex<Lane>>,
    sending: Vec<Mutex<OutPort>>,
    receiving: Vec<Mutex<InPort>>,
    timeout: Duration,
    log: LogLimit,
}

impl SharedCard {
    /// Takes all channels of `card`. An access of a view fails after `timeout`.
    ///
    /// # Errors
    /// [`ShareError`].
    pub fn new(card: Card, timeout: Duration) -> Result<Self, ShareError> {
        let xdma = card.info().xdma;
        let has_ni = card.info().ni.is_some();
        let shared = Self {
            user: card.user_bar().cloned(),
            has_ni,
            h2c: Vec::new(),
            c2h: Vec::new(),
            sending: Vec::new(),
            receiving: Vec::new(),
            timeout,
            log: LogLimit::new("clients' writes of the user BAR"),
            card,
        };
        if xdma.stream {
            return shared.with_streams();
        }
        let card = &shared.card;
        let lanes = |direction, count| {
            (0..count).map(|number| Lane::open(card, direction, number).map(Mutex::new)).collect()
        };
        let (h2c, c2h): (Result<_, ShareError>, Result<_, ShareError>) =
            (lanes(Direction::H2c, xdma.h2c_channels), lanes(Direction::C2h, xdma.c2h_channels));
        let (h2c, c2h) = (h2c?, c2h?);
        Ok(Self { h2c, c2h, ..shared })
    }

    /// Takes the channels of a card whose channels are streams.
    fn with_streams(self) -> Result<Self, ShareError> {
        let (xdma, card) = (self.card.info().xdma, &self.card);
        // Bytes that have arrived are passed on although their packet has paused.
        card.set_write_flush_timeout(FLUSH_EXPONENT)?;
        let sending = (0..xdma.h2c_channels).map(|number| OutPort::open(card, number).map(Mutex::new));
        let receiving = (0..xdma.c2h_channels).map(|number| InPort::open(card, number).map(Mutex::new));
        let (sending, receiving) = (sending.collect::<Result<_, _>>()?, receiving.collect::<Result<_, _>>()?);
        Ok(Self { sending, receiving, ..self })
    }

    /// The card.
    #[must_use]
    pub const fn card(&self) -> &Card {
        &self.card
    }

    /// Its channels of a direction.
    pub(crate) fn lanes(&self, direction: Direction) -> &[Mutex<Lane>] {
        match direction {
            Direction::H2c => &self.h2c,
            Direction::C2h => &self.c2h,
        }
    }

    /// H2C stream channel `number`.
    pub(crate) fn out_port(&self, number: u8) -> Option<MutexGuard<'_, OutPort>> {
        self.sending.get(usize::from(number)).map(lock)
    }

    /// C2H stream channel `number`.
    pub(crate) fn in_port(&self, number: u8) -> Option<MutexGuard<'_, InPort>> {
        self.receiving.get(usize::from(number)).map(lock)
    }

    /// Continues what clients have left behind that have ended. To be called from time to time.
    pub fn poll_streams(&self) {
        for port in &self.sending {
            lock(port).poll();
        }
    }

    /// Frees the stream channels of `client`, if `releases`; drops its bytes in any case.
    pub(crate) fn end_streams(&self, client: u64, releases: bool) {
        for port in &self.sending {
            let mut port = lock(port);
            if releases { port.release(client) } else { port.interrupt(client) }
        }
        for port in &self.receiving {
            let mut port = lock(port);
            if releases { port.release(client) } else { port.interrupt(client) }
        }
    }

    /// Maximum duration of a transfer.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }
}

impl SharedCard {
    pub(crate) fn read_register(&self, offset: u64) -> u32 {
        // What the root complex returns for a register that does not answer.
        self.user.as_ref().and_then(|bar| bar.read32(BarOffset::new(offset)).ok()).unwrap_or(u32::MAX)
    }

    pub(crate) fn write_register(&self, offset: u64, value: u32) {
        if self.has_ni {
            log_limited!(
                self.log,
                WARN,
                offset,
                value,
                "a client's write of the user BAR is refused: registers of the card's network interface contain addresses"
            );
        } else if let Some(bar) = &self.user
            && let Err(error) = bar.write32(BarOffset::new(offset), value)
        {
            log_limited!(self.log, WARN, %error, "a client's write of the user BAR failed");
        }
    }
}
