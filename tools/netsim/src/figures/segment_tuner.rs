//! Segment lengths that the driver chooses, against a sweep: three cards, three networks, simulated in virtual time.

use fpga_protocol::Nanos;

use super::cards::{CardDesign, CardNetwork, CardRunner, CardTransfer};
use super::picture::{Curve, Mark, Panel, Picture, Scale, binary};
use super::{Figure, FigureError, Options, ProgressCallback, RenderedFigure, Row, float, made};
use crate::statistics;

/// Cards: the built-in one; a slow PCIe link with long latencies, slow memory and a narrow copy engine; a fast card with a slow port.
pub const CARDS: [CardDesign; 3] = [
    CardDesign::DEFAULT,
    CardDesign {
        name: "slow card",
        link: (2, 4),
        read_latency_ns: 1500,
        copy_width: 128,
        memory_rate: 6000,
        network_rate: 40_000,
        mask_bits: 128,
        ..CardDesign::DEFAULT
    },
    CardDesign {
        name: "slow port",
        link: (4, 16),
        read_latency_ns: 400,
        memory_rate: 70_000,
        network_rate: 25_000,
        packet: 4096,
        mask_bits: 256,
        ..CardDesign::DEFAULT
    },
];

/// Networks between the cards.
pub const NETWORKS: [CardNetwork; 3] = [
    CardNetwork::CLEAN,
    CardNetwork { name: "0.5 % lost", loss: 0.005, delay: Nanos::ZERO },
    CardNetwork { name: "20 µs delay", loss: 0.0, delay: Nanos::from_micros(20) },
];

/// Transfer lengths.
pub const LENGTHS: [u64; 4] = [24 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Divisor of the runs of a lossy point.
const RUNS_DIVISOR: u32 = 25;

/// Segment lengths of a sweep: powers of two packets up to the longest that the card has, and the transfer's length.
#[must_use]
pub fn sweep(design: &CardDesign, length: u64) -> Vec<u64> {
    let packet = u64::from(design.packet);
    let lengths = (0..32).map(|log2| packet << log2);
    lengths
        .take_while(|segment| *segment <= design.longest() && *segment < length.saturating_mul(2))
        .collect()
}

/// Number of points.
pub(super) const POINTS: u64 = 276;

/// Runs of a point.
fn runs_of(network: &CardNetwork, options: &Options) -> u32 {
    if network.loss > 0.0 { (options.runs / RUNS_DIVISOR).max(2) } else { 1 }
}

/// Mean in microseconds, half the width of its 95 % interval, and the segment length.
fn measure(
    run: CardRunner,
    transfer: CardTransfer,
    runs: u32,
    seed: u64,
) -> Result<(f64, f64, u64), FigureError> {
    let (mut samples, mut segment) = (Vec::new(), 0);
    for number in 0..u64::from(runs) {
        let found = run(&CardTransfer { seed: seed.wrapping_add(number), ..transfer });
        let found = found.map_err(FigureError::cards)?;
        segment = found.segment;
        samples.push(float(found.time.get()) / 1000.0);
    }
    let (mean, half) = statistics::mean(&samples);
    Ok((mean, if samples.len() < 2 { 0.0 } else { half }, segment))
}

pub(super) fn make(
    figure: Figure,
    options: &Options,
    done: &mut ProgressCallback<'_>,
) -> Result<RenderedFigure, FigureError> {
    let (mut rows, mut panels, mut findings) = (Vec::new(), Vec::new(), Vec::new());
    let mut worst: Option<(f64, String)> = None;
    for design in CARDS {
        for network in NETWORKS {
            let runs = runs_of(&network, options);
            let place = format!("{}, {}", design.name, network.name);
            let mut panel = Panel {
                title: place.clone(),
                x_label: "segment size".to_owned(),
                y_label: "time (µs)".to_owned(),
                x_scale: Scale::Bytes,
                y_scale: Scale::Decades,
                ..Panel::default()
            };
            for (colour, length) in LENGTHS.into_iter().enumerate() {
                let mut best = f64::INFINITY;
                let mut curve = Vec::new();
                let Some(run) = options.cards else {
                    panel.curves.push(Curve::new(binary(length), colour));
                    continue;
                };
                let choices = sweep(&design, length).into_iter().map(Some).chain([None]);
                for choice in choices {
                    let transfer = CardTransfer { design, network, length, segment: choice, seed: 0 };
                    let (mean, half, segment) = measure(run, transfer, runs, options.seed)?;
                    if done(1).is_break() {
                        return Err(FigureError::Stopped);
                    }
                    let scheme = if choice.is_some() { "registry" } else { "registry tuned" };
                    let row = Row {
                        figure: figure.name(),
                        scheme: scheme.to_owned(),
                        topology: format!("{} - {}", design.name, network.name).replace(',', ""),
                        size_bytes: Some(length),
                        packet_bytes: Some(design.packet.into()),
                        loss: Some(network.loss),
                        segment_bytes: Some(segment),
                        mean_us: Some(mean),
                        ci95_us: Some(half),
                        failures: Some(0),
                        runs: Some(runs.into()),
                        seed: Some(options.seed),
                        ..Row::default()
                    };
                    if choice.is_some() {
                        best = best.min(mean);
                        curve.push((float(segment), mean, half));
                        rows.push(row);
                        continue;
                    }
                    rows.push(Row { speed_ratio: Some(best / mean), ..row });
                    panel.marks.push(Mark::new(float(segment), mean, "chosen by the driver"));
                    let excess = mean / best - 1.0;
                    let text = format!(
                        "{place}, {}: segments of {segment} bytes, {mean:.2} µs, best of the sweep {best:.2} µs: {:+.1} %",
                        binary(length),
                        excess * 100.0
                    );
                    if worst.as_ref().is_none_or(|(most, _)| excess > *most) {
                        worst = Some((excess, text.clone()));
                    }
                    findings.push(text);
                }
                panel.curves.push(Curve::new(binary(length), colour).points(curve));
            }
            panels.push(panel);
        }
    }
    findings.push(worst.map_or_else(
        || "no cards: nothing was measured".to_owned(),
        |(_, text)| format!("largest difference: {text}"),
    ));
    let picture = Picture {
        title: "Segment size chosen by the driver".to_owned(),
        caption: vec![
            format!(
                "Two simulated cards with their drivers, in virtual time, registry scheme. Time: from the submission to the receiver's notification. One curve per transfer size. {} runs per point with loss, one without; seed {}. Bars and shaded bands: 95 % confidence interval of the mean.",
                (options.runs / RUNS_DIVISOR).max(2),
                options.seed
            ),
            "Default card: 17 GB/s of memory, 100 Gbit/s, packets of 512 bytes, masks of 32. Slow card: PCIe 2 x4 with 1.5 µs per read, copy engine of 128 bits, 6 GB/s, 40 Gbit/s, masks of 128. Slow port: PCIe 4 x16, 70 GB/s, packets of 4 KiB, masks of 256, 25 Gbit/s. The driver knows the card, not the network.".to_owned(),
        ],
        columns: 2,
        panels,
    };
    Ok(made(figure, &rows, picture, findings))
}
