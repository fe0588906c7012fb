//! Unsafe code outside the packages that may have it (ADR 1).
//!
//! The lint `unsafe_code` of the workspace denies it; this check finds files that lift the lint, and files that are not compiled.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};

use super::GraphError;

/// Packages with unsafe code: the one towards the device, and boundaries to foreign languages and programs, of which the last one is a
/// caller of the C interface.
const BOUNDARIES: [&str; 7] =
    ["fpga-pci", "fpga-c", "fpga-python", "fpga-libfabric", "fpga-rtl", "xdma-compat", "fpga-fuzz"];

/// Describes each file below `root` with unsafe code that is not in one of [`BOUNDARIES`], and each boundary that needs none or that
/// CONTRIBUTING.md does not name.
pub(super) fn violations(root: &Path) -> Result<Vec<String>, GraphError> {
    let (mut needed, mut wrong) = (BTreeSet::new(), Vec::new());
    visit(root, "none", &mut |package, file| {
        let text = read(file)?;
        // Tokens are slow.
        if !text.contains("unsafe") {
            return Ok(());
        }
        let tokens: TokenStream = text.parse().map_err(|error: proc_macro2::LexError| {
            GraphError::Source { file: file.to_owned(), what: error.to_string() }
        })?;
        if is_unsafe(tokens) {
            match BOUNDARIES.iter().find(|boundary| **boundary == package) {
                Some(boundary) => _ = needed.insert(*boundary),
                None => {
                    let file = file.strip_prefix(root).unwrap_or(file);
                    wrong.push(format!("{}: unsafe code in package {package}", file.display()));
                }
            }
        }
        Ok(())
    })?;
    wrong.extend(
        BOUNDARIES
            .iter()
            .filter(|name| !needed.contains(*name))
            .map(|name| format!("{name}: no unsafe code")),
    );
    let listed = BOUNDARIES.map(|name| format!("`{name}`")).join(", ");
    if !read(&root.join("CONTRIBUTING.md"))?.contains(&listed) {
        wrong.push(format!("CONTRIBUTING.md: the packages with unsafe code are {listed}"));
    }
    Ok(wrong)
}

/// Calls `check` with each source file in `folder`, and with the name of its package; `package` is that of the folder above.
fn visit(
    folder: &Path,
    package: &str,
    check: &mut dyn FnMut(&str, &Path) -> Result<(), GraphError>,
) -> Result<(), GraphError> {
    let manifest = folder.join("Cargo.toml");
    let own = if manifest.is_file() { package_name(&read(&manifest)?) } else { None };
    let package = own.as_deref().unwrap_or(package);
    let failed = |error: io::Error| GraphError::Source { file: folder.to_owned(), what: error.to_string() };
    let entries =
        std::fs::read_dir(folder).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let mut paths: Vec<PathBuf> = entries.iter().map(std::fs::DirEntry::path).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            visit(&path, package, check)?;
        } else if path.is_file() && name.ends_with(".rs") {
            check(package, &path)?;
        }
    }
    Ok(())
}

fn read(file: &Path) -> Result<String, GraphError> {
    std::fs::read_to_string(file)
        .map_err(|error| GraphError::Source { file: file.to_owned(), what: error.to_string() })
}

/// Name of the package of a manifest; `None` for one of a workspace alone.
fn package_name(manifest: &str) -> Option<String> {
    let (_, package) = manifest.split_once("[package]")?;
    let value = package.lines().find_map(|line| line.strip_prefix("name = "))?;
    Some(value.trim_matches('"').to_owned())
}

fn is_unsafe(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == "unsafe",
        TokenTree::Group(group) => is_unsafe(group.stream()),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_code_outside_of_boundary_is_found() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = root.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        let listed = BOUNDARIES.map(|name| format!("`{name}`")).join(", ");
        write("CONTRIBUTING.md", &listed);
        for name in BOUNDARIES {
            write(&format!("{name}/Cargo.toml"), &format!("[package]\nname = \"{name}\"\n"));
            write(&format!("{name}/lib.rs"), "#[unsafe(no_mangle)] fn f() {}");
        }
        write("fpga-pci/above/Cargo.toml", "[lib]\n[package]\nname = \"above\"");
        write("fpga-pci/above/src/lib.rs", "// unsafe {}\n fn f() -> &'static str { \"unsafe\" }");
        assert_eq!(violations(root.path()).unwrap(), [""; 0]);
        write("fpga-pci/above/src/lib.rs", "fn f() { g(unsafe { 0 }) }");
        write("fpga-c/lib.rs", "");
        write("CONTRIBUTING.md", "`fpga-pci`");
        assert_eq!(
            violations(root.path()).unwrap(),
            [
                "fpga-pci/above/src/lib.rs: unsafe code in package above".to_owned(),
                "fpga-c: no unsafe code".to_owned(),
                format!("CONTRIBUTING.md: the packages with unsafe code are {listed}"),
            ]
        );
    }
}
