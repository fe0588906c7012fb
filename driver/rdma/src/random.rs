//! Random numbers for keys.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::EndpointError;

/// Returns a random number of the system, or an error. A machine that has just started may have none for a long time, and without this flag
/// the call would wait for it indefinitely (getrandom(2)).
pub(super) fn random() -> Result<u64, EndpointError> {
    random_by(|bytes| getrandom(bytes, GetRandomFlags::NONBLOCK))
}

fn random_by(fill: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>) -> Result<u64, EndpointError> {
    let mut bytes = [0; 8];
    match fill(&mut bytes) {
        // Up to 256 bytes are always returned completely (getrandom(2)).
        Ok(8) => Ok(u64::from_ne_bytes(bytes)),
        Ok(_) | Err(Errno::AGAIN) => Err(EndpointError::NoRandomSource),
        Err(errno) => Err(EndpointError::Random { reason: errno.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_source_missing_does_not_block() {
        assert_ne!(random(), random(), "this one has some");
        assert_eq!(random_by(|_| Err(Errno::AGAIN)), Err(EndpointError::NoRandomSource));
        assert_eq!(random_by(|_| Ok(3)), Err(EndpointError::NoRandomSource));
        let refused = random_by(|_| Err(Errno::NOSYS));
        assert!(matches!(refused, Err(EndpointError::Random { .. })), "{refused:?}");
        let filled = random_by(|bytes| {
            bytes.fill(0x5A);
            Ok(bytes.len())
        });
        assert_eq!(filled, Ok(0x5A5A_5A5A_5A5A_5A5A));
    }
}
