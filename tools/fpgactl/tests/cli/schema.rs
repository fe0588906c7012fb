//! Interface for scripts: a snapshot contains the keys and types of every command's JSON document. A removed key or a changed type shows
//! here, and raises `SCHEMA_VERSION`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::commands::{CommandEnvironment, Listed, commands};

/// Types by path: `tests[].name`.
type Shape = BTreeMap<String, BTreeSet<&'static str>>;

fn add(shape: &mut Shape, path: &str, value: &Value) {
    let name = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    // A span too short for the clock is `null`, depending on the machine.
    if !path.is_empty() && path != "results[].cpu_ns_per_op" {
        shape.entry(path.to_owned()).or_default().insert(name);
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| add(shape, &format!("{path}[]"), item)),
        Value::Object(fields) => {
            for (key, field) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                add(shape, &format!("{path}{dot}{key}"), field);
            }
        }
        _ => {}
    }
}

fn written(shape: &Shape) -> String {
    let line = |(path, types): (&String, &BTreeSet<&str>)| {
        format!("{path}: {}\n", types.iter().copied().collect::<Vec<_>>().join(" or "))
    };
    shape.iter().map(line).collect()
}

#[test]
fn json_keys_and_types_match_list() {
    let place = CommandEnvironment::new();
    let mut all = String::new();
    let documents = commands()
        .filter(|listed| {
            !listed.words.starts_with("--") && !matches!(listed.words.split(' ').next(), Some("completions"))
        })
        // The output is a JSON document with and without `--json`.
        .filter(|listed| listed.words != "sim schema");
    for Listed { words: text, .. } in documents {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
        let ran = command.args(place.words(text)).arg("--json").env_remove("RUST_LOG").output().unwrap();
        let mut shape = Shape::new();
        // One document, or one per line.
        for document in serde_json::Deserializer::from_slice(&ran.stdout).into_iter() {
            add(&mut shape, "", &document.unwrap());
        }
        assert_eq!(shape.get("schema_version").map(BTreeSet::len), Some(1), "{text}");
        all += &format!("== {text}\n{}\n", written(&shape));
    }
    insta::assert_snapshot!(all);
}
