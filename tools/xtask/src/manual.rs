//! `cargo xtask manual`: the manual as a book, by mdBook.
//!
//! Pages link to what lies beside them in the repository: tests, examples, register maps, other documents. In a book these links have to
//! lead somewhere, too. So the book is made of a copy of that part of the tree which the pages link to, in the folders where it lies:
//! documents become chapters, and mdBook copies everything else as it is. Afterwards every link of the finished pages is followed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::child::{ToolError, on_path, output};

/// The manual's folder.
const DOCS: &str = "docs";
/// The list of its chapters.
const SUMMARY: &str = "SUMMARY.md";
/// What mdBook is told.
const SETTINGS: &str = "book.toml";
/// The book begins with this, which is the only chapter that mdBook writes twice.
const OVERVIEW: &str = "README.md";

/// What the task takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Where the book is put [default: target/manual]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Why there is no book, or why it is no good.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManualError {
    /// This machine cannot do it.
    #[error("mdbook is not there: cargo install mdbook --no-default-features")]
    NoMdbook,
    /// A program failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A file.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// Links of the book that lead nowhere.
    #[error("links that lead nowhere: {}", .0.join("; "))]
    Broken(Vec<String>),
}

impl ManualError {
    pub(crate) const fn exit_status(&self) -> u8 {
        // As of a package: neither good nor bad.
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

/// Copies the manual, and what it links to, from `root` to `stage`. Returns how many chapters there are.
fn gather(root: &Path, stage: &Path) -> Result<usize, ManualError> {
    let read = |path: &Path| fs::read_to_string(root.join(path)).map_err(at(path));
    let docs = Path::new(DOCS);
    let summary = read(&docs.join(SUMMARY))?;
    let manual: BTreeSet<PathBuf> = links(&summary).map(|link| docs.join(link)).collect();
    let known = reached(root)?;
    known.iter().try_for_each(|path| copy(&root.join(path), &stage.join(path)))?;
    let mut text = format!("# Summary\n\n[Overview]({OVERVIEW})\n\n");
    // Titles stay; places are seen from above.
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

/// The pages of the manual, the project's first one, and every file that they link to or pages among those do.
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

/// Links of the pages below `folder` that lead to no file there.
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

/// Links of a text in Markdown to files, without the part behind `#`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).filter_map(|(target, _)| {
        let file = target.split('#').next().unwrap_or_default();
        (!file.is_empty() && !file.contains("://") && !file.contains(' ')).then_some(file)
    })
}

/// A path without `..`; `None` if it leads out of the repository.
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

/// Links of finished pages to files that are not there.
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
            // All pages in one, for printing: its links are those of the pages, seen from elsewhere.
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
        for file in ["book.toml", "docs/complaints.md", "ARCHITECTURE.md", "examples/unit_test_your_app.rs"] {
            assert!(stage.path().join(file).is_file(), "{file}");
        }
        // Every page is a chapter, and no chapter is missing: mdBook would make an empty one of it.
        let summary = fs::read_to_string(stage.path().join(SUMMARY)).unwrap();
        let listed: Vec<&str> = links(&summary).collect();
        assert_eq!(listed.len(), chapters, "{summary}");
        assert!(listed.iter().all(|page| stage.path().join(page).is_file()), "{summary}");
        // What is listed is told from where it lies; the pages themselves lose nothing.
        assert_eq!(lost(stage.path()).unwrap(), Vec::<String>::new());
        fs::remove_file(stage.path().join("docs/doctor.md")).unwrap();
        assert!(lost(stage.path()).unwrap().contains(&"docs/README.md: doctor.md".to_owned()));
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
