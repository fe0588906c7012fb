//! Cycles of files inside a package.
//!
//! A file may use its ancestors: a child module is a part of its parent. All other uses must point one way.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::GraphError;
use super::sources::Modules;

/// Names that each file takes from each other file.
type Uses = BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>;

/// Describes each cycle of files below the library or program that starts with the file `start`; paths are relative to `root`.
pub(super) fn of(root: &Path, start: &Path) -> Result<Vec<String>, GraphError> {
    let uses = uses(root, &Modules::read(start)?);
    let reached: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> =
        uses.keys().map(|file| (file, reachable(&uses, file))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (file, others) in &reached {
        let is_mutual = |other: &&&PathBuf| reached.get(**other).is_some_and(|back| back.contains(file));
        let cycle: BTreeSet<&PathBuf> = others.iter().filter(is_mutual).copied().collect();
        if !cycle.is_empty() && seen.insert(cycle.clone()) {
            found.push(description(&uses, &cycle));
        }
    }
    Ok(found)
}

fn uses(root: &Path, modules: &Modules) -> Uses {
    let mut uses = Uses::new();
    for (number, module) in modules.all.iter().enumerate() {
        let ancestors: BTreeSet<&Path> =
            std::iter::successors(Some(module), |below| modules.all.get(below.parent?))
                .map(|above| above.file.as_path())
                .collect();
        for path in &module.paths {
            let used = modules.definition(number, path).and_then(|used| modules.all.get(used));
            let Some(used) = used.filter(|used| !ancestors.contains(used.file.as_path())) else { continue };
            let relative = |file: &Path| file.strip_prefix(root).unwrap_or(file).to_owned();
            let names =
                uses.entry(relative(&module.file)).or_default().entry(relative(&used.file)).or_default();
            names.extend(path.last().cloned());
        }
    }
    uses
}

/// All files that `file` uses, directly or not; `file` itself is among them if it is in a cycle.
fn reachable<'a>(uses: &'a Uses, file: &'a PathBuf) -> BTreeSet<&'a PathBuf> {
    let mut seen = BTreeSet::new();
    let mut open = vec![file];
    while let Some(next) = open.pop() {
        open.extend(uses.get(next).into_iter().flat_map(BTreeMap::keys).filter(|used| seen.insert(*used)));
    }
    seen
}

fn description(uses: &Uses, cycle: &BTreeSet<&PathBuf>) -> String {
    let mut text = format!("{} files use each other in a cycle:", cycle.len());
    for (file, used) in uses.iter().filter(|(file, _)| cycle.contains(file)) {
        for (other, names) in used.iter().filter(|(other, _)| cycle.contains(other)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            // Writing to a string cannot fail.
            let _ = write!(text, "\n    {} -> {}: {}", file.display(), other.display(), names.join(", "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cycles of a package with these files in its source folder.
    fn cycles(files: &[(&str, &str)]) -> Vec<String> {
        let package = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = package.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        of(package.path(), &package.path().join("lib.rs")).unwrap()
    }

    #[test]
    fn cycle_of_siblings_is_found_with_names() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::{B, other as renamed};"),
            ("b.rs", "fn f() -> Vec<u8> { vec![super::a::make::<u8>()] }"),
            ("c.rs", "use crate::a::A;"),
        ]);
        let wanted = "2 files use each other in a cycle:\n    a.rs -> b.rs: B, other\n    b.rs -> a.rs: make";
        assert_eq!(found, [wanted]);
    }

    #[test]
    fn cycle_through_reexport_is_found() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b; pub use b::{inner::*, B};"),
            ("a.rs", "use crate::B; pub fn a() {}"),
            ("b/mod.rs", "pub mod inner; use crate::a; pub struct B; fn f() { a::a() }"),
            ("b/inner.rs", "pub fn name() {}"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found.iter().all(|cycle| cycle.contains("a.rs -> b/mod.rs: B")), "{found:?}");
        let found = cycles(&[
            ("lib.rs", "mod a; mod b; pub use b::*;"),
            ("a.rs", "fn f() { crate::name() }"),
            ("b.rs", "pub fn name() {} use crate::a;"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn cycle_of_parent_child_and_another_is_found() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "mod part; pub use part::Part; pub struct A;"),
            ("a/part.rs", "use crate::b::B; pub struct Part;"),
            ("b.rs", "use crate::a::A;"),
        ]);
        let [cycle] = found.as_slice() else { panic!("{found:?}") };
        assert!(cycle.starts_with("3 files") && cycle.contains("a.rs -> a/part.rs: Part"), "{cycle}");
    }

    #[test]
    fn cycle_of_parent_and_child_or_of_tests_is_allowed() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b; pub use a::part::Part; pub enum Kind { One }"),
            ("a.rs", "pub mod part { use super::A; use crate::Kind; pub struct Part; } pub struct A;"),
            ("a/other.rs", ""),
            (
                "b.rs",
                "mod below; use below::Below; use crate::a::A; #[cfg(test)] mod tests; \
                 #[cfg(test)] fn f() { crate::a::A } fn g() { #[cfg(test)] crate::a::A; std::mem::swap() }",
            ),
            ("b/below.rs", "use super::B; use crate::b; pub(in crate::b) struct Below;"),
            ("b/tests.rs", "use crate::a::A;"),
        ]);
        assert_eq!(found, [""; 0]);
        let found = cycles(&[
            ("lib.rs", "mod a; mod b;"),
            (
                "a.rs",
                "#[cfg(test)] use crate::b::B; pub struct A; #[cfg(test)] mod tests { use crate::b::B; }",
            ),
            ("b.rs", "use crate::a::A; pub struct B;"),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn cycle_unreadable_source_is_named() {
        let package = tempfile::tempdir().unwrap();
        let start = package.path().join("lib.rs");
        std::fs::write(&start, "mod missing;").unwrap();
        assert!(of(package.path(), &start).unwrap_err().to_string().contains("missing.rs"));
        std::fs::write(&start, "fn f( {").unwrap();
        assert!(of(package.path(), &start).unwrap_err().to_string().contains("lib.rs"));
    }
}
