//! XDMA IRQ block (PG195 target 2): masks, requests, pending lines and vectors.
//!
//! A message is sent at every rising edge of (source AND mask), so enabling a mask bit whose source is asserted sends one too. After a
//! change of the method all requests count as low: enabling MSI-X late loses no interrupt. The legacy line is a level: high while a
//! request of its pin is pending.

use crate::config_space::{ConfigSpace, InterruptMethod};
use crate::counters::USER_INTERRUPTS;
use crate::fault_log::FaultLog;
use crate::interrupt_messages::InterruptMessages;
use crate::offsets::irq as at;

const USER_LINES: u32 = USER_INTERRUPTS as u32;
const CHANNEL_LINES: u32 = 8;

/// Registers and line state.
#[derive(Debug, Default)]
pub(crate) struct IrqBlock {
    user_enable: u32,
    channel_enable: u32,
    user_vectors: [u32; 4],
    channel_vectors: [u32; 2],
    user_source: u32,
    channel_source: u32,
    user_seen: u32,
    channel_seen: u32,
    channels: u32,
    /// The pin in configuration space: 1 (INTA) to 4, 0 for none.
    pin: u8,
    /// Method at the last sample of the lines.
    method: InterruptMethod,
}

/// Result of sampling the lines of `usr_irq_req`, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sampled {
    /// Lines with a new interrupt request.
    pub(crate) raised: u32,
    /// Lines that are acknowledged (`usr_irq_ack`), so that user logic may lower them: the message was requested or, with the legacy line,
    /// the host has masked it. With the legacy line this is the second of the two acknowledgements; before it, the host could not find out
    /// which line caused the interrupt.
    pub(crate) acknowledged: u32,
}

/// Bits of the four 5-bit vector fields of one word.
const VECTOR_FIELDS: u32 = 0x1F1F_1F1F;

impl IrqBlock {
    /// `channels` is the number of implemented channels of both directions; they take the low bits.
    pub(crate) fn new(channels: u32, pin: u8) -> Self {
        Self { channels, pin, ..Self::default() }
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.channels, self.pin);
    }

    const fn user_mask() -> u32 {
        (1 << USER_LINES) - 1
    }

    const fn channel_mask(&self) -> u32 {
        (1 << if self.channels < CHANNEL_LINES { self.channels } else { CHANNEL_LINES }) - 1
    }

    /// Reads the register at `offset` (identifier excluded).
    pub(crate) fn read(&self, offset: u32) -> u32 {
        match offset {
            at::USER_ENABLE => self.user_enable,
            at::CHANNEL_ENABLE => self.channel_enable,
            at::USER_REQUEST => self.user_source & self.user_enable,
            at::CHANNEL_REQUEST => self.channel_source & self.channel_enable,
            at::USER_PENDING => self.user_source,
            at::CHANNEL_PENDING => self.channel_source,
            at::USER_VECTORS0..=at::USER_VECTORS3 => word(&self.user_vectors, offset - at::USER_VECTORS0),
            at::CHANNEL_VECTORS0 | at::CHANNEL_VECTORS1 => {
                word(&self.channel_vectors, offset - at::CHANNEL_VECTORS0)
            }
            _ => 0,
        }
    }

    pub(crate) fn write(&mut self, offset: u32, value: u32) {
        let user = value & Self::user_mask();
        let channel = value & self.channel_mask();
        match offset {
            at::USER_ENABLE => self.user_enable = user,
            at::USER_ENABLE_SET => self.user_enable |= user,
            at::USER_ENABLE_CLEAR => self.user_enable &= !user,
            at::CHANNEL_ENABLE => self.channel_enable = channel,
            at::CHANNEL_ENABLE_SET => self.channel_enable |= channel,
            at::CHANNEL_ENABLE_CLEAR => self.channel_enable &= !channel,
            at::USER_VECTORS0..=at::USER_VECTORS3 => {
                set_word(&mut self.user_vectors, offset - at::USER_VECTORS0, value & VECTOR_FIELDS);
            }
            at::CHANNEL_VECTORS0 | at::CHANNEL_VECTORS1 => {
                set_word(&mut self.channel_vectors, offset - at::CHANNEL_VECTORS0, value & VECTOR_FIELDS);
            }
            _ => {}
        }
    }

    /// Samples the lines: requests a message per new request, or sets the level of the legacy line.
    pub(crate) fn sample(
        &mut self,
        user: u32,
        channel: u32,
        config: &mut ConfigSpace,
        messages: &mut InterruptMessages,
        faults: &mut FaultLog,
    ) -> Sampled {
        self.user_source = user;
        self.channel_source = channel;
        if self.method != config.interrupt_method() {
            self.method = config.interrupt_method();
            (self.user_seen, self.channel_seen) = (0, 0);
            messages.drop_pending();
        }
        let user_request = user & self.user_enable;
        let channel_request = channel & self.channel_enable;
        let user_new = user_request & !self.user_seen;
        let channel_new = channel_request & !self.channel_seen;
        let user_masked = self.user_seen & user & !user_request;
        self.user_seen = user_request;
        self.channel_seen = channel_request;
        if self.method == InterruptMethod::Line {
            messages.set_line(self.pin_requested(user_request, channel_request), config);
            return Sampled { raised: user_new, acknowledged: user_masked };
        }
        messages.set_line(false, config);
        let sampled = Sampled { raised: user_new, acknowledged: user_new };
        if user_new | channel_new == 0 {
            return sampled;
        }
        for line in (0..CHANNEL_LINES).filter(|line| channel_new & 1 << line != 0) {
            messages.raise(vector(&self.channel_vectors, line), config, faults);
        }
        for line in (0..USER_LINES).filter(|line| user_new & 1 << line != 0) {
            messages.raise(vector(&self.user_vectors, line), config, faults);
        }
        sampled
    }

    /// Whether a request is pending for the pin in configuration space. The two low bits of a vector select the pin, INTA to INTD (PG195).
    /// A request for another pin has no effect, because the function does not have that pin.
    fn pin_requested(&self, user: u32, channel: u32) -> bool {
        if user | channel == 0 {
            return false;
        }
        let Some(pin) = self.pin.checked_sub(1) else { return false };
        let requested = |words: &[u32], line: u32, request: u32| {
            request & 1 << line != 0 && vector(words, line) & 3 == pin
        };
        (0..CHANNEL_LINES).any(|line| requested(&self.channel_vectors, line, channel))
            || (0..USER_LINES).any(|line| requested(&self.user_vectors, line, user))
    }
}

fn word(words: &[u32], offset: u32) -> u32 {
    usize::try_from(offset / 4).ok().and_then(|index| words.get(index)).copied().unwrap_or(0)
}

fn set_word(words: &mut [u32], offset: u32, value: u32) {
    if let Some(word) = usize::try_from(offset / 4).ok().and_then(|index| words.get_mut(index)) {
        *word = value;
    }
}

/// Returns the 5-bit field of `line`, four per word at 4:0, 12:8, 20:16, 28:24.
fn vector(words: &[u32], line: u32) -> u8 {
    let field = word(words, line & !3) >> (8 * (line & 3)) & 0x1F;
    u8::try_from(field).unwrap_or(0)
}
