//! The Vivado project of a bitstream: `ni_design.tcl` with stand-ins for Vivado's commands (`board/vivado.tcl`).

use std::path::Path;
use std::process::Command;

use fpga_pci::testing::skipped_without;
use fpga_rtl::board::{BOARDS, Board, BoardError, BoardNetwork};
use fpga_sim::CardDescription;

/// Change of a card description.
type Change = fn(&mut CardDescription);

/// Record of the script's run; `None` without `tclsh`.
fn run(board: &Board, card: &CardDescription, network: BoardNetwork) -> Option<String> {
    if Command::new("tclsh").arg("/dev/null").output().is_err() {
        skipped_without("tclsh", "tcl");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let files = board.write(card, network, folder.path()).unwrap();
    assert!(files.iter().all(|file| file.exists()));
    let record = folder.path().join("record");
    let commands = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/board/vivado.tcl");
    let output = Command::new("tclsh")
        .arg(commands)
        .args([&folder.path().join("ni_design.tcl"), &record])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(std::fs::read_to_string(record).unwrap())
}

#[test]
fn block_design_connects_every_port_of_each_board() {
    for board in BOARDS {
        for network in [BoardNetwork::Loopback, BoardNetwork::External] {
            let Some(record) = run(&board, &board.card(), network) else { return };
            let has = |line: &str| assert!(record.lines().any(|found| found == line), "{line}\n{record}");
            // The same map for all masters; the registers of the CDMA are behind those of the network interface.
            has("map xdma/M_AXI memory/S_AXI/Mem0 0 0x200000");
            has("map cdma/Data_SG memory/S_AXI/Mem0 0 0x200000");
            has("map ni/m_axi memory/S_AXI/Mem0 0 0x200000");
            has("map xdma/M_AXI ni/s_axi/reg0 0x1000000000 0x40000");
            has("map xdma/M_AXI_LITE cdma/S_AXI_LITE/Reg 0x10000 4K");
            has("xdma CONFIG.pf0_subsystem_id 4e49");
            has("ni CONFIG.CDMA_OFFSET 0x10000");
        }
    }
}

#[test]
fn parameters_follow_card_description() {
    let board = BOARDS[0];
    let mut card = board.card();
    (card.ni.registry_entries, card.ni.mask_bits, card.ni.packet_size) = (256, 128, 4096);
    let Some(record) = run(&board, &card, BoardNetwork::Loopback) else { return };
    for line in ["ni CONFIG.ENTRIES 256", "ni CONFIG.MASK_BITS 128", "ni CONFIG.PACKET_LOG2 12"] {
        assert!(record.lines().any(|found| found == line), "{line}\n{record}");
    }
}

#[test]
fn card_beyond_the_rtl_is_refused_with_its_key() {
    assert!(matches!(Board::named("u51"), Err(BoardError::Unknown(_))));
    let folder = tempfile::tempdir().unwrap();
    let board = Board::named("kc705").unwrap();
    let changes: [(&str, Change); 4] = [
        ("ni.commands", |card| card.ni.commands = 1),
        ("ni.registry_entries", |card| card.ni.registry_entries = 100),
        ("xdma.data_width", |card| card.xdma.data_width = 256),
        ("memory.base", |card| card.memory.base = 0x1000),
    ];
    for (key, change) in changes {
        let mut card = board.card();
        change(&mut card);
        let error = board.write(&card, BoardNetwork::Loopback, folder.path()).unwrap_err();
        assert!(error.to_string().starts_with(key), "{error}");
        assert!(error.help().is_some());
    }
}
