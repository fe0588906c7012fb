//! Open MPI of this machine for guests, with the libfabric provider of this project and the tests' MPI program.
//!
//! All files have the same paths in the guest as here, because Open MPI finds its plug-ins and its data by absolute paths.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fpga_process::{ToolError, on_path, output};

use super::cache::{CacheError, at};
use super::programs::{self, BuildError};
use super::requirements::MissingRequirement;

/// Programs of guests. `orterun` is `mpirun` of Open MPI, whichever MPI library has that name.
const PROGRAMS: [&str; 3] = ["orterun", "orted", "fi_pingpong"];
/// Programs that this machine needs.
const TOOLS: [&str; 3] = ["ompi_info", "cc", "ldd"];
/// Compilers of MPI programs: that of Debian's Open MPI, and the usual name.
const COMPILERS: [&str; 2] = ["mpicc.openmpi", "mpicc"];
/// MPI program, which the tests of the provider run too.
const SOURCE: &str = "driver/rdma/libfabric/tests/mpi.c";
/// Folder of the MPI program and the provider in guests.
const FOLDER: &str = "/mpi";

/// Reasons why MPI is not available to guests.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MpiError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] CacheError),
    /// A program failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The provider could not be built.
    #[error(transparent)]
    Provider(#[from] BuildError),
    /// A program has been removed meanwhile.
    #[error("there is no {0} in PATH")]
    Missing(&'static str),
}

/// Files for guests: path in the guest, and path on this machine.
pub(crate) type Files = Vec<(PathBuf, PathBuf)>;

/// Returns what this machine lacks.
pub(crate) fn missing() -> Option<MissingRequirement> {
    let mut missing: Vec<&str> =
        PROGRAMS.into_iter().chain(TOOLS).filter(|program| on_path(program).is_none()).collect();
    if compiler().is_none() {
        missing.push("mpicc");
    }
    let remedy = "on Debian and Ubuntu: apt-get install openmpi-bin libopenmpi-dev libfabric-bin gcc";
    (!missing.is_empty()).then(|| MissingRequirement { what: missing.join(", "), remedy: remedy.to_owned() })
}

fn compiler() -> Option<PathBuf> {
    COMPILERS.into_iter().find_map(on_path)
}

/// Builds the MPI program and the provider, in `folder`, and collects all files.
pub(crate) fn build(root: &Path, folder: &Path) -> Result<Files, MpiError> {
    fs::create_dir_all(folder).map_err(at("make", folder))?;
    let program = folder.join("program");
    let compiler = compiler().ok_or(MpiError::Missing("mpicc"))?;
    output(Command::new(compiler).args(["-O1", "-o"]).arg(&program).arg(root.join(SOURCE)))?;
    let mut binaries = Vec::new();
    for name in PROGRAMS {
        binaries.push(on_path(name).ok_or(MpiError::Missing(name))?);
    }
    let plugins = path_of("pkglibdir")?;
    binaries.extend(files_in(&plugins, "so")?);
    let mut files: Files = binaries.iter().map(|path| (path.clone(), path.clone())).collect();
    for text in files_in(&path_of("pkgdatadir")?, "txt")? {
        files.push((text.clone(), text));
    }
    for (name, built) in [("program", program), ("libfpga-fi.so", programs::provider(root)?)] {
        files.push((Path::new(FOLDER).join(name), built.clone()));
        binaries.push(built);
    }
    let mut libraries = BTreeSet::new();
    for binary in &binaries {
        libraries.extend(programs::needed(&output(Command::new("ldd").arg(binary))?));
    }
    files.extend(libraries.into_iter().map(|path| (path.clone(), path)));
    Ok(files)
}

/// Folder of an installation of Open MPI.
fn path_of(kind: &str) -> Result<PathBuf, MpiError> {
    let printed = output(Command::new("ompi_info").args(["--parsable", "--path", kind]))?;
    Ok(parse_path(&printed, kind).unwrap_or_default())
}

/// Path in a line `path:KIND:PATH`.
fn parse_path(printed: &str, kind: &str) -> Option<PathBuf> {
    let prefix = format!("path:{kind}:");
    printed.lines().find_map(|line| line.strip_prefix(&prefix)).map(PathBuf::from)
}

fn files_in(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, CacheError> {
    let entries = fs::read_dir(folder).map_err(at("list", folder))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ompi_info_line_names_folder() {
        let printed = "path:libdir:/usr/lib\npath:pkglibdir:/usr/lib/openmpi\n";
        assert_eq!(parse_path(printed, "pkglibdir"), Some(PathBuf::from("/usr/lib/openmpi")));
        assert_eq!(parse_path(printed, "pkgdatadir"), None);
    }
}
