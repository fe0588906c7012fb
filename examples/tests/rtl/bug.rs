//! The walk of `rtl-bug/README.md`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};

use fpga_driver::extension::simulation_command;
use fpga_driver::{Card, CardAddr};

use crate::rtl::KillGuard;
use crate::rtl::models::{Project, build};

/// Writes `data` and reads it again; returns the offset of the first wrong byte, what the simulation printed, and the waveform's size.
fn round_trip(plusargs: &[&str], data: &[u8]) -> Option<(Option<usize>, String, u64)> {
    let parts = Project {
        name: "rtl-bug",
        sources: &[
            "top.sv",
            "burst_ram.sv",
            "burst_checker.sv",
            "../../firmware-bindings/rtl/check/axi_checker.sv",
        ],
        map: None,
        trace: true,
    };
    let model = build(&parts)?;
    let folder = tempfile::tempdir().unwrap();
    let (socket, trace) = (folder.path().join("card"), folder.path().join("wave.fst"));
    let mut command = simulation_command(&model, &socket).unwrap();
    command.arg("+fpga_announce=1").arg(format!("+fpga_trace={}", trace.display())).args(plusargs);
    let mut child = KillGuard(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut output = BufReader::new(child.0.stdout.take().unwrap());
    let mut said = String::new();
    output.read_line(&mut said).unwrap();
    let card = Card::open(&format!("vfio-user:{}", socket.display())).unwrap();
    card.h2c(0).unwrap().write(card.buffer_from(data).unwrap(), CardAddr::new(0)).unwrap();
    let buffer = card.c2h(0).unwrap().read(card.buffer(data.len()).unwrap(), CardAddr::new(0)).unwrap();
    let wrong = buffer.to_vec().iter().zip(data).position(|(found, written)| found != written);
    drop(buffer);
    drop(card);
    terminate(&child.0);
    output.read_to_string(&mut said).unwrap();
    assert!(child.0.wait().unwrap().success(), "{said}");
    Some((wrong, said, trace.metadata().unwrap().len()))
}

fn terminate(child: &Child) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

#[test]
fn rtl_bug_is_found_by_its_checker() {
    let data: Vec<u8> = (0..1024_u32).map(|n| (n % 251).to_le_bytes()[0]).collect();
    let Some((wrong, said, trace)) = round_trip(&[], &data) else { return };
    assert_eq!(wrong, Some(0), "{said}");
    assert!(said.contains("write burst to 0x0, beat 32: memory address 0x0, expected 0x100"), "{said}");
    assert!(
        said.contains("m_axi: 0 violations in") && said.contains("1 bursts to wrong addresses"),
        "{said}"
    );
    assert!(trace > 0);
    // A burst that does not cross a multiple of 256 is right.
    let (wrong, said, _) = round_trip(&[], &data[..256]).unwrap();
    assert!(wrong.is_none() && said.contains("0 bursts to wrong addresses"), "{said}");
    let (wrong, said, _) = round_trip(&["+fixed"], &data).unwrap();
    assert!(wrong.is_none() && said.contains("0 bursts to wrong addresses"), "{said}");
}
