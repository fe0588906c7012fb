//! Prefix that the library of this build is installed into, and compilers that use it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use fpga_pci::testing::skipped_without;

/// Warnings of every compilation.
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

/// Path below the folder of this package.
pub(crate) fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs a command and returns its standard output.
pub(crate) fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {}\n{out}\n{err}", done.status);
    out.into_owned()
}

/// Whether a program is installed. Says that a test is skipped if it is not.
pub(crate) fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|done| done.status.success());
    if !found {
        skipped_without(program, if program == "ld.lld" { "lld" } else { program });
    }
    found
}

/// Static library of this build: the newest one that is not newer than this program, beside which it is.
fn archive() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let modified = |path: &Path| path.metadata().unwrap().modified().unwrap();
    let built = modified(&program);
    let files = std::fs::read_dir(program.parent().unwrap()).unwrap().map(|file| file.unwrap().path());
    let archives = files.filter(|path| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with("libfpga-") && name.ends_with(".a") && modified(path) <= built
    });
    archives.max_by_key(|path| modified(path)).expect("cargo builds the static library before this test")
}

/// Installs the library of this build, linked by `compiler`, and returns the prefix.
pub(crate) fn install(compiler: &str, name: &str, libdir: &str) -> PathBuf {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if prefix.exists() {
        std::fs::remove_dir_all(&prefix).unwrap();
    }
    run(Command::new(here("install.sh"))
        .arg("--prefix")
        .arg(&prefix)
        .args(["--libdir", libdir, "--archive"])
        .arg(archive())
        .env("CC", compiler));
    prefix
}

/// Prefix that most tests share.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| install("cc", "prefix", "lib"))
}

/// Output of pkg-config.
pub(crate) fn pkg_config(arguments: &[&str]) -> Vec<String> {
    let path = prefix().join("lib/pkgconfig");
    let said = run(Command::new("pkg-config").args(arguments).arg("fpga").env("PKG_CONFIG_PATH", path));
    said.split_whitespace().map(str::to_owned).collect()
}

/// Command that finds the installed shared library when it runs.
pub(crate) fn installed(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", prefix().join("lib"));
    command
}

/// Dynamic symbols that a library defines, with their versions.
pub(crate) fn exported(library: &Path) -> Vec<String> {
    let symbols =
        run(Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(library));
    let mut names: Vec<_> =
        symbols.lines().filter_map(|line| line.split(" T ").nth(1)).map(str::to_owned).collect();
    names.sort();
    names
}

/// Compiler and language standard.
#[derive(Clone, Copy)]
pub(crate) struct Toolchain {
    pub(crate) compiler: &'static str,
    pub(crate) standard: &'static str,
}

pub(crate) const GCC_C11: Toolchain = Toolchain { compiler: "gcc", standard: "-std=c11" };

impl Toolchain {
    /// Compiles a source by the output of pkg-config alone.
    pub(crate) fn compile(self, source: &Path, program: &Path, options: &[&str]) {
        self.compile_with(source, program, options, &pkg_config(&["--cflags", "--libs"]));
    }

    /// Compiles sources without writing programs.
    pub(crate) fn check(self, sources: &[PathBuf]) {
        let language = if self.standard.contains("++") { "c++" } else { "c" };
        run(Command::new(self.compiler)
            .args(["-fsyntax-only", "-x", language, self.standard])
            .args(WARNINGS)
            .args(pkg_config(&["--cflags"]))
            .args(sources));
    }

    /// As [`Toolchain::compile`], with the options of `library`.
    pub(crate) fn compile_with(self, source: &Path, program: &Path, options: &[&str], library: &[String]) {
        let language = if self.standard.contains("++") { "c++" } else { "c" };
        run(Command::new(self.compiler)
            .args(["-x", language, self.standard])
            .args(WARNINGS)
            .args(options)
            .arg(source)
            .args(["-x", "none", "-o"])
            .arg(program)
            .args(library));
    }
}
