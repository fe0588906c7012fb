//! Division and joining: loss, duplicates, disorder, and parts that no sender makes.

use super::*;
use fpga_firmware::NodeId;
use proptest::prelude::*;

const ETHERNET: usize = 1500 - 28;

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn frame(length: usize) -> Vec<u8> {
    let head = [0, 1, 2].into_iter().flat_map(u32::to_le_bytes);
    head.chain((0..=u8::MAX).cycle().step_by(7)).take(length).collect()
}

fn datagrams(frame: &[u8], number: u32, limit: usize) -> Vec<Vec<u8>> {
    let (header, _) = wrapper::header(frame).unwrap();
    let parts = Division::new(frame, &header, number, limit).unwrap();
    parts.map(|(header, part, zeros)| [&header[..], part, &vec![0; zeros]].concat()).collect()
}

/// Returns the frame that the datagrams complete.
fn join(joiner: &mut Joiner, from: SocketAddr, datagrams: &[Vec<u8>]) -> Option<Vec<u8>> {
    let mut complete = None;
    for datagram in datagrams {
        match joiner.take(from, datagram) {
            Outcome::Complete(place) => complete = joiner.datagram(place).map(<[u8]>::to_vec),
            Outcome::Incomplete => {}
            Outcome::Invalid => panic!("a part of a sender"),
        }
    }
    let wrapped = complete?;
    let nodes = wrapper::unwrap(&wrapped).unwrap();
    assert_eq!((nodes.source, nodes.destination), (NodeId::new(1), NodeId::new(2)));
    Some(wrapped[WRAPPER_LENGTH..].to_vec())
}

#[test]
fn parts_bytes_match_table() {
    let parts = datagrams(&frame(3000), 0x0102_0304, ETHERNET);
    assert_eq!(parts[2][..24], *b"FPLK\x01\x01\xB8\x0B\x01\0\0\0\x02\0\0\0\x04\x03\x02\x01\xD0\x07\0\0");
    assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [1024; 3]);
}

#[test]
fn parts_have_equal_lengths_below_the_limit() {
    for length in [1473, 4188, 4200, 8300, 32_860, 65_491] {
        let parts = datagrams(&frame(length), 1, ETHERNET);
        assert!(parts.iter().all(|part| part.len() == parts[0].len() && part.len() <= ETHERNET), "{length}");
        assert_eq!(parts.len(), length.div_ceil(ETHERNET - PART_HEADER), "{length}");
    }
    let long = frame(65_491);
    let (header, _) = wrapper::header(&long).unwrap();
    assert!(Division::new(&long, &header, 1, 576).is_none(), "more parts than a mask has bits");
    assert!(Division::new(&long, &header, 1, PART_HEADER).is_none());
}

#[test]
fn joiner_lost_part_loses_its_frame_only() {
    let mut joiner = Joiner::default();
    let frame = frame(4200);
    let count = 4 * u32::try_from(SETS * WAYS).unwrap();
    for number in 0..count {
        let mut parts = datagrams(&frame, number, ETHERNET);
        let is_lossy = number % 2 == 0;
        if is_lossy {
            parts.remove(number as usize % 3);
        }
        assert_eq!(join(&mut joiner, address(5), &parts).is_some(), !is_lossy);
    }
    let (lost, kept) = (u64::from(count / 2), joiner.incomplete);
    assert!(kept < lost && kept >= lost - (SETS * WAYS) as u64, "{kept} of {lost}");
}

#[test]
fn joiner_duplicates_complete_a_frame_once() {
    let mut joiner = Joiner::default();
    let frame = frame(4200);
    let parts = datagrams(&frame, 7, ETHERNET);
    let twice: Vec<_> = parts.iter().flat_map(|part| [part.clone(), part.clone()]).collect();
    assert_eq!(join(&mut joiner, address(5), &twice), Some(frame.clone()));
    assert_eq!(join(&mut joiner, address(5), &parts), None, "delayed duplicates");
    assert_eq!(join(&mut joiner, address(6), &parts), Some(frame), "the same number of another sender");
}

#[test]
fn joiner_part_that_differs_from_its_frame_is_refused() {
    let mut joiner = Joiner::default();
    let mine = frame(4200);
    let parts = datagrams(&mine, 7, ETHERNET);
    assert_eq!(joiner.take(address(5), &parts[0]), Outcome::Incomplete);
    for other in [datagrams(&frame(4300), 7, ETHERNET), datagrams(&mine, 7, 1000)] {
        assert_eq!(joiner.take(address(5), &other[1]), Outcome::Invalid);
    }
    assert_eq!(join(&mut joiner, address(5), &parts[1..]), Some(mine));
}

proptest! {
    #[test]
    fn joiner_completes_frames_in_any_order(
        lengths in prop::collection::vec(1500..65_491_usize, 1..6),
        order in prop::collection::vec(any::<u32>(), 400),
        limit in 1100..9000_usize,
    ) {
        let mut joiner = Joiner::default();
        let frames: Vec<_> = lengths.iter().map(|length| frame(*length.max(&limit))).collect();
        let numbered = (0_u32..).zip(&frames);
        let mut parts: Vec<_> = numbered.flat_map(|(number, frame)| datagrams(frame, number, limit)).collect();
        for (at, other) in order.iter().enumerate() {
            let count = parts.len();
            parts.swap(at % count, *other as usize % count);
        }
        let mut complete = Vec::new();
        for part in &parts {
            if let Outcome::Complete(place) = joiner.take(address(5), part) {
                complete.push(joiner.datagram(place).unwrap()[WRAPPER_LENGTH..].to_vec());
            }
        }
        complete.sort();
        let mut expected = frames;
        expected.sort();
        prop_assert!(complete == expected);
        prop_assert_eq!(joiner.incomplete, 0);
    }

    /// Parts of any bytes, and valid parts with changed headers: no panic, and the memory does not grow.
    #[test]
    fn joiner_hostile_parts_are_bounded(
        parts in prop::collection::vec((any::<u16>(), any::<[u8; 22]>(), 0..1500_usize, any::<bool>()), 1..200),
    ) {
        let mut joiner = Joiner::default();
        let valid = datagrams(&frame(4200), 7, ETHERNET);
        for (port, changes, length, is_valid) in parts {
            let mut bytes = valid[usize::from(port) % valid.len()].clone();
            if !is_valid {
                bytes.resize(length, 1);
            }
            for (place, change) in bytes.iter_mut().skip(usize::from(port) % 24).zip(&changes[..2]) {
                *place ^= change;
            }
            if let Outcome::Complete(place) = joiner.take(address(port % 8), &bytes) {
                let _ = wrapper::unwrap(joiner.datagram(place).unwrap());
            }
            prop_assert!(joiner.memory.len() <= SETS * WAYS * SLOT_BYTES && joiner.frames.len() <= SETS * WAYS);
        }
        // A frame of another sender still arrives.
        let sent = frame(9000);
        prop_assert_eq!(join(&mut joiner, address(99), &datagrams(&sent, 1, ETHERNET)), Some(sent));
    }
}
