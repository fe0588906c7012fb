//! Faults in copies of a module, one per build, for random tests that must find them.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// One textual change of one file.
#[derive(Clone, Copy)]
pub(crate) struct PlantedFault {
    pub(crate) file: &'static str,
    /// Text that occurs once.
    pub(crate) from: &'static str,
    to: &'static str,
}

pub(crate) const fn fault(file: &'static str, from: &'static str, to: &'static str) -> PlantedFault {
    PlantedFault { file, from, to }
}

impl PlantedFault {
    /// Copies `files` with the fault to a folder of this name. Returns the paths of the copies.
    fn plant(&self, name: &str, files: &[&str]) -> Vec<PathBuf> {
        let Self { file, from, to } = *self;
        let folder = fpga_process::workspace_root().join("target/ni-faults").join(name);
        fs::create_dir_all(&folder).unwrap();
        let copy = |name: &&str| {
            let mut text = fs::read_to_string(fpga_ni_tests::sources().join(name)).unwrap();
            if *name == file {
                assert_eq!(text.matches(from).count(), 1, "the fault does not fit {file}: {from}");
                text = text.replace(from, to);
            }
            let copy = folder.join(name);
            fs::write(&copy, text).unwrap();
            copy
        };
        files.iter().map(copy).collect()
    }

    /// Builds a model called `name` from `files` with the fault. Returns whether `run` finds a difference; true without Verilator.
    pub(crate) fn is_found(
        &self,
        name: &str,
        files: &[&str],
        build: impl FnOnce(&str, &[&str]) -> Option<PathBuf>,
        run: impl FnOnce(PathBuf),
    ) -> bool {
        let copies = self.plant(name, files);
        let files: Vec<&str> = copies.iter().map(|copy| copy.to_str().unwrap()).collect();
        let Some(program) = build(name, &files) else { return true };
        catch_unwind(AssertUnwindSafe(|| run(program))).is_err()
    }
}

/// Faults that `finds` does not find, by their texts.
pub(crate) fn missed(faults: &[PlantedFault], finds: impl Fn(usize) -> bool) -> Vec<&'static str> {
    let numbers = (0..faults.len()).filter(|number| !finds(*number));
    numbers.map(|number| faults[number].from).collect()
}
