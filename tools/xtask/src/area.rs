//! `cargo xtask area`: what the modules of the network interface need on an FPGA, by Yosys.
//!
//! Each variant is synthesised for a family of the vendor; the netlist is read back, its cells are counted, and the longest path is
//! measured in LUTs between registers, memories and ports (multiplexers and carry chains behind a LUT count as none). No placement: the
//! numbers compare variants, and show whether one fits a device; they are no clock rates.

mod netlist;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use netlist::{Area, NetlistError};

/// Options of `cargo xtask area`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Folder for ni-area.csv
    #[arg(long, value_name = "DIR", default_value = "docs/guide/figures")]
    out: PathBuf,
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

/// Synthesises the variants, prints a table and writes it as CSV.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), AreaError> {
    let mut table = "variant,family,lut,ff,lut_ram,bram36,dsp,levels\n".to_owned();
    for variant in variants().iter().filter(|variant| variant.name.contains(&options.only)) {
        for family in &options.family {
            let Area { luts, flip_flops, lut_rams, half_block_rams, dsps, levels } =
                synthesise(root, variant, family)?;
            let blocks = half_block_rams.div_ceil(2);
            let line =
                format!("{},{family},{luts},{flip_flops},{lut_rams},{blocks},{dsps},{levels}", variant.name);
            println!("{line}");
            // Writing to a String cannot fail.
            let _ = writeln!(table, "{line}");
        }
    }
    let path = root.join(&options.out).join("ni-area.csv");
    std::fs::write(&path, table).map_err(|source| AreaError::File { path, source })
}

fn synthesise(root: &Path, variant: &Variant, family: &str) -> Result<Area, AreaError> {
    let folder = root.join("target/area");
    let file = |path: &Path| {
        let path = path.to_owned();
        move |source| AreaError::File { path, source }
    };
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
        variant.parameters.iter().map(|(name, value)| format!("-chparam {name} {value}")).collect();
    let script = format!(
        "read_verilog -sv {}; hierarchy -top {top} {}; synth_xilinx -family {family} -noiopad -noclkbuf -flatten -top {top}; \
         check -assert; write_json {}",
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
