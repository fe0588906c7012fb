//! Networks of the figures of source 004: two hosts, or the source's own 3D torus with adaptive routing.
//!
//! The source names torus, adaptive routing, and random delays that increase the disorder. It gives neither size nor traffic nor rates.
//! Assumed here: 4 x 4 x 4 hosts, each of which sends to one host and receives from one, in pairs drawn anew for each run; links of the
//! point-to-point figures' rate, and 200 ns each, so that the mean route (three links) is about as long as the point-to-point figures'
//! cable.

use fpga_netmodel::Delay;
use fpga_protocol::Nanos;

use super::disorder::{DelayDistribution, Delays};
use super::float;
use super::measure::{Point, most_of_pairs};
use super::pairs::pairs;
use super::{Figure, FigureError, Options, network, reference_parameters};
use crate::statistics::seed_of;
use crate::{Scenario, Scheme, Simulation, Topology, parallel};

/// Travel time of a link in nanoseconds.
const LINK_NS: u64 = 200;
/// Runs that measure a degree of disorder: each has one sample per host.
const CALIBRATION_RUNS: u64 = 2;
/// Bytes of a transfer whose disorder is measured: 512 packets, as for two hosts.
const CALIBRATION_BYTES: u64 = 256 << 10;
/// First guess of the mean delay for one packet of disorder, in nanoseconds.
const NS_PER_DEGREE: u64 = 9;
/// Maximum mean delay that is searched, in nanoseconds.
const MAX_MEAN_NS: u64 = 1 << 13;

/// Network of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    PointToPoint,
    Torus {
        /// Hosts along each edge.
        side: u32,
    },
}

impl Network {
    /// Network of a figure.
    pub(super) const fn of(figure: Figure, options: &Options) -> Self {
        match figure {
            Figure::TorusLossFree | Figure::TorusLossy | Figure::TorusLossSweep | Figure::TorusReorder => {
                Self::Torus { side: options.torus_side }
            }
            _ => Self::PointToPoint,
        }
    }

    /// Scenario with the frozen parameters: `length` bytes from each sender.
    pub(super) fn parameters(self, length: u64) -> Scenario {
        let scenario = reference_parameters(length);
        match self {
            Self::PointToPoint => scenario,
            Self::Torus { side } => {
                let scenario = scenario.topology(Topology::Torus { side }).delay(Nanos::new(LINK_NS));
                pairs(scenario, length, 0)
            }
        }
    }

    /// Adapts a point whose scenario has this network.
    pub(super) fn point(self, point: Point) -> Point {
        match self {
            Self::PointToPoint => point,
            Self::Torus { .. } => Point { pairs: true, certain: false, ..point },
        }
    }

    /// Maximum number of runs of a point.
    pub(super) const fn most_runs(self, options: &Options) -> u32 {
        match self {
            Self::PointToPoint => options.runs,
            Self::Torus { .. } => most_of_pairs(options),
        }
    }

    /// Exponential delays that, with this network's routing, cause degrees of disorder.
    pub(super) fn delays(self, degrees: &[u32], options: &Options) -> Result<Vec<Delay>, FigureError> {
        let wanted: Vec<_> = degrees.iter().map(|degree| (DelayDistribution::Exponential, *degree)).collect();
        self.delays_of(&wanted, options)
    }

    /// Delays of several distributions that cause degrees of disorder.
    pub(super) fn delays_of(
        self,
        wanted: &[(DelayDistribution, u32)],
        options: &Options,
    ) -> Result<Vec<Delay>, FigureError> {
        match self {
            Self::PointToPoint => {
                let mut delays = Delays::new(options.seed);
                delays.prepare(wanted, options.threads)?;
                wanted.iter().map(|(law, degree)| Ok(delays.of(*law, *degree)?)).collect()
            }
            Self::Torus { .. } => {
                let job = |number: usize| match wanted.get(number) {
                    Some((law, degree)) => self.delay_of(*law, *degree, options.seed),
                    None => Ok(Delay::default()),
                };
                let go_on = |_: &Result<Delay, FigureError>| std::ops::ControlFlow::Continue(());
                parallel::map(wanted.len(), options.threads, job, go_on)
                    .ok_or(FigureError::Stopped)?
                    .into_iter()
                    .collect()
            }
        }
    }

    /// Delay that causes one degree of disorder.
    pub(super) fn delay(self, degree: u32, options: &Options) -> Result<Delay, FigureError> {
        Ok(self.delays(&[degree], options)?.into_iter().next().unwrap_or_default())
    }

    /// Mean degree of disorder at the receivers of a torus: a property of the network, measured with a scheme that never waits.
    pub(super) fn degree(self, delay: Delay, seed: u64) -> Result<f64, FigureError> {
        let scenario =
            self.parameters(CALIBRATION_BYTES).data(network(0.0, delay)).scheme(Scheme::ReceiverCounter);
        let (mut sum, mut count) = (0, 0);
        for run in 0..CALIBRATION_RUNS {
            let seed = seed_of(seed, run);
            let scenario = pairs(scenario.clone().seed(seed), CALIBRATION_BYTES, seed);
            let report = Simulation::new(&scenario).and_then(Simulation::run).map_err(|source| {
                FigureError::Run { point: "disorder of the torus".to_owned(), seed, source }
            })?;
            sum += report.hosts.iter().map(|host| u64::from(host.disorder)).sum::<u64>();
            count += report.hosts.len() as u64;
        }
        Ok(float(sum) / float(count.max(1)))
    }

    /// Delay whose degree is within half a packet of `wanted`, or as close as whole nanoseconds permit; none for 0.
    fn delay_of(self, law: DelayDistribution, wanted: u32, seed: u64) -> Result<Delay, FigureError> {
        if wanted == 0 {
            return Ok(Delay::Constant(Nanos::ZERO));
        }
        let (mut low, mut high) = (0, MAX_MEAN_NS);
        let mut middle = (u64::from(wanted) * NS_PER_DEGREE).min(high - 1);
        loop {
            let found = self.degree(law.of_mean(middle), seed)?;
            let off = found - f64::from(wanted);
            if off.abs() <= 0.5 {
                return Ok(law.of_mean(middle));
            }
            if off < 0.0 {
                low = middle;
            } else {
                high = middle;
            }
            if low + 1 >= high {
                return Ok(law.of_mean(high));
            }
            // The degree is about proportional to the mean: the next guess is close, and bisection is slow.
            let scaled = (float(middle) * f64::from(wanted) / found.max(1.0)).clamp(1.0, float(MAX_MEAN_NS));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped above")]
            let guess = scaled.round() as u64;
            middle = if low < guess && guess < high { guess } else { low.midpoint(high) };
        }
    }

    /// Title of a figure of this network; `text` begins with a capital letter.
    pub(super) fn title(self, text: &str) -> String {
        match self {
            Self::PointToPoint => text.to_owned(),
            Self::Torus { .. } => format!("{text}, on a 3D torus"),
        }
    }

    /// The network in words, for a caption.
    pub(super) fn caption(self) -> String {
        match self {
            Self::PointToPoint => "Two hosts, 10 GB/s, 800 ns one way".to_owned(),
            Self::Torus { side } => format!(
                "3D torus of {side} x {side} x {side} hosts, adaptive routing of each packet; links of 10 GB/s and 200 ns, queues of 256 KiB; \
                 every host sends to one host and receives from one, in random pairs"
            ),
        }
    }

    /// Definition of the time that is shown, for a caption.
    pub(super) const fn time(self) -> &'static str {
        match self {
            Self::PointToPoint => "Time: from the submission to the receiver's notification.",
            Self::Torus { .. } => {
                "Time: from the submission to the receiver's notification, mean of all hosts' transfers."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torus_random_delay_increases_disorder_of_adaptive_routing() {
        let net = Network::Torus { side: 3 };
        let [none, some] =
            [0, 600].map(|mean| net.degree(DelayDistribution::Exponential.of_mean(mean), 1).unwrap());
        println!("{none} {some}");
        assert!(none > 0.5, "adaptive routing alone reorders packets: {none}");
        assert!(some > 2.0 * none, "{some} and {none}");
    }
}
