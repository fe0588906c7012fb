//! Names: validity, and suggestions for unknown ones.

use std::cmp::Ordering;

/// Maximum length of a name.
const MAX_NAME_LENGTH: usize = 64;
/// Maximum number of suggested names.
const MAX_SUGGESTIONS: usize = 3;

/// Returns whether a text is a valid name: ASCII letters, digits and underscores, a letter first.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= MAX_NAME_LENGTH
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Compares names without regard to case.
pub(crate) fn compare(one: &str, other: &str) -> Ordering {
    fn letters(name: &str) -> impl Iterator<Item = u8> + '_ {
        name.bytes().map(|letter| letter.to_ascii_lowercase())
    }
    letters(one).cmp(letters(other))
}

/// Indices of `names` in alphabetical order.
///
/// # Errors
/// The index of the first duplicate.
pub(crate) fn in_order(names: &[&str]) -> Result<Vec<u32>, usize> {
    let name = |number: &u32| names.get(*number as usize).copied().unwrap_or_default();
    // No list is that long.
    let mut order: Vec<u32> = (0..u32::try_from(names.len()).unwrap_or(u32::MAX)).collect();
    order.sort_by(|one, other| compare(name(one), name(other)));
    let same = order.windows(2).filter_map(|pair| match pair {
        [one, other] if compare(name(one), name(other)).is_eq() => Some(*other as usize),
        _ => None,
    });
    match same.min() {
        None => Ok(order),
        Some(second) => Err(second),
    }
}

/// Removes the element numbers from a full name: `dma[1].gain[3]` becomes `dma.gain`.
fn without_numbers(name: &str) -> String {
    let mut inside = false;
    let mut keep = |c: char| {
        inside = c == '[' || inside && c != ']';
        !inside && c != ']'
    };
    name.chars().filter(|c| keep(*c)).collect()
}

/// Suggests at most three names similar to the unknown name `wrong`, the most likely first. The first element of an array represents all of
/// them.
///
/// A name is similar if `wrong` is its last part or parts, or if few letters differ: up to a third of them; two swapped letters count once.
/// Case is ignored.
///
/// ```
/// let names = ["scaler.control", "scaler.gain[0]", "scaler.gain[1]", "ni.node_id"];
/// let meant = |wrong| fpga_register_map::nearest(wrong, names);
/// assert_eq!(meant("scaler.cnotrol"), ["scaler.control"]);
/// assert_eq!(meant("NODE_ID"), ["ni.node_id"]);
/// assert_eq!(meant("scaler.gian"), ["scaler.gain[0]"]);
/// assert!(meant("temperature").is_empty());
/// ```
pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wrong = without_numbers(&wrong.trim().to_ascii_lowercase());
    if wrong.is_empty() {
        return Vec::new();
    }
    // User input has some dozens of letters; the distance takes quadratic time.
    if wrong.len() > 4 * MAX_NAME_LENGTH {
        return Vec::new();
    }
    let parts = wrong.matches('.').count() + 1;
    let limit = (wrong.len() / 3).max(1);
    let mut found: Vec<(usize, String, &str)> = Vec::new();
    for name in names {
        let plain = without_numbers(&name.to_ascii_lowercase());
        // Compare with as many last parts as the wrong name has, and with the whole name.
        let tail = match plain.rmatch_indices('.').nth(parts - 1) {
            Some((dot, _)) => plain.get(dot + 1..).unwrap_or_default(),
            None => plain.as_str(),
        };
        let by = [tail, plain.as_str()]
            .into_iter()
            .filter(|known| known.len().abs_diff(wrong.len()) <= limit)
            .map(|known| strsim::osa_distance(&wrong, known))
            .filter(|by| *by <= limit && *by < wrong.len())
            .min();
        let Some(by) = by else { continue };
        if found.iter().any(|(_, known, _)| *known == plain) {
            continue;
        }
        if found.len() < MAX_SUGGESTIONS {
            found.push((by, plain, name));
        } else if let Some(farthest) = found.iter_mut().max_by_key(|(by, _, _)| *by)
            && by < farthest.0
        {
            *farthest = (by, plain, name);
        }
    }
    found.sort_by_key(|(by, _, _)| *by);
    // A name that ends exactly in the text needs no other suggestions.
    let least = found.first().map_or(0, |(by, _, _)| *by);
    found.into_iter().filter(|(by, _, _)| least > 0 || *by == 0).map(|(_, _, name)| name).collect()
}

/// Formats the suggestions for an unknown name; `None` if no name is similar.
///
/// ```
/// let names = ["scaler.control", "scaler.gain[0]", "scaler.gain[1]"];
/// let hint = |wrong| fpga_register_map::hint(wrong, names);
/// assert_eq!(hint("scaler.gain").as_deref(), Some("there are scaler.gain[0] to scaler.gain[1]"));
/// assert_eq!(hint("control").as_deref(), Some("did you mean scaler.control?"));
/// ```
pub fn hint<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str> + Clone) -> Option<String> {
    let plain = without_numbers(&wrong.trim().to_ascii_lowercase());
    let mut elements = names
        .clone()
        .into_iter()
        .filter(|name| name.contains('[') && without_numbers(&name.to_ascii_lowercase()) == plain);
    if let Some(first) = elements.next() {
        return Some(match elements.last() {
            Some(last) => format!("there are {first} to {last}"),
            None => format!("there is {first}"),
        });
    }
    match nearest(wrong, names).as_slice() {
        [] => None,
        [one] => Some(format!("did you mean {one}?")),
        [others @ .., last] => Some(format!("did you mean {} or {last}?", others.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn name_valid_and_invalid_forms() {
        for name in ["a", "Node_ID2", &"x".repeat(64)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "2a", "_a", "a b", "a.b", "a[0]", "\u{e9}", "a-b", &"x".repeat(65)] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn name_order_is_numeric() {
        assert_eq!(in_order(&["b", "A", "c.d", "C"]), Ok(vec![1, 0, 3, 2]));
        assert_eq!(in_order(&[]), Ok(Vec::new()));
        // The first duplicate, independent of the alphabetical order.
        assert_eq!(in_order(&["x", "a", "X", "A", "a"]), Err(2));
    }

    proptest! {
        #[test]
        fn name_any_text_does_not_panic(wrong in ".*", names in prop::collection::vec(".*", 0..4)) {
            let _ = (nearest(&wrong, names.iter().map(String::as_str)), hint(&wrong, names.iter().map(String::as_str)));
        }
    }
}
