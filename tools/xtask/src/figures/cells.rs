//! Values of table cells, by the kind of the table, the header of the column and the labels of the row.

use serde_json::Value;

use super::FiguresError;
use super::results::{Line, Results};

/// Cell of a table.
pub(super) struct Cell<'a> {
    /// Words of the comment above the table: the kind, and its arguments.
    pub(super) kind: &'a [&'a str],
    /// Scenario above the table.
    pub(super) scenario: &'a str,
    pub(super) header: &'a [&'a str],
    pub(super) column: &'a str,
    pub(super) row: &'a [&'a str],
}

impl Cell<'_> {
    /// First cell of the row.
    fn label(&self) -> &str {
        self.row.first().copied().unwrap_or_default()
    }

    /// Cell of the row in the column with this header.
    fn of_column(&self, header: &str) -> &str {
        self.header.iter().zip(self.row).find(|(name, _)| **name == header).map_or("", |(_, cell)| cell)
    }
}

/// Value of a cell. `None`: it is a label.
pub(super) fn value(results: &Results, cell: &Cell<'_>) -> Result<Option<String>, FiguresError> {
    match cell.kind {
        ["state-bits"] => state_bits(results, cell).map(Some),
        ["grid"] => grid(results, cell).map(Some),
        ["grid-points"] => grid_points(results, cell).map(Some),
        ["cards"] => cards(results, cell),
        ["clos"] => clos(results, cell).map(Some),
        ["transfer"] => {
            let command = cell.label().trim_matches('`').trim_start_matches("fpgactl ");
            Ok(Some(format!("{:.1}", number(&results.json(command)?, "card_goodput_gb_per_s")?)))
        }
        ["run", runs, quantities @ ..] => run(results, cell, runs, quantities),
        [figure, quantities @ ..] => figure_values(results, cell, figure, quantities).map(Some),
        [] => Ok(None),
    }
}

fn missing(what: impl Into<String>) -> FiguresError {
    FiguresError::Value(what.into())
}

/// Number of a JSON object.
fn number(value: &Value, key: &str) -> Result<f64, FiguresError> {
    value.get(key).and_then(Value::as_f64).ok_or_else(|| missing(format!("no number {key}")))
}

/// Objects in a list of a JSON document.
fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

/// The object of a list that has these numbers.
fn object<'a>(value: &'a Value, key: &str, wanted: &[(&str, f64)]) -> Result<&'a Value, FiguresError> {
    let is_wanted = |object: &&Value| {
        wanted.iter().all(|(key, value)| number(object, key).is_ok_and(|found| (found - value).abs() < 1e-9))
    };
    list(value, key).find(is_wanted).ok_or_else(|| missing(format!("none of the {key} has {wanted:?}")))
}

fn microseconds(time: f64) -> String {
    if time < 1000.0 { format!("{time:.1}") } else { format!("{time:.0}") }
}

/// Bytes, fraction or microseconds of a number with a unit.
fn quantity(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ')?;
    let (factor, divisor) = match unit {
        "bytes" | "µs" => (1.0, 1.0),
        "KiB" => (1024.0, 1.0),
        "MiB" => (1_048_576.0, 1.0),
        "MB" => (1e6, 1.0),
        "ms" => (1e3, 1.0),
        "%" => (1.0, 100.0),
        "‰" => (1.0, 1000.0),
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor / divisor)
}

/// Lines of a figure that the labels of a cell name.
struct Selection<'a> {
    figure: String,
    /// Columns and their values.
    keys: Vec<(&'static str, String)>,
    /// Scheme, network, delay and other parts of the column `topology`.
    names: Vec<&'a str>,
}

impl<'a> Selection<'a> {
    /// The parts of the labels of row and column, as the CSV file has them.
    fn new(figure: &str, labels: [&'a str; 2]) -> Self {
        let (mut keys, mut names, mut figure) = (Vec::new(), Vec::new(), figure.to_owned());
        for part in labels.into_iter().flat_map(|label| label.split(", ")) {
            match (part, part.split_once(' ')) {
                ("two hosts", _) => names.push("point-to-point"),
                ("torus", _) => {
                    figure = format!("torus-{figure}");
                    names.push("torus 4x4x4");
                }
                (_, Some(("W", window))) => keys.push(("window", window.trim_start_matches("= ").to_owned())),
                (_, Some(("disorder", value))) => keys.push(("disorder", value.to_owned())),
                (_, Some(("hops", value))) => keys.push(("hops", value.to_owned())),
                (_, Some((_, unit))) if quantity(part).is_some() => {
                    let key = if ["%", "‰"].contains(&unit) { "loss" } else { "size_bytes" };
                    keys.push((key, quantity(part).unwrap_or_default().to_string()));
                }
                _ => match part.strip_suffix(" segments").and_then(quantity) {
                    Some(segment) => keys.push(("segment_bytes", segment.to_string())),
                    None => names.push(part),
                },
            }
        }
        Self { figure, keys, names }
    }

    /// The same without loss.
    fn lossless(&self) -> Self {
        let other = self.keys.iter().filter(|(key, _)| *key != "loss").cloned();
        let keys = other.chain([("loss", "0".to_owned())]).collect();
        Self { figure: self.figure.clone(), keys, names: self.names.clone() }
    }

    /// Lines with all keys and names, and the fewest other names: without a delay, those of the usual one.
    fn lines<'l>(&self, all: &'l [Line]) -> Vec<&'l Line> {
        let is_named = |line: &Line, name: &str| {
            names(line).iter().any(|own| [name, name.trim_end_matches(" delay")].contains(&own.as_str()))
        };
        let mut lines: Vec<&Line> = all
            .iter()
            .filter(|line| self.keys.iter().all(|(key, value)| line.get(*key) == Some(value)))
            .filter(|line| self.names.iter().all(|name| is_named(line, name)))
            .collect();
        let fewest = lines.iter().map(|line| names(line).len()).min();
        lines.retain(|line| Some(names(line).len()) == fewest);
        lines
    }

    /// The only line.
    fn line<'l>(&self, all: &'l [Line]) -> Result<&'l Line, FiguresError> {
        match self.lines(all)[..] {
            [line] => Ok(line),
            ref lines => {
                let Self { figure, keys, names } = self;
                Err(missing(format!("{figure}: {} lines have {names:?} and {keys:?}", lines.len())))
            }
        }
    }
}

/// Scheme of a line, and the parts of its network.
fn names(line: &Line) -> Vec<String> {
    let topology = line.get("topology").cloned().unwrap_or_default();
    let topology = ["point-to-point", "torus 4x4x4"]
        .iter()
        .fold(topology, |topology, name| topology.replace(&format!("{name} "), &format!("{name} - ")));
    topology.split(" - ").map(str::to_owned).chain(line.get("scheme").cloned()).collect()
}

/// Number in a column of a CSV file.
fn float(line: &Line, column: &str) -> Result<f64, FiguresError> {
    let text = line.get(column).map(String::as_str).unwrap_or_default();
    text.parse().map_err(|_| missing(format!("{column} is \"{text}\"")))
}

/// Values of a figure.
fn figure_values(
    results: &Results,
    cell: &Cell<'_>,
    figure: &str,
    quantities: &[&str],
) -> Result<String, FiguresError> {
    let selection = Selection::new(figure, [cell.label(), cell.column]);
    let all = results.figure(&selection.figure)?;
    let of = |column| float(selection.line(&all)?, column);
    let largest = |value: fn(f64) -> f64| {
        let ratios = selection.lines(&all).into_iter().filter_map(|line| float(line, "speed_ratio").ok());
        ratios.map(value).reduce(f64::max).ok_or_else(|| missing("no such line"))
    };
    let value = |quantity: &&str| {
        Ok(match *quantity {
            "time" => format!("{} ± {}", microseconds(of("mean_us")?), microseconds(of("ci95_us")?)),
            "mean" => microseconds(of("mean_us")?),
            "packets" => format!("{:.3}", of("packets_ratio")?),
            "again" => {
                format!("{:.3} ± {:.3} %", 100.0 * (of("packets_ratio")? - 1.0), 100.0 * of("packets_ci95")?)
            }
            "speed" => format!("{:.3} ± {:.3}", of("speed_ratio")?, of("speed_ci95")?),
            "saved" => format!("{:.1} %", 100.0 * (1.0 - of("speed_ratio")?)),
            "jain" => format!("{:.3}", of("jain")?),
            "gain" => format!("{:.2}", largest(|ratio| ratio)?),
            "excess" => format!("{:.1} %", 100.0 * largest(|ratio| 1.0 / ratio - 1.0)?),
            "slowdown" => {
                let lossless = float(selection.lossless().line(&all)?, "mean_us")?;
                format!("+ {:.0} %", 100.0 * (of("mean_us")? / lossless - 1.0))
            }
            other => return Err(missing(format!("there is no quantity {other}"))),
        })
    };
    Ok(quantities.iter().map(value).collect::<Result<Vec<_>, _>>()?.join(", "))
}

/// Bits of one side of a scheme, by the types of the implementation.
fn state_bits(results: &Results, cell: &Cell<'_>) -> Result<String, FiguresError> {
    let side = cell.column.trim_end_matches(", bits");
    let wanted = [("scheme", cell.label()), ("side", side), ("origin", "types")];
    let lines = results.figure("state-bits")?;
    let own = lines
        .iter()
        .filter(|line| wanted.iter().all(|(key, value)| line.get(*key).is_some_and(|found| found == value)));
    let bits = own.filter_map(|line| line.get("bits")?.parse::<u64>().ok());
    Ok(bits.sum::<u64>().to_string())
}

/// Times of a scheme divided by the best scheme's: geometric mean and maximum over the points of a row.
fn grid(results: &Results, cell: &Cell<'_>) -> Result<String, FiguresError> {
    let (key, wanted) = match (cell.header.first(), quantity(cell.label())) {
        (Some(&"Disorder"), _) => ("disorder", cell.label().parse().ok()),
        (Some(&"Loss"), loss) => ("loss", loss),
        (_, size) => ("size_bytes", size),
    };
    let wanted = wanted.ok_or_else(|| missing(format!("{} is no {key}", cell.label())))?;
    let (mut logarithms, mut count, mut largest) = (0.0, 0.0, 0.0_f64);
    for point in list(&results.grid()?, "points") {
        if (number(point, key)? - wanted).abs() < 1e-9 {
            let best = list(point, "schemes").filter_map(|scheme| number(scheme, "median_us").ok());
            let own = list(point, "schemes")
                .find(|scheme| scheme.get("scheme").is_some_and(|name| name == cell.column));
            let own = number(own.ok_or_else(|| missing("no such scheme"))?, "median_us")?;
            let ratio = own / best.fold(f64::INFINITY, f64::min);
            (logarithms, count, largest) = (logarithms + ratio.ln(), count + 1.0, largest.max(ratio));
        }
    }
    Ok(format!("{:.2} / {largest:.2}", f64::exp(logarithms / count)))
}

/// Number of points at which the default is near the fastest scheme.
fn grid_points(results: &Results, cell: &Cell<'_>) -> Result<String, FiguresError> {
    let grid = results.grid()?;
    Ok(match cell.label() {
        "points" => list(&grid, "points").count().to_string(),
        "points at which the default takes more than 1.1 times the best time" => {
            number(&grid, "above")?.to_string()
        }
        "largest ratio" => format!("{:.2}", number(&grid, "worst_ratio")?),
        other => return Err(missing(format!("the grid has no {other}"))),
    })
}

/// Median of the default on cards in µs, packets retransmitted and lost, and the ratio to the best other scheme.
fn cards(results: &Results, cell: &Cell<'_>) -> Result<Option<String>, FiguresError> {
    let delay = quantity(cell.of_column("Delay, one way"));
    let (size, loss) = match quantity(cell.column) {
        Some(size) if delay.is_some() => (Some(size), 0.0),
        Some(loss) => (quantity(cell.of_column("Size")), loss),
        None if cell.column == "no loss" => (quantity(cell.of_column("Size")), 0.0),
        None => return Ok(None),
    };
    let size = size.ok_or_else(|| missing("no size"))?;
    let options = match delay {
        Some(_) => {
            "3 --disorder 0 --loss 0 --delay 5us --delay 50us --delay 1ms --size 16KiB --size 64KiB --size 1MiB"
        }
        None if size > 1_048_576.0 => "5 --size 4MiB --size 16MiB",
        None => "21",
    };
    let grid = results.json(&format!("sim grid --cards --runs {options}"))?;
    let disorder = if cell.label().contains("held back") { 64.0 } else { 0.0 };
    let wanted = [
        ("size_bytes", size),
        ("loss", loss),
        ("disorder", disorder),
        ("delay_us", delay.unwrap_or_default()),
    ];
    let point = object(&grid, "points", &wanted)?;
    let default = list(point, "schemes").next().ok_or_else(|| missing("no scheme"))?;
    let others = list(point, "schemes").skip(1).filter_map(|scheme| number(scheme, "median_us").ok());
    let median = number(default, "median_us")?;
    let [again, lost] = [number(default, "retransmitted")?, number(default, "lost")?];
    let ratio = median / others.fold(f64::INFINITY, f64::min);
    Ok(Some(format!("{} ({again}/{lost}) {ratio:.2}", microseconds(median))))
}

/// The default transport on the Clos network. The columns of the other simulator, which need not be installed, are in italics.
fn clos(results: &Results, cell: &Cell<'_>) -> Result<String, FiguresError> {
    let (row, size) = cell.label().trim_start_matches('`').split_once('`').unwrap_or_default();
    let report =
        results.json(&format!("sim clos --runs 5 --lists ../../examples/scenarios/clos --row {row}"))?;
    let size = quantity(size.trim_start_matches(", ")).map(|size| ("size_bytes", size));
    let line = object(&report, "lines", &Vec::from_iter(size))?;
    let own = line.get("registry").ok_or_else(|| missing("no results of registry"))?;
    let of = |key| number(own, key).map(|value| format!("{value:.1}"));
    match cell.column {
        "Mean" => of("mean_us"),
        "p99" => of("p99_us"),
        "Max" => of("max_us"),
        "Again" => Ok(format!("{:.2} %", number(own, "retransmitted_percent")?)),
        _ => {
            let nscc = cell.of_column("*NSCC p99*").parse::<f64>().map_err(|_| missing("no p99 of NSCC"))?;
            Ok(format!("{:.2}", number(own, "p99_us")? / nscc))
        }
    }
}

/// Rate of the links of the scenarios.
const LINK_GB_PER_S: f64 = 12.5;

/// Results of the scenario above the table, whose words in capitals stand for cells: SIZE for that of the column "Size". SCHEME is the header
/// of the column, or a cell.
fn run(
    results: &Results,
    cell: &Cell<'_>,
    runs: &str,
    quantities: &[&str],
) -> Result<Option<String>, FiguresError> {
    let quantities = match (cell.column, quantities) {
        ("Goodput" | "Jain's index" | "Dropped", _) => &[cell.column],
        (name, _) if cell.scenario.contains(&name.to_uppercase()) => return Ok(None),
        (_, quantities) => quantities,
    };
    let labels = cell.header.iter().zip(cell.row).map(|(header, text)| (header.to_uppercase(), *text));
    let column = if let Some(size) = quantity(cell.column) {
        ("SIZE", size.to_string())
    } else {
        ("SCHEME", cell.column.to_owned())
    };
    let mut scenario = cell.scenario.to_owned();
    for (name, text) in labels {
        let text = quantity(text).map_or_else(|| text.to_owned(), |number| number.to_string());
        scenario = scenario.replace(&name, &text);
    }
    let report = results.run(&scenario.replace(column.0, &column.1), runs)?;
    let of = |key| number(&report, key);
    let values = quantities.iter().map(|quantity| match *quantity {
        "mean" => of("mean_us").map(microseconds),
        "p99" => of("p99_us").map(microseconds),
        "Goodput" => Ok(format!("{:.3}", of("goodput_gb_per_s")? / LINK_GB_PER_S)),
        "Jain's index" | "jain" => Ok(format!("{:.3}", of("fairness")?)),
        "again" => Ok(format!("{:.1} %", 100.0 * (of("packets_ratio")? - 1.0))),
        "Dropped" => Ok(of("dropped")?.to_string()),
        other => Err(missing(format!("there is no quantity {other}"))),
    });
    Ok(Some(values.collect::<Result<Vec<_>, _>>()?.join(" / ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(scheme: &str, topology: &str) -> Line {
        let pairs = [("scheme", scheme), ("topology", topology), ("size_bytes", "262144"), ("loss", "0.005")];
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    #[test]
    fn figures_labels_select_line_of_figure() {
        let all = [
            line("selective", "point-to-point"),
            line("selective", "point-to-point 500 ns uniform"),
            line("registry tuned", "slow card - 20 µs delay"),
        ];
        let of = |labels| Selection::new("lossy", labels).line(&all).ok();
        assert_eq!(of(["256 KiB, 5 ‰", "two hosts, selective"]), Some(&all[0]));
        assert_eq!(of(["two hosts", "500 ns uniform delay"]), Some(&all[1]));
        assert_eq!(of(["slow card", "registry tuned, 20 µs delay"]), Some(&all[2]));
        assert_eq!(of(["256 KiB", "1 ‰"]), None);
        assert_eq!(Selection::new("lossy", ["torus", "W = 128"]).figure, "torus-lossy");
    }
}
