//! Cards whose copy engine has no DRE: it reads from and writes to multiples of its data width only.

use super::*;
use fpga_driver::{Advice, Error};

/// Data widths in bits, and the required source alignment in bytes.
const WIDTHS: [(u32, u32); 3] = [(32, 4), (256, 32), (512, 64)];

/// Two such cards, with tables so small that packets are refused and retransmitted, alone or a few of a segment together.
fn net(width: u32, seed: u64, alignment: Option<u32>) -> Testbed {
    let file = described(&format!(
        "cdma: {{ dre: false, data_width: {width} }}\nni: {{ registry_entries: 2, escape_slots: 2, windows: 3 }}"
    ));
    Testbed::of(&file, random(seed), |mut options| {
        options.source_alignment = alignment;
        options
    })
}

#[test]
fn alignment_source_at_beat_arrives_anywhere() {
    for (seed, (width, alignment)) in WIDTHS.into_iter().enumerate() {
        let mut net = net(width, seed as u64, Some(alignment));
        let region = net.region(1, TARGET, 200_000);
        for (beats, length) in [1, 63, 512, 513, 16_385, 100_001].into_iter().enumerate() {
            let source = at(SOURCE, beats as u64 * u64::from(alignment));
            net.carry(source, &region.remote, 3, &bytes(width.into(), length));
        }
        // Several at once: they compete for the small tables.
        let data: Vec<_> = (0..6).map(|n| bytes(n, 20_000)).collect();
        for (n, data) in (0..).zip(&data) {
            net.put(0, at(SOURCE, n << 16), data);
            net.send(0, at(SOURCE, n << 16), &region.remote, n * 20_011, 20_000);
        }
        net.settle();
        assert!(net.completions[0].drain(..).all(|done| done.result == Ok(())));
        for (n, data) in (0..).zip(&data) {
            assert!(net.get(1, at(TARGET, n * 20_011), 20_000) == *data, "transfer {n} by {width} bits");
        }
        let counters = net.end(0).counters().sender;
        assert!(
            counters.retransmits > 0,
            "retransmitted packets start in the middle of a segment: {counters:?}"
        );
        net.assert_clean();
    }
}

#[test]
fn alignment_source_off_beat_is_refused() {
    for (width, alignment) in WIDTHS {
        let mut net = net(width, 1, Some(alignment));
        let region = net.region(1, TARGET, 200_000);
        for beside in [1, alignment / 2, alignment - 1, alignment + 1] {
            let source = at(SOURCE, beside.into());
            let sent = net.end(0).send(source, &region.remote, 0, 100, SendOptions::default());
            let Err(error @ Error { kind: SendError::SourceAlignment { .. }, .. }) = sent else {
                panic!("{sent:?}")
            };
            assert!(error.to_string().contains(&format!("multiple of {alignment} bytes")), "{error}");
        }
        net.carry(SOURCE, &region.remote, 1, &bytes(2, 5000));
        net.assert_clean();
    }
}

/// A remote reader must not be able to stop the copy engine of the memory's owner.
#[test]
fn alignment_read_off_beat_is_refused_by_owner() {
    let mut net = net(512, 2, Some(64));
    net.put(1, SOURCE, &bytes(3, 4096));
    let reader = net.end(0).node();
    let source = net.end(1).open_readable(reader, CardRange::new(SOURCE, 4096)).unwrap().remote;
    // A refused read is not answered, and ends at its deadline.
    let soon = SendOptions::default().deadline(Duration::from_millis(20));
    for (offset, well) in [(0, true), (1, false), (128, true)] {
        net.end(0).read(&source, offset, TARGET, 1000, soon).unwrap();
        net.settle();
        let done = net.end(0).next_read().unwrap();
        assert_eq!(done.result.is_ok(), well, "from {offset}: {done:?}");
        if well {
            assert!(net.get(0, TARGET, 1000) == bytes(3, 4096)[offset as usize..][..1000]);
        }
    }
    let counters = net.end(1).counters();
    assert_eq!((counters.reads_served, counters.reads_refused), (2, 1));
    net.assert_clean();
}

/// The source alignment is not configured: the engine stops, and the error names the possible reason and the option.
#[test]
fn alignment_not_configured_stops_engine_with_advice() {
    let mut net = net(512, 3, None);
    let region = net.region(1, TARGET, 4096);
    net.send(0, at(SOURCE, 1), &region.remote, 0, 100);
    let error = net.try_settle().expect_err("the engine cannot read an unaligned address");
    assert!(matches!(error.kind, EndpointError::Chain { .. }), "{error}");
    assert_eq!(error.advice(), Some(Advice::StateSourceAlignment), "{error}");
}

#[test]
fn alignment_invalid_width_is_refused_at_open() {
    let net = Testbed::new(DeliveryOrder::InOrder);
    let card = net.ends[0].as_ref().unwrap().card().clone();
    drop(net);
    for alignment in [0, 1, 2, 48, 128, 1 << 31] {
        let mut wanted = options(1);
        wanted.source_alignment = Some(alignment);
        let refused = Endpoint::open_with(&card, &wanted).map(drop);
        let Err(Error { kind: EndpointError::Option { found, .. }, .. }) = refused else {
            panic!("{alignment}: {refused:?}")
        };
        assert_eq!(found, u64::from(alignment));
    }
    let mut wanted = options(1);
    wanted.source_alignment = Some(64);
    Endpoint::open_with(&card, &wanted).expect("the card's windows have the alignment");
}
