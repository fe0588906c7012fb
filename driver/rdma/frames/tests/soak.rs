//! Many frames over a lossy network, with subscribers that join, leave, stall and fail, from publishers that end with and without notice.
//! Every frame carries its number and a checksum, and every number is either seen or missing. `FPGA_FRAMES` is the number of frames
//! (2,000), `FPGA_SEED` the seed; ten million are a long run.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use crate::stream::bed;

use bed::{Seen, TestBed, lossy, options, subscriber_options};
use fpga_frames::{DropReason, PublisherEvent, Sequence, SubscriberError};
use fpga_protocol::sender::SendFailure;
use fpga_sim::SimNetwork;
use rand_core::Rng;

const SUBSCRIBERS: usize = 3;
/// Maximum number of frames of one incarnation of the publisher.
const MAX_FRAMES_PER_PUBLISHER: u64 = 10_000;

/// Length of the longest frame in bytes: three segments of 16 KiB.
const MAX_FRAME_BYTES: u64 = 40 << 10;

/// Most frames have one to two KiB, two or three packets; one in 32 has 20 to 40 KiB, two or three segments.
fn length(random: &mut impl Rng) -> usize {
    let longest: u32 = if random.next_u32().is_multiple_of(32) { 40 << 10 } else { 2 << 10 };
    usize::try_from(longest - random.next_u32() % (longest / 2)).unwrap()
}

#[derive(Debug, Default)]
struct SoakTotals {
    published: u64,
    read: u64,
    missed: u64,
    joins: u64,
    killed: u64,
}

/// Checks that the frames seen by a subscriber up to now are complete, or counted as missing.
fn settle(bed: &mut TestBed, number: usize, totals: &mut SoakTotals) {
    let seen = std::mem::take(&mut bed.seen[number]);
    let Some(subscriber) = &bed.subscribers[number] else { return };
    assert_eq!(seen.first + seen.count + seen.missed_frames, subscriber.expected().get(), "{seen:?}");
    totals.read += seen.count;
    totals.missed += seen.missed_frames;
}

fn join(bed: &mut TestBed, number: usize, totals: &mut SoakTotals) {
    bed.join(number, subscriber_options());
    let first = bed.subscribers[number].as_ref().unwrap().expected().get();
    bed.seen[number] = Seen { first, ..Seen::default() };
    totals.joins += 1;
}

fn incarnation(number: u64, frames: u64, totals: &mut SoakTotals) {
    // About five restarts of a subscriber, and five stalls of each.
    let rare = u32::try_from(frames / 5).unwrap().max(4);
    let mut options = options();
    // Frames of several packets, some of several segments: a frame of a single packet cannot be torn.
    options.max_data_length = MAX_FRAME_BYTES;
    options.first_sequence = Sequence::new(number << 40);
    options.first_position = u32::MAX - 100;
    let mut bed =
        TestBed::on(SimNetwork::builder().impairments(lossy(0.01)).seed(number), SUBSCRIBERS, options);
    (bed.keep, bed.seen) = (false, vec![Seen { first: number << 40, ..Seen::default() }; SUBSCRIBERS]);
    for _ in 0..frames {
        let which = usize::try_from(bed.random.next_u32()).unwrap() % SUBSCRIBERS;
        match bed.random.next_u32() % rare {
            // Leaves without notice, and joins again.
            0 => {
                settle(&mut bed, which, totals);
                bed.subscribers[which] = None;
                totals.killed += 1;
                join(&mut bed, which, totals);
            }
            1..4 => bed.stalled[which] ^= true,
            _ => {}
        }
        let length = length(&mut bed.random);
        let _ = bed.publish_of(length);
        while let Some(event) = bed.publisher.next_event() {
            if let PublisherEvent::Dropped { id, reason, statistics, .. } = event {
                let at = bed.publisher.next_sequence();
                // The closed window may refuse a frame before the node joins again: no other subscriber is dropped.
                let is_replaced = matches!(
                    reason,
                    DropReason::Replaced | DropReason::Unreachable { last: SendFailure::Refused { .. }, .. }
                );
                assert!(is_replaced, "incarnation {number}, frame {at}: {id} {reason}, {statistics:?}");
            }
        }
        for _ in 0..bed.random.next_u32() % 96 {
            bed.turn();
        }
    }
    totals.published += frames;
    if number.is_multiple_of(2) {
        bed.close();
        bed.assert_no_faults();
        for which in 0..SUBSCRIBERS {
            settle(&mut bed, which, totals);
        }
    } else {
        // The publisher ends in the middle; frames that have arrived are read, and then its silence is reported.
        bed.assert_no_faults();
        drop(bed.publisher);
        let mut rest: Vec<_> =
            bed.subscribers.into_iter().zip(bed.seen).filter_map(|(it, seen)| Some((it?, seen))).collect();
        totals.killed += 1;
        for (subscriber, seen) in &mut rest {
            let error = loop {
                match subscriber.poll() {
                    Ok(Some(event)) => seen.take(event, false),
                    Ok(None) => subscriber.relax(),
                    Err(error) => break error,
                }
            };
            assert!(
                matches!(error, SubscriberError::Silent { .. } | SubscriberError::Unreachable { .. }),
                "{error}"
            );
            assert!(seen.faults.is_empty(), "{:?}", seen.faults);
            assert_eq!(seen.first + seen.count + seen.missed_frames, subscriber.expected().get(), "{seen:?}");
            totals.read += seen.count;
            totals.missed += seen.missed_frames;
        }
    }
}

#[test]
fn soak_every_frame_is_seen_or_counted_missing() {
    soak(std::env::var("FPGA_FRAMES").ok().map_or(600, |text| text.parse().unwrap()));
}

#[test]
#[ignore = "long: 60 s: thirty times the frames"]
fn soak_twenty_thousand_frames_are_seen_or_counted_missing() {
    soak(20_000);
}

fn soak(wanted: u64) {
    let frames = (wanted / 4).clamp(1, MAX_FRAMES_PER_PUBLISHER);
    let mut totals = SoakTotals::default();
    // Each incarnation has its own seed.
    let seed: u64 = std::env::var("FPGA_SEED").ok().map_or(0, |text| text.parse().unwrap());
    let first = seed << 20;
    let mut number = first;
    while totals.published < wanted {
        incarnation(number, frames.min(wanted - totals.published), &mut totals);
        number += 1;
        if number.is_multiple_of(20) || totals.published >= wanted {
            println!("{totals:?}, 0 torn or mixed");
        }
    }
    assert!(2 * totals.read > totals.published, "{totals:?}");
    assert!(totals.missed > 0 && totals.joins > 0 && totals.killed > 0, "{totals:?}");
}
