//! Models built and started as `fpgactl rtl` does.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use fpga_driver::Card;
use fpga_registers::BarOffset;
use fpga_rtl::model::{self, ModelError, ModelOptions, RunOptions};

use crate::simulator::{KillGuard, rtl, terminate};

fn sources() -> Vec<PathBuf> {
    let names = ["reference/reference_top.sv", "reference/axi_ram.sv", "reference/reference_registers.sv"];
    names.iter().chain(&["check/axi_checker.sv"]).map(|name| rtl().join(name)).collect()
}

#[test]
fn model_with_card_file_and_trace_runs() {
    let folder = tempfile::tempdir().unwrap();
    let card = folder.path().join("description.yaml");
    let text = "schema_version: 3\nname: my card\npci: {device: 0x9034, subsystem_device: 7}\nbars: {bypass: null}\n\
                xdma: {data_width: 256, h2c_channels: 2, c2h_channels: 2}\nmemory: {size: 0x10000}\n";
    std::fs::write(&card, text).unwrap();
    let model = folder.path().join("model");
    let options = ModelOptions {
        sources: sources(),
        top: Some("reference_top".to_owned()),
        card: Some(card),
        trace: true,
        ..ModelOptions::default()
    };
    match model::build(&model, &options) {
        Err(ModelError::NoVerilator { .. }) => return println!("skipped: verilator is not installed"),
        built => built.unwrap(),
    }
    let (socket, trace) = (folder.path().join("card"), folder.path().join("wave.fst"));
    let run = RunOptions { socket: socket.clone(), trace: Some(trace.clone()), ..RunOptions::default() };
    let child = model::command(&model, &run).unwrap().stdout(Stdio::piped()).spawn().unwrap();
    let mut child = KillGuard(child);
    let mut ready = String::new();
    let mut output = BufReader::new(child.0.stdout.take().unwrap());
    output.read_line(&mut ready).unwrap();
    assert_eq!(ready, format!("ready {}\n", socket.display()));
    let card = Card::open(&format!("vfio-user:{}", socket.display())).unwrap();
    assert_eq!(card.info().ids.device, 0x9034);
    assert_eq!(card.user_bar().unwrap().read32(BarOffset::new(0)).unwrap(), 0x4652_4546);
    drop(card);
    terminate(&child.0);
    assert!(child.0.wait().unwrap().success());
    assert!(std::fs::metadata(&trace).unwrap().len() > 0);
}

#[test]
fn broken_source_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("broken.sv");
    std::fs::write(&source, "module broken; initial not_a_task(); endmodule\n").unwrap();
    let options = ModelOptions { sources: vec![source], ..ModelOptions::default() };
    match model::build(Path::new(&folder.path().join("model")), &options) {
        Err(ModelError::NoVerilator { .. }) => println!("skipped: verilator is not installed"),
        Err(error @ ModelError::Refused { .. }) => {
            assert!(error.to_string().contains("not_a_task"), "{error}")
        }
        other => panic!("{other:?}"),
    }
}
