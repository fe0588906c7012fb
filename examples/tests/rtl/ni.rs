//! The cards of `rtl-ni`: built from the sources that `rtl-ni/run.sh` names, with a transfer from one to the other.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use fpga_driver::extension::simulation_command;
use fpga_driver::{Card, CardAddr, CardRange};
use fpga_rdma::{Endpoint, EndpointOptions, SendOptions};

use crate::rtl::KillGuard;
use crate::rtl::models::{Project, build, project};

const LENGTH: usize = 64 << 10;
const TARGET: u64 = 1 << 20;
const TIMEOUT: Duration = Duration::from_mins(10);

/// Program in place of `fpgactl`: it writes its arguments to a file and fails, which ends the script.
const STAND_IN: &str = "#!/bin/sh\nprintf '%s\\n' \"$@\" > \"$FPGA_TEST_ARGUMENTS\"\nexit 1\n";

/// Returns the sources that the script gives to `fpgactl rtl build`.
fn sources() -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let (program, arguments) = (folder.path().join("fpgactl"), folder.path().join("arguments"));
    fs::write(&program, STAND_IN).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let mut script = Command::new(project("rtl-ni").join("run.sh"));
    let status = script.env("PATH", path).env("FPGA_TEST_ARGUMENTS", &arguments).status().unwrap();
    assert!(!status.success());
    let arguments = fs::read_to_string(arguments).unwrap();
    let mut arguments = arguments.lines().map(str::to_owned);
    assert_eq!([arguments.next().as_deref(), arguments.next().as_deref()], [Some("rtl"), Some("build")]);
    arguments.take_while(|argument| !argument.starts_with('-')).collect()
}

#[test]
#[ignore = "long: 60 s: builds two cards"]
fn rtl_ni_cards_transfer_over_network_with_losses() {
    let sources = sources();
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let parts = Project { name: "rtl-ni", sources: &sources, map: None, trace: false };
    let Some(model) = build(&parts) else { return };
    let folder = tempfile::tempdir().unwrap();
    let sockets = ["first", "second"].map(|name| folder.path().join(name));
    let mut command = simulation_command(&model, &sockets[0]).unwrap();
    command
        .arg(format!("+fpga_socket.1={}", sockets[1].display()))
        .arg(format!("+fpga_card.1={}", project("rtl-ni/card.yaml").display()))
        .arg("+fpga_announce=1");
    let mut child = KillGuard(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut output = BufReader::new(child.0.stdout.take().unwrap());
    for _ in &sockets {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(line.starts_with("ready "), "{line}");
    }
    let cards = sockets.map(|socket| Card::open(&format!("vfio-user:{}", socket.display())).unwrap());
    // An answer takes milliseconds of this program's time.
    let mut options = EndpointOptions::default();
    options.give_up = TIMEOUT;
    let [mut sender, mut receiver] =
        cards.each_ref().map(|card| Endpoint::open_with(card, &options).unwrap());
    let data: Vec<u8> = (0..LENGTH).map(|offset| offset.wrapping_mul(31).to_le_bytes()[1]).collect();
    sender.write(cards[0].buffer_from(&data).unwrap(), CardAddr::ZERO).unwrap();
    let range = CardRange::new(CardAddr::new(TARGET), LENGTH as u64);
    let region = receiver.open_region(sender.node(), range).unwrap().remote;
    let ticket = sender.send(CardAddr::ZERO, &region, 0, LENGTH as u64, SendOptions::default()).unwrap();
    sender.wait(ticket, TIMEOUT).unwrap().result.unwrap();
    assert_eq!(receiver.wait_notification(TIMEOUT).unwrap().length, LENGTH as u64);
    let buffer = cards[1].buffer(LENGTH).unwrap();
    let buffer = cards[1].c2h(1).unwrap().read(buffer, CardAddr::new(TARGET)).unwrap();
    assert!(buffer.to_vec() == data);
}
