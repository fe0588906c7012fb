//! Parts of a simulation in its waveform.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use fpga_driver::{Card, CardAddr};
use fpga_pci::testing::skipped_without;
use fpga_registers::BarOffset;

use crate::simulator::{REFERENCE, Simulation, build, read, write};

/// Module whose ports the tests look at.
const SCOPE: &str = "xdma";

/// The reference top level with a waveform in the text format VCD.
fn model() -> Option<PathBuf> {
    build("reference_top", &REFERENCE, &["-GDATA_WIDTH=256", "-GCHANNELS=2", "--trace"], "rtl-reference-vcd")
}

/// Values of a waveform: time, and the value that signals of [`SCOPE`] have from then on.
struct Wave {
    changes: Vec<(u64, String, u64)>,
    length: usize,
}

impl Wave {
    fn load(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let (mut scopes, mut time, mut changes) = (Vec::new(), 0, Vec::new());
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["$scope", _, name, "$end"] => scopes.push(*name),
                ["$upscope", "$end"] => drop(scopes.pop()),
                ["$var", _, _, code, name, ..] if scopes.last() == Some(&SCOPE) => {
                    names.entry(code).or_default().push(name);
                }
                [word] if word.starts_with('#') => time = word[1..].parse().unwrap(),
                [value, code] if value.starts_with('b') => {
                    let value = u64::from_str_radix(&value[1..], 2).unwrap_or(u64::MAX);
                    for name in names.get(code).into_iter().flatten() {
                        changes.push((time, (*name).to_owned(), value));
                    }
                }
                [word] if word.starts_with(['0', '1']) => {
                    for name in names.get(&word[1..]).into_iter().flatten() {
                        changes.push((time, (*name).to_owned(), u64::from(word.starts_with('1'))));
                    }
                }
                _ => {}
            }
        }
        Self { changes, length: text.len() }
    }

    /// Cycles in which `valid` is high with the values of `address` in them.
    fn addresses(&self, valid: &str, address: &str) -> Vec<u64> {
        let (mut at, mut is_valid, mut seen) = (0, false, Vec::new());
        for (_, name, value) in &self.changes {
            // Both change in the same time step, in any order: the clock's falling edge is after it.
            match name.as_str() {
                name if name == address => at = *value,
                name if name == valid => is_valid = *value == 1,
                "axi_aclk" if *value == 0 && is_valid => seen.push(at),
                _ => {}
            }
        }
        seen
    }

    fn edges(&self) -> Vec<u64> {
        let rises = self.changes.iter().filter(|(_, name, value)| name == "axi_aclk" && *value == 1);
        rises.map(|(time, ..)| *time).collect()
    }
}

/// Accesses of every kind; the one that triggers is in the middle.
fn work(card: &Card) {
    let bar = card.user_bar().unwrap();
    let data = vec![0x5A; 20_000];
    for round in 0..8 {
        bar.write32(BarOffset::new(4), round).unwrap();
        write(card, 0, 0x1_0000, &data);
        if round == 3 {
            write(card, 0, 0x4_2000, &data[..512]);
            bar.read32(BarOffset::new(0x10)).unwrap();
            let mut c2h = card.c2h(0).unwrap();
            // No slave.
            c2h.read(card.buffer(64).unwrap(), CardAddr::new(1 << 20)).unwrap_err();
        }
        assert!(read(card, 1, 0x1_0000, data.len()) == data);
    }
}

#[test]
fn waveform_has_the_triggered_part() {
    let Some(program) = model() else { return };
    let folder = tempfile::tempdir().unwrap();
    let wave = |number: usize, plusargs: &[&str]| {
        let file = folder.path().join(format!("{number}.vcd"));
        let trace = format!("+fpga_trace={}", file.display());
        let simulation = Simulation::run(&program, &[plusargs, &[&trace]].concat());
        let card = simulation.card();
        work(&card);
        drop(card);
        simulation.end_without_violations();
        Wave::load(&file)
    };
    let whole = wave(0, &["+fpga_period=8000"]);
    assert!(whole.edges().windows(2).all(|pair| pair[1] - pair[0] == 8000));
    let cases: [(&[&str], _, _, u64); 4] = [
        (
            &["+fpga_trace_from=write:m_axi:0x42010", "+fpga_trace_until=read:m_axil:0x10"],
            "m_axi_awvalid",
            "m_axi_awaddr",
            0x4_2000,
        ),
        (&["+fpga_trace_from=read:0x10", "+fpga_trace_after=20"], "m_axil_arvalid", "m_axil_araddr", 0x10),
        (&["+fpga_trace_until=write:m_axil:4"], "m_axil_awvalid", "m_axil_awaddr", 4),
        (&["+fpga_trace_from=dma", "+fpga_trace_after=100"], "m_axi_awvalid", "m_axi_awaddr", 0x1_0000),
    ];
    for (number, (plusargs, valid, signal, address)) in cases.into_iter().enumerate() {
        let part = wave(number + 1, plusargs);
        assert!(whole.addresses(valid, signal).contains(&address), "{plusargs:?}");
        assert_eq!(part.addresses(valid, signal).first(), Some(&address), "{plusargs:?}");
        assert!(part.edges().len() * 5 < whole.edges().len(), "{plusargs:?}: {}", part.edges().len());
        assert!(part.length < whole.length, "{plusargs:?}");
    }
    // The error's response comes at the trigger.
    let part = wave(9, &["+fpga_trace_from=error", "+fpga_trace_after=50"]);
    assert_eq!(part.edges().len(), 51);
    let cycle = whole.edges().len() as u64 / 2;
    let part = wave(10, &[&format!("+fpga_trace_from=cycle:{cycle}"), "+fpga_trace_until=cycle:0"]);
    assert_eq!(part.edges().len(), 66);
    assert_eq!(part.edges().first(), Some(&(cycle * 4000 - 2000)));
}

/// The design itself begins the waveform; the file is FST, which a program of another project reads.
#[test]
fn design_triggers_waveform_in_fst() {
    let name = "rtl-reference-fst";
    let Some(program) = build(
        "trigger_top",
        &[&REFERENCE[..], &["reference/trigger_top.sv"]].concat(),
        &["--trace-fst"],
        name,
    ) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let size = |file: &str, plusargs: &[&str]| {
        let file = folder.path().join(file);
        let trace = format!("+fpga_trace={}", file.display());
        let simulation = Simulation::run(&program, &[plusargs, &[&trace]].concat());
        let card = simulation.card();
        work(&card);
        drop(card);
        simulation.end_without_violations();
        std::fs::metadata(&file).unwrap().len()
    };
    let whole = size("whole.fst", &[]);
    let part = size("part.fst", &["+fpga_trace_from=design", "+fpga_trace_after=50"]);
    assert!(part * 2 < whole, "{part} of {whole} bytes");
    let (fst, vcd) = (folder.path().join("part.fst"), folder.path().join("part.vcd"));
    let mut reader = Command::new(std::env::var_os("FST2VCD").unwrap_or_else(|| "fst2vcd".into()));
    match reader.arg("-f").arg(&fst).arg("-o").arg(&vcd).status() {
        Ok(status) => assert!(status.success()),
        Err(_) => return skipped_without("fst2vcd", "gtkwave"),
    }
    let part = Wave::load(&vcd);
    // The trigger is the address phase; the response follows.
    assert_eq!(part.addresses("m_axil_rvalid", "m_axil_araddr").first(), Some(&0x10));
    assert_eq!(part.edges().len(), 51);
}
