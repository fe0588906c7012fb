//! Installs the package `fpgactl` below a scratch directory, tests it there, removes and purges it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use super::stage::{COMPLETIONS, CONFIGURATION, DOCUMENTS, INSTALLED_RTL_LIBRARY, SAMPLES, SCHEMAS};
use super::{PackageError, cargo, deb, with_path};
use crate::manual;
use fpga_process::{on_path, output};

const INSTALLED_PROGRAM: &str = "usr/bin/fpgactl";

/// Installs `package` below `root` and tests everything in it as far as this machine permits; skipped parts are reported.
pub(super) fn package(package: &Path, root: &Path) -> Result<(), PackageError> {
    let database = root.join("var/lib/dpkg");
    let dpkg = deb::empty_root(root)?;
    dpkg(&["--install", &package.display().to_string()])?;
    program(&root.join(INSTALLED_PROGRAM))?;
    pages(&root.join("usr/share/man/man1"))?;
    completions(root)?;
    unit(root)?;
    rules(root)?;
    SCHEMAS.iter().try_for_each(|(title, _, to)| schema(title, &root.join(to)))?;
    documents(&root.join(DOCUMENTS))?;
    samples(&root.join(INSTALLED_PROGRAM), &root.join(DOCUMENTS))?;
    model(&root.join(INSTALLED_PROGRAM), &root.join(DOCUMENTS))?;
    scripts(&database.join("info"), root)?;
    // Files that the administrator and the program have created since.
    let enabled = root.join(ENABLED);
    fs::create_dir_all(enabled.parent().unwrap_or(root)).map_err(with_path(&enabled))?;
    symlink("/lib/systemd/system/fpgactl-bind@.service", &enabled).map_err(with_path(&enabled))?;
    let others = enabled.with_file_name("other@1.service");
    symlink("/lib/systemd/system/other@.service", &others).map_err(with_path(&others))?;
    let record = root.join("run/fpga/bound/0000:65:00-0");
    fs::create_dir_all(record.parent().unwrap_or(root)).map_err(with_path(&record))?;
    fs::write(&record, "driver=xdma\noverride=\n").map_err(with_path(&record))?;
    dpkg(&["--remove", "fpgactl"])?;
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    for (kept, content) in [
        (root.join(CONFIGURATION), "configuration of the administrator"),
        (enabled.clone(), "a unit that the administrator enabled"),
        (record.clone(), "the saved binding of a card"),
    ] {
        if !is_there(&kept) {
            return Err(PackageError::Wrong(format!(
                "{} ({content}) was removed without a purge",
                kept.display()
            )));
        }
    }
    let schemas = SCHEMAS.iter().any(|(_, _, to)| is_there(&root.join(to)));
    if [INSTALLED_PROGRAM, INSTALLED_RTL_LIBRARY].iter().any(|path| is_there(&root.join(path))) || schemas {
        return Err(PackageError::Wrong("files of a removed package remain".to_owned()));
    }
    dpkg(&["--purge", "fpgactl"])?;
    let all = [root.join(CONFIGURATION), enabled, root.join("run/fpga")];
    if let Some(left) = all.iter().find(|path| is_there(path)) {
        return Err(PackageError::Wrong(format!("{} remains after the package was purged", left.display())));
    }
    if !is_there(&others) {
        return Err(PackageError::Wrong("a purge removed a file of another package".to_owned()));
    }
    println!("package: fpgactl installed, tested, removed and purged");
    Ok(())
}

/// Link that `systemctl enable fpgactl-bind@0000:65:00.0` creates.
const ENABLED: &str = "etc/systemd/system/multi-user.target.wants/fpgactl-bind@0000:65:00.0.service";

/// Checks that an editor can read a schema.
fn schema(title: &str, path: &Path) -> Result<(), PackageError> {
    let text = fs::read_to_string(path).map_err(with_path(path))?;
    let schema: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    if schema.get("title") == Some(&title.into()) {
        return Ok(());
    }
    Err(PackageError::Wrong(format!("{} is not the schema \"{title}\"", path.display())))
}

/// Checks that the installed program accepts every installed sample.
fn samples(program: &Path, documents: &Path) -> Result<(), PackageError> {
    for folder in SAMPLES {
        let whole = documents.join(folder);
        let mut tried = 0;
        for file in fs::read_dir(&whole).map_err(with_path(&whole))?.flatten().map(|file| file.path()) {
            if file.extension().is_none_or(|extension| extension != "yaml") {
                continue;
            }
            let mut command = Command::new(program);
            match *folder {
                "examples/scenarios" => command.args(["sim", "check"]).arg(&file),
                "examples/maps" => command.args(["regs", "list", "--map"]).arg(&file),
                _ => command.args(["card", "check"]).arg(&file),
            };
            output(&mut command)?;
            tried += 1;
        }
        if tried < 2 {
            return Err(PackageError::Wrong(format!("{tried} samples in {} are too few", whole.display())));
        }
    }
    Ok(())
}

/// Checks that the installed program builds an installed example with RTL, and opens it as a card.
fn model(program: &Path, documents: &Path) -> Result<(), PackageError> {
    if on_path("verilator").is_none() {
        println!(
            "skipped: an example with RTL is not built: verilator is not installed (Debian: apt-get install verilator)"
        );
        return Ok(());
    }
    let work = tempfile::tempdir().map_err(with_path(Path::new("a temporary directory")))?;
    let run = |words: &str| {
        let words = words.replace("EXAMPLE", &documents.join("examples/rtl-registers").display().to_string());
        output(Command::new(program).args(words.split(' ')).current_dir(work.path()))
    };
    run("rtl wrapper --card-file EXAMPLE/card.yaml --module xdma_0 -o xdma_0.sv")?;
    run("rtl registers EXAMPLE/counter.yaml -o counter_registers.sv")?;
    run(
        "rtl build counter_registers.sv EXAMPLE/top.sv EXAMPLE/counter.sv xdma_0.sv --top top --card-file EXAMPLE/card.yaml -o model",
    )?;
    let shown = run("regs dump counter --map EXAMPLE/counter.yaml --card rtl:model")?;
    if shown.contains("counter.version") {
        return Ok(());
    }
    Err(PackageError::Wrong(format!("the example with RTL shows no registers: {shown}")))
}

/// Checks that every link of the manual leads to an installed file, and that the map of its examples is usable.
fn documents(folder: &Path) -> Result<(), PackageError> {
    let lost = manual::lost(folder)?;
    if !lost.is_empty() {
        return Err(PackageError::Wrong(format!("broken links: {}", lost.join("; "))));
    }
    for page in ["README.md", "docs/guide/first-card.md", "examples/maps/simulated-card.yaml"] {
        if !folder.join(page).is_file() {
            return Err(PackageError::Wrong(format!("{page} was not installed")));
        }
    }
    Ok(())
}

/// Checks that the scripts make the right requests to the system at the right times; with a substitute for `systemctl`, and on a system
/// that runs systemd.
fn scripts(info: &Path, scratch: &Path) -> Result<(), PackageError> {
    let tools = scratch.join("tools");
    let run = scratch.join("running");
    for folder in [tools.clone(), run.join("systemd/system")] {
        fs::create_dir_all(&folder).map_err(with_path(&folder))?;
    }
    let systemctl = tools.join("systemctl");
    fs::write(&systemctl, "#!/bin/sh\necho \"$@\"\n").map_err(with_path(&systemctl))?;
    fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).map_err(with_path(&systemctl))?;
    let path = format!("{}:/usr/bin:/bin", tools.display());
    let requests = |script: &str, words: &[&str], to: &str| -> Result<String, PackageError> {
        let installed = info.join(format!("fpgactl.{script}"));
        let text = fs::read_to_string(&installed).map_err(with_path(&installed))?;
        let copy = scratch.join(script);
        fs::write(&copy, text.replace("/run/", &format!("{}/", run.display()))).map_err(with_path(&copy))?;
        let said =
            output(Command::new("/bin/sh").arg(&copy).args(words).env("PATH", &path).env("DPKG_ROOT", to))?;
        fs::remove_file(&copy).map_err(with_path(&copy))?;
        Ok(said)
    };
    let elsewhere = scratch.display().to_string();
    for (script, words, to, expected) in [
        ("prerm", &["remove"][..], "", "stop fpgactl-bind@*.service\n"),
        ("prerm", &["upgrade", "9.9.9"], "", ""),
        // Below another root, this machine must not be affected.
        ("prerm", &["remove"], &elsewhere, ""),
        ("postrm", &["remove"], "", "daemon-reload\n"),
        ("postrm", &["upgrade", "9.9.9"], "", ""),
        ("postrm", &["remove"], &elsewhere, ""),
    ] {
        let said = requests(script, words, to)?;
        if said != expected {
            return Err(PackageError::Wrong(format!(
                "{script} {words:?} calls systemctl with {said:?}, not {expected:?}"
            )));
        }
    }
    Ok(())
}

/// Checks `cargo install` from the working tree.
pub(super) fn cargo_install(root: &Path, scratch: &Path) -> Result<(), PackageError> {
    let to = scratch.display().to_string();
    cargo(
        root,
        &[
            "install",
            "--quiet",
            "--locked",
            "--path",
            "tools/fpgactl",
            "--features",
            "png",
            "--root",
            &to,
            "--no-track",
        ],
    )?;
    program(&scratch.join("bin/fpgactl"))?;
    println!("cargo install: installed and tested");
    Ok(())
}

/// Checks that the program runs and works.
fn program(program: &Path) -> Result<(), PackageError> {
    let version = output(Command::new(program).arg("--version"))?;
    if version.trim() != format!("fpgactl {}", env!("CARGO_PKG_VERSION")) {
        return Err(PackageError::Wrong(format!("unexpected version: {version}")));
    }
    let report =
        output(Command::new(program).args(["transfer", "--size", "1MiB", "--loss", "1%", "--json"]))?;
    let report: serde_json::Value = serde_json::from_str(&report).unwrap_or_default();
    if report.get("verified") != Some(&true.into()) {
        return Err(PackageError::Wrong(format!("a transfer was not verified: {report}")));
    }
    Ok(())
}

/// Checks that there is a readable manual page for each command.
fn pages(directory: &Path) -> Result<(), PackageError> {
    let pages: Vec<_> =
        fs::read_dir(directory).map_err(with_path(directory))?.flatten().map(|page| page.path()).collect();
    if pages.len() < 30 || !directory.join("fpgactl-bind.1.gz").is_file() {
        return Err(PackageError::Wrong(format!("only {} manual pages", pages.len())));
    }
    if on_path("man").is_none() {
        println!(
            "skipped: manual pages are not rendered: man is not installed (Debian: apt-get install man-db)"
        );
        return Ok(());
    }
    for page in pages {
        let text = output(
            Command::new("man").args(["--local-file", "--warnings=w"]).arg(&page).env("MANWIDTH", "80"),
        )?;
        if !text.contains("SYNOPSIS") {
            return Err(PackageError::Wrong(format!(
                "{}: the rendered page has no synopsis",
                page.display()
            )));
        }
    }
    Ok(())
}

fn completions(root: &Path) -> Result<(), PackageError> {
    for (shell, script) in COMPLETIONS {
        match on_path(shell) {
            Some(shell) => drop(output(Command::new(shell).arg("-n").arg(root.join(script)))?),
            None => println!(
                "skipped: completions for {shell} are not parsed: it is not installed (Debian: apt-get install {shell})"
            ),
        }
    }
    Ok(())
}

/// Checks the systemd unit that binds at boot.
fn unit(root: &Path) -> Result<(), PackageError> {
    if on_path("systemd-analyze").is_none() {
        println!(
            "skipped: the unit is not verified: systemd-analyze is not installed (Debian: apt-get install systemd)"
        );
        return Ok(());
    }
    // The template, under its own name: systemd 252 does not find that of an instance. Its program is the one that the package installed
    // below this root.
    let installed = root.join("lib/systemd/system/fpgactl-bind@.service");
    let text = fs::read_to_string(&installed).map_err(with_path(&installed))?;
    let here = root.join("fpgactl-bind@.service");
    let program = root.join(INSTALLED_PROGRAM).display().to_string();
    fs::write(&here, text.replace("/usr/bin/fpgactl", &program)).map_err(with_path(&here))?;
    output(Command::new("systemd-analyze").args(["verify", "--man=no", "--recursive-errors=no"]).arg(&here))?;
    fs::remove_file(&here).map_err(with_path(&here))
}

/// Checks the udev rule that gives cards to the group.
fn rules(root: &Path) -> Result<(), PackageError> {
    let rules = root.join("lib/udev/rules.d/60-fpgactl.rules");
    // `verify` was added in systemd 254.
    let knows = on_path("udevadm").is_some()
        && output(Command::new("udevadm").args(["verify", "--help"]))
            .is_ok_and(|help| help.contains("verify"));
    if !knows {
        println!(
            "skipped: udev rules are not verified: no udevadm of systemd 254 or later (Debian: apt-get install udev)"
        );
        return Ok(());
    }
    drop(output(Command::new("udevadm").arg("verify").arg("--resolve-names=never").arg(&rules))?);
    Ok(())
}
