//! Models built and started as `fpgactl rtl` does.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use fpga_driver::Card;
use fpga_pci::testing::skipped_without;
use fpga_registers::BarOffset;
use fpga_rtl::model::{self, ModelError, ModelOptions};

use crate::simulator::{KillGuard, read, rtl, terminate, write};

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
        Err(ModelError::NoVerilator { .. }) => return skipped_without("verilator", "verilator"),
        built => built.unwrap(),
    }
    let (socket, trace) = (folder.path().join("card"), folder.path().join("wave.fst"));
    let mut command = fpga_driver::extension::simulation_command(&model, &socket).unwrap();
    command.arg("+fpga_announce=1").arg(format!("+fpga_trace={}", trace.display()));
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
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
    model_opens_by_name(&model);
}

/// The card `rtl:FOLDER` is a simulation that ends with its handle.
fn model_opens_by_name(model: &Path) {
    let name = format!("rtl:{}", model.display());
    let cards = [(1_u8, Card::open(&name).unwrap()), (2, Card::open(&name).unwrap())];
    for (number, card) in &cards {
        assert_eq!((card.name(), card.info().ids.device), (&*name, 0x9034));
        let data = [*number; 3000];
        write(card, 0, 0x123, &data);
    }
    for (number, card) in &cards {
        assert_eq!(read(card, 0, 0x123, 3000), [*number; 3000], "each handle has its own simulation");
    }
    let program = model.join("obj/simulation").canonicalize().unwrap();
    let simulations = || children(&program);
    assert_eq!(simulations(), 2);
    drop(cards);
    assert_eq!(simulations(), 0);
}

/// Returns the number of child processes of this one that run `program`.
fn children(program: &Path) -> usize {
    let own = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let is_child = |process: &Path| {
        let status = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
        // State and parent follow the name in parentheses.
        let mut rest = status.rsplit(") ").next().unwrap_or_default().split(' ');
        rest.next().is_some_and(|state| state != "Z") && rest.next() == Some(&own)
    };
    let runs = |process: &Path| std::fs::read_link(process.join("exe")).is_ok_and(|path| path == program);
    processes.filter(|process| is_child(&process.path()) && runs(&process.path())).count()
}

#[test]
fn folder_without_model_does_not_open() {
    let folder = tempfile::tempdir().unwrap();
    let error = Card::open(&format!("rtl:{}", folder.path().display())).unwrap_err();
    assert!(error.to_string().contains("contains no simulation"), "{error}");
    std::fs::create_dir(folder.path().join("obj")).unwrap();
    // A program that ends at once.
    std::fs::copy("/bin/false", folder.path().join("obj/simulation")).unwrap();
    let error = Card::open(&format!("rtl:{}", folder.path().display())).unwrap_err();
    assert!(error.to_string().contains("ended before it served its card"), "{error}");
}

#[test]
fn broken_source_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("broken.sv");
    std::fs::write(&source, "module broken; initial not_a_task(); endmodule\n").unwrap();
    let options = ModelOptions { sources: vec![source], ..ModelOptions::default() };
    match model::build(Path::new(&folder.path().join("model")), &options) {
        Err(ModelError::NoVerilator { .. }) => skipped_without("verilator", "verilator"),
        Err(error @ ModelError::Refused { .. }) => {
            assert!(error.to_string().contains("not_a_task"), "{error}")
        }
        other => panic!("{other:?}"),
    }
}

/// A design whose time step does not end stops the simulator, but a signal and the time limit end the process.
#[test]
fn simulation_that_hangs_ends_at_signal_and_time_limit() {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().join("hang_top.sv");
    let text = r#"module hang_top;
        wire clock, reset_n;
        fpga_xdma xdma (.sys_clk(1'b0), .sys_clk_gt(1'b0), .sys_rst_n(1'b1), .pci_exp_rxp(1'b0), .pci_exp_rxn(1'b0),
            .axi_aclk(clock), .axi_aresetn(reset_n), .usr_irq_req(1'b0));
        // After reset: a loop without delay.
        always @(posedge reset_n) begin
            $display("stuck");
            $fflush;
            while (1) if ($urandom == 32'd0) $display("a number");
        end
    endmodule
    "#;
    std::fs::write(&top, text).unwrap();
    let options =
        ModelOptions { sources: vec![top], top: Some("hang_top".to_owned()), ..ModelOptions::default() };
    match model::build(folder.path(), &options) {
        Err(ModelError::NoVerilator { .. }) => return skipped_without("verilator", "verilator"),
        built => built.unwrap(),
    }
    let command =
        || fpga_driver::extension::simulation_command(folder.path(), &folder.path().join("card")).unwrap();
    let mut child = command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    assert!(output.lines().any(|line| line.unwrap() == "stuck"));
    terminate(&child);
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("does not end a time step"), "{said}");
    // The limit may be over before the design hangs.
    let ended = command().env("FPGA_RTL_TIMEOUT", "0.2").output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(said.contains("its time limit of 200ms is over"), "{said}");
}

#[test]
fn signal_of_wrong_width_at_xdma_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().join("top.sv");
    let text = std::fs::read_to_string(rtl().join("reference/reference_top.sv")).unwrap();
    let text = text.replace("wire [DATA_WIDTH-1:0] wdata, rdata;", "wire [127:0] wdata, rdata;");
    std::fs::write(&top, text.replace("wire [ADDR_WIDTH-1:0] awaddr,", "wire [31:0] awaddr,")).unwrap();
    let options = ModelOptions {
        sources: sources().into_iter().skip(1).chain([top]).collect(),
        top: Some("reference_top".to_owned()),
        ..ModelOptions::default()
    };
    let model = folder.path().join("model");
    let wrong = match model::build(&model, &options) {
        Err(ModelError::NoVerilator { .. }) => return skipped_without("verilator", "verilator"),
        Err(ModelError::Widths { wrong }) => wrong,
        built => panic!("{built:?}"),
    };
    let ports: Vec<_> = wrong.iter().map(|wrong| (&*wrong.port, wrong.expected, wrong.found)).collect();
    assert_eq!(ports, [("m_axi_wdata", 256, 128), ("m_axi_rdata", 256, 128)]);
    assert!(!model.join("obj/simulation").exists());
}

/// The clock of the card is an input of the top module: without the harness, it would not run, and the card would be in reset.
#[test]
fn harness_drives_clock_and_reset_of_top_level() {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().join("board_top.sv");
    let text = r"module board_top #(parameter int LANES = 2) (
        input wire sys_clk_p, sys_clk_n, // 100 MHz
        input wire sys_rst_n,
        input wire [LANES-1:0] pci_exp_rxp, pci_exp_rxn,
        output wire [LANES-1:0] pci_exp_txp, pci_exp_txn
    );
        wire clock, reset_n, awvalid, awready, wvalid, wready, bvalid, bready, arvalid, arready, rvalid, rready;
        wire [31:0] awaddr, wdata, araddr, rdata;
        wire [3:0] wstrb, request, acknowledge;
        wire [1:0] bresp, rresp;
        fpga_xdma #(.HALF_PERIOD(0), .LANES(LANES), .USER_INTERRUPTS(4)) xdma (
            .sys_clk(sys_clk_p), .sys_clk_gt(~sys_clk_n), .sys_rst_n, .pci_exp_rxp, .pci_exp_rxn, .pci_exp_txp, .pci_exp_txn,
            .axi_aclk(clock), .axi_aresetn(reset_n), .usr_irq_req(request), .usr_irq_ack(acknowledge),
            .m_axil_awaddr(awaddr), .m_axil_awvalid(awvalid), .m_axil_awready(awready), .m_axil_wdata(wdata), .m_axil_wstrb(wstrb),
            .m_axil_wvalid(wvalid), .m_axil_wready(wready), .m_axil_bvalid(bvalid), .m_axil_bresp(bresp), .m_axil_bready(bready),
            .m_axil_araddr(araddr), .m_axil_arvalid(arvalid), .m_axil_arready(arready), .m_axil_rdata(rdata), .m_axil_rresp(rresp),
            .m_axil_rvalid(rvalid), .m_axil_rready(rready));
        reference_registers registers (
            .clk(clock), .rst_n(reset_n), .s_awaddr(awaddr), .s_awvalid(awvalid), .s_awready(awready), .s_wdata(wdata), .s_wstrb(wstrb),
            .s_wvalid(wvalid), .s_wready(wready), .s_bvalid(bvalid), .s_bresp(bresp), .s_bready(bready), .s_araddr(araddr),
            .s_arvalid(arvalid), .s_arready(arready), .s_rdata(rdata), .s_rresp(rresp), .s_rvalid(rvalid), .s_rready(rready),
            .late_enable(1'b0), .usr_irq_req(request), .usr_irq_ack(acknowledge));
    endmodule
    ";
    std::fs::write(&top, text).unwrap();
    let model = folder.path().join("model");
    let options = ModelOptions {
        sources: vec![top, rtl().join("reference/reference_registers.sv")],
        top: Some("board_top".to_owned()),
        harness: true,
        ..ModelOptions::default()
    };
    match model::build(&model, &options) {
        Err(ModelError::NoVerilator { .. }) => return skipped_without("verilator", "verilator"),
        built => built.unwrap(),
    }
    let card = Card::open(&format!("rtl:{}", model.display())).unwrap();
    assert_eq!(card.user_bar().unwrap().read32(BarOffset::new(0)).unwrap(), 0x4652_4546);
    drop(card);
    let options = ModelOptions { top: Some("other_top".to_owned()), ..options };
    let error = model::build(&model, &options).unwrap_err();
    assert!(error.to_string().contains("no source contains module other_top"), "{error}");
}
