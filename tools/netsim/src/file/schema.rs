//! JSON Schema of the types whose values are checked when they are parsed, and the test that compares the schema's file with all types.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::impairments::{Fraction, Length, Sigma};
use super::{File, PacketBytes, PlainTopology, Switch, TopologyEntry, TopologyName, Within};

macro_rules! schemas {
    ($($type:ty => $name:literal, |$generator:ident| $schema:expr;)*) => {$(
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    )*};
}

schemas! {
    Switch => "Switch", |_generator| json_schema!({ "type": "boolean" });
    PacketBytes => "PacketBytes", |_generator| json_schema!({ "enum": [64, 128, 256, 512, 1024, 2048, 4096] });
    Fraction => "Chance", |_generator| json_schema!({ "type": "number", "minimum": 0, "maximum": 1 });
    Sigma => "Sigma", |_generator| json_schema!({ "type": "number", "minimum": 0, "maximum": 4 });
    Length => "Length", |_generator| json_schema!({ "type": "number", "minimum": 1, "maximum": 1_000_000 });
    TopologyName => "TopologyName", |generator| {
        let plain = generator.subschema_for::<PlainTopology>();
        let entry = generator.subschema_for::<TopologyEntry>();
        json_schema!({ "anyOf": [plain, entry] })
    };
}

impl<const LEAST: u64, const MOST: u64> JsonSchema for Within<LEAST, MOST> {
    fn schema_name() -> Cow<'static, str> {
        format!("From{LEAST}To{MOST}").into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": LEAST, "maximum": MOST })
    }
}

/// Run with FPGA_WRITE_SCHEMA=1 after a change of the types.
#[test]
fn scenario_schema_file_matches_types() {
    let schema = schemars::schema_for!(File);
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("FPGA_WRITE_SCHEMA").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/scenario.schema.json");
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, super::JSON_SCHEMA, "set FPGA_WRITE_SCHEMA=1 and run this test again");
}

/// Every key has a description, which editors show.
#[test]
fn scenario_schema_describes_every_key() {
    fn undescribed(place: &str, value: &serde_json::Value, found: &mut Vec<String>) {
        if let Some(properties) = value.get("properties").and_then(serde_json::Value::as_object) {
            let missing = properties.iter().filter(|(_, property)| property.get("description").is_none());
            found.extend(missing.map(|(key, _)| format!("{place}.{key}")));
        }
        if let Some(object) = value.as_object() {
            object.iter().for_each(|(key, value)| undescribed(&format!("{place}/{key}"), value, found));
        }
    }
    let schema: serde_json::Value = serde_json::from_str(super::JSON_SCHEMA).unwrap();
    let mut found = Vec::new();
    undescribed("", &schema, &mut found);
    assert_eq!(found, Vec::<String>::new());
    assert!(schema["properties"].as_object().unwrap().len() > 20);
}

/// Defaults in the schema's descriptions match those of a scenario without the key.
#[test]
fn scenario_schema_defaults_match_parser() {
    let schema: serde_json::Value = serde_json::from_str(super::JSON_SCHEMA).unwrap();
    let documented = |key: &str| -> u64 {
        let text = schema["properties"][key]["description"].as_str().unwrap();
        let (_, rest) = text.split_once("(default: ").unwrap_or_else(|| panic!("{key}: {text}"));
        rest.split(')').next().unwrap().parse().unwrap_or_else(|_| panic!("{key}: {text}"))
    };
    let found =
        super::parse("small.yaml", "schema_version: 1\ntraffic: {permutation: {bytes: 1}}\n").unwrap();
    assert_eq!(documented("rate_gbps"), found.rate.get() / 1_000_000_000);
    assert_eq!(documented("delay_ns"), found.delay.get());
    assert_eq!(documented("queue_bytes"), found.queue);
    assert_eq!(documented("packet_bytes"), u64::from(found.sender.packet_size()));
    assert_eq!(documented("seed"), found.seed);
    assert_eq!(documented("limit_ns"), found.limit.get());
}
