//! Maps that bindings cannot be generated from. Those of a map with everything that a map can say are tested in `examples/tests/bindings.rs`.

use fpga_register_map::bindings::{BindingsError, Options, write};

#[test]
fn bindings_invalid_map_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |name: &str, text: &str| {
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        write(&file, dir.path(), &Options::default()).unwrap_err()
    };
    let head = "schema_version: 1\nname: x\n";
    let error =
        refused("a.yaml", &format!("{head}blocks: [{{name: aB, offset: 0}}, {{name: a_b, offset: 4}}]"));
    assert!(matches!(&error, BindingsError::Collision { name, .. } if name == "a_b"), "{error}");
    assert!(error.to_string().contains("block aB and block a_b"), "{error}");
    let registers = "{name: high, offset: 0}, {name: low, offset: 4}, {name: HIGH_RESET, offset: 8}";
    let text = format!("{head}blocks: [{{name: b, offset: 0, registers: [{registers}]}}]")
        .replace("offset: 0}, {name: low", "offset: 0, reset: 1}, {name: low");
    let error = refused("a.yaml", &text);
    assert!(error.to_string().contains("`HIGH_RESET`"), "{error}");
    let fields = "{name: bits, bits: 1}";
    let error = refused(
        "a.yaml",
        &format!(
            "{head}blocks: [{{name: b, offset: 0, registers: [{{name: r, offset: 0, fields: [{fields}]}}]}}]"
        ),
    );
    assert!(error.to_string().contains("the register word and b.r.bits"), "{error}");
    let error = refused("a.yaml", "schema_version: 1\n");
    assert!(matches!(&error, BindingsError::Map(_)), "{error}");
    let error = refused("2 b.yaml", &format!("{head}blocks: []"));
    assert!(matches!(&error, BindingsError::FileName { .. }), "{error}");
    std::fs::write(dir.path().join("m.yaml"), format!("{head}blocks: []")).unwrap();
    let error =
        write(&dir.path().join("m.yaml"), &dir.path().join("missing"), &Options::default()).unwrap_err();
    assert!(matches!(&error, BindingsError::Write { .. }), "{error}");
}
