use std::sync::LazyLock;

use fpga_protocol::tuner::{PathTiming, SegmentLimits};

use super::cards::{CardTime, CardTransfer};
use super::disorder::{DelayDistribution, Delays};
use super::measure::{Measured, Point, measure};
use super::*;

/// Stands for the simulated cards: the times that the tuner predicts, and its choice. Loss costs a nanosecond per seed.
fn predicted(transfer: &CardTransfer) -> Result<CardTime, String> {
    let CardTransfer { design, length, .. } = *transfer;
    let longest = u32::try_from(design.longest()).map_err(|error| error.to_string())?;
    let limits = SegmentLimits { packet: design.packet, longest, in_flight: 192 };
    let timing = PathTiming::default();
    let segment = transfer.segment.unwrap_or_else(|| timing.best_segment(length, &limits).into());
    let lost = if transfer.network.loss > 0.0 { transfer.seed } else { 0 };
    let time = Nanos::new(timing.transfer_time(length, segment, &limits) / 1000 + lost);
    Ok(CardTime { time, segment, retransmits: 0 })
}

pub(super) fn make(figure: Figure, runs: u32, seed: u64, threads: usize) -> RenderedFigure {
    let mut done = 0;
    let made = figure
        .make(
            &Options { threads, torus_side: 2, cards: Some(predicted), ..Options::new(runs, seed) },
            &mut |runs| {
                done += runs;
                ControlFlow::Continue(())
            },
        )
        .unwrap();
    assert_eq!(made.failures, 0, "{figure:?}: {}", made.csv);
    made
}

/// Figures of the everyday tests. Those of a torus are made by the same functions as those of two hosts, with another network:
/// `figure_torus_ranks_schemes_as_document_004` makes one of them.
const EVERYDAY: [Figure; 10] = [
    Figure::LossFree,
    Figure::Lossy,
    Figure::LossSweep,
    Figure::Reorder,
    Figure::StateBits,
    Figure::Segmentation,
    Figure::SegmentTuner,
    Figure::ReceiveNotify,
    Figure::Selective,
    Figure::Adaptive,
];

/// Number of runs a point: most of the time goes to the incast of [`Figure::Adaptive`].
const fn runs_of(figure: Figure) -> u32 {
    if matches!(figure, Figure::Adaptive) { 1 } else { 2 }
}

/// The everyday figures. Made once, because simulations take time.
pub(super) fn rendered() -> &'static [(Figure, RenderedFigure)] {
    static ALL: LazyLock<Vec<(Figure, RenderedFigure)>> = LazyLock::new(|| {
        EVERYDAY.into_iter().map(|figure| (figure, make(figure, runs_of(figure), 7, 3))).collect()
    });
    &ALL
}

/// The same seed gives the same bytes, data and drawing, for any number of threads; another seed does not. Every line has as many fields as
/// the header. Together with the tests of drawings, this waits for all everyday figures: some hundred thousand simulated packets.
#[test]
fn figure_same_seed_gives_same_bytes() {
    for (figure, first) in rendered() {
        // Their points are measured by the same function as those of the others, and take longest.
        if matches!(figure, Figure::Adaptive | Figure::Reorder) {
            check_lines(*figure, first);
        } else {
            check_same_bytes(*figure, first);
        }
    }
    assert_ne!(make(Figure::LossSweep, 2, 7, 2).csv, make(Figure::LossSweep, 2, 8, 2).csv);
}

#[test]
#[ignore = "long: 20 s: every figure twice"]
fn figure_same_seed_gives_same_bytes_every_figure() {
    for &figure in Figure::ALL {
        check_same_bytes(figure, &make(figure, 2, 7, 3));
    }
}

fn check_same_bytes(figure: Figure, first: &RenderedFigure) {
    let again = make(figure, 2, 7, 1);
    assert_eq!(first.csv, again.csv, "{figure:?}");
    assert_eq!(first.intervals, again.intervals, "{figure:?}");
    assert_eq!(first.picture.svg(), again.picture.svg(), "{figure:?}");
    check_lines(figure, first);
}

fn check_lines(figure: Figure, made: &RenderedFigure) {
    assert!(!made.findings.is_empty() && !made.picture.panels.is_empty());
    if figure == Figure::StateBits {
        return;
    }
    let mut lines = made.csv.lines();
    assert_eq!(lines.next(), Some(HEADER));
    let columns = HEADER.split(',').count();
    let lines: Vec<&str> = lines.collect();
    assert!(lines.iter().all(|line| line.split(',').count() == columns && line.starts_with(figure.name())));
    assert_eq!(lines.len() as u64, made.points);
    let columns = INTERVALS_HEADER.split(',').count();
    assert!(made.intervals.lines().all(|line| line.split(',').count() == columns));
    assert_eq!(made.intervals.lines().count() as u64, made.points + 1);
}

/// More runs of a point than fit into one job: several threads run them, and the results are in one order.
#[test]
fn figure_point_shared_by_threads_is_same() {
    let runs = 2 * super::measure::BLOCK + 5;
    let mut delays = Delays::new(7);
    let law = DelayDistribution::Exponential;
    let point = reorder::point(Figure::Reorder, 32, 64, 800, law, &mut delays).unwrap();
    let [one, several] = [1, 3].map(|threads| {
        // No interval is narrow enough: all runs take place.
        let options = Options { threads, narrow: 0.0, ..Options::new(u32::try_from(runs).unwrap(), 7) };
        measured(vec![point.clone()], &options).remove(0)
    });
    assert_eq!(one.row.runs, Some(runs as u64));
    assert_eq!(one.row, several.row);
}

fn measured(points: Vec<Point>, options: &Options) -> Vec<Measured> {
    measure(points, options, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// Field of the data line selected by `wanted`: scheme, loss, disorder and window.
fn field(made: &RenderedFigure, wanted: [&str; 4], column: &str) -> f64 {
    let place = |name: &str| HEADER.split(',').position(|column| column == name).unwrap();
    let line = made.csv.lines().find(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        let keys = ["scheme", "loss", "disorder", "window"].map(|name| fields[place(name)]);
        keys == wanted && fields[place("topology")] == "point-to-point"
    });
    line.unwrap().split(',').nth(place(column)).unwrap().parse().unwrap()
}

/// Source 004, figure 6, at 256 KiB: receiver window before sender window before receiver counter. Ten runs of each point show it at the
/// highest loss.
#[test]
fn figure_loss_sweep_ranks_schemes_as_document_004() {
    let made = make(Figure::LossSweep, 10, 1, 2);
    let ranked = [("receiver-window", "128"), ("sender-window", "32"), ("receiver-counter", "")];
    let [window, sender, counter] =
        ranked.map(|(scheme, window)| field(&made, [scheme, "0.005", "32", window], "mean_us"));
    assert!(window < sender && sender < counter, "{window} {sender} {counter}");
    check_forms_of_sender_window(&made, &["0.005"]);
    check_growth(&made);
}

/// The same with disjoint intervals, for every loss. A hundred runs of three points; with intervals this far apart, more runs would only
/// make them narrower.
#[test]
#[ignore = "long: 5 s: a hundred runs of each point"]
fn figure_loss_sweep_ranks_schemes_with_disjoint_intervals() {
    let made = make(Figure::LossSweep, 100, 1, 2);
    for loss in ["0.001", "0.002", "0.003", "0.004", "0.005"] {
        let ranked = [("receiver-window", "128"), ("sender-window", "32"), ("receiver-counter", "")];
        let times = ranked.map(|(scheme, window)| {
            let of = |column| field(&made, [scheme, loss, "32", window], column);
            let (mean, half) = (of("mean_us"), of("ci95_us"));
            (mean - half, mean + half)
        });
        // At a loss of one in a thousand the counter sends only every other message twice: there it is not distinct from the sender window.
        let apart = if loss == "0.001" { &times[..2] } else { &times[..] };
        assert!(apart.windows(2).all(|pair| pair[0].1 < pair[1].0), "loss {loss}: {times:?}");
        assert!(times[2].1 > times[0].1, "loss {loss}: {times:?}");
    }
    check_forms_of_sender_window(&made, &["0.001", "0.002", "0.003", "0.004", "0.005"]);
    check_growth(&made);
}

/// Both forms of the sender window: the literal one retransmits whole windows. Without loss they are the same.
fn check_forms_of_sender_window(made: &RenderedFigure, losses: &[&str]) {
    let form = |scheme, loss, column| field(made, [scheme, loss, "32", "32"], column);
    for loss in losses.iter().copied() {
        let [usual, literal] = ["sender-window", "sender-window literal"]
            .map(|scheme| form(scheme, loss, "packets_ratio") - 1.0);
        assert!(literal > 8.0 * usual, "loss {loss}: {literal} and {usual} retransmissions per packet");
    }
}

/// Slowdown relative to each scheme's own speed without loss.
fn check_growth(made: &RenderedFigure) {
    let growth = |scheme, window| {
        let mean = |loss| field(made, [scheme, loss, "32", window], "mean_us");
        mean("0.005") / mean("0")
    };
    let [first, second, third] =
        [growth("receiver-window", "128"), growth("sender-window", "32"), growth("receiver-counter", "")];
    assert!(first < second && second < third, "{first} {second} {third}");
}

/// The saving of the receiver's own completion rises with every hop and falls with size; it is deterministic.
#[test]
fn figure_receive_notify_saving_rises_with_hops_falls_with_size() {
    let made = make(Figure::ReceiveNotify, 1, 1, 1);
    let place = |name: &str| HEADER.split(',').position(|column| column == name).unwrap();
    let share = |size: u64, hops: u64| {
        let line = made.csv.lines().find(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            let at = |name| fields[place(name)];
            (at("scheme"), at("size_bytes"), at("hops"))
                == ("registry sender-notice", size.to_string().as_str(), hops.to_string().as_str())
        });
        1.0 - line.unwrap().split(',').nth(place("speed_ratio")).unwrap().parse::<f64>().unwrap()
    };
    for size in [512, 4096, 65_536] {
        assert!(
            (1..8).all(|hops| share(size, hops) < share(size, hops + 1)),
            "{size} bytes: {:?}",
            [1, 2, 3, 4, 5, 6, 7, 8].map(|hops| share(size, hops))
        );
    }
    for hops in 1..=8 {
        assert!(
            share(512, hops) > share(4096, hops) && share(4096, hops) > share(65_536, hops),
            "{hops} hops"
        );
    }
    assert!((0.15..0.25).contains(&share(4096, 1)), "about a fifth at 4 KiB and one hop: {}", share(4096, 1));
}

/// The axis label matches the data: figure 7 of source 004 has the label of another figure.
#[test]
fn e0_21_figure_reorder_axis_is_disorder() {
    let (_, made) = rendered().iter().find(|(figure, _)| *figure == Figure::Reorder).unwrap();
    assert!(made.picture.panels.iter().all(|panel| panel.x_label == "disorder (packets)"));
}

/// Required results of the frozen set of parameters: source 004's two points within 5 percentage points, as a regression check; and the
/// spurious retransmissions of the scheme that has to do better.
#[test]
fn figure_reorder_matches_document_points() {
    let options = Options { threads: 2, ..Options::new(20, 1) };
    let (mut delays, law) = (Delays::new(options.seed), DelayDistribution::Exponential);
    for (window, wanted) in [(32, 0.70), (64, 0.95)] {
        let points = [0, 64]
            .map(|degree| reorder::point(Figure::Reorder, window, degree, 800, law, &mut delays).unwrap());
        let found = measured(points.to_vec(), &options);
        let speed = found[0].mean() / found[1].mean();
        assert!((speed - wanted).abs() <= 0.05, "window {window}: {speed}, not {wanted}");
    }
    let point = reorder::selective_point(Figure::Reorder, 128, &mut delays).unwrap();
    let needless = measured(vec![point], &options)[0].again;
    assert!(needless < 0.001, "{needless} spurious retransmissions");
}

/// The same in the figure, with its band.
#[test]
#[ignore = "long: 4 s: every round trip and distribution"]
fn figure_reorder_matches_document_points_and_band() {
    let made = make(Figure::Reorder, 20, 1, 2);
    let field = |scheme: &str, degree: &str, window: &str, field: usize| -> f64 {
        let line = made.csv.lines().find(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            (fields[1], fields[2], fields[6], fields[7]) == (scheme, "point-to-point", degree, window)
        });
        line.unwrap().split(',').nth(field).unwrap().parse().unwrap()
    };
    for (window, wanted) in [("32", 0.70), ("64", 0.95)] {
        let speed = field("receiver-window", "64", window, 14);
        assert!((speed - wanted).abs() <= 0.05, "window {window}: {speed}, not {wanted}");
    }
    // The remaining range with other round trips and delay distributions: the band that docs/guide/figures.md gives.
    for (window, low, high) in [("32", 0.40, 0.90), ("64", 0.84, 0.99)] {
        let speeds: Vec<f64> = made
            .csv
            .lines()
            .map(|line| line.split(',').collect::<Vec<_>>())
            .filter(|fields| (fields[1], fields[6], fields[7]) == ("receiver-window", "64", window))
            .map(|fields| fields[14].parse().unwrap())
            .collect();
        assert_eq!(speeds.len(), 9, "three round trips and three distributions");
        assert!(speeds.iter().all(|speed| (low..=high).contains(speed)), "window {window}: {speeds:?}");
        let spread = speeds.iter().fold(0.0_f64, |most, speed| most.max(*speed))
            - speeds.iter().fold(1.0_f64, |least, speed| least.min(*speed));
        assert!(spread > 0.05, "the unknown parameters have too little effect: {speeds:?}");
    }
    let needless = field("selective", "128", "512", 13) - 1.0;
    assert!(needless < 0.001, "{needless} spurious retransmissions");
}

/// 256 KiB at half a percent of loss: speed relative to that without loss and disorder, and packets sent divided by packets needed. The
/// points are those of the figure.
#[test]
fn figure_selective_keeps_speed() {
    let options = Options { threads: 2, ..Options::new(15, 1) };
    let mut delays = Delays::new(options.seed);
    let mut point = |loss, degree| {
        let delay = delays.of(DelayDistribution::Exponential, degree).unwrap();
        let scenario = reference_parameters(256 << 10).data(network(loss, delay));
        Point::new(scenario.scheme(crate::Scheme::Selective))
    };
    let limits = [(0, 0.95), (16, 0.95), (64, 0.88), (128, 0.76)];
    let mut points = vec![point(0.0, 0)];
    points.extend(limits.map(|(degree, _)| point(0.005, degree)));
    let found = measured(points, &options);
    for (point, (degree, least)) in found[1..].iter().zip(limits) {
        let speed = found[0].mean() / point.mean();
        assert!(speed >= least && point.again <= 0.02, "disorder {degree}: {speed}, {}", point.again);
    }
}

#[test]
fn figure_axis_labels_differ() {
    use super::picture::Scale;
    assert_eq!(Scale::Linear.widened(0.0, 8.0), (0.0, 8.0));
    assert_eq!(Scale::Linear.widened(0.0, 0.0), (0.0, 1.0));
    for (low, high) in [(10.21, 10.21), (-3.0, -2.99), (100.0, 104.0)] {
        let (from, to) = Scale::Linear.widened(low, high);
        assert!(from < low && to > high && to - from > 0.049 * low.abs(), "{from} {to}");
    }
    assert_eq!(Scale::Decades.widened(1.0, 1.0), (1.0, 1.0));
}

/// Figure on a torus of 8 hosts, because larger ones take longer.
fn on_small_torus(figure: Figure) -> RenderedFigure {
    let options = Options { threads: 2, torus_side: 2, ..Options::new(3, 1) };
    figure.make(&options, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// Value in the line with these fields.
fn value(made: &RenderedFigure, keys: [(&str, &str); 3], name: &str) -> f64 {
    let column = |name: &str| HEADER.split(',').position(|column| column == name).unwrap();
    let line = made.csv.lines().find(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        keys.iter().all(|(key, wanted)| fields[column(key)] == *wanted)
    });
    line.unwrap().split(',').nth(column(name)).unwrap().parse().unwrap()
}

/// Source 004's ranking at 5 ‰ of loss on its own network.
#[test]
fn figure_torus_ranks_schemes_as_document_004() {
    let lossy = on_small_torus(Figure::TorusLossy);
    assert_eq!(lossy.failures, 0);
    let time = |scheme, window| {
        value(&lossy, [("scheme", scheme), ("window", window), ("size_bytes", "262144")], "mean_us")
    };
    let [window, sender, counter] =
        [time("receiver-window", "128"), time("sender-window", "32"), time("receiver-counter", "")];
    assert!(1.5 * window < sender && 2.0 * sender < counter, "{window} {sender} {counter}");
}

/// Source 004's two points of figure 7, of which the torus reaches the one of the larger window.
#[test]
#[ignore = "long: 1 s: search of the delays, 32 points"]
fn figure_torus_reorder_matches_document_point() {
    let reorder = on_small_torus(Figure::TorusReorder);
    let speed = |window| {
        value(
            &reorder,
            [("scheme", "receiver-window"), ("window", window), ("disorder", "64")],
            "speed_ratio",
        )
    };
    let [small, large] = [speed("32"), speed("64")];
    assert!((large - 0.95).abs() < 0.05 && small < large - 0.2, "{small} {large}");
}

/// Number of points that the progress bar expects, and values of both sources of times in each picture.
#[test]
fn figure_segments_have_values_of_cards() {
    let of = |wanted| rendered().iter().find(|(figure, _)| *figure == wanted).map(|(_, made)| made).unwrap();
    let tuner = of(Figure::SegmentTuner);
    assert_eq!(tuner.points, segment_tuner::POINTS);
    assert_eq!(tuner.picture.panels.len(), segment_tuner::CARDS.len() * segment_tuner::NETWORKS.len());
    let segmentation = of(Figure::Segmentation);
    for panel in &segmentation.picture.panels {
        assert_eq!(panel.drawn().count(), 3, "{}", panel.title);
    }
    // Without a runner, the other curves remain.
    let bare = Figure::Segmentation.make(&Options::new(2, 7), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(bare.picture.panels.iter().all(|panel| panel.drawn().count() == 2));
}

/// Every segment is copied before it leaves: two segments overlap, a single one does not.
#[test]
fn figure_segmentation_packets_are_near_closed_form_less_one_stage() {
    let made = make(Figure::Segmentation, 2, 7, 1);
    let lines: Vec<Vec<&str>> = made.csv.lines().map(|line| line.split(',').collect()).collect();
    let place = |name: &str| HEADER.split(',').position(|column| column == name).unwrap();
    let time = |topology: &str, size: u64, segment: u64| -> f64 {
        let keys = [topology.to_owned(), size.to_string(), segment.to_string()];
        let columns = ["topology", "size_bytes", "segment_bytes"].map(place);
        let line = lines.iter().find(|line| columns.iter().zip(&keys).all(|(at, key)| line[*at] == key));
        line.unwrap()[place("mean_us")].parse().unwrap()
    };
    for (size, segment) in [(1 << 20, 1 << 20), (1 << 20, 64 << 10), (256 << 10, 32 << 10)] {
        let packets = time("packet simulation", size, segment);
        let closed = time("three stages", size, segment) - float(segment) / 1e4;
        assert!((packets / closed - 1.0).abs() < 0.05, "{size} in {segment}: {packets}, {closed}");
    }
}
