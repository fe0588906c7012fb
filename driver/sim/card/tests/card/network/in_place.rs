//! Frames whose payload the card copies straight to its memory.

use super::*;
use fpga_card::FrameSource;
use fpga_firmware::wire::START_HEADER_LENGTH;

/// A frame whose bytes change after its start was copied.
struct ChangingFrame<'a> {
    start: &'a [u8],
    later: &'a [u8],
}

impl FrameSource for ChangingFrame<'_> {
    fn length(&self) -> usize {
        self.later.len()
    }

    fn start(&self) -> &[u8] {
        self.start.get(..START_HEADER_LENGTH).unwrap_or(self.start)
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        let bytes = self.later.get(offset..offset + into.len());
        bytes.map(|bytes| into.copy_from_slice(bytes)).is_some()
    }
}

fn try_in_place(to: &mut CardTestbed, frame: &[u8]) -> bool {
    to.card.receive_in_place(Nanos::new(to.now), &ChangingFrame { start: frame, later: frame })
}

/// Delivers a frame, in place if the card can.
pub(super) fn receive(to: &mut CardTestbed, frame: &[u8]) {
    if !try_in_place(to, frame) {
        to.card.receive_frame(Nanos::new(to.now), frame);
    }
}

/// Frames of one transfer of three packets, and a receiver that knows their sender.
fn frames() -> (Vec<Vec<u8>>, CardTestbed) {
    let (mut a, mut b) = (node(1), node(2));
    open(&mut b);
    // The first packet of an unknown sender needs a record, which is made with a copy of the packet.
    fill(&mut a, 0, &header(1, 2, 100), &[1; 100], 1);
    a.run();
    let first = a.card.take_frame().expect("a packet");
    assert!(!try_in_place(&mut b, &first));
    receive(&mut b, &first);
    b.run();
    while b.card.take_frame().is_some() {}
    b.events();
    let payload: Vec<u8> = (0..1100_u32).map(|n| (n % 251) as u8).collect();
    fill(&mut a, 1, &header(2, 2, 1100), &payload, 2);
    a.run();
    let frames = std::iter::from_fn(|| a.card.take_frame()).collect();
    (frames, b)
}

fn expected() -> Vec<u8> {
    (0..1100_u32).map(|n| (n % 251) as u8).collect()
}

#[test]
fn ni_frames_in_place_arrive_once() {
    let (frames, mut b) = frames();
    assert_eq!(frames.len(), 3);
    for frame in &frames[..2] {
        assert!(try_in_place(&mut b, frame));
        assert!(!try_in_place(&mut b, frame), "it has arrived");
    }
    // A duplicate with another payload and a correct checksum changes nothing.
    let mut duplicate = frames[1].clone();
    duplicate[80] ^= 1;
    let end = duplicate.len() - 4;
    finish(&mut duplicate, end).unwrap();
    receive(&mut b, &duplicate);
    assert!(try_in_place(&mut b, &frames[2]));
    assert!(frames.iter().all(|frame| !try_in_place(&mut b, frame)), "the transfer is over");
    b.run();
    assert_eq!(b.memory(TARGET + 3, 1100), expected());
    assert!(kinds(&b.events()).contains(&EventKind::Notice));
    assert_eq!(b.counter(counters::BAD_CRC), 0);
}

#[test]
fn ni_damaged_frame_in_place_counts_as_lost() {
    let (frames, mut b) = frames();
    assert!(try_in_place(&mut b, &frames[0]));
    b.run();
    while b.card.take_frame().is_some() {}
    // Its header is right when the card reads it; payload and checksum are not.
    for at in [70, frames[1].len() - 1] {
        let mut later = frames[1].clone();
        later[at] ^= 4;
        let frame = ChangingFrame { start: &frames[1], later: &later };
        assert!(b.card.receive_in_place(Nanos::new(b.now), &frame));
    }
    b.run();
    assert!(b.card.take_frame().is_none(), "not acknowledged");
    assert_eq!(b.counter(counters::BAD_CRC), 2);
    for frame in &frames[1..] {
        assert!(try_in_place(&mut b, frame));
    }
    assert_eq!(b.memory(TARGET + 3, 1100), expected());
}

#[test]
fn ni_header_is_read_once() {
    let (frames, mut b) = frames();
    // Another address follows, with a checksum for it.
    let mut later = frames[0].clone();
    let Ok(Packet::Data(data)) = Packet::parse(&frames[0]) else { panic!("a packet") };
    let mut moved = data.header();
    moved.address = CardAddr::new(TARGET + 0x1000);
    let start = moved.start.as_mut().unwrap();
    (start.base, start.transfer_base) = (moved.address, moved.address);
    moved.encode(data.payload(), &mut later).unwrap();
    let frame = ChangingFrame { start: &frames[0], later: &later };
    assert!(b.card.receive_in_place(Nanos::new(b.now), &frame));
    assert_eq!(b.counter(counters::BAD_CRC), 1);
    assert_eq!(b.memory(TARGET + 0x1000, 512), [0; 512]);
}

#[test]
fn ni_refused_frames_are_not_written_in_place() {
    let (frames, mut b) = frames();
    let Ok(Packet::Data(data)) = Packet::parse(&frames[0]) else { panic!("a packet") };
    let mut frame = frames[0].clone();
    let wrong_key = DataHeader { key: KEY + 1, ..data.header() };
    wrong_key.encode(data.payload(), &mut frame).unwrap();
    assert!(!try_in_place(&mut b, &frame));
    // Its segment is not registered: for the escape buffer.
    assert!(!try_in_place(&mut b, &frames[1]));
    receive(&mut b, &frames[1]);
    assert!(!try_in_place(&mut b, &frames[0]), "a packet waits in the escape buffer");
    assert!(b.memory(TARGET + 103, 900).iter().all(|byte| *byte == 0));
    receive(&mut b, &frames[0]);
    assert!(try_in_place(&mut b, &frames[2]));
    assert_eq!(b.memory(TARGET + 3, 1100), expected());
}
