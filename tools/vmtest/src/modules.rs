//! Kernel modules for the guest: dependencies of modules, in load order.
//!
//! A package's own dependency list is created when it is installed, so it is not available here. Every module names its dependencies in its
//! section `.modinfo` (`depends=a,b`, see the kernel's include/linux/module.h).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cache::{CacheError, at};
use fpga_process::ToolError;

/// Reasons why modules could not be collected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ModuleError {
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] CacheError),
    /// It could not be decompressed.
    #[error("{}: {source}", path.display())]
    Compressed { path: PathBuf, source: ToolError },
    /// There is no module of this name.
    #[error("the kernel has no module {0}")]
    Unknown(String),
}

/// Module, ready to be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
}

/// Modules with these names below `folder`, each after its dependencies.
pub(crate) fn with_dependencies(folder: &Path, wanted: &[&str]) -> Result<Vec<Module>, ModuleError> {
    let mut files = BTreeMap::new();
    index(&folder.join("kernel"), &mut files)?;
    in_order(wanted, |name| {
        let path = files.get(name).ok_or_else(|| ModuleError::Unknown(name.to_owned()))?;
        read(path)
    })
}

/// Canonical name of a module: that of its file, with hyphens as underscores.
fn normal(name: &str) -> String {
    name.replace('-', "_")
}

fn index(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<(), ModuleError> {
    for entry in fs::read_dir(folder).map_err(at("list", folder))? {
        let path = entry.map_err(at("list", folder))?.path();
        if path.is_dir() {
            index(&path, files)?;
        } else if let Some((name, _)) =
            path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once(".ko"))
        {
            files.insert(normal(name), path);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, ModuleError> {
    let program = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return Ok(fs::read(path).map_err(at("read", path))?),
    };
    let failed = |source| ModuleError::Compressed { path: path.to_path_buf(), source };
    let output = Command::new(program)
        .arg("-dc")
        .arg(path)
        .output()
        .map_err(|source| failed(ToolError::Start { program: program.to_owned(), source }))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(failed(ToolError::Failed { program: program.to_owned(), status: output.status, said }))
}

/// Depth first. A module that is being visited is skipped, so that a cycle ends.
fn in_order(
    wanted: &[&str],
    mut read: impl FnMut(&str) -> Result<Vec<u8>, ModuleError>,
) -> Result<Vec<Module>, ModuleError> {
    enum Visit {
        Enter(String),
        Leave(Module),
    }
    let mut seen = Vec::new();
    let mut order = Vec::new();
    let mut stack: Vec<Visit> = wanted.iter().rev().map(|name| Visit::Enter(normal(name))).collect();
    while let Some(visit) = stack.pop() {
        match visit {
            Visit::Leave(module) => order.push(module),
            Visit::Enter(name) if seen.contains(&name) => {}
            Visit::Enter(name) => {
                let content = read(&name)?;
                let needed = dependencies(&content);
                seen.push(name.clone());
                stack.push(Visit::Leave(Module { name, content }));
                stack.extend(needed.into_iter().rev().map(Visit::Enter));
            }
        }
    }
    Ok(order)
}

/// Dependencies in a module's `.modinfo`.
fn dependencies(module: &[u8]) -> Vec<String> {
    // The section contains strings that end in NUL; nothing else in a module matches this one.
    let key = b"\0depends=";
    // The section may begin with this string.
    let start = module.windows(key.len()).position(|window| window == key).map(|at| at + key.len());
    let text = start.and_then(|start| module.get(start..)).unwrap_or_default();
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let names = String::from_utf8_lossy(text.get(..end).unwrap_or_default());
    names.split(',').filter(|name| !name.is_empty()).map(normal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(depends: &str) -> Vec<u8> {
        format!("\x7fELF..license=GPL\0depends={depends}\0name=x\0").into_bytes()
    }

    fn names(modules: &[Module]) -> Vec<&str> {
        modules.iter().map(|module| module.name.as_str()).collect()
    }

    #[test]
    fn modules_dependencies_come_first_and_once() {
        let read = |name: &str| match name {
            "vfio_pci" => Ok(module("vfio-pci-core,vfio")),
            "vfio_pci_core" => Ok(module("vfio,irqbypass")),
            "vfio" | "irqbypass" => Ok(module("")),
            "a" => Ok(module("b")),
            "b" => Ok(module("a")),
            other => Err(ModuleError::Unknown(other.to_owned())),
        };
        let order = in_order(&["vfio-pci", "vfio"], read).unwrap();
        assert_eq!(names(&order), ["vfio", "irqbypass", "vfio_pci_core", "vfio_pci"]);
        // A cycle cannot be loaded, and must not hang the test bed.
        assert_eq!(names(&in_order(&["a"], read).unwrap()), ["b", "a"]);
        let error = in_order(&["edu"], read).unwrap_err();
        assert_eq!(error.to_string(), "the kernel has no module edu");
    }

    #[test]
    fn modules_names_are_read_from_file() {
        assert_eq!(dependencies(&module("vfio-pci-core,vfio")), ["vfio_pci_core", "vfio"]);
        assert!(dependencies(&module("")).is_empty());
        assert!(dependencies(b"no such section").is_empty());
        assert_eq!(dependencies(b"\0depends=cut"), ["cut"]);
    }
}
