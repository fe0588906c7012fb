//! Machine and versions of the measurement.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::cells::size_text;
use super::record::CopyChoice;

/// Properties of the machine and its tools: name and value, in the order of the report.
pub(crate) type Facts = Vec<(String, String)>;

/// Properties of the machine, without anything that identifies it.
pub(crate) fn machine(cpus: [usize; 2]) -> Facts {
    let cpuinfo = read("/proc/cpuinfo");
    let hypervisor =
        field(&cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    let count = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let facts = [
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
    ];
    facts.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Copy routines that this project's program chose, per kind of pages.
pub(crate) fn copy_routines(choices: &[CopyChoice]) -> Facts {
    let mut facts = Facts::new();
    for CopyChoice { pages, length, routine } in choices {
        let name = format!("copy routines, {pages} pages");
        let text = format!("{} {routine}", size_text(*length));
        match facts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, value)) => *value += &format!(", {text}"),
            None => facts.push((name, text)),
        }
    }
    facts
}

/// Output of a program in a folder; `None` if it fails.
fn ask(folder: &Path, program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).current_dir(folder).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Commit of the project.
pub(crate) fn commit(root: &Path) -> String {
    match ask(root, "git", &["rev-parse", "--short=12", "HEAD"]) {
        Some(commit) => match ask(root, "git", &["status", "--porcelain", "--untracked-files=no"]).as_deref()
        {
            Some("") => commit,
            _ => format!("{commit}, with changes that are not committed"),
        },
        None => "unknown".to_owned(),
    }
}

/// Today's date in UTC, as `YYYY-MM-DD`.
pub(crate) fn today() -> String {
    or_unknown(&ask(Path::new("/"), "date", &["-u", "+%F"]).unwrap_or_default())
}

/// Name of the CPU without trademarks, clock and the words that every CPU has: `Intel Xeon`.
pub(crate) fn short_cpu_name(facts: &Facts) -> String {
    let name = facts.iter().find(|(name, _)| name == "CPU").map_or("", |(_, value)| value);
    let name = name.split('@').next().unwrap_or_default().replace("(R)", "").replace("(TM)", "");
    let words = name.split_whitespace().filter(|word| {
        !["CPU", "Processor", "processor"].contains(word) && !word.to_lowercase().ends_with("-core")
    });
    or_unknown(&words.collect::<Vec<_>>().join(" "))
}

/// Versions; `peer`: DPDK's, if it is used.
pub(crate) fn versions(root: &Path, peer: Option<&str>) -> Facts {
    let compiler = ask(root, "rustc", &["--version"]).unwrap_or_else(|| "unknown".to_owned());
    let mut facts = vec![("compiler".to_owned(), compiler)];
    if let Some(dpdk) = peer {
        facts.push(("DPDK".to_owned(), dpdk.to_owned()));
        let gcc = ask(root, "gcc", &["--version"]).and_then(|text| Some(text.lines().next()?.to_owned()));
        facts.push(("C compiler of the peer".to_owned(), gcc.unwrap_or_else(|| "unknown".to_owned())));
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
    fn machine_cpu_name_is_short() {
        for (name, short) in [
            ("Intel(R) Xeon(R) Processor", "Intel Xeon"),
            ("AMD EPYC 7763 64-Core Processor", "AMD EPYC 7763"),
            ("Intel(R) Core(TM) i7-8700 CPU @ 3.20GHz", "Intel Core i7-8700"),
            ("", "unknown"),
        ] {
            assert_eq!(short_cpu_name(&vec![("CPU".to_owned(), name.to_owned())]), short);
        }
    }

    #[test]
    fn machine_copy_routines_are_listed_per_pages() {
        let choice = |pages: &str, length, routine: &str| CopyChoice {
            pages: pages.to_owned(),
            length,
            routine: routine.to_owned(),
        };
        let choices =
            [choice("normal", 512, "avx2"), choice("normal", 4096, "rep-movsb"), choice("huge", 512, "avx2")];
        let facts = copy_routines(&choices);
        assert_eq!(facts.len(), 2);
        assert_eq!(facts[0].1, "512 B avx2, 4 KiB rep-movsb");
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
