//! Simulation of the network interface's modules (`firmware-bindings/rtl/ni`) beside the protocol engine.
//!
//! A module is translated by Verilator and linked with a driver in C++ (`cpp/`), which reads commands from its standard input, drives the
//! module's ports, and writes what the module does to its standard output. The test compares that with the protocol engine. Registers
//! without reset begin with random values (`+verilator+seed`), so that a design that reads one before it is written fails.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use fpga_pci::testing::skipped_without;

/// Version of Verilator; `None` if it is not installed.
static VERILATOR: LazyLock<Option<String>> = LazyLock::new(|| {
    let output = Command::new("verilator").arg("--version").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
});

/// One build at a time: tests share the models.
static BUILDING: Mutex<()> = Mutex::new(());

/// Folder of the network interface's sources.
#[must_use]
pub fn sources() -> PathBuf {
    fpga_process::workspace_root().join("firmware-bindings/rtl/ni")
}

/// Returns the sizes of a module that a test simulates: `usual`, and with the environment variable `FPGA_RTL_SIZES=all` the `others`, too. Each
/// is a build of several seconds.
#[must_use]
pub fn sizes<T: Copy>(usual: &[T], others: &[T]) -> Vec<T> {
    let all = std::env::var(ALL_SIZES.0).is_ok_and(|value| value == ALL_SIZES.1);
    usual.iter().chain(others.iter().filter(|_| all)).copied().collect()
}

/// Environment variable of [`sizes`], and its value.
pub const ALL_SIZES: (&str, &str) = ("FPGA_RTL_SIZES", "all");

/// Module to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Model<'a> {
    /// Name of the folder of the build; distinct for each set of parameters.
    pub name: &'a str,
    /// Top module.
    pub top: &'a str,
    /// Files of the module, relative to [`sources`], or absolute; `ni_pkg.sv` is added.
    pub files: &'a [&'a str],
    /// Parameters of the top module.
    pub parameters: &'a [(&'a str, u64)],
    /// Driver in `tests/rtl/cpp`. It includes `Vdut.h`.
    pub driver: &'a str,
}

impl Model<'_> {
    /// Builds the program, or takes it from the last build. `None` without Verilator.
    ///
    /// # Errors
    /// The messages of Verilator or of the compiler, or an error of a file.
    pub fn build(&self) -> Result<Option<PathBuf>, String> {
        let Some(version) = VERILATOR.as_ref() else {
            skipped_without("verilator", "verilator");
            return Ok(None);
        };
        let _guard = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
        let root = fpga_process::workspace_root();
        let folder = root.join("target/ni-models").join(self.name);
        let files: Vec<PathBuf> =
            ["ni_pkg.sv"].iter().chain(self.files).map(|file| sources().join(file)).collect();
        let driver = root.join("tests/rtl/cpp").join(self.driver);
        let stamp = self.stamp(version, &files, &driver)?;
        let (program, stamp_file) = (folder.join("Vdut"), folder.join("stamp"));
        if fs::read_to_string(&stamp_file).is_ok_and(|found| found == stamp) {
            return Ok(Some(program));
        }
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        self.run(&folder, &files, &driver)?;
        fs::write(&stamp_file, stamp).map_err(|error| format!("{}: {error}", stamp_file.display()))?;
        Ok(Some(program))
    }

    fn stamp(&self, version: &str, files: &[PathBuf], driver: &Path) -> Result<String, String> {
        let mut hasher = DefaultHasher::new();
        (version, self.top, self.parameters).hash(&mut hasher);
        // Drivers share files.
        let text = fs::read_to_string(driver).map_err(|error| format!("{}: {error}", driver.display()))?;
        let included = text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
        let mut all: Vec<PathBuf> = included.map(|name| driver.with_file_name(name)).collect();
        // Verilator generates the others.
        all.retain(|path| path.exists());
        for file in files.iter().chain(&all).map(PathBuf::as_path).chain([driver]) {
            fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?.hash(&mut hasher);
        }
        Ok(format!("{:016x}", hasher.finish()))
    }

    fn run(&self, folder: &Path, files: &[PathBuf], driver: &Path) -> Result<(), String> {
        let mut command = Command::new("verilator");
        fpga_rtl::model::use_compiler_cache(&mut command);
        let output = command
            .args(["--cc", "--exe", "--build", "-O3", "--x-assign", "unique", "--x-initial", "unique"])
            .args(["--assert", "-Wno-fatal", "--prefix", "Vdut", "-j", "2", "-CFLAGS", "-O2"])
            .args(["--top-module", self.top, "--Mdir"])
            .arg(folder)
            .args(self.parameters.iter().map(|(name, value)| format!("-G{name}={value}")))
            .args(files)
            .arg(driver)
            .output()
            .map_err(|error| format!("verilator: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }
}

/// Starts a program of [`Model::build`] with pipes to its standard input and output. `seed` sets the initial values of registers.
///
/// # Errors
/// The program cannot be started.
pub fn start(program: &Path, seed: u32, arguments: &[&str]) -> std::io::Result<Child> {
    Command::new(program)
        .args(["+verilator+rand+reset+2".to_owned(), format!("+verilator+seed+{}", seed.max(1))])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
}
