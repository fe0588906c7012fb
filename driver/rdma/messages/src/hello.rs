//! Hellos: the first messages between peers.

use crate::layout::HELLO_PAGE;
use crate::wire::{HEADER, Reader, Writer};
use fpga_driver::{Incarnation, NodeId};

/// Version of hellos and records.
const VERSION: u16 = 3;
const MAGIC: u32 = u32::from_le_bytes(*b"FPMS");

/// First message to a peer: what it may write here.
///
/// Peers share the slots for hellos: one may overwrite the hello of another one between its notification and its copy to host memory. The
/// last 8 bytes are therefore a checksum of the others and of the sender that the notification names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Whether it answers a hello: it is not answered itself.
    pub(crate) is_answer: bool,
    /// Area of the sender's card memory that the receiver may write, and its key. It begins with the doorbells.
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) key: u64,
    /// Address of the sender's hello slots, which tells the ports of its card apart.
    pub(crate) slots: u64,
    /// Offset of the ring for the receiver's records in the area.
    pub(crate) ring: u32,
    /// Offset of the landing slots in the area.
    pub(crate) landing: u32,
    pub(crate) ring_length: u32,
    pub(crate) chunk: u32,
    /// Bytes of the receiver's messages that the sender keeps before they match a receive, in units of
    /// [`crate::layout::EAGER_UNIT`].
    pub(crate) eager: u32,
}

/// Bytes of a hello before the checksum.
const CHECKED: usize = HEADER - size_of::<u64>();

/// Checksum of a hello (FNV-1a).
fn checksum(bytes: &[u8; HEADER], sender: (NodeId, Incarnation)) -> u64 {
    let fields = bytes.iter().take(CHECKED).copied();
    let sender = [sender.0.get(), sender.1.get()];
    let all = fields.chain(sender.into_iter().flat_map(u32::to_le_bytes));
    all.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Hello {
    pub(crate) fn encode(&self, sender: (NodeId, Incarnation)) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let mut put = Writer { bytes: &mut bytes, at: 0 };
        put.bytes(&MAGIC.to_le_bytes());
        put.bytes(&VERSION.to_le_bytes());
        put.bytes(&[u8::from(self.is_answer), 0]);
        for word in [self.address, self.key, self.slots] {
            put.bytes(&word.to_le_bytes());
        }
        for word in [self.length, self.ring, self.landing, self.ring_length, self.chunk, self.eager] {
            put.bytes(&word.to_le_bytes());
        }
        let sum = checksum(&bytes, sender);
        Writer { bytes: &mut bytes, at: CHECKED }.bytes(&sum.to_le_bytes());
        bytes
    }

    /// `None` if the bytes are not a hello of `sender` in this version.
    pub(crate) fn decode(bytes: &[u8; HEADER], sender: (NodeId, Incarnation)) -> Option<Self> {
        let mut get = Reader { bytes, at: 0 };
        let magic = u32::from_le_bytes(get.array()?);
        let version = u16::from_le_bytes(get.array()?);
        let [is_answer, _] = get.array()?;
        let mut long = || get.array().map(u64::from_le_bytes);
        let (address, key, slots) = (long()?, long()?, long()?);
        let mut short = || get.array().map(u32::from_le_bytes);
        let (length, ring, landing) = (short()?, short()?, short()?);
        let (ring_length, chunk, eager) = (short()?, short()?, short()?);
        let sum = u64::from_le_bytes(get.array()?);
        let fits = |offset: u32, bytes: u32| offset.checked_add(bytes).is_some_and(|end| end <= length);
        let valid = (magic, version) == (MAGIC, VERSION)
            && address.checked_add(length.into()).is_some()
            && slots.checked_add(HELLO_PAGE).is_some()
            && fits(ring, ring_length)
            && fits(landing, 0)
            && sum == checksum(bytes, sender);
        valid.then_some(Self {
            is_answer: is_answer != 0,
            address,
            length,
            key,
            slots,
            ring,
            landing,
            ring_length,
            chunk,
            eager,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDER: (NodeId, Incarnation) = (NodeId::new(7), Incarnation::new(9));
    const HELLO: Hello = Hello {
        is_answer: true,
        address: 4096,
        length: 1 << 20,
        key: 5,
        slots: 0x3000,
        ring: 0x1000,
        landing: 0x2000,
        ring_length: 0x8000,
        chunk: 0x100,
        eager: 77,
    };

    #[test]
    fn hello_round_trips_and_checks_its_ranges() {
        let is_decoded = |hello: Hello| Hello::decode(&hello.encode(SENDER), SENDER) == Some(hello);
        assert!(is_decoded(HELLO));
        assert!(!is_decoded(Hello { ring: 1 << 20, ..HELLO }));
        assert!(!is_decoded(Hello { address: u64::MAX, ..HELLO }));
        assert!(!is_decoded(Hello { slots: u64::MAX, ..HELLO }));
        assert_eq!(Hello::decode(&[0; HEADER], SENDER), None);
    }

    /// Two peers have written to one slot: the content belongs to one notification only, or, if it is mixed, to none.
    #[test]
    fn hello_of_another_sender_is_refused() {
        let other = (NodeId::new(8), SENDER.1);
        let (mine, theirs) = (HELLO.encode(SENDER), Hello { key: 6, ..HELLO }.encode(other));
        assert_eq!(Hello::decode(&theirs, SENDER), None);
        assert_eq!(Hello::decode(&mine, (SENDER.0, Incarnation::new(10))), None);
        for at in [8, 16, 32, 48] {
            let mut mixed = mine;
            mixed[at..].copy_from_slice(&theirs[at..]);
            assert_eq!(
                (Hello::decode(&mixed, SENDER), Hello::decode(&mixed, other).filter(|hello| hello.key == 5)),
                (None, None)
            );
        }
    }

    proptest::proptest! {
        /// Any fields with the right magic, version and checksum are refused, or are what encoding gives.
        #[test]
        fn hellos_of_any_bytes_are_stable(bytes: [u8; HEADER]) {
            let mut bytes = bytes;
            bytes[..6].copy_from_slice(&Hello::encode(&HELLO, SENDER)[..6]);
            let sum = checksum(&bytes, SENDER);
            bytes[CHECKED..].copy_from_slice(&sum.to_le_bytes());
            if let Some(hello) = Hello::decode(&bytes, SENDER) {
                proptest::prop_assert_eq!(Hello::decode(&hello.encode(SENDER), SENDER), Some(hello));
            }
        }
    }
}
