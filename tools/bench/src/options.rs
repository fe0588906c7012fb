//! Command line of `cargo measure`.

use std::path::PathBuf;

use clap::Parser;

use super::cells::{Cell, Direction, Ring, Size};

/// Measure against DPDK's software DMA device and a plain copy, run the packages' benchmarks, and write BENCHMARKS.md and its pages
#[derive(Debug, Clone, Parser)]
#[command(name = "cargo measure")]
pub(crate) struct Options {
    /// Also measure DPDK's software DMA device (needs libdpdk-dev and librte-dma-skeleton)
    #[arg(long)]
    pub(crate) peer: bool,
    /// Number of pairs of runs in one CPU placement for each size, direction and ring
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) pairs: u16,
    /// Operation sizes
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "64,512,4KiB,64KiB,1MiB")]
    pub(crate) sizes: Vec<Size>,
    /// Transfer directions
    #[arg(long, value_name = "WAY,...", value_delimiter = ',', default_value = "h2c,c2h")]
    pub(crate) direction: Vec<Direction>,
    /// Ring modes: credits, or batches that end in a Stop descriptor
    #[arg(long, value_name = "RING,...", value_delimiter = ',', default_value = "credit,stop")]
    pub(crate) ring: Vec<Ring>,
    /// Number of operations in flight
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(64..=512))]
    pub(crate) depth: u32,
    /// Duration of one run in seconds [default: 1.2 at up to 64 bytes, else 0.5]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// Minimum latency between the CPUs of a "far" pair (no shared cache)
    #[arg(long, value_name = "NS", default_value_t = 90.0)]
    pub(crate) far: f64,
    /// Minimum latency between the CPUs of a "near" pair (shared cache); below, they are hardware threads of one core
    #[arg(long, value_name = "NS", default_value_t = 34.0)]
    pub(crate) near: f64,
    /// CPUs of the submitting and of the copying thread [default: the first two]
    #[arg(long, value_name = "HOST,CARD", value_delimiter = ',', num_args = 2)]
    pub(crate) cpus: Option<Vec<usize>>,
    /// Skip the benchmarks of the packages
    #[arg(long)]
    pub(crate) no_micro: bool,
    /// Skip the runs of fpgactl and of the peer
    #[arg(long)]
    pub(crate) no_pairs: bool,
    /// Number of pairs tried for each pair wanted: more for a machine on which few pairs agree
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) tries: u16,
    /// Replace the file of this machine in docs/benchmarks/machines, and write BENCHMARKS.md and its pages
    #[arg(long)]
    pub(crate) write: bool,
    /// Write BENCHMARKS.md and its pages from the files in docs/benchmarks/machines, without measuring
    #[arg(long, conflicts_with_all = ["write", "check", "peer"])]
    pub(crate) render: bool,
    /// Compare this machine with wide limits, in at most 40 seconds: finds loss of speed, not figures. Exit status 3: it has one CPU only
    #[arg(long, conflicts_with_all = ["write", "peer"])]
    pub(crate) check: bool,
    /// fpgactl to measure [default: it is built; with --check, target/release/fpgactl]
    #[arg(long, value_name = "FILE", conflicts_with = "write")]
    pub(crate) fpgactl: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("runs take 0.01 to 60 seconds".to_owned()),
    }
}

/// Combinations of ring, size and direction.
pub(crate) fn cells(options: &Options) -> Vec<Cell> {
    let mut cells = Vec::new();
    for ring in &options.ring {
        for size in &options.sizes {
            for direction in &options.direction {
                cells.push(Cell { ring: *ring, size: size.0, direction: *direction });
            }
        }
    }
    cells.dedup();
    cells
}

/// Command line that repeats the measurement.
pub(crate) fn command(options: &Options) -> String {
    let mut words = vec!["cargo measure".to_owned()];
    let mut flag = |set: bool, name: &str| {
        if set {
            words.push(format!("--{name}"));
        }
    };
    flag(options.peer, "peer");
    flag(options.no_pairs, "no-pairs");
    flag(options.no_micro, "no-micro");
    flag(options.write, "write");
    let sizes: Vec<String> = options.sizes.iter().map(|size| size.0.to_string()).collect();
    let directions: Vec<&str> = options.direction.iter().map(|direction| direction.name()).collect();
    let rings: Vec<&str> = options.ring.iter().map(|ring| ring.name()).collect();
    words.push(format!("--pairs {} --tries {} --sizes {}", options.pairs, options.tries, sizes.join(",")));
    words.push(format!("--direction {} --ring {}", directions.join(","), rings.join(",")));
    words.push(format!("--depth {} --near {} --far {}", options.depth, options.near, options.far));
    words.extend(options.seconds.map(|seconds| format!("--seconds {seconds}")));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &[&str]) -> Options {
        Options::try_parse_from([&["measure"], args].concat()).unwrap()
    }

    #[test]
    fn cells_every_combination_is_measured_once() {
        let cells = cells(&options(&["--sizes", "64,4KiB", "--ring", "credit"]));
        assert_eq!(cells.len(), 4);
        assert_eq!(cells[1], Cell { ring: Ring::Credit, size: 64, direction: Direction::C2h });
        assert_eq!(self::cells(&options(&[])).len(), 20);
    }

    #[test]
    fn cells_printed_command_repeats_run() {
        let first =
            options(&["--peer", "--sizes", "64,1MiB", "--seconds", "0.25", "--write", "--ring", "stop"]);
        let text = command(&first);
        let words: Vec<&str> = text.split(' ').skip(2).collect();
        let again = options(&words);
        assert_eq!(format!("{again:?}"), format!("{first:?}"));
    }
}
