//! Scheme parameters set by a user in place of the specification's values.

use core::time::Duration;

use fpga_firmware::generated::Scheme;

use super::adaptive_window::TimeoutRule;
use super::any::SchemeConfig;
use super::bits::PacketWindow;
use super::mapping::WIDTH;
use crate::time::Nanos;

/// Differences from the specification's values; by default none. Parameters that a scheme does not have are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Tuning {
    /// Window in packets, the receiver's (W) or the sender's, depending on the scheme: 1 to [`max_window`].
    pub window: Option<u32>,
    /// Receiver window: the receiver sends the sender's limit. Always on where senders have congestion windows.
    pub credit: bool,
    /// Receiver window: requests for one hole before everything from there on is requested (K), not 0.
    pub resend_after: Option<u8>,
    /// Adaptive window: number of delay samples in use (N), 1 to 256.
    pub samples: Option<u16>,
    /// Adaptive window: interval between two checks of the window (k), not 0.
    pub walk: Option<Duration>,
    /// Adaptive window: timeout of source 002 in its literal form, which causes many spurious retransmissions [E2-1].
    pub literal: bool,
}

/// Returns the maximum window of a scheme in packets; `None` for a scheme without a window.
#[must_use]
pub const fn max_window(scheme: Scheme) -> Option<u32> {
    match scheme {
        Scheme::ReceiverWindow | Scheme::AdaptiveWindow => Some(WIDTH),
        Scheme::Selective => Some(PacketWindow::WIDTH),
        _ => None,
    }
}

impl Tuning {
    /// Whether `scheme` accepts these values, including those that it ignores.
    #[must_use]
    pub fn fits(&self, scheme: Scheme) -> bool {
        let within = |window| max_window(scheme).is_none_or(|most| (1..=most).contains(&window));
        self.window.is_none_or(within)
            && self.resend_after != Some(0)
            && self.samples.is_none_or(|samples| (1..=256).contains(&samples))
            && self.walk != Some(Duration::ZERO)
    }
}

impl SchemeConfig {
    /// Returns `scheme` with the values of `tuning`, for a round trip of `round_trip`; `None` for the registry scheme, and
    /// for a value out of range.
    #[must_use]
    pub fn tuned(scheme: Scheme, round_trip: Nanos, tuning: &Tuning) -> Option<Self> {
        let mut rules = Self::new(scheme, round_trip).filter(|_| tuning.fits(scheme))?;
        match &mut rules {
            Self::ReceiverWindow(config) => {
                config.window = tuning.window.unwrap_or(config.window);
                config.credit |= tuning.credit;
                config.patience = tuning.resend_after.unwrap_or(config.patience);
            }
            Self::AdaptiveWindow { sender, .. } => {
                sender.window = tuning.window.unwrap_or(sender.window);
                sender.samples = tuning.samples.map_or(sender.samples, u32::from);
                sender.walk = tuning.walk.map_or(sender.walk, Nanos::from);
                if tuning.literal {
                    sender.patience = TimeoutRule::Literal;
                }
            }
            Self::Selective(config) => config.window = tuning.window.unwrap_or(config.window),
        }
        Some(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Nanos = Nanos::from_micros(20);

    #[test]
    fn tuning_default_matches_specification() {
        for scheme in Scheme::ALL {
            assert_eq!(
                SchemeConfig::tuned(*scheme, ROUND_TRIP, &Tuning::default()),
                SchemeConfig::new(*scheme, ROUND_TRIP)
            );
        }
    }

    #[test]
    fn tuning_window_bounds_depend_on_scheme() {
        for (scheme, most) in
            [(Scheme::ReceiverWindow, 128), (Scheme::AdaptiveWindow, 128), (Scheme::Selective, 512)]
        {
            for (window, fits) in [(0, false), (1, true), (most, true), (most + 1, false)] {
                let tuning = Tuning { window: Some(window), ..Tuning::default() };
                assert_eq!(
                    SchemeConfig::tuned(scheme, ROUND_TRIP, &tuning).is_some(),
                    fits,
                    "{scheme}: {window}"
                );
            }
        }
        assert_eq!(max_window(Scheme::Registry), None);
    }

    #[test]
    fn tuning_values_are_applied_to_scheme() {
        let walk = Duration::from_nanos(77);
        let tuning = Tuning {
            window: Some(9),
            credit: true,
            resend_after: Some(7),
            samples: Some(11),
            walk: Some(walk),
            literal: true,
        };
        let rules = |scheme| SchemeConfig::tuned(scheme, ROUND_TRIP, &tuning).unwrap();
        let SchemeConfig::ReceiverWindow(config) = rules(Scheme::ReceiverWindow) else { panic!() };
        assert_eq!((config.window, config.credit, config.patience), (9, true, 7));
        let SchemeConfig::AdaptiveWindow { sender, .. } = rules(Scheme::AdaptiveWindow) else { panic!() };
        assert_eq!(
            (sender.window, sender.samples, sender.walk, sender.patience),
            (9, 11, walk.into(), TimeoutRule::Literal)
        );
        for wrong in [
            Tuning { resend_after: Some(0), ..tuning },
            Tuning { samples: Some(0), ..tuning },
            Tuning { samples: Some(257), ..tuning },
            Tuning { walk: Some(Duration::ZERO), ..tuning },
        ] {
            assert_eq!(SchemeConfig::tuned(Scheme::AdaptiveWindow, ROUND_TRIP, &wrong), None, "{wrong:?}");
        }
    }
}
