//! Picture of the packages in ARCHITECTURE.md, as a Mermaid flowchart.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::{GraphError, LAYERS, Metadata, Uses, reached_otherwise};

/// File with the picture.
const FILE: &str = "ARCHITECTURE.md";
/// Lines around the picture.
const BEGIN: &str = "<!-- cargo xtask graph --write -->\n";
const END: &str = "<!-- end of the picture -->\n";

/// Groups of packages, and those in them; the others are the product.
const GROUPS: [(&str, &[&str]); 3] = [
    ("product", &[]),
    ("research", &["fpga-netsim"]),
    ("tooling", &["fpga-process", "vmtest", "fpga-bench", "xtask", "fpga-tests", "fpga-ni-tests"]),
];

/// Returns the number of lines of Rust of each package. Packages in its folder are counted by themselves.
pub(super) fn lines(root: &Path, metadata: &Metadata) -> Result<BTreeMap<String, usize>, GraphError> {
    let folder = |path: &Path| path.parent().unwrap_or(root).to_owned();
    let folders: Vec<PathBuf> =
        metadata.packages.iter().map(|package| folder(&package.manifest_path)).collect();
    metadata
        .packages
        .iter()
        .zip(&folders)
        .map(|(package, folder)| Ok((package.name.clone(), lines_below(folder, &folders)?)))
        .collect()
}

fn lines_below(folder: &Path, others: &[PathBuf]) -> Result<usize, GraphError> {
    let unreadable = |file: &Path, error: std::io::Error| GraphError::Source {
        file: file.to_owned(),
        what: error.to_string(),
    };
    let mut count = 0;
    for entry in fs::read_dir(folder).map_err(|error| unreadable(folder, error))? {
        let path = entry.map_err(|error| unreadable(folder, error))?.path();
        if path.is_dir() {
            if !others.contains(&path) && !path.ends_with("target") {
                count += lines_below(&path, others)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            count += fs::read_to_string(&path).map_err(|error| unreadable(&path, error))?.lines().count();
        }
    }
    Ok(count)
}

/// Draws the packages in their groups, with thousands of lines, and the uses by their code. Uses that follow from others are left out.
pub(super) fn flowchart(graph: &BTreeMap<String, Uses>, lines: &BTreeMap<String, usize>) -> String {
    let group = |name: &str| GROUPS.iter().position(|(_, members)| members.contains(&name)).unwrap_or(0);
    let mut text = String::from("```mermaid\nflowchart BT\n");
    for (number, (title, _)) in GROUPS.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  subgraph {title}");
        for (name, _) in LAYERS.iter().filter(|(name, _)| group(name) == number) {
            let thousands = lines.get(*name).map_or(0, |count| count.div_ceil(1000));
            let _ = writeln!(text, "    {name}[\"{name}<br>{thousands}k\"]");
        }
        text.push_str("  end\n");
    }
    for (name, _) in LAYERS {
        let Some(uses) = graph.get(*name) else { continue };
        for (used, how) in uses.iter().filter(|(used, how)| !reached_otherwise(graph, uses, used, how)) {
            match *how {
                "" => drop(writeln!(text, "  {name} --> {used}")),
                "optional" => drop(writeln!(text, "  {name} -.-> {used}")),
                _ => {}
            }
        }
    }
    text.push_str("```\n");
    text
}

/// Compares the picture with that of the file, apart from numbers of lines, or writes it.
pub(super) fn compare(root: &Path, drawn: &str, write: bool) -> Result<(), GraphError> {
    let file = root.join(FILE);
    let source = |error: std::io::Error| GraphError::Source { file: file.clone(), what: error.to_string() };
    let text = fs::read_to_string(&file).map_err(source)?;
    let (before, rest) = text.split_once(BEGIN).ok_or(GraphError::Picture)?;
    let (found, after) = rest.split_once(END).ok_or(GraphError::Picture)?;
    if write {
        return fs::write(&file, [before, BEGIN, drawn, END, after].concat()).map_err(source);
    }
    let shape = |picture: &str| picture.replace(|letter: char| letter.is_ascii_digit(), "");
    if shape(found) == shape(drawn) { Ok(()) } else { Err(GraphError::Picture) }
}
