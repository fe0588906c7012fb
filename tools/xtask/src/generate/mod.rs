//! `cargo xtask generate`: generates four committed files from one YAML file.
//!
//! | File | Reader |
//! |---|---|
//! | `src/generated.rs` | the Rust packages |
//! | `map/ni.md` | people |
//! | `map/ni.canonical` | the checksum, and builders of a bitstream |
//! | `rtl/ni/ni_pkg.sv` | the network interface in SystemVerilog |
//!
//! `--check` writes nothing and fails if a committed file is out of date.

mod canonical;
mod contract;
mod manual;
mod rust;
mod verilog;

use std::fs;
use std::path::{Path, PathBuf};

use contract::{Contract, ContractError};

/// Options of `cargo xtask generate`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Write nothing; fail if a generated file is out of date.
    #[arg(long)]
    check: bool,
}

/// Reasons why the generator fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GenerateError {
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File { action: &'static str, path: PathBuf, source: std::io::Error },
    /// The map is not YAML of the expected shape.
    #[error("{}: {source}", path.display())]
    Syntax { path: PathBuf, source: serde_yaml::Error },
    /// The map contradicts itself.
    #[error("{}: {source}", path.display())]
    Contract { path: PathBuf, source: ContractError },
    /// `--check` found a difference.
    #[error("{} differs from map/ni.yaml: run `cargo xtask generate` and commit the result", path.display())]
    Stale { path: PathBuf },
}

/// Generated file: path relative to the workspace root, and content.
struct Output {
    path: &'static str,
    text: String,
}

const MAP: &str = "firmware-bindings/map/ni.yaml";

/// Runs the generator on the workspace at `root`.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), GenerateError> {
    for output in outputs(root)? {
        let path = root.join(output.path);
        // A missing file counts as different.
        let current = fs::read_to_string(&path).unwrap_or_default();
        if current == output.text {
            continue;
        }
        if options.check {
            return Err(GenerateError::Stale { path });
        }
        fs::write(&path, output.text).map_err(|source| GenerateError::File {
            action: "write",
            path: path.clone(),
            source,
        })?;
        println!("wrote {}", output.path);
    }
    Ok(())
}

fn outputs(root: &Path) -> Result<[Output; 4], GenerateError> {
    let path = root.join(MAP);
    let yaml = fs::read_to_string(&path).map_err(|source| GenerateError::File {
        action: "read",
        path: path.clone(),
        source,
    })?;
    let contract: Contract =
        serde_yaml::from_str(&yaml).map_err(|source| GenerateError::Syntax { path: path.clone(), source })?;
    contract.validate().map_err(|source| GenerateError::Contract { path, source })?;
    let canonical = canonical::text(&contract);
    let checksum = crc_fast::crc32_iscsi(canonical.as_bytes());
    Ok([
        Output { path: "firmware-bindings/src/generated.rs", text: rust::text(&contract, checksum) },
        Output { path: "firmware-bindings/map/ni.md", text: manual::text(&contract, checksum) },
        Output { path: "firmware-bindings/rtl/ni/ni_pkg.sv", text: verilog::text(&contract, checksum) },
        Output { path: "firmware-bindings/map/ni.canonical", text: canonical },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generate_committed_files_match_map() {
        run(&fpga_process::workspace_root(), &Options { check: true }).unwrap();
    }

    #[test]
    fn generate_check_refuses_stale_file() {
        let home = tempfile::tempdir().unwrap();
        let package = home.path().join("firmware-bindings");
        fs::create_dir_all(package.join("src")).unwrap();
        fs::create_dir_all(package.join("map")).unwrap();
        fs::create_dir_all(package.join("rtl/ni")).unwrap();
        fs::copy(fpga_process::workspace_root().join(MAP), home.path().join(MAP)).unwrap();
        let check = Options { check: true };
        assert!(matches!(run(home.path(), &check), Err(GenerateError::Stale { .. })));
        run(home.path(), &Options { check: false }).unwrap();
        run(home.path(), &check).unwrap();
        let manual = package.join("map/ni.md");
        let edited = fs::read_to_string(&manual).unwrap().replacen("NODE_ID", "NODE_IQ", 1);
        fs::write(&manual, edited).unwrap();
        assert!(matches!(run(home.path(), &check), Err(GenerateError::Stale { path }) if path == manual));
    }

    #[test]
    fn generate_checksum_ignores_doc_covers_offsets() {
        let yaml = fs::read_to_string(fpga_process::workspace_root().join(MAP)).unwrap();
        let canonical_of = |yaml: &str| canonical::text(&serde_yaml::from_str(yaml).unwrap());
        let original = canonical_of(&yaml);
        let reworded = yaml.replacen("doc: \"Sender.\"", "doc: \"Sending node.\"", 1);
        assert_ne!(reworded, yaml);
        assert_eq!(canonical_of(&reworded), original);
        let moved = yaml.replacen("NODE_ID, offset: 0x000", "NODE_ID, offset: 0x0f0", 1);
        assert_ne!(moved, yaml);
        assert_ne!(canonical_of(&moved), original);
    }

    #[test]
    fn array_register_with_fields_is_refused() {
        let yaml = fs::read_to_string(fpga_process::workspace_root().join(MAP)).unwrap();
        let plain = "{name: MASK, offset: 0x40, access: ro, count: 8,";
        let changed =
            yaml.replacen(plain, &format!("{plain} fields: [{{name: LOW, bits: 0, doc: Lowest.}}],"), 1);
        assert_ne!(changed, yaml);
        let contract: Contract = serde_yaml::from_str(&changed).unwrap();
        let refused = ContractError::OutsideBlock { what: "register registry.MASK".into() };
        assert_eq!(contract.validate(), Err(refused));
    }

    #[test]
    fn layout_member_named_as_inherited_one_is_refused() {
        let yaml = fs::read_to_string(fpga_process::workspace_root().join(MAP)).unwrap();
        let (layouts, packet) = yaml.split_once("  - name: link_inquiry\n").unwrap();
        let changed = packet.replacen("{name: NUMBER,", "{name: KIND,", 1);
        assert_ne!(changed, packet);
        let changed = format!("{layouts}  - name: link_inquiry\n{changed}");
        let contract: Contract = serde_yaml::from_str(&changed).unwrap();
        let refused = ContractError::Twice { what: "layout link_inquiry, member KIND".into() };
        assert_eq!(contract.validate(), Err(refused));
    }
}
