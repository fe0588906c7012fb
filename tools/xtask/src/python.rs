//! `cargo xtask python`: the Python package built into a virtual environment, its tests, its documentation's examples and its type checks.

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
const REQUIREMENTS: [&str; 6] = [
    "maturin>=1.9,<2",
    "numpy>=1.24",
    "pytest>=8",
    "pytest-timeout>=2",
    "mypy>=1.11",
    "pyright[nodejs]>=1.1.380",
];

/// Reasons why the task fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PythonError {
    /// A program could not be started.
    #[error("{program}: {source}; install Python 3.11 or newer with its venv module")]
    Start { program: String, source: std::io::Error },
    /// A program failed.
    #[error("{program} failed: {status}; see its output above")]
    Failed { program: String, status: std::process::ExitStatus },
}

/// Builds the package, and tests it unless the options say otherwise.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), PythonError> {
    let environment = root.join("target/python");
    let package = root.join("driver/python");
    let program = |name: &str| environment.join("bin").join(name);
    // The list of requirements is part of the state: a changed one installs again.
    let stamp = environment.join("requirements");
    let wanted = REQUIREMENTS.join("\n");
    if std::fs::read_to_string(&stamp).ok().as_ref() != Some(&wanted) {
        execute(Command::new(&options.python).args(["-m", "venv"]).arg(&environment))?;
        let pip =
            [&["-m", "pip", "install", "--quiet", "--disable-pip-version-check"][..], &REQUIREMENTS].concat();
        execute(Command::new(program("python")).args(pip))?;
        // Without the stamp the next run installs again, which is harmless.
        let _ = std::fs::write(&stamp, wanted);
    }
    let mut build = Command::new(program("maturin"));
    build.args(["develop", "--quiet"]).env("VIRTUAL_ENV", &environment).env_remove("CONDA_PREFIX");
    if options.release {
        build.arg("--release");
    }
    execute(build.current_dir(&package))?;
    if options.build_only {
        return Ok(());
    }
    let pytest = ["-q", "--timeout", "120", "--doctest-modules", "python", "tests"];
    execute(Command::new(program("pytest")).args(pytest).current_dir(&package))?;
    execute(Command::new(program("mypy")).args(["python", "tests"]).current_dir(&package))?;
    let interpreter: PathBuf = program("python");
    execute(Command::new(program("pyright")).arg("--pythonpath").arg(interpreter).current_dir(&package))
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
