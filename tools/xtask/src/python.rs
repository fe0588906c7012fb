//! `cargo xtask python`: the Python package built as a wheel and installed into a virtual environment, its tests, its documentation's examples and its type checks.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of `cargo xtask python`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Interpreter to make the virtual environment with
    #[arg(long, default_value = "python3")]
    python: String,
    /// Build the package without debug assertions, as for measurements
    #[arg(long)]
    release: bool,
    /// Only build the package into the virtual environment
    #[arg(long)]
    build_only: bool,
}

/// Programs that the tests and checks need; the package itself needs numpy alone.
const REQUIREMENTS: [&str; 11] = [
    "maturin>=1.9,<2",
    "numpy>=1.24",
    "pytest>=8",
    "pytest-timeout>=2",
    "mypy>=1.11",
    "pyright[nodejs]>=1.1.380",
    // The tutorial.
    "nbclient>=0.10",
    "ipykernel>=6",
    "matplotlib>=3.8",
    // The example with cocotb; later versions need a newer Verilator than 5.006.
    "cocotb==1.9.2",
    // The AXI4 master and slave of the protocol checker's tests.
    "cocotbext-axi==0.1.28",
];

/// Reasons why the task fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PythonError {
    /// A program could not be started.
    #[error("{program}: {source}; install Python 3.11 or newer with its venv module")]
    Start { program: String, source: std::io::Error },
    /// The build wrote no wheel.
    #[error("maturin wrote no wheel to {}", out.display())]
    NoWheel { out: PathBuf },
    /// A program failed.
    #[error("{program} failed: {status}; see its output above")]
    Failed { program: String, status: std::process::ExitStatus },
}

/// Builds the package and installs it, and tests it unless the options say otherwise.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), PythonError> {
    environment(root, &options.python)?;
    let package = root.join("driver/bindings/python");
    let wheel = wheel(root, options.release)?;
    let pip =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--force-reinstall", "--no-deps"];
    execute(Command::new(program(root, "python")).args(pip).arg(wheel))?;
    if options.build_only {
        return Ok(());
    }
    let run = |name: &str, words: &[&str]| {
        execute(Command::new(program(root, name)).args(words).current_dir(&package))
    };
    run("pytest", &["-q", "--timeout", "120", "--doctest-modules", "--pyargs", "fpga_rdma", "tests"])?;
    run("mypy", &["python", "tests"])?;
    let interpreter = program(root, "python").display().to_string();
    run("pyright", &["--pythonpath", &interpreter])
}

/// Program of the virtual environment.
fn program(root: &Path, name: &str) -> PathBuf {
    root.join("target/python/bin").join(name)
}

/// Interpreter with numpy: the one of the virtual environment, or the machine's if there is no environment.
pub(crate) fn interpreter(root: &Path) -> PathBuf {
    let interpreter = program(root, "python");
    if interpreter.exists() { interpreter } else { "python3".into() }
}

/// Makes the virtual environment, unless it is there with all requirements.
fn environment(root: &Path, python: &str) -> Result<(), PythonError> {
    let environment = root.join("target/python");
    // The list of requirements is part of the state: a changed one installs again.
    let stamp = environment.join("requirements");
    let wanted = REQUIREMENTS.join("\n");
    if std::fs::read_to_string(&stamp).ok().as_ref() == Some(&wanted) {
        return Ok(());
    }
    execute(Command::new(python).args(["-m", "venv"]).arg(&environment))?;
    let pip =
        [&["-m", "pip", "install", "--quiet", "--disable-pip-version-check"][..], &REQUIREMENTS].concat();
    execute(Command::new(program(root, "python")).args(pip))?;
    // Without the stamp the next run installs again, which is harmless.
    let _ = std::fs::write(&stamp, wanted);
    Ok(())
}

/// Builds the wheel, and returns its path.
pub(crate) fn wheel(root: &Path, release: bool) -> Result<PathBuf, PythonError> {
    environment(root, "python3")?;
    let out = root.join("target/wheels").join(if release { "release" } else { "debug" });
    // An older version's wheel must not be taken for this one.
    let _ = std::fs::remove_dir_all(&out);
    let mut build = Command::new(program(root, "maturin"));
    // The default of maturin is the release profile.
    build.args(["build", "--quiet", "--profile", if release { "release" } else { "dev" }, "--out"]).arg(&out);
    execute(build.current_dir(root.join("driver/bindings/python")))?;
    let files = std::fs::read_dir(&out).into_iter().flatten().flatten();
    let wheel = files.map(|file| file.path()).find(|path| path.extension().is_some_and(|end| end == "whl"));
    wheel.ok_or(PythonError::NoWheel { out })
}

fn execute(command: &mut Command) -> Result<(), PythonError> {
    let program = || command.get_program().to_string_lossy().into_owned();
    let name = program();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(PythonError::Failed { program: name, status }),
        Err(source) => Err(PythonError::Start { program: name, source }),
    }
}
