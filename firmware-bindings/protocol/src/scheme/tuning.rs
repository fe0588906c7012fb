//! Scheme parameters set by a user in place of the specification's values.

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
    /// Window in packets, the receiver's (W) or the sender's (Ws), depending on the scheme: 1 to [`max_window`].
    pub window: Option<u32>,
    /// Receiver window: the receiver sends the sender's limit.
    pub credit: bool,
    /// Receiver window: requests for one hole before everything from there on is requested (K), not 0.
    pub resend_after: Option<u8>,
    /// Adaptive window: number of delay samples in use (N), 1 to 256.
    pub samples: Option<u16>,
    /// Adaptive window: interval between two checks of the window (k), not 0.
    pub walk: Option<Nanos>,
    /// Adaptive window: timeout in the literal form of source 002 (docs/protocol.md 12), which causes many spurious retransmissions [E2-1].
    pub literal: bool,
}

/// Returns the maximum window of a scheme in packets; `None` for a scheme without a window.
#[must_use]
pub const fn max_window(scheme: Scheme) -> Option<u32> {
    match scheme {
        Scheme::ReceiverWindow | Scheme::SenderWindow | Scheme::AdaptiveWindow => Some(WIDTH),
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
            && self.walk != Some(Nanos::ZERO)
    }

    /// Returns `scheme` with these values, for a round trip of `round_trip`; `None` for the registry scheme, and for a
    /// value out of range.
    #[must_use]
    pub fn rules(&self, scheme: Scheme, round_trip: Nanos) -> Option<SchemeConfig> {
        let mut rules = SchemeConfig::new(scheme, round_trip).filter(|_| self.fits(scheme))?;
        match &mut rules {
            SchemeConfig::ReceiverWindow(config) => {
                config.window = self.window.unwrap_or(config.window);
                config.credit |= self.credit;
                config.patience = self.resend_after.unwrap_or(config.patience);
            }
            SchemeConfig::SenderWindow(config) => config.window = self.window.unwrap_or(config.window),
            SchemeConfig::ReceiverCounter(_) => {}
            SchemeConfig::AdaptiveWindow { sender, .. } => {
                sender.window = self.window.unwrap_or(sender.window);
                sender.samples = self.samples.map_or(sender.samples, u32::from);
                sender.walk = self.walk.unwrap_or(sender.walk);
                if self.literal {
                    sender.patience = TimeoutRule::Literal;
                }
            }
            SchemeConfig::Selective(config) => config.window = self.window.unwrap_or(config.window),
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
            assert_eq!(Tuning::default().rules(*scheme, ROUND_TRIP), SchemeConfig::new(*scheme, ROUND_TRIP));
        }
    }

    #[test]
    fn tuning_window_bounds_depend_on_scheme() {
        for (scheme, most) in
            [(Scheme::ReceiverWindow, 128), (Scheme::SenderWindow, 128), (Scheme::Selective, 512)]
        {
            for (window, fits) in [(0, false), (1, true), (most, true), (most + 1, false)] {
                let tuning = Tuning { window: Some(window), ..Tuning::default() };
                assert_eq!(tuning.rules(scheme, ROUND_TRIP).is_some(), fits, "{scheme}: {window}");
            }
        }
        assert_eq!(max_window(Scheme::Registry), None);
    }

    #[test]
    fn tuning_values_are_applied_to_scheme() {
        let walk = Nanos::new(77);
        let tuning = Tuning {
            window: Some(9),
            credit: true,
            resend_after: Some(7),
            samples: Some(11),
            walk: Some(walk),
            literal: true,
        };
        let rules = |scheme| tuning.rules(scheme, ROUND_TRIP).unwrap();
        let SchemeConfig::ReceiverWindow(config) = rules(Scheme::ReceiverWindow) else { panic!() };
        assert_eq!((config.window, config.credit, config.patience), (9, true, 7));
        let SchemeConfig::AdaptiveWindow { sender, .. } = rules(Scheme::AdaptiveWindow) else { panic!() };
        assert_eq!(
            (sender.window, sender.samples, sender.walk, sender.patience),
            (9, 11, walk, TimeoutRule::Literal)
        );
        for wrong in [
            Tuning { resend_after: Some(0), ..tuning },
            Tuning { samples: Some(0), ..tuning },
            Tuning { samples: Some(257), ..tuning },
            Tuning { walk: Some(Nanos::ZERO), ..tuning },
        ] {
            assert_eq!(wrong.rules(Scheme::AdaptiveWindow, ROUND_TRIP), None, "{wrong:?}");
        }
    }
}
