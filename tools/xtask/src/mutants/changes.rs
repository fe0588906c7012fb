//! Mutants of the code that differs from a base revision.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::list::{List, Mutant};
use super::{MutantsError, Options, Selection, failure, present};

/// Tests the mutants of changed code, package by package. Returns the number of those that survive without a reason.
pub(super) fn test(root: &Path, options: &Options) -> Result<usize, MutantsError> {
    let base = match &options.base {
        Some(base) => base.clone(),
        None => branch_point(root)?,
    };
    let diff = git(
        root,
        &["diff", "--no-ext-diff", "--no-color", "--src-prefix=a/", "--dst-prefix=b/", &base, "--"],
    )?;
    let folder = root.join("target/mutants");
    let file = folder.join("changes.diff");
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&file, diff))
        .map_err(|source| MutantsError::File { path: file.clone(), source })?;
    let file = file.to_string_lossy();
    let changed = present(root, &["--in-diff", &file])?;
    println!("=== {} mutants of code that differs from {base}", changed.len());
    let lists = lists(root)?;
    let packages: BTreeSet<&str> = changed.iter().map(|mutant| mutant.package.as_str()).collect();
    let names: BTreeSet<&str> = changed.iter().map(|mutant| mutant.name.as_str()).collect();
    let mut differ = 0;
    for package in packages {
        // Of the whole package, because the lists number mutants of the same name.
        let all = present(root, &["--package", package])?;
        let reason = |mutant: &Mutant| lists.iter().find_map(|list| list.reason(mutant));
        let mutants = all
            .iter()
            .filter(|mutant| names.contains(mutant.name.as_str()))
            .map(|mutant| (mutant, reason(mutant)))
            .collect();
        let arguments = vec!["--in-diff".to_owned(), file.to_string()];
        differ += super::test(root, &Selection { name: package, package, mutants, arguments }, options)?;
    }
    Ok(differ)
}

/// All committed lists.
fn lists(root: &Path) -> Result<Vec<List>, MutantsError> {
    let folder = root.join("tests/mutants");
    let entries =
        std::fs::read_dir(&folder).map_err(|source| MutantsError::File { path: folder.clone(), source })?;
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let lists = paths.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    lists.map(|path| List::read(&path)).collect()
}

/// Commit where the code left the main branch.
fn branch_point(root: &Path) -> Result<String, MutantsError> {
    let upstream = git(root, &["rev-parse", "--verify", "--quiet", "origin/main"]).is_ok();
    let main = if upstream { "origin/main" } else { "main" };
    git(root, &["merge-base", "HEAD", main]).map(|commit| commit.trim().to_owned())
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, MutantsError> {
    let mut command = Command::new("git");
    fpga_process::output(command.current_dir(root).args(arguments))
        .map_err(|error| failure("git", &error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutants_committed_lists_are_read() {
        let lists = lists(&fpga_process::workspace_root()).unwrap();
        assert!(lists.iter().any(|list| list.mutants.iter().any(|listed| listed.survives.is_some())));
    }
}
