//! `cargo xtask area`: what the modules of the network interface need on an FPGA, by Yosys.
//!
//! Each variant is synthesised for a family of the vendor; the netlist is read back, its cells are counted, and the longest path is
//! measured in LUTs between registers, memories and ports (multiplexers and carry chains behind a LUT count as none). No placement: the
//! numbers compare variants, and show whether one fits a device; they are no clock rates.
//!
//! The rows of measured variants replace those in `docs/guide/figures/ni-area.csv`; the table of `docs/guide/figures.md` and the picture
//! `ni-area.svg` follow from the file.

mod netlist;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use netlist::{Area, NetlistError};

/// Options of `cargo xtask area`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Write ni-area.csv to this folder, and leave the documents as they are
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write table and picture from ni-area.csv, without synthesis
    #[arg(long)]
    reuse: bool,
    /// Variants whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Families of devices, as Yosys names them: xcup is UltraScale+, xc7 the 7 series
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "xcup,xc7")]
    family: Vec<String>,
}

/// Reasons why the task fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AreaError {
    /// Yosys could not be started.
    #[error("yosys: {0}: install it (Debian: apt-get install yosys)")]
    Start(std::io::Error),
    /// Yosys refuses the design.
    #[error("yosys, {variant}: {output}")]
    Refused { variant: String, output: String },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// The netlist is not as expected.
    #[error("{variant}: {source}")]
    Netlist { variant: String, source: NetlistError },
    /// The document has no table for the numbers.
    #[error("{}: no line {BEGIN:?} with a line {END:?} below it", .0.display())]
    NoTable(PathBuf),
    /// The program that draws failed.
    #[error(transparent)]
    Draw(#[from] fpga_process::ToolError),
}

/// A module with parameters.
struct Variant {
    name: String,
    top: &'static str,
    parameters: Vec<(&'static str, u64)>,
}

/// Registry entries, and bits of a mask.
const SIZES: [(u64, u64); 7] = [(16, 32), (64, 32), (64, 64), (64, 128), (64, 256), (256, 32), (1024, 32)];

fn variants() -> Vec<Variant> {
    let of = |top: &'static str, hashed: Option<bool>, (entries, mask)| {
        let kind = hashed.map_or("", |hashed| if hashed { "-hashed" } else { "-compared" });
        let sizes = [("ENTRIES", entries), ("MASK_BITS", mask)];
        let hashed = hashed.map(|hashed| ("HASHED", u64::from(hashed)));
        Variant {
            name: format!("{top}{kind}-{entries}-{mask}"),
            top,
            parameters: sizes.into_iter().chain(hashed).collect(),
        }
    };
    ["ni_registry", "ni_receive"]
        .into_iter()
        .flat_map(|top| [false, true].map(|hashed| (top, hashed)))
        .flat_map(|(top, hashed)| SIZES.map(|sizes| of(top, Some(hashed), sizes)))
        .chain([of("fpga_ni", None, (64, 32))])
        .collect()
}

/// Synthesises the variants, prints their rows, and writes CSV, table and picture.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), AreaError> {
    let folder = root.join(options.out.as_deref().unwrap_or(Path::new("docs/guide/figures")));
    let path = folder.join("ni-area.csv");
    let mut rows = std::fs::read_to_string(&path).map_or_else(|_| BTreeMap::new(), |text| rows_of(&text));
    let measured = variants().into_iter().filter(|variant| variant.name.contains(&options.only));
    for variant in measured.filter(|_| !options.reuse) {
        for family in &options.family {
            let Area { luts, flip_flops, lut_rams, half_block_rams, dsps, levels } =
                synthesise(root, &variant, family)?;
            let blocks = half_block_rams.div_ceil(2);
            let numbers = format!("{luts},{flip_flops},{lut_rams},{blocks},{dsps},{levels}");
            println!("{},{family},{numbers}", variant.name);
            rows.insert((variant.name.clone(), family.clone()), numbers);
            // After each one: a synthesis takes minutes.
            std::fs::write(&path, csv(&rows)).map_err(file(&path))?;
        }
    }
    if options.out.is_some() {
        return Ok(());
    }
    // Rows that were added by hand are put in order.
    std::fs::write(&path, csv(&rows)).map_err(file(&path))?;
    let document = root.join("docs/guide/figures.md");
    let text = std::fs::read_to_string(&document).map_err(file(&document))?;
    let text = with_table(&text, &table(&rows)).ok_or_else(|| AreaError::NoTable(document.clone()))?;
    std::fs::write(&document, text).map_err(file(&document))?;
    let mut draw = Command::new(env!("CARGO"));
    draw.current_dir(root).args(["run", "--quiet", "-p", "fpga-netsim", "--bin", "area_figure", "--"]);
    fpga_process::output(draw.arg(&path).arg(folder.join("ni-area.svg")))?;
    Ok(())
}

/// Numbers by variant and family.
type Rows = BTreeMap<(String, String), String>;

const HEADER: &str = "variant,family,lut,ff,lut_ram,bram36,dsp,levels\n";

/// Lines around the table of the document.
const BEGIN: &str = "<!-- cargo xtask area -->";
const END: &str = "<!-- end of the table -->";

fn rows_of(csv: &str) -> Rows {
    let row = |line: &str| {
        let (variant, rest) = line.split_once(',')?;
        let (family, numbers) = rest.split_once(',')?;
        Some(((variant.to_owned(), family.to_owned()), numbers.to_owned()))
    };
    csv.lines().skip(1).filter_map(row).collect()
}

/// Rows in the order of the variants.
fn csv(rows: &Rows) -> String {
    let mut text = HEADER.to_owned();
    for variant in variants() {
        for ((name, family), numbers) in rows.iter().filter(|((name, _), _)| *name == variant.name) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name},{family},{numbers}");
        }
    }
    text
}

/// Table with a row per variant.
fn table(rows: &Rows) -> String {
    let mut text = String::from(
        "| Module, keys, entries, mask | xcup: LUT | LUT as memory | FF | BRAM | levels | xc7: LUT | LUT as memory | FF | BRAM | levels |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for variant in variants() {
        let _ = write!(text, "| {} |", variant.name.replace('-', ", "));
        for family in ["xcup", "xc7"] {
            let numbers = rows.get(&(variant.name.clone(), family.to_owned()));
            let numbers: Vec<&str> = numbers.map_or_else(Vec::new, |row| row.split(',').collect());
            // DSP blocks are in the text: only the hashed registry has some.
            for column in [0, 2, 1, 3, 5] {
                let _ = write!(text, " {} |", numbers.get(column).unwrap_or(&"-"));
            }
        }
        text.push('\n');
    }
    text
}

/// The document with another table; `None` if it has none.
fn with_table(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

fn file(path: &Path) -> impl FnOnce(std::io::Error) -> AreaError {
    let path = path.to_owned();
    move |source| AreaError::File { path, source }
}

fn synthesise(root: &Path, variant: &Variant, family: &str) -> Result<Area, AreaError> {
    let folder = root.join("target/area");
    std::fs::create_dir_all(&folder).map_err(file(&folder))?;
    let json = folder.join(format!("{}-{family}.json", variant.name));
    let sources = root.join("firmware-bindings/rtl/ni");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&sources)
        .map_err(file(&sources))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sv"))
        .collect();
    files.sort_by_key(|path| (!path.ends_with("ni_pkg.sv"), path.clone()));
    let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    let set: Vec<String> =
        variant.parameters.iter().map(|(name, value)| format!("-set {name} {value}")).collect();
    let script = format!(
        "read_verilog -sv {}; chparam {} {top}; synth_xilinx -family {family} -noiopad -noclkbuf -flatten -top {top}; \
         check -assert; rename -top {top}; write_json {}",
        files.join(" "),
        set.join(" "),
        json.display(),
        top = variant.top,
    );
    let output = Command::new("yosys").args(["-q", "-p", &script]).output().map_err(AreaError::Start)?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        return Err(AreaError::Refused { variant: variant.name.clone(), output: text });
    }
    let text = std::fs::read_to_string(&json).map_err(file(&json))?;
    let netlist = |source| AreaError::Netlist { variant: variant.name.clone(), source };
    netlist::measure(&text, variant.top).map_err(netlist)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_rows_replace_those_of_file_and_table() {
        let mut rows = rows_of("variant,...\nni_registry-hashed-64-32,xcup,1,2,3,4,5,6\nother,xc7,1\n");
        rows.insert(("ni_registry-hashed-64-32".to_owned(), "xc7".to_owned()), "7,8,9,10,11,12".to_owned());
        let name = "ni_registry-hashed-64-32";
        assert_eq!(csv(&rows), format!("{HEADER}{name},xc7,7,8,9,10,11,12\n{name},xcup,1,2,3,4,5,6\n"));
        let row = "| ni_registry, hashed, 64, 32 | 1 | 3 | 2 | 4 | 6 | 7 | 9 | 8 | 10 | 12 |\n";
        let document = with_table(&format!("a\n{BEGIN}\nold\n{END}\nb\n"), &table(&rows)).unwrap();
        assert!(
            document.starts_with("a\n") && document.ends_with("|\n<!-- end of the table -->\nb\n"),
            "{document}"
        );
        assert!(document.contains(row) && !document.contains("old"), "{document}");
        assert!(document.contains("| ni_registry, compared, 16, 32 | - |"), "{document}");
    }
}
