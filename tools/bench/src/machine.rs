//! Machine and versions of the measurement.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Properties of the machine and its tools: name and value, in the order of the report.
pub(crate) type Facts = Vec<(&'static str, String)>;

/// Properties of the machine, without anything that identifies it.
pub(crate) fn machine(cpus: [usize; 2]) -> Facts {
    let cpuinfo = read("/proc/cpuinfo");
    let hypervisor =
        field(&cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    let count = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    vec![
        ("CPU", field(&cpuinfo, "model name").unwrap_or("unknown").to_owned()),
        ("CPUs", format!("{count}{}", if hypervisor { ", of a virtual machine" } else { "" })),
        ("submitting CPU, copying CPU", format!("{}, {}", cpus[0], cpus[1])),
        ("caches of the submitting CPU", caches(Path::new("/sys/devices/system/cpu"), cpus[0])),
        ("kernel", or_unknown(&read("/proc/sys/kernel/osrelease"))),
        ("transparent huge pages", chosen(&read("/sys/kernel/mm/transparent_hugepage/enabled"))),
        ("the same of shared memory", chosen(&read("/sys/kernel/mm/transparent_hugepage/shmem_enabled"))),
        ("clock", or_unknown(&read("/sys/devices/system/clocksource/clocksource0/current_clocksource"))),
        (
            "load at the start (1 min)",
            or_unknown(read("/proc/loadavg").split(' ').next().unwrap_or_default()),
        ),
    ]
}

/// Versions; `peer`: DPDK's, if it is used.
pub(crate) fn versions(root: &Path, peer: Option<&str>) -> Facts {
    let ask = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).current_dir(root).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = match ask("git", &["rev-parse", "--short=12", "HEAD"]) {
        Some(commit) => match ask("git", &["status", "--porcelain", "--untracked-files=no"]).as_deref() {
            Some("") => commit,
            _ => format!("{commit}, with changes that are not committed"),
        },
        None => "unknown".to_owned(),
    };
    let mut facts = vec![
        ("project", commit),
        ("compiler", ask("rustc", &["--version"]).unwrap_or_else(|| "unknown".to_owned())),
    ];
    if let Some(dpdk) = peer {
        facts.push(("DPDK", dpdk.to_owned()));
        let gcc = ask("gcc", &["--version"]).and_then(|text| Some(text.lines().next()?.to_owned()));
        facts.push(("C compiler of the peer", gcc.unwrap_or_else(|| "unknown".to_owned())));
    }
    facts
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn or_unknown(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() { "unknown".to_owned() } else { text.to_owned() }
}

/// First value of this name in the text of `/proc/cpuinfo`.
fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    cpuinfo.lines().filter_map(|line| line.split_once(':')).find_map(|(key, value)| {
        let found = key.trim_end() == name;
        found.then(|| value.trim())
    })
}

/// The bracketed choice among several: `always [madvise] never`.
fn chosen(text: &str) -> String {
    let inner = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    or_unknown(inner.map_or("", |(choice, _)| choice))
}

fn caches(cpus: &Path, cpu: usize) -> String {
    let folder = cpus.join(format!("cpu{cpu}/cache"));
    let mut found = Vec::new();
    for index in 0..8 {
        let part = |name| fs::read_to_string(folder.join(format!("index{index}/{name}"))).ok();
        let (Some(level), Some(kind), Some(size)) = (part("level"), part("type"), part("size")) else {
            continue;
        };
        let kind = match kind.trim() {
            "Data" => "d",
            "Instruction" => "i",
            _ => "",
        };
        found.push(format!("L{}{kind} {}iB", level.trim(), size.trim()));
    }
    or_unknown(&found.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_system_files_are_parsed() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A CPU\nflags\t\t: fpu hypervisor\n";
        assert_eq!(field(cpuinfo, "model name"), Some("A CPU"));
        assert_eq!(field(cpuinfo, "model"), None);
        assert_eq!(chosen("always [madvise] never\n"), "madvise");
        assert_eq!(chosen(""), "unknown");
    }

    #[test]
    fn machine_caches_are_listed_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for (index, parts) in [["1", "Data", "32K"], ["2", "Unified", "1024K"]].into_iter().enumerate() {
            let folder = dir.path().join(format!("cpu3/cache/index{index}"));
            fs::create_dir_all(&folder).unwrap();
            for (name, text) in ["level", "type", "size"].into_iter().zip(parts) {
                fs::write(folder.join(name), format!("{text}\n")).unwrap();
            }
        }
        assert_eq!(caches(dir.path(), 3), "L1d 32KiB, L2 1024KiB");
        assert_eq!(caches(dir.path(), 4), "unknown");
    }
}
