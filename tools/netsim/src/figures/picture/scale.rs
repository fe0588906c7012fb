//! Scales of axes: positions of values, positions of labels, and label texts.

use super::Scale;

impl Scale {
    /// Position of a value along the axis.
    #[must_use]
    pub fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear | Self::Names(_) => value,
            Self::Decades => value.max(1e-12).log10(),
            Self::Bytes => value.max(1.0).log2(),
        }
    }

    /// Label text at a position.
    #[must_use]
    pub fn label(self, place: f64) -> String {
        match self {
            Self::Linear => short(place),
            Self::Decades => short(10_f64.powf(place)),
            Self::Bytes => bytes(place.exp2()),
            Self::Names(names) => {
                let whole = (place - place.round()).abs() < 1e-6;
                let name = names
                    .iter()
                    .enumerate()
                    .find(|(number, _)| whole && (crate::statistics::count(*number) - place).abs() < 0.5);
                name.map(|(_, name)| (*name).to_owned()).unwrap_or_default()
            }
        }
    }

    /// Ends of an axis that shows `low` to `high`, far enough apart for distinct labels. A single value is shown in the middle.
    #[must_use]
    pub fn widened(self, low: f64, high: f64) -> (f64, f64) {
        let most = low.abs().max(high.abs());
        match self {
            Self::Linear if most == 0.0 => (0.0, 1.0),
            Self::Linear => {
                // Numbers have three digits.
                let missing = (0.05 * most - (high - low)).max(0.0) / 2.0;
                (low - missing, high + missing)
            }
            Self::Decades | Self::Bytes | Self::Names(_) => (low, high),
        }
    }

    /// Positions of about `most` labels along an axis that shows `low` to `high`.
    pub(super) fn ticks(self, low: f64, high: f64, most: f64) -> Vec<f64> {
        match self {
            Self::Linear => round_numbers(low, high, most),
            Self::Decades => {
                // Powers of ten, and intermediate values if there are few.
                let steps: &[f64] = match most / (high - low).max(1e-9) {
                    each if each < 2.0 => &[1.0],
                    each if each < 3.0 => &[1.0, 3.0],
                    each if each < 9.0 => &[1.0, 2.0, 5.0],
                    _ => &[],
                };
                if steps.is_empty() {
                    let numbers = round_numbers(10_f64.powf(low), 10_f64.powf(high), most);
                    return numbers.into_iter().map(|number| self.place(number)).collect();
                }
                let decades = whole_numbers(low.floor(), high, 1.0);
                let all = decades.flat_map(|decade| steps.iter().map(move |step| decade + step.log10()));
                all.filter(|place| (low..=high).contains(place)).collect()
            }
            Self::Bytes => {
                let step = ((high - low) / most).ceil().max(1.0);
                whole_numbers((low / step).ceil() * step, high, step).collect()
            }
            Self::Names(names) => (0..names.len()).map(crate::statistics::count).collect(),
        }
    }
}

/// Numbers from `first` to at most `last`, `step` apart.
fn whole_numbers(first: f64, last: f64, step: f64) -> impl Iterator<Item = f64> {
    (0_u32..200).map(move |number| f64::from(number).mul_add(step, first)).take_while(move |at| *at <= last)
}

/// Multiples of 1, 2 or 5 times a power of ten from `low` to `high`, at most about `most` of them.
fn round_numbers(low: f64, high: f64, most: f64) -> Vec<f64> {
    let least = ((high - low) / most).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().map(|times| times * power).find(|step| *step >= least);
    let step = step.unwrap_or(10.0 * power);
    // By whole multiples, so that errors do not accumulate.
    whole_numbers((low / step).ceil(), high / step + 1e-9, 1.0).map(|times| times * step).collect()
}

/// Formats a number with as many digits as necessary.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        value if value >= 100.0 || value == 0.0 => 0,
        value if value >= 1.0 => 1,
        value if value >= 0.01 => 3,
        _ => 5,
    };
    let text = format!("{value:.digits$}");
    if digits > 0 { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Formats bytes in binary units.
fn bytes(value: f64) -> String {
    let units = [(1024.0 * 1024.0 * 1024.0, "GiB"), (1024.0 * 1024.0, "MiB"), (1024.0, "KiB")];
    match units.iter().find(|(size, _)| value >= *size - 0.5) {
        Some((size, unit)) => format!("{} {unit}", short(value / size)),
        None => format!("{} B", short(value)),
    }
}

/// Formats a number of bytes in the largest binary unit.
#[must_use]
pub fn binary(size: u64) -> String {
    bytes(crate::numbers::float(size))
}
