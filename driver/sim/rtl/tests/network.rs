//! Frames between designs of one simulation.

use std::process::Command;

use crate::simulator;

const SOURCES: [&str; 2] = ["network/fpga_network.sv", "reference/network_top.sv"];

/// Received, wrong and late frames of both stations, which send 1000 each, with these options of the network.
fn run(options: &str) -> Option<[[u32; 3]; 2]> {
    let program = simulator::build("network_top", &SOURCES, &[], "rtl-network")?;
    let output =
        Command::new(program).arg(format!("+fpga_network={options}")).env_remove("LD_LIBRARY_PATH").output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let numbers = |station: usize| {
        let line = text.lines().find(|line| line.starts_with(&format!("station {station}:"))).unwrap();
        let numbers = line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect::<Vec<u32>>();
        numbers.try_into().unwrap()
    };
    Some([0, 1].map(numbers))
}

#[test]
fn frames_arrive_between_ports_of_different_width() {
    let Some(counts) = run("") else { return };
    assert_eq!(counts, [[1000, 0, 0]; 2]);
}

#[test]
fn network_loses_damages_and_reorders() {
    let Some([[received, wrong, late], _]) = run("loss=0.1,damage=0.1,reorder=16,seed=3,delay_ns=2000")
    else {
        return;
    };
    assert!((850..950).contains(&received), "{received}");
    assert!((50..150).contains(&wrong), "{wrong}");
    assert!((200..600).contains(&late), "{late}");
    let Some([[received, ..], _]) = run("duplicate=0.5,seed=5") else { return };
    assert!((1400..1600).contains(&received), "{received}");
}

#[test]
fn network_option_is_named_when_wrong() {
    let Some(program) = simulator::build("network_top", &SOURCES, &[], "rtl-network") else { return };
    let output = Command::new(program).arg("+fpga_network=speed=1").env_remove("LD_LIBRARY_PATH").output();
    let output = output.unwrap();
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains("fpga_network: option `speed=1` is not one of loss=P")
    );
    assert!(!output.status.success());
}
