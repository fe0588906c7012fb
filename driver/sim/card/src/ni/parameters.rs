//! Scheme parameters that the host may choose; 0 in a register selects the scheme's default.

use std::time::Duration;

use fpga_firmware::generated::{Scheme, ni};
use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::scheme::tuning::{Tuning, max_window};
use fpga_protocol::time::Nanos;

/// Number of the registers SCHEME_WINDOW, one per scheme number. Some numbers are reserved.
const SCHEMES: usize = ni::SCHEME_WINDOW_COUNT as usize;

/// Registers, as written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parameters {
    windows: [u32; SCHEMES],
    receiver_window: u32,
    adaptive: u32,
    walk_ns: u32,
}

/// Returns the number of the scheme whose window `register` sets.
fn window_of(register: u32) -> Option<usize> {
    let offset = register.checked_sub(ni::SCHEME_WINDOW)?;
    usize::try_from(offset / 4).ok().filter(|scheme| *scheme < SCHEMES)
}

impl Parameters {
    /// No parameter chosen.
    pub(super) const NONE: Self = Self { windows: [0; SCHEMES], receiver_window: 0, adaptive: 0, walk_ns: 0 };

    pub(super) fn has(register: u32) -> bool {
        Self::NONE.read(register).is_some()
    }

    pub(super) fn read(&self, register: u32) -> Option<u32> {
        Some(match register {
            ni::RECEIVER_WINDOW_OPTIONS => self.receiver_window,
            ni::ADAPTIVE_OPTIONS => self.adaptive,
            ni::ADAPTIVE_WALK_NS => self.walk_ns,
            _ => *self.windows.get(window_of(register)?)?,
        })
    }

    pub(super) fn place(&mut self, register: u32) -> Option<&mut u32> {
        Some(match register {
            ni::RECEIVER_WINDOW_OPTIONS => &mut self.receiver_window,
            ni::ADAPTIVE_OPTIONS => &mut self.adaptive,
            ni::ADAPTIVE_WALK_NS => &mut self.walk_ns,
            _ => self.windows.get_mut(window_of(register)?)?,
        })
    }

    /// Returns whether the register accepts this value, regardless of the active schemes.
    pub(super) fn allows(register: u32, value: u32) -> bool {
        match register {
            ni::RECEIVER_WINDOW_OPTIONS => {
                let known = ni::receiver_window_options::CREDIT | ni::receiver_window_options::RESEND_AFTER;
                value & !known == 0
            }
            ni::ADAPTIVE_OPTIONS => {
                let known = ni::adaptive_options::LITERAL | ni::adaptive_options::SAMPLES;
                value & !known == 0 && samples(value).is_none_or(|samples| samples <= 256)
            }
            ni::ADAPTIVE_WALK_NS => true,
            _ => {
                let number = window_of(register).and_then(|number| u32::try_from(number).ok());
                let scheme = number.and_then(|number| Scheme::try_from(number).ok());
                value == 0 || scheme.and_then(max_window).is_some_and(|most| value <= most)
            }
        }
    }

    /// Scheme configuration with the parameters that the host has chosen; `None` for the registry scheme.
    pub(super) fn rules(&self, scheme: Scheme, round_trip: Nanos) -> Option<SchemeConfig> {
        let Parameters { windows, receiver_window, adaptive, walk_ns } = *self;
        let mut tuning = Tuning::default();
        let number = usize::try_from(scheme.value()).unwrap_or(usize::MAX);
        tuning.window = windows.get(number).copied().and_then(given);
        tuning.credit = receiver_window & ni::receiver_window_options::CREDIT != 0;
        let after = (receiver_window & ni::receiver_window_options::RESEND_AFTER)
            >> ni::receiver_window_options::RESEND_AFTER_SHIFT;
        tuning.resend_after = given(after).and_then(|after| u8::try_from(after).ok());
        tuning.literal = adaptive & ni::adaptive_options::LITERAL != 0;
        tuning.samples = samples(adaptive);
        tuning.walk = given(walk_ns).map(|span| Duration::from_nanos(span.into()));
        SchemeConfig::tuned(scheme, round_trip, &tuning)
    }
}

fn given(value: u32) -> Option<u32> {
    (value != 0).then_some(value)
}

fn samples(options: u32) -> Option<u16> {
    let samples = (options & ni::adaptive_options::SAMPLES) >> ni::adaptive_options::SAMPLES_SHIFT;
    given(samples).and_then(|samples| u16::try_from(samples).ok())
}
