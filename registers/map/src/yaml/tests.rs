use std::fmt::Write as _;

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::schema::File;

fn read<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, Error> {
    let mut yaml = Yaml::new(text);
    let value = T::deserialize(&mut yaml)?;
    yaml.finish().map(|()| value)
}

fn refused(text: &str) -> (usize, usize, String) {
    let error = read::<Value>(text).unwrap_err();
    let Place { line, column } = error.place().unwrap();
    (line, column, error.to_string())
}

#[test]
fn every_style_is_read() {
    let text = "\
# comment
plain: a b
'single': 'it''s'
\"double\": \"a\\tb\"
literal: |
  one
  two
folded: >-
  one
  two
left_out:
list:
- 1
-
- [true, null, {a: -5, b: 0x1F}]
empty: [[], {}]
tagged: !!str 5
";
    let value = json!({
        "plain": "a b", "single": "it's", "double": "a\tb", "literal": "one\ntwo\n", "folded": "one two", "left_out": null,
        "list": [1, null, [true, null, {"a": -5, "b": 31}]], "empty": [[], {}], "tagged": "5",
    });
    assert_eq!(read::<Value>(text).unwrap(), value);
    assert_eq!(read::<Value>("").unwrap(), Value::Null);
    assert_eq!(read::<Value>("--- # one document\n5\n...\n").unwrap(), json!(5));
}

#[test]
fn aliases_stand_for_what_their_anchors_do() {
    let text = "a: &a [1, &b {c: &d x}, *b]\ne: *a\nf: [*d, *b]\n";
    let b = json!({"c": "x"});
    assert_eq!(read::<Value>(text).unwrap(), json!({"a": [1, b, b], "e": [1, b, b], "f": ["x", b]}));
    // A name that is given again is the later one's.
    assert_eq!(read::<Value>("[&a 1, *a, &a 2, *a]").unwrap(), json!([1, 1, 2, 2]));
    // What nobody asks for is passed over, aliases and all.
    assert_eq!(read::<(u8, serde::de::IgnoredAny, u8)>("[&a 1, [[*a], {*a : *a}], 3]").unwrap().2, 3);
}

#[test]
fn what_cannot_be_read_has_a_place() {
    for (text, line, column, part) in [
        ("a: [1, 2", 1, 4, "unclosed"),
        ("a: *b\n", 1, 4, "anchor"),
        ("a: &b [1, *b]\n", 1, 11, "within what it stands for"),
        ("a: 1\n---\nb: 2\n", 2, 1, "second document"),
        ("a: !own 1\n", 1, 9, "!own"),
        ("a: \u{1}\n", 1, 4, ""),
        ("a: b\0c\n", 1, 5, ""),
        ("a: \"\\q\"\n", 1, 4, "escape"),
        ("a: 1\n b: 2\n", 2, 3, ""),
    ] {
        let said = refused(text);
        assert!(said.0 == line && said.1 == column && said.2.contains(part), "{text:?}: {said:?}");
    }
}

/// Aliases of aliases double with every line; what they make is not made.
#[test]
fn what_aliases_make_has_an_end() {
    let mut text = "- &a0 [1, 2]\n".to_owned();
    for n in 1..64 {
        let _ = writeln!(text, "- &a{n} [*a{0}, *a{0}]", n - 1);
    }
    let error = Vec::<serde::de::IgnoredAny>::deserialize(&mut Yaml::new(&text)).unwrap_err();
    assert!(error.to_string().contains("write out what is meant"), "{error}");
    let deep = "[".repeat(100_000);
    assert!(refused(&deep).2.contains("limit"), "{:?}", refused(&deep));
    let deep = "- ".repeat(100_000);
    assert!(refused(&deep).2.contains("limit"), "{:?}", refused(&deep));
}

const MAP: &str = include_str!("../../../../examples/maps/simulated-card.yaml");

/// The other reader's opinion.
fn other<T: for<'de> Deserialize<'de>>(text: &str) -> Option<T> {
    serde_yaml::from_str(text).ok()
}

proptest! {
    /// Words without quotes are what the other reader takes them for.
    #[test]
    fn words_are_read_alike(word in "[-+]?(0[xob])?[-+]?[0-9a-fA-FxE._~]{0,6}|~|null|Null|TRUE|[Ff]alse") {
        // Where a list may begin, only the other one takes it for a word.
        prop_assume!(word != "-");
        for text in [format!("k: {word}"), format!("k: '{word}'"), format!("[{word}]"), format!("- {word}\n- 5")] {
            let (own, other) = (read::<Value>(&text).ok(), other::<Value>(&text));
            prop_assert_eq!(own, other, "{}", text);
        }
        let text = format!("k: {word}");
        let (own, other) = (read::<std::collections::BTreeMap<String, String>>(&text).ok(), other(&text));
        prop_assert_eq!(own, other, "{}", text);
    }

    /// A map with a piece missing is read alike where the other reader reads it. It does not know that a value before a comma can be left
    /// out; that a name is missing is found later.
    #[test]
    fn maps_are_read_alike(at in 0..MAP.len(), cut in 0_usize..40) {
        if let (Some(before), Some(after)) = (MAP.get(..at), MAP.get((at + cut).min(MAP.len())..)) {
            let text = format!("{before}{after}");
            let (own, other) = (read::<File>(&text), other::<File>(&text));
            if other.is_some() {
                prop_assert_eq!(format!("{:?}", own.ok()), format!("{other:?}"), "{}", text);
            } else if let Ok(own) = own {
                prop_assert!(text.contains(":,") || text.contains(":}"), "{text}\n{own:?}");
            }
        }
    }
}
