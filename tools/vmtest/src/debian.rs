//! Packages of a Debian release other than this machine's, without installing anything: a private package database, whose mirror is the one
//! this machine uses, and packages unpacked into a folder. No privileges are needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cache::{Cache, CacheError, at};
use fpga_process::{ToolError, output};

/// Release whose kernels and C library the guests use.
const RELEASE: &str = "trixie";
/// Source of newer versions of some programs.
const BACKPORTS: &str = "trixie-backports";
/// Environment variable with the mirror, for a machine whose own configuration has none.
pub(crate) const MIRROR: &str = "FPGA_VM_MIRROR";
/// Keys of Debian's archive, from the package debian-archive-keyring.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Reasons why packages are not available.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DebianError {
    /// A program failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The cache could not be written.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The package lists could not be fetched.
    #[error(
        "cannot fetch Debian's package lists ({0}). They are needed once: connect this machine to a network, or copy target/vm-cache from a machine that has run this task"
    )]
    Unreachable(ToolError),
    /// No mirror is known.
    #[error("this machine's package sources contain no Debian mirror: set {MIRROR} to one")]
    NoMirror,
    /// A package is not what was expected.
    #[error("package {package} of {RELEASE} {problem}")]
    Package { package: String, problem: String },
}

/// Packages of the release; nothing is fetched before the first use.
#[derive(Debug)]
pub(crate) struct Packages {
    folder: PathBuf,
    ready: bool,
}

impl Packages {
    /// Creates the packages with a database in the cache.
    pub(crate) fn new(cache: &Cache) -> Self {
        Self { folder: cache.folder().join("packages"), ready: false }
    }

    fn tool(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        // Messages are shown to people, and some answers are parsed: one fixed language.
        command.env("APT_CONFIG", self.folder.join("apt.conf")).env("LC_ALL", "C");
        command
    }

    /// Creates the database and fetches the lists.
    fn prepare(&mut self) -> Result<(), DebianError> {
        if self.ready {
            return Ok(());
        }
        for folder in ["lists/partial", "archives/partial", "empty"] {
            let folder = self.folder.join(folder);
            fs::create_dir_all(&folder).map_err(at("make", &folder))?;
        }
        let write = |name: &str, text: &str| {
            let path = self.folder.join(name);
            fs::write(&path, text).map_err(at("write", &path))
        };
        let mirror = mirror()?;
        // An empty status: nothing is installed, so that an installation's downloads are complete for a program.
        write("status", "")?;
        write("sources.list", &sources(&mirror))?;
        write("apt.conf", &configuration(&self.folder))?;
        output(self.tool("apt-get").args(["-q", "-o", "Acquire::Retries=3", "update"])).map_err(|error| {
            match error {
                ToolError::Failed { .. } => DebianError::Unreachable(error),
                other => other.into(),
            }
        })?;
        self.ready = true;
        Ok(())
    }

    /// Unpacks a program from the release's backports with all its dependencies below `root`. Returns its version.
    pub(crate) fn unpack_program(&mut self, package: &str, root: &Path) -> Result<String, DebianError> {
        self.prepare()?;
        output(
            self.tool("apt-get")
                .args(["-q", "-y", "--download-only", "-o", "Acquire::Retries=3"])
                .args(["-t", BACKPORTS, "install", package]),
        )?;
        let archives = self.folder.join("archives");
        let mut version = None;
        for file in packages_in(&archives)? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with(&format!("{package}_")) {
                version = Some(version_in(&name));
            }
            unpack(&file, root)?;
            fs::remove_file(&file).map_err(at("remove", &file))?;
        }
        version.ok_or_else(|| DebianError::Package {
            package: package.to_owned(),
            problem: "is missing from the downloaded packages".to_owned(),
        })
    }

    /// Unpacks one package of the release, without its dependencies, below `root`. Returns its version.
    pub(crate) fn unpack(&mut self, package: &str, root: &Path) -> Result<String, DebianError> {
        self.prepare()?;
        let from = self.folder.join("archives").join("one");
        super::cache::remove(&from)?;
        fs::create_dir_all(&from).map_err(at("make", &from))?;
        output(
            self.tool("apt-get")
                .args(["-q", "-o", "Acquire::Retries=3", "-t", RELEASE, "download", package])
                .current_dir(&from),
        )?;
        let mut version = None;
        for file in packages_in(&from)? {
            version = Some(version_in(&file.file_name().unwrap_or_default().to_string_lossy()));
            unpack(&file, root)?;
        }
        super::cache::remove(&from)?;
        version.ok_or_else(|| DebianError::Package {
            package: package.to_owned(),
            problem: "was not downloaded".to_owned(),
        })
    }

    /// Package that a metapackage depends on: the kernel behind `linux-image-amd64`.
    pub(crate) fn behind(&mut self, package: &str) -> Result<String, DebianError> {
        self.prepare()?;
        let shown = output(
            self.tool("apt-cache")
                // The version of the release itself, not that of its backports.
                .args(["show", "--no-all-versions", &format!("{package}/{RELEASE}")]),
        )?;
        first_dependency(&shown).ok_or_else(|| DebianError::Package {
            package: package.to_owned(),
            problem: "depends on nothing".to_owned(),
        })
    }
}

fn unpack(package: &Path, root: &Path) -> Result<(), DebianError> {
    output(Command::new("dpkg-deb").arg("--extract").arg(package).arg(root))?;
    Ok(())
}

fn packages_in(folder: &Path) -> Result<Vec<PathBuf>, CacheError> {
    let entries = fs::read_dir(folder).map_err(at("list", folder))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(at("list", folder))?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Version in the name of a package's file, `NAME_VERSION_ARCHITECTURE.deb`, where a colon is written `%3a`.
fn version_in(file: &str) -> String {
    file.split('_').nth(1).unwrap_or("unknown").replace("%3a", ":")
}

/// First package of the `Depends` line in the output of `apt-cache show`.
fn first_dependency(shown: &str) -> Option<String> {
    let line = shown.lines().find_map(|line| line.strip_prefix("Depends:"))?;
    let name = line.split([',', '(', '|']).next()?.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

fn sources(mirror: &str) -> String {
    let signed = if Path::new(KEYRING).is_file() { format!(" signed-by={KEYRING}") } else { String::new() };
    let suite = |suite: &str| format!("deb [arch=amd64{signed}] {mirror} {suite} main\n");
    [RELEASE, BACKPORTS].map(suite).concat()
}

fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    // Paths without a trailing slash are files.
    format!(
        r#"Dir::State "{folder}";
Dir::State::lists "{folder}/lists";
Dir::State::status "{folder}/status";
Dir::State::extended_states "{folder}/extended_states";
Dir::Cache "{folder}";
Dir::Cache::archives "{folder}/archives";
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "{folder}/empty";
Dir::Etc::preferencesparts "{folder}/empty";
Dir::Etc::main "{folder}/empty/main";
Dir::Etc::parts "{folder}/empty";
Dir::Log "{folder}";
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
Debug::NoLocking "true";
"#
    )
}

/// Mirror from which this machine gets Debian's packages.
fn mirror() -> Result<String, DebianError> {
    if let Ok(mirror) = std::env::var(MIRROR)
        && !mirror.trim().is_empty()
    {
        return Ok(mirror.trim().to_owned());
    }
    let listed = output(Command::new("apt-get").env("LC_ALL", "C").args([
        "indextargets",
        "--format",
        "$(REPO_URI) $(RELEASE) $(COMPONENT)",
        "Created-By: Packages",
    ]))?;
    choose_mirror(&listed).ok_or(DebianError::NoMirror)
}

/// First source that is an archive of whole releases: `URI RELEASE COMPONENT` on each line.
fn choose_mirror(listed: &str) -> Option<String> {
    listed.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (address, release, component) = (words.next()?, words.next()?, words.next()?);
        // Security updates and third-party archives do not contain whole releases; the archive of backports is that of the release.
        let whole = address.trim_end_matches('/').ends_with("/debian");
        (whole && component == "main" && !release.ends_with("-security")).then(|| address.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_mirror_with_releases_is_chosen() {
        let listed = "http://other.invalid/apt/ tools main\n\
                      http://mirror.invalid/debian-security/ bookworm-security main\n\
                      http://mirror.invalid/debian/ bookworm non-free\n\
                      http://mirror.invalid/debian/ bookworm main\n";
        assert_eq!(choose_mirror(listed).as_deref(), Some("http://mirror.invalid/debian/"));
        assert_eq!(choose_mirror("http://mirror.invalid/ubuntu/ noble main\n"), None);
        assert_eq!(choose_mirror(""), None);
    }

    #[test]
    fn debian_versions_and_dependencies_parse() {
        assert_eq!(version_in("qemu-system-x86_1%3a11.1.3+ds-1~bpo13+1_amd64.deb"), "1:11.1.3+ds-1~bpo13+1");
        assert_eq!(version_in("odd.deb"), "unknown");
        let shown = "Package: linux-image-amd64\nDepends: linux-image-6.12.1-amd64 (= 6.12.1-1), other\n";
        assert_eq!(first_dependency(shown).as_deref(), Some("linux-image-6.12.1-amd64"));
        assert_eq!(first_dependency("Package: x\n"), None);
    }
}
