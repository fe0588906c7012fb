//! Building the models.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use fpga_pci::testing::skipped_without;
use fpga_register_map::{RegisterMap, rtl};
use fpga_rtl::model::{self, ModelError, ModelOptions};
use fpga_rtl::wrapper::{self, WrapperOptions};
use fpga_sim::CardDescription;

/// One build at a time.
static BUILDING: Mutex<()> = Mutex::new(());

/// Folder of an example.
pub(crate) fn project(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Parts of an example's model.
pub(crate) struct Project<'a> {
    /// Folder in `examples`.
    pub(crate) name: &'a str,
    /// Sources in that folder, or relative to it.
    pub(crate) sources: &'a [&'a str],
    /// Register map, whose RTL is a source, too.
    pub(crate) map: Option<&'a str>,
    pub(crate) trace: bool,
}

/// DPI-C library of this build.
pub(crate) fn library() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join("libfpga_rtl.a")
}

/// Folder of an example's generated files.
pub(crate) fn work(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Writes a file unless it has this content, so that it is not compiled again.
pub(crate) fn write_changed(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|found| found == text) {
        return;
    }
    fs::write(path, text).unwrap();
}

/// Writes what `fpgactl rtl wrapper` and `fpgactl rtl registers` write; returns the files.
pub(crate) fn generate(name: &str, map: Option<&str>, clock_input: bool) -> Vec<PathBuf> {
    let (own, folder) = (project(name), work(name));
    fs::create_dir_all(&folder).unwrap();
    let mut files = Vec::new();
    let mut write = |name: &str, text: String| {
        let path = folder.join(name);
        write_changed(&path, &text);
        files.push(path);
    };
    // First: the package with the offsets.
    if let Some(map) = map {
        let module = format!("{}_registers", map.trim_end_matches(".yaml"));
        let text = rtl::skeleton(&RegisterMap::load(&own.join(map)).unwrap(), &module).unwrap();
        write(&format!("{module}.sv"), text);
    }
    let description = CardDescription::load(&own.join("card.yaml")).unwrap();
    let options = WrapperOptions { module: "xdma_0".to_owned(), clock_input, ..WrapperOptions::default() };
    write("xdma_0.sv", wrapper::wrapper(&description, &options).unwrap());
    files
}

/// Builds the model, or takes it from the last build. `None` without Verilator.
pub(crate) fn build(parts: &Project<'_>) -> Option<PathBuf> {
    let _guard = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let (own, folder) = (project(parts.name), work(parts.name));
    let card = own.join("card.yaml");
    let mut sources = generate(parts.name, parts.map, false);
    sources.extend(parts.sources.iter().map(|source| own.join(source)));
    let mut hasher = DefaultHasher::new();
    // The library's time, not its content: it is large.
    (model::XDMA, library().metadata().unwrap().modified().unwrap(), fs::read(&card).unwrap())
        .hash(&mut hasher);
    for source in &sources {
        fs::read(source).unwrap().hash(&mut hasher);
    }
    let (stamp, model) = (format!("{:016x}", hasher.finish()), folder.join("model"));
    let stamp_file = folder.join("stamp");
    if fs::read_to_string(&stamp_file).is_ok_and(|found| found == stamp) {
        return Some(model);
    }
    // fpgactl rtl build
    let options = ModelOptions {
        sources,
        top: Some("top".to_owned()),
        card: Some(card),
        trace: parts.trace,
        harness: false,
        // Short runs: compiling costs more than it saves.
        arguments: ["-j", "2", "-CFLAGS", "-O0", "-MAKEFLAGS", "OPT_FAST=-O0"].map(str::to_owned).to_vec(),
    };
    match model::build(&model, &options) {
        Ok(()) => {
            fs::write(stamp_file, stamp).unwrap();
            Some(model)
        }
        Err(ModelError::NoVerilator { .. } | ModelError::OldVerilator { .. }) => {
            skipped_without("Verilator 5.006 or newer", "verilator");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
