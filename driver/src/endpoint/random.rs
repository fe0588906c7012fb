//! Random numbers for keys and incarnations.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::EndpointError;
use crate::name::CardName;

/// Returns a random number of the system, or an error. A machine that has just started may have none for a long time, and without this flag
/// the call would wait for it indefinitely (getrandom(2)).
pub(super) fn random(card: &CardName) -> Result<u64, EndpointError> {
    random_by(card, |bytes| getrandom(bytes, GetRandomFlags::NONBLOCK))
}

fn random_by(
    card: &CardName,
    fill: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>,
) -> Result<u64, EndpointError> {
    let mut bytes = [0; 8];
    match fill(&mut bytes) {
        // Up to 256 bytes are always returned completely (getrandom(2)).
        Ok(8) => Ok(u64::from_ne_bytes(bytes)),
        Ok(_) | Err(Errno::AGAIN) => Err(EndpointError::NoRandomSource { card: card.clone() }),
        Err(errno) => Err(EndpointError::Random { card: card.clone(), reason: errno.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_source_missing_does_not_block() {
        let card = CardName::from("card 0");
        assert_ne!(random(&card), random(&card), "this one has some");
        assert_eq!(
            random_by(&card, |_| Err(Errno::AGAIN)),
            Err(EndpointError::NoRandomSource { card: card.clone() })
        );
        assert_eq!(random_by(&card, |_| Ok(3)), Err(EndpointError::NoRandomSource { card: card.clone() }));
        let refused = random_by(&card, |_| Err(Errno::NOSYS));
        assert!(matches!(refused, Err(EndpointError::Random { .. })), "{refused:?}");
        let filled = random_by(&card, |bytes| {
            bytes.fill(0x5A);
            Ok(bytes.len())
        });
        assert_eq!(filled, Ok(0x5A5A_5A5A_5A5A_5A5A));
    }
}
