//! Time of a transfer by the size of its segments (source 001, figure 5): closed form, packet simulation and simulated cards.

use fpga_netmodel::BitRate;
use fpga_protocol::Nanos;
use fpga_protocol::sender::TimeoutPolicy;

use super::cards::{CardDesign, CardNetwork, CardTransfer};
use super::picture::{Curve, CurveKind, Mark, Panel, Picture, Scale, binary};
use super::{Figure, FigureError, Options, RenderedFigure, Row, float, made};
use crate::scenario::CopyStage;
use crate::{Scenario, Simulation};

/// Transfers; whole, each of them is one segment.
const SIZES: [u64; 7] = [16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
/// Sizes with a panel of their own.
const PANELS: [u64; 3] = [64 << 10, 256 << 10, 1 << 20];
/// Time of a command: o of the closed form, in picoseconds.
const COMMAND: u64 = 500_000;
/// Time of a byte at each stage in picoseconds: 10 GB/s, B of the closed form.
const BYTE: u64 = 100;
const GBPS: u64 = 80;
/// Packets in flight, and entries of the op table: enough for a whole transfer.
const IN_FLIGHT: u32 = 1024;
const WINDOWS: u32 = 8;
/// Delay between the ports of two cards.
const DELAY: Nanos = Nanos::new(500);
/// Longer than any transfer: nothing is lost.
const TIMEOUT: Nanos = Nanos::from_millis(10);

/// Card with three stages of one rate: the copy engine reads memory of 10 GB/s, and two descriptors take o. Packets of 4 KiB,
/// so that headers hardly count.
const CARD: CardDesign = CardDesign {
    name: "stages of one rate",
    copy_descriptor_ns: 250,
    memory_rate: 10_000,
    network_rate: GBPS * 1000,
    packet: 4096,
    mask_bits: 256,
    in_flight: Some(IN_FLIGHT),
    ..CardDesign::DEFAULT
};

/// Source of a curve.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    ClosedForm,
    Packets,
    Cards,
}

impl Origin {
    const ALL: [Self; 3] = [Self::ClosedForm, Self::Packets, Self::Cards];

    const fn name(self) -> &'static str {
        match self {
            Self::ClosedForm => "closed form: T = k (o + n/B) + 2n/B",
            Self::Packets => "packet simulation",
            Self::Cards => "simulated cards",
        }
    }

    /// Values of the columns `scheme` and `topology`.
    const fn columns(self) -> (&'static str, &'static str) {
        match self {
            Self::ClosedForm => ("closed-form", "three stages"),
            Self::Packets => ("registry", "packet simulation"),
            Self::Cards => ("registry", "simulated cards"),
        }
    }

    /// Microseconds for `total` bytes in segments of `segment`; `None` without a runner of cards.
    fn time(self, total: u64, segment: u64, options: &Options) -> Result<Option<f64>, FigureError> {
        match self {
            Self::ClosedForm => Ok(Some(closed_form(total, segment))),
            Self::Packets => packets(total, segment).map(Some),
            Self::Cards => {
                let Some(run) = options.cards else { return Ok(None) };
                let found = run(&transfer(total, Some(segment))).map_err(FigureError::cards)?;
                Ok(Some(float(found.time.get()) / 1000.0))
            }
        }
    }
}

const fn transfer(length: u64, segment: Option<u64>) -> CardTransfer {
    CardTransfer { design: CARD, network: CardNetwork::CLEAN, length, segment, seed: 0 }
}

fn closed_form(total: u64, segment: u64) -> f64 {
    float(total.div_ceil(segment.max(1)) * (COMMAND + segment * BYTE) + 2 * segment * BYTE) / 1e6
}

/// Runs the packet simulation, whose hosts copy each segment into a transmit window before its first packet leaves.
fn packets(total: u64, segment: u64) -> Result<f64, FigureError> {
    let rate = BitRate::from_gbps(GBPS);
    let mut scenario = Scenario::new(total).congestion(None).rate(rate).delay(DELAY);
    scenario.copy = Some(CopyStage { command: Nanos::new(COMMAND / 1000), rate, windows: WINDOWS });
    let sender = &mut scenario.sender;
    sender.packet_size_log2 = u8::try_from(CARD.packet.trailing_zeros()).unwrap_or(0);
    (sender.mask_bits, sender.op_entries) = (CARD.mask_bits, IN_FLIGHT);
    sender.segment_size = u32::try_from(segment).unwrap_or(u32::MAX);
    sender.big_threshold = 0;
    sender.retry.timeout = TimeoutPolicy::Fixed { timeout: TIMEOUT, max_tries: 0 };
    let run = Simulation::new(&scenario).and_then(Simulation::run);
    let report = run.map_err(|source| FigureError::Run {
        point: "segmentation registry".to_owned(),
        seed: 0,
        source,
    })?;
    let time = report.flows.first().and_then(|flow| flow.latency()).unwrap_or(Nanos::ZERO);
    Ok(float(time.get()) / 1000.0)
}

/// Times of one origin for one transfer size.
struct Sweep {
    origin: Origin,
    /// Segment size and time.
    times: Vec<(u64, f64)>,
}

impl Sweep {
    fn best(&self) -> (u64, f64) {
        self.times.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, f64::NAN))
    }

    fn whole(&self) -> f64 {
        self.times.last().map_or(f64::NAN, |(_, time)| *time)
    }

    fn speed_up(&self) -> f64 {
        self.whole() / self.best().1
    }
}

pub(super) fn make(figure: Figure, options: &Options) -> Result<RenderedFigure, FigureError> {
    let (mut rows, mut panels, mut findings) = (Vec::new(), Vec::new(), Vec::new());
    let mut speed_ups = Origin::ALL.map(|_| Vec::new());
    for total in SIZES {
        let segments = (12..=20).map(|log2| 1_u64 << log2).filter(|segment| *segment <= total);
        let mut sweeps = Vec::new();
        for origin in Origin::ALL {
            let mut times = Vec::new();
            for segment in segments.clone() {
                times.extend(origin.time(total, segment, options)?.map(|time| (segment, time)));
            }
            sweeps.push(Sweep { origin, times });
        }
        for (sweep, speed_ups) in sweeps.iter().zip(&mut speed_ups) {
            speed_ups.push((float(total), sweep.speed_up(), 0.0));
            rows.extend(sweep.times.iter().map(|(segment, time)| row(figure, sweep, total, *segment, *time)));
        }
        let mut marks = Vec::new();
        let mut text = String::new();
        for sweep in sweeps.iter().filter(|sweep| !sweep.times.is_empty()) {
            let (segment, best) = sweep.best();
            let whole = sweep.whole();
            text += &format!(
                "; {}: whole {whole:.2} µs, best {best:.2} µs with segments of {}",
                sweep.origin.name(),
                binary(segment)
            );
        }
        if let Some(run) = options.cards {
            let chosen = run(&transfer(total, None)).map_err(FigureError::cards)?;
            let time = float(chosen.time.get()) / 1000.0;
            marks.push(Mark::new(float(chosen.segment), time, "chosen by the driver"));
            if let Some(cards) = sweeps.iter().find(|sweep| sweep.origin == Origin::Cards) {
                rows.push(Row {
                    scheme: "registry tuned".to_owned(),
                    ..row(figure, cards, total, chosen.segment, time)
                });
                let share = time / cards.best().1;
                text += &format!("; driver: {} bytes, {time:.2} µs, {share:.3} of the best", chosen.segment);
            }
        }
        findings.push(format!("{}{text}", binary(total)));
        if PANELS.contains(&total) {
            panels.push(panel(total, &sweeps, marks));
        }
    }
    let curves = Origin::ALL.into_iter().zip(speed_ups);
    panels.push(Panel {
        title: "whole against best".to_owned(),
        x_label: "transfer size".to_owned(),
        y_label: "time whole / best time".to_owned(),
        x_scale: Scale::Bytes,
        curves: curves.map(|(origin, points)| styled(origin).points(points)).collect(),
        ..Panel::default()
    });
    let picture = Picture {
        title: "Time of a transfer by segment size".to_owned(),
        caption: vec![
            "Each segment is copied into a transmit window, then sent; packets of 4 KiB with their headers, 500 ns between the ports. Time: from the submission to the receiver's notification. The runs are deterministic: one run per point.".to_owned(),
            "T: time of the transfer. n: bytes of a segment. k: number of segments. o = 0.5 µs: time of a command in the copy engine. B = 10 GB/s: rate of each stage. The last point of each curve is the whole transfer in one segment. Simulated cards: two cards with their drivers, in virtual time.".to_owned(),
        ],
        columns: 2,
        panels,
    };
    Ok(made(figure, &rows, picture, findings))
}

fn row(figure: Figure, sweep: &Sweep, total: u64, segment: u64, time: f64) -> Row {
    let (scheme, topology) = sweep.origin.columns();
    Row {
        figure: figure.name(),
        scheme: scheme.to_owned(),
        topology: topology.to_owned(),
        size_bytes: Some(total),
        packet_bytes: Some(CARD.packet.into()),
        segment_bytes: Some(segment),
        mean_us: Some(time),
        ci95_us: Some(0.0),
        speed_ratio: Some(sweep.whole() / time),
        failures: Some(0),
        runs: Some(u64::from(sweep.origin != Origin::ClosedForm)),
        ..Row::default()
    }
}

fn styled(origin: Origin) -> Curve {
    match origin {
        Origin::ClosedForm => Curve::new(origin.name(), 1).style(CurveKind::Thin),
        Origin::Packets => Curve::new(origin.name(), 0),
        Origin::Cards => Curve::new(origin.name(), 2),
    }
}

fn panel(total: u64, sweeps: &[Sweep], marks: Vec<Mark>) -> Panel {
    let curves = sweeps.iter().map(|sweep| {
        let points = sweep.times.iter().map(|(segment, time)| (float(*segment), *time, 0.0));
        styled(sweep.origin).points(points)
    });
    Panel {
        title: format!("{} in all", binary(total)),
        x_label: "segment size".to_owned(),
        y_label: "time (µs)".to_owned(),
        x_scale: Scale::Bytes,
        y_scale: Scale::Decades,
        curves: curves.collect(),
        marks,
        ..Panel::default()
    }
}
