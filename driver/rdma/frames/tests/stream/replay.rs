//! Joins in the name of other nodes: recorded ones, and valid ones.

use fpga_driver::CardRange;
use fpga_driver::{CardAddr, NodeId};
use fpga_frames::bootstrap::wire::{Message, Reason, Refusal, Window};
use fpga_frames::{DropReason, PublisherEvent, Sequence, SubscriberOptions};

use crate::stream::bad_input::{join_as, say};
use crate::stream::bed::{TestBed, assert_whole, endpoint, options};

fn gone(bed: &mut TestBed) -> Vec<DropReason> {
    let reason = |event| match event {
        PublisherEvent::Dropped { reason, .. } => Some(reason),
        _ => None,
    };
    std::iter::from_fn(|| bed.publisher.next_event()).filter_map(reason).collect()
}

fn refused(heard: &[Message]) -> &Refusal {
    let [Message::Offer(_), Message::Refused(refusal)] = heard else { panic!("{heard:?}") };
    refusal
}

/// Checks that the only subscriber has everything published so far.
fn assert_served(bed: &mut TestBed) {
    bed.publish().unwrap();
    let next = bed.publisher.next_sequence();
    bed.until("the subscriber receives its frame", |bed| {
        bed.seen[0].frames.last() == Some(&(next.get() - 1))
    });
    bed.assert_no_faults();
    assert_whole(&bed.seen[0], Sequence::new(0), next);
    assert_eq!(bed.seen[0].missed(), 0);
}

fn node_of(bed: &TestBed) -> NodeId {
    bed.publisher.subscribers().next().unwrap().node
}

/// Window that is large enough, and was never opened.
const WINDOW: Window = Window { address: 0, length: 1 << 20, key: 7 };

#[test]
fn join_recorded_and_replayed_is_refused() {
    let mut bed = TestBed::new(1, options());
    // A valid subscriber, whose conversation is recorded by a third party; its card is on no network, so it is dropped soon.
    let (heard, recorded) = join_as(&mut bed, 77, WINDOW, 8);
    assert!(matches!(heard[..], [Message::Offer(_), Message::Accepted(_)]), "{heard:?}");
    // As many frames as it has slots.
    for _ in 0..8 {
        let _ = bed.publish();
    }
    bed.until("the subscriber is dropped", |bed| bed.publisher.subscribers().count() == 1);
    gone(&mut bed);
    for _ in 0..5 {
        let heard = say(&mut bed, &recorded);
        assert_eq!(refused(&heard).reason, Reason::Challenge, "{heard:?}");
        bed.until("a frame is published", |bed| bed.publish().is_ok());
        for _ in 0..50 {
            bed.turn();
        }
    }
    assert_eq!(gone(&mut bed), []);
    assert_eq!(bed.publisher.subscribers().count(), 1);
    bed.until("all frames arrive", |bed| bed.seen[0].last == Some(bed.publisher.next_sequence().get() - 1));
    bed.assert_no_faults();
}

#[test]
fn join_challenges_of_connections_differ() {
    let mut bed = TestBed::new(1, options());
    let mut challenges = std::collections::HashSet::new();
    for _ in 0..50 {
        let (heard, _) = join_as(&mut bed, 77, Window { length: 0, ..WINDOW }, 8);
        let Message::Offer(offer) = &heard[0] else { panic!("{heard:?}") };
        assert!(challenges.insert(offer.challenge));
    }
}

#[test]
fn join_as_live_subscriber_is_refused() {
    let mut bed = TestBed::new(1, options());
    let node = node_of(&bed);
    let id = bed.publisher.subscribers().next().unwrap().id;
    for _ in 0..10 {
        let (heard, recorded) = join_as(&mut bed, node.get(), WINDOW, 8);
        let refusal = refused(&heard);
        assert_eq!(refusal.reason, Reason::Taken);
        assert!(refusal.text.contains("accepts transfers"), "{refusal:?}");
        assert_eq!(refused(&say(&mut bed, &recorded)).reason, Reason::Challenge);
        assert_served(&mut bed);
    }
    // A subscriber that does not poll is not replaced either: its card is present.
    bed.stalled[0] = true;
    let (heard, _) = join_as(&mut bed, node.get(), WINDOW, 8);
    assert_eq!(refused(&heard).reason, Reason::Taken);
    bed.stalled[0] = false;
    assert_served(&mut bed);
    assert_eq!(gone(&mut bed), []);
    assert_eq!(bed.publisher.subscribers().next().unwrap().id, id);
}

#[test]
fn join_of_node_after_subscriber_death_is_accepted() {
    let mut bed = TestBed::new(1, options());
    let node = node_of(&bed);
    assert_served(&mut bed);
    // Its program has ended, and its card is opened anew: no earlier window is open.
    bed.subscribers[0] = None;
    let mut end = endpoint(&bed.network, 1, 99);
    let range = CardRange::new(CardAddr::new(0), 1 << 20);
    let window = end.open_region(bed.publisher.node(), range).unwrap().remote;
    let window = Window { address: window.address.get(), length: window.length, key: window.key };
    let (heard, _) = join_as(&mut bed, node.get(), window, 8);
    assert!(matches!(heard[..], [Message::Offer(_), Message::Accepted(_)]), "{heard:?}");
    assert_eq!(gone(&mut bed), [DropReason::Replaced]);
    assert_eq!(bed.publisher.subscribers().count(), 1);
    drop(end);
    // And once more by the public interface.
    bed.seen[0] = crate::stream::bed::Seen::default();
    bed.join(0, SubscriberOptions::default());
    let first = bed.publisher.next_sequence();
    bed.publish().unwrap();
    bed.until("the new subscriber receives its frame", |bed| bed.seen[0].frames == [first.get()]);
}
