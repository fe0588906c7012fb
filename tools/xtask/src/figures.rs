//! `cargo xtask figures`: writes the numbers of the network simulator into the tables of documents, or compares them.
//!
//! A table below a comment `<!-- figures: KIND ARGUMENT... -->` quotes results. Comment, column header and first cells of a row select a value
//! ([`cells`]). Written by hand are first columns, other labels, columns with a header in italics, and cells with `-`. The comparison is that of texts: the same seeds give the same results.

mod cells;
mod results;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use fpga_process::ToolError;

use cells::Cell;
use results::Results;

/// Documents with such tables.
const DOCUMENTS: [&str; 3] =
    ["docs/guide/figures.md", "docs/guide/which-scheme.md", "docs/guide/many-paths.md"];

/// Files of the simulator that the repository contains, below `docs/guide/figures`.
const FILES: [&str; 2] = ["grid.csv", "grid.svg"];

/// Options of `cargo xtask figures`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Compare the documents with the simulator instead of writing them
    #[arg(long)]
    check: bool,
    /// Use results that an earlier call left in target/figures, instead of simulating again
    #[arg(long)]
    reuse: bool,
}

/// Reasons why the task fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FiguresError {
    /// A file could not be used.
    #[error("{}: {source}", path.display())]
    Path { path: PathBuf, source: std::io::Error },
    /// A program failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The output of fpgactl has another form.
    #[error("output of fpgactl {command}: {source}")]
    Output { command: String, source: serde_json::Error },
    /// A cell has no value.
    #[error("{document}:{line}: column \"{column}\": {source}")]
    Cell { document: &'static str, line: usize, column: String, source: Box<FiguresError> },
    /// A result is missing.
    #[error("{0}")]
    Value(String),
    /// Documents quote other numbers.
    #[error("{}documents differ from the simulator: run cargo xtask figures, and check the sentences beside the tables", .0)]
    Stale(String),
}

/// Writes or compares the documents.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), FiguresError> {
    let results = Results::new(root, options.reuse)?;
    let mut differences = String::new();
    for document in DOCUMENTS {
        let path = root.join(document);
        let text = std::fs::read_to_string(&path).map_err(at(&path))?;
        let computed = computed(document, &text, &mut |cell| cells::value(&results, cell))?;
        for (number, (old, new)) in
            (1..).zip(text.lines().zip(computed.lines())).filter(|(_, (old, new))| old != new)
        {
            let _ = writeln!(differences, "{document}:{number}: {old}\n  simulator: {new}");
        }
        if !options.check {
            std::fs::write(&path, computed).map_err(at(&path))?;
        }
    }
    for file in FILES {
        let path = root.join("docs/guide/figures").join(file);
        let (old, new) = (std::fs::read(&path).map_err(at(&path))?, results.grid_file(file)?);
        if old != new {
            let _ = writeln!(differences, "{}: the simulator writes another file", path.display());
        }
        if !options.check {
            std::fs::write(&path, new).map_err(at(&path))?;
        }
    }
    if options.check && !differences.is_empty() {
        return Err(FiguresError::Stale(differences));
    }
    print!("{differences}");
    Ok(())
}

/// Values of a table cell; `Ok(None)`: the cell is written by hand.
type Values<'a> = dyn FnMut(&Cell<'_>) -> Result<Option<String>, FiguresError> + 'a;

/// Text of a document with the values of its tables.
fn computed(document: &'static str, text: &str, values: &mut Values<'_>) -> Result<String, FiguresError> {
    let (mut out, mut table) = (String::new(), None::<(Vec<&str>, Vec<&str>)>);
    let (mut scenario, mut in_scenario) = (String::new(), false);
    for (number, line) in (1..).zip(text.lines()) {
        match line {
            "```yaml" => (scenario, in_scenario) = (String::new(), true),
            "```" => in_scenario = false,
            _ if in_scenario => scenario.extend([line, "\n"]),
            _ => {}
        }
        if let Some(comment) = line.strip_prefix("<!-- figures: ") {
            table = Some((comment.trim_end_matches(" -->").split(' ').collect(), Vec::new()));
        } else if line.is_empty() {
            table = None;
        }
        let cells: Option<Vec<&str>> = line
            .strip_prefix("| ")
            .and_then(|row| row.strip_suffix(" |"))
            .map(|row| row.split(" | ").collect());
        match (&mut table, cells) {
            (Some((_, header)), Some(cells)) if header.is_empty() => *header = cells,
            (Some((kind, header)), Some(row)) => {
                let mut new = Vec::new();
                for (position, (old, column)) in row.iter().zip(header.iter()).enumerate() {
                    let value = if position == 0 || column.starts_with('*') || *old == "-" {
                        Ok(None)
                    } else {
                        values(&Cell { kind, scenario: &scenario, header, column, row: &row })
                    };
                    let value = value.map_err(|source| FiguresError::Cell {
                        document,
                        line: number,
                        column: (*column).to_owned(),
                        source: Box::new(source),
                    })?;
                    new.push(value.unwrap_or_else(|| (*old).to_owned()));
                }
                let _ = writeln!(out, "| {} |", new.join(" | "));
                continue;
            }
            _ => {}
        }
        let _ = writeln!(out, "{line}");
    }
    Ok(out)
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> FiguresError {
    move |source| FiguresError::Path { path: path.to_path_buf(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_table_below_comment_is_computed() {
        let text = "a\n\n<!-- figures: grid x -->\n| Size | b | *c* |\n|---|---|---|\n| 1 | 2 | 3 |\n\n| c |\n|---|\n| 4 |\n";
        let mut seen = Vec::new();
        let out = computed("docs/guide/figures.md", text, &mut |cell| {
            seen.push((cell.kind.join(" "), cell.column.to_owned(), cell.row.join(" ")));
            Ok(Some("5".to_owned()))
        });
        assert_eq!(out.unwrap(), text.replace('2', "5"));
        assert_eq!(seen, [("grid x".to_owned(), "b".to_owned(), "1 2 3".to_owned())]);
    }

    #[test]
    fn figures_unknown_value_names_line_and_column() {
        let text = "<!-- figures: x -->\n| a | b |\n|---|---|\n| c | 1 |\n";
        let error =
            computed("docs/guide/figures.md", text, &mut |_| Err(FiguresError::Value("no line".to_owned())))
                .unwrap_err();
        assert_eq!(error.to_string(), "docs/guide/figures.md:4: column \"b\": no line");
    }
}
