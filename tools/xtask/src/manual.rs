//! `cargo xtask manual`: builds the manual as a book, with mdBook.
//!
//! Pages link to files beside them in the repository: tests, examples, register maps, other documents. These links have to work in the
//! HTML output, too. So mdBook runs on a copy of the linked part of the tree, in the same folders: documents become chapters, and mdBook
//! copies everything else unchanged. Afterwards every link of the finished pages is checked.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use fpga_process::{ToolError, on_path, output};

/// Folder of the manual.
const DOCS: &str = "docs";
/// List of its chapters.
const SUMMARY: &str = "SUMMARY.md";
/// Settings of mdBook.
const SETTINGS: &str = "book.toml";
/// First page of the manual, the only chapter that mdBook writes twice.
const OVERVIEW: &str = "README.md";

/// Options of `cargo xtask manual`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Output folder [default: target/manual]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Reasons why the manual cannot be built, or is wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManualError {
    /// mdBook is missing on this machine.
    #[error("mdbook is not installed: run `cargo install mdbook --no-default-features`")]
    NoMdbook,
    /// A program failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// Links of the manual have no target.
    #[error("broken links: {}", .0.join("; "))]
    Broken(Vec<String>),
}

impl ManualError {
    pub(crate) const fn exit_status(&self) -> u8 {
        // The exit status of a skipped task, as for a package.
        if matches!(self, Self::NoMdbook) { 3 } else { 1 }
    }
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> ManualError + '_ {
    move |source| ManualError::File { path: path.to_owned(), source }
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<(), ManualError> {
    let mdbook = on_path("mdbook").ok_or(ManualError::NoMdbook)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let out = options.out.clone().unwrap_or_else(|| target.join("manual"));
    let out = std::path::absolute(&out).map_err(at(&out))?;
    let stage = tempfile::tempdir().map_err(at(Path::new("a temporary folder")))?;
    let chapters = gather(root, stage.path())?;
    output(Command::new(mdbook).arg("build").arg("--dest-dir").arg(&out).arg(stage.path()))?;
    let broken = broken(&out)?;
    if !broken.is_empty() {
        return Err(ManualError::Broken(broken));
    }
    println!("{}: {chapters} chapters", out.join("index.html").display());
    Ok(())
}

/// Copies the manual, and the files it links to, from `root` to `stage`. Returns the number of chapters.
fn gather(root: &Path, stage: &Path) -> Result<usize, ManualError> {
    let read = |path: &Path| fs::read_to_string(root.join(path)).map_err(at(path));
    let docs = Path::new(DOCS);
    let summary = read(&docs.join(SUMMARY))?;
    let manual: BTreeSet<PathBuf> = links(&summary).map(|link| docs.join(link)).collect();
    let known = reached(root)?;
    known.iter().try_for_each(|path| copy(&root.join(path), &stage.join(path)))?;
    let mut text = format!("# Summary\n\n[Overview]({OVERVIEW})\n\n");
    // Titles stay; paths become relative to the root.
    for line in summary.lines().filter(|line| *line != "# Summary") {
        text += &line.replace("](", &format!("]({DOCS}/"));
        text.push('\n');
    }
    text += "\n# The project\n\n";
    let others =
        known.iter().filter(|path| is_page(path) && !manual.contains(*path) && *path != Path::new(OVERVIEW));
    for path in others {
        let page = read(path)?;
        let title = page.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or("Untitled");
        text += &format!("- [{title}]({})\n", path.display());
    }
    write(&stage.join(SUMMARY), &text)?;
    copy(&root.join(docs.join(SETTINGS)), &stage.join(SETTINGS))?;
    Ok(known.iter().filter(|path| is_page(path)).count())
}

/// Pages of the manual, the project's first page, and every file that they or linked pages link to.
pub(crate) fn reached(root: &Path) -> Result<BTreeSet<PathBuf>, ManualError> {
    let read = |path: &Path| fs::read_to_string(root.join(path)).map_err(at(path));
    let docs = Path::new(DOCS);
    let summary = read(&docs.join(SUMMARY))?;
    let chapters = links(&summary).map(|link| docs.join(link));
    let mut known: BTreeSet<PathBuf> = chapters.chain([OVERVIEW.into()]).collect();
    let mut open: Vec<PathBuf> = known.iter().cloned().collect();
    while let Some(path) = open.pop() {
        if !is_page(&path) {
            continue;
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        for link in links(&read(&path)?) {
            let Some(place) = resolved(&folder.join(link)) else { continue };
            if root.join(&place).is_file() && known.insert(place.clone()) {
                open.push(place);
            }
        }
    }
    Ok(known)
}

/// Links of the pages below `folder` to missing files.
pub(crate) fn lost(folder: &Path) -> Result<Vec<String>, ManualError> {
    let mut lost = Vec::new();
    let mut pages = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        let whole = folder.join(&below);
        for entry in fs::read_dir(&whole).map_err(at(&whole))?.flatten() {
            let path = below.join(entry.file_name());
            if folder.join(&path).is_dir() {
                folders.push(path);
            } else if is_page(&path) {
                pages.push(path);
            }
        }
    }
    for page in &pages {
        let text = fs::read_to_string(folder.join(page)).map_err(at(page))?;
        let beside = page.parent().unwrap_or(Path::new(""));
        let is_lost =
            |link: &&str| !resolved(&beside.join(link)).is_some_and(|place| folder.join(place).is_file());
        lost.extend(links(&text).filter(is_lost).map(|link| format!("{}: {link}", page.display())));
    }
    lost.sort();
    Ok(lost)
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// Links of a Markdown text to files, without the part after `#`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).filter_map(|(target, _)| {
        let file = target.split('#').next().unwrap_or_default();
        (!file.is_empty() && !file.contains("://") && !file.contains(' ')).then_some(file)
    })
}

/// Path without `..`; `None` if it leads out of the repository.
fn resolved(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir if plain.pop() => {}
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(plain)
}

/// Links of finished pages to missing files.
fn broken(book: &Path) -> Result<Vec<String>, ManualError> {
    let mut broken = Vec::new();
    let mut folders = vec![book.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(at(&folder))?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            // All pages in one, for printing: its links are those of the pages, relative to another folder.
            let name = path.file_name().unwrap_or_default();
            if path.extension().is_none_or(|extension| extension != "html")
                || name == "print.html"
                || name == "404.html"
            {
                continue;
            }
            let text = fs::read_to_string(&path).map_err(at(&path))?;
            for rest in text.split("href=\"").skip(1) {
                let target = rest.split('"').next().unwrap_or_default();
                let file = target.split('#').next().unwrap_or_default();
                if !file.is_empty() && !file.contains(':') && !folder.join(file).exists() {
                    broken.push(format!("{}: {target}", path.strip_prefix(book).unwrap_or(&path).display()));
                }
            }
        }
    }
    broken.sort();
    broken.dedup();
    Ok(broken)
}

fn above(path: &Path) -> Result<(), ManualError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    fs::create_dir_all(folder).map_err(at(folder))
}

fn write(path: &Path, text: &str) -> Result<(), ManualError> {
    above(path)?;
    fs::write(path, text).map_err(at(path))
}

fn copy(from: &Path, to: &Path) -> Result<(), ManualError> {
    above(to)?;
    fs::copy(from, to).map(drop).map_err(at(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manual_linked_files_are_copied() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let stage = tempfile::tempdir().unwrap();
        let chapters = gather(&root, stage.path()).unwrap();
        assert!(chapters > 12, "{chapters}");
        for file in
            ["book.toml", "docs/guide/complaints.md", "ARCHITECTURE.md", "examples/unit_test_your_app.rs"]
        {
            assert!(stage.path().join(file).is_file(), "{file}");
        }
        // Every page is a chapter, and no chapter is missing: mdBook would create an empty page for a missing one.
        let summary = fs::read_to_string(stage.path().join(SUMMARY)).unwrap();
        let listed: Vec<&str> = links(&summary).collect();
        assert_eq!(listed.len(), chapters, "{summary}");
        assert!(listed.iter().all(|page| stage.path().join(page).is_file()), "{summary}");
        // Broken links are reported relative to the listed page; the staged pages have none.
        assert_eq!(lost(stage.path()).unwrap(), Vec::<String>::new());
        fs::remove_file(stage.path().join("docs/guide/doctor.md")).unwrap();
        assert!(lost(stage.path()).unwrap().contains(&"docs/README.md: guide/doctor.md".to_owned()));
    }

    #[test]
    fn manual_paths_are_normalised() {
        for (path, plain) in [
            ("docs/../README.md", Some("README.md")),
            ("a/./b", Some("a/b")),
            ("docs/../../x", None),
            ("/etc", None),
        ] {
            assert_eq!(resolved(Path::new(path)).as_deref(), plain.map(Path::new), "{path}");
        }
    }
}
