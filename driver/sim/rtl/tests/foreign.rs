//! Designs of others behind the model: the crossbar and the RAMs of verilog-axi, if `FPGA_VERILOG_AXI` names its directory.

use std::path::PathBuf;

use fpga_driver::Card;
use fpga_pci::testing::{skipped, skipped_without};
use fpga_registers::BarOffset;
use fpga_rtl::model::{self, ModelError, ModelOptions};
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

use crate::simulator::{read, write};

/// Two RAMs of 64 KiB behind each other.
const RAM: usize = 128 << 10;

#[test]
fn foreign_crossbar_and_rams_work_behind_the_model() {
    let Some(directory) = std::env::var_os("FPGA_VERILOG_AXI").map(PathBuf::from) else {
        return skipped("FPGA_VERILOG_AXI is not set to the directory of verilog-axi");
    };
    let names = [
        "axi_crossbar",
        "axi_crossbar_addr",
        "axi_crossbar_rd",
        "axi_crossbar_wr",
        "axi_register_rd",
        "axi_register_wr",
        "axi_ram",
        "axil_ram",
        "arbiter",
        "priority_encoder",
    ];
    let mut sources: Vec<_> = names.iter().map(|name| directory.join(format!("rtl/{name}.v"))).collect();
    sources.push(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/foreign/foreign_top.sv"));
    let folder = tempfile::tempdir().unwrap();
    let options = ModelOptions { sources, top: Some("foreign_top".to_owned()), ..ModelOptions::default() };
    match model::build(folder.path(), &options) {
        Err(ModelError::NoVerilator { .. }) => return skipped_without("verilator", "verilator"),
        built => built.unwrap(),
    }
    let card = Card::open(&format!("rtl:{}", folder.path().display())).unwrap();
    let mut random = Pcg64Mcg::new(11);
    let mut below = |limit: usize| usize::try_from(random.next_u64() % limit as u64).unwrap();
    let mut ram = vec![0; RAM];
    write(&card, 0, 0, &ram);
    for _ in 0..200 {
        // Bursts of up to 100 KB: they cross from one RAM to the other.
        let most = if below(4) == 0 { 100_000 } else { 9_000 };
        let length = 1 + below(most);
        let at = below(RAM - length);
        let data: Vec<u8> = (0..length).map(|_| u8::try_from(below(256)).unwrap()).collect();
        ram[at..at + length].copy_from_slice(&data);
        write(&card, u8::from(below(2) == 1), at as u64, &data);
        let (length, from) = (1 + below(9_000), below(RAM - 9_000));
        assert!(read(&card, u8::from(below(2) == 1), from as u64, length) == ram[from..from + length]);
    }
    let user = card.user_bar().unwrap();
    for register in 0..16_u32 {
        user.write32(BarOffset::new(u64::from(4 * register)), !register).unwrap();
    }
    for register in 0..16_u32 {
        assert_eq!(user.read32(BarOffset::new(u64::from(4 * register))).unwrap(), !register);
    }
}
