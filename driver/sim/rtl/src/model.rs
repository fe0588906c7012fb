//! Models of a user's top level: building them with Verilator.
//!
//! A model is a folder: the program of the simulator (`obj/simulation`), the source of `fpga_xdma` and, if the card has a description,
//! `card.yaml`.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness;
pub use crate::harness::HarnessError;
use crate::trace::{TRIGGERS, Trigger};
pub use crate::widths::WrongWidth;
use crate::widths::wrong_widths;

/// SystemVerilog source of `fpga_xdma`.
pub const XDMA: &str = include_str!("../../../../firmware-bindings/rtl/xdma/fpga_xdma.sv");

/// SystemVerilog source of `fpga_replay`, for other simulators.
const REPLAY: &str = include_str!("../../../../firmware-bindings/rtl/xdma/fpga_replay.sv");

/// SystemVerilog source of `fpga_cdma`.
const CDMA: &str = include_str!("../../../../firmware-bindings/rtl/cdma/fpga_cdma.sv");

/// SystemVerilog source of `fpga_network`.
const NETWORK: &str = include_str!("../../../../firmware-bindings/rtl/network/fpga_network.sv");

/// Oldest version of Verilator that is known to work.
const OLDEST: (u32, u32) = (5, 6);
/// Name of the static library of this package.
const LIBRARY: &str = "libfpga_rtl.a";
/// File whose presence tells that a model can write a waveform.
const TRACED: &str = "traced";
/// Maximum number of lines of Verilator's output in an error.
const LINES: usize = 40;

/// Parts of a model, and how to build it.
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    /// SystemVerilog and Verilog sources of the design. The modules `fpga_xdma`, `fpga_cdma` and `fpga_network` are found if they are not among them.
    pub sources: Vec<PathBuf>,
    /// Top module. It has no inputs, except with `harness`. `None`: Verilator chooses it.
    pub top: Option<String>,
    /// Description of the card.
    pub card: Option<PathBuf>,
    /// Build in support for waveforms, which makes the model slower.
    pub trace: bool,
    /// Drive the inputs of the top module: clocks run, resets are inactive, others are 0.
    pub harness: bool,
    /// Further arguments of Verilator.
    pub arguments: Vec<String>,
}

/// Reasons why a model is not built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// Verilator cannot be run.
    #[error("{program} cannot be run: {source}")]
    NoVerilator {
        /// Program.
        program: String,
        /// System error.
        r#source: io::Error,
    },
    /// This version of Verilator is too old.
    #[error("{found} is too old")]
    OldVerilator {
        /// Its own description.
        found: String,
    },
    /// The DPI-C library was not found.
    #[error("{LIBRARY} was not found in {searched}")]
    NoLibrary {
        /// Folders.
        searched: String,
    },
    /// Verilator refused the sources, or its output did not compile.
    #[error("verilator failed:\n{}", output.trim_end_matches('\n'))]
    Refused {
        /// Last lines of its output.
        output: String,
    },
    /// A signal has another width than the port of the XDMA at which it is, and data would be lost.
    #[error("{}", shown(wrong))]
    Widths {
        /// Signals.
        wrong: Vec<WrongWidth>,
    },
    /// The inputs of the top module cannot be driven.
    #[error(transparent)]
    Harness(#[from] crate::harness::HarnessError),
    /// A file cannot be used.
    #[error("{}: cannot {action}: {source}", path.display())]
    File {
        /// Path.
        path: PathBuf,
        /// Intended action.
        action: &'static str,
        /// System error.
        r#source: io::Error,
    },
}

impl ModelError {
    /// Returns what to do about it.
    #[must_use]
    pub fn help(&self) -> Option<Cow<'static, str>> {
        let (major, minor) = OLDEST;
        Some(match self {
            Self::NoVerilator { .. } => format!("install Verilator {major}.{minor:03} or newer (Debian, Ubuntu: apt-get install verilator), or set VERILATOR to its path").into(),
            Self::OldVerilator { .. } => {
                format!("install Verilator {major}.{minor:03} or newer, or set VERILATOR to its path").into()
            }
            Self::NoLibrary { .. } => "build it (cargo build --release -p fpga-rtl), and set FPGA_RTL_LIBRARY to its path".into(),
            Self::Refused { .. } => "correct the sources; Verilator's manual explains each message".into(),
            Self::Widths { .. } => "give the signals the widths of the ports; the parameters DATA_WIDTH and ID_WIDTH of fpga_xdma, or xdma.data_width in the card description, set the latter".into(),
            Self::Harness(error) => error.help().into(),
            Self::File { .. } => return None,
        })
    }
}

fn shown(wrong: &[WrongWidth]) -> String {
    wrong.iter().map(WrongWidth::to_string).collect::<Vec<_>>().join("\n")
}

fn file_error(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> ModelError {
    let path = path.to_owned();
    move |source| ModelError::File { path, action, source }
}

/// Builds the model of `options` in `folder`.
///
/// # Errors
/// [`ModelError`].
pub fn build(folder: &Path, options: &ModelOptions) -> Result<(), ModelError> {
    let verilator = verilator()?;
    let library = library()?;
    std::fs::create_dir_all(folder).map_err(file_error(folder, "create it"))?;
    let card = folder.join("card.yaml");
    match &options.card {
        Some(file) => drop(std::fs::copy(file, &card).map_err(file_error(file, "copy it"))?),
        None => remove(&card)?,
    }
    let traced = folder.join(TRACED);
    remove(&traced)?;
    let mut command = Command::new(verilator);
    use_compiler_cache(&mut command);
    command.args([
        "--binary",
        "--timing",
        "-O3",
        "--x-assign",
        "fast",
        "--x-initial",
        "fast",
        "-Wno-lint",
        "-Wno-fatal",
        "-Wwarn-WIDTH",
    ]);
    command.args(["-j", "2", "-o", "simulation", "-CFLAGS", "-O2", "-LDFLAGS", "-lpthread -ldl -lm"]);
    command.arg("--Mdir").arg(folder.join("obj"));
    let harness = options.top.as_deref().filter(|_| options.harness);
    let harness = harness.map(|top| write_harness(folder, options, top)).transpose()?;
    if harness.is_some() {
        command.args(["--top-module", harness::NAME]);
    } else if let Some(top) = &options.top {
        command.args(["--top-module", top]);
    }
    if options.trace {
        command.arg("--trace-fst");
    }
    command.args(&options.arguments);
    // Verilator reads a file of this folder if the sources do not define the module of this name.
    for (name, text) in [
        ("fpga_xdma.sv", XDMA),
        ("fpga_replay.sv", REPLAY),
        ("fpga_cdma.sv", CDMA),
        ("fpga_network.sv", NETWORK),
    ] {
        let source = folder.join(name);
        std::fs::write(&source, text).map_err(file_error(&source, "write it"))?;
    }
    command.arg("-y").arg(folder).arg("+libext+.sv");
    for source in &options.sources {
        command.arg(std::path::absolute(source).map_err(file_error(source, "use it"))?);
    }
    command.args(harness).arg(library);
    let output = run(&mut command)?;
    if !output.status.success() {
        return Err(ModelError::Refused { output: last_lines(&output) });
    }
    let (vital, others): (Vec<_>, Vec<_>) =
        wrong_widths(&String::from_utf8_lossy(&output.stderr)).into_iter().partition(WrongWidth::is_vital);
    for wrong in others {
        tracing::warn!("{wrong}");
    }
    if !vital.is_empty() {
        remove(&folder.join("obj/simulation"))?;
        return Err(ModelError::Widths { wrong: vital });
    }
    if options.trace {
        std::fs::write(&traced, "").map_err(file_error(&traced, "write it"))?;
    }
    Ok(())
}

/// Writes the module that drives the inputs of `top`. Returns its path.
fn write_harness(folder: &Path, options: &ModelOptions, top: &str) -> Result<PathBuf, ModelError> {
    let read = |path: &PathBuf| std::fs::read(path).map_err(file_error(path, "read it"));
    let sources = options.sources.iter().map(|path| Ok(String::from_utf8_lossy(&read(path)?).into_owned()));
    let text = harness::harness(&sources.collect::<Result<Vec<_>, ModelError>>()?, top)?;
    let path = folder.join(format!("{}.sv", harness::NAME));
    std::fs::write(&path, text).map_err(file_error(&path, "write it"))?;
    std::path::absolute(&path).map_err(file_error(&path, "use it"))
}

/// Lets Verilator's makefiles use ccache if it is installed: most of a small model's compilation is Verilator's own library.
pub fn use_compiler_cache(verilator: &mut Command) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| folder.join("ccache").is_file());
    if is_there && std::env::var_os("OBJCACHE").is_none() {
        verilator.env("OBJCACHE", "ccache");
    }
}

/// Returns whether the model in `folder` can write a waveform.
#[must_use]
pub fn is_traced(folder: &Path) -> bool {
    folder.join(TRACED).exists()
}

/// Checks the form of a trigger of the waveform (`+fpga_trace_from`, `+fpga_trace_until`).
///
/// # Errors
/// A message with the forms that there are.
pub fn check_trigger(text: &str) -> Result<(), String> {
    text.parse::<Trigger>().map(drop).map_err(|()| format!("not {TRIGGERS}"))
}

fn remove(path: &Path) -> Result<(), ModelError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(path, "remove it")(error)),
        _ => Ok(()),
    }
}

/// Runs Verilator; its program's name is in the error.
fn run(command: &mut Command) -> Result<Output, ModelError> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.output().map_err(|source| ModelError::NoVerilator { program, source })
}

/// Name of the Verilator program, which is new enough.
fn verilator() -> Result<std::ffi::OsString, ModelError> {
    let program = std::env::var_os("VERILATOR").unwrap_or_else(|| "verilator".into());
    let output = run(Command::new(&program).arg("--version"))?;
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match version(&found) {
        Some(version) if version >= OLDEST => Ok(program),
        _ => Err(ModelError::OldVerilator { found }),
    }
}

/// Version in "Verilator 5.006 2023-01-22".
fn version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_whitespace().nth(1)?.split_once('.')?;
    let digits = minor.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(minor.len());
    Some((major.parse().ok()?, minor.get(..digits)?.parse().ok()?))
}

/// Path of the static library: `FPGA_RTL_LIBRARY`, or beside this program.
fn library() -> Result<PathBuf, ModelError> {
    if let Some(path) = std::env::var_os("FPGA_RTL_LIBRARY") {
        return Ok(path.into());
    }
    let program = std::env::current_exe().unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new("."));
    // Cargo's folder of dependencies, which is newer than its copy beside the program; the Debian package; another installation.
    let folders =
        [folder.join("deps"), folder.to_owned(), folder.join("../lib/fpgactl"), folder.join("../lib")];
    let found = folders.iter().map(|folder| folder.join(LIBRARY)).find(|path| path.exists());
    found.ok_or_else(|| ModelError::NoLibrary {
        searched: folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", "),
    })
}

fn last_lines(output: &Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let text = String::from_utf8_lossy(&text);
    // Warnings about widths are not what Verilator failed for.
    let mut is_shown = true;
    let is_wanted = |line: &&str| {
        if line.starts_with('%') {
            is_shown = !line.starts_with("%Warning-WIDTH");
        }
        is_shown
    };
    let lines: Vec<&str> = text.lines().filter(is_wanted).collect();
    let shown = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default();
    shown.iter().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "  {line}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_description() {
        assert_eq!(version("Verilator 5.006 2023-01-22 rev (Debian 5.006-3)"), Some((5, 6)));
        assert_eq!(version("Verilator 4.038"), Some((4, 38)));
        assert_eq!(version("Verilator 5.021devel rev"), Some((5, 21)));
        assert_eq!(version("other"), None);
    }
}
