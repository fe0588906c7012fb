//! `rtl`: models of a user's RTL.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::whole;

/// Simulate your RTL behind the driver, with Verilator
#[derive(Debug, Clone, Subcommand)]
pub enum RtlCommand {
    /// Build a model of a top level whose XDMA instance is the module fpga_xdma
    Build(RtlBuildArgs),
    /// Run a model and serve its card, until SIGINT or SIGTERM
    Run(RtlRunArgs),
    /// Write a module with the name and the ports of one XDMA IP instance, so that its top level compiles unchanged
    Wrapper(RtlWrapperArgs),
    /// Write the RTL of a register block from a register map
    Registers(RtlRegistersArgs),
    /// Write the Vivado project of a bitstream with this project's network interface
    Board(RtlBoardArgs),
}

/// Options of `rtl wrapper`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The ports are those of the IP's instantiation template. Ports that fpga_xdma does not have are driven with 0.\n\n\
                        Examples:\n  \
                        fpgactl rtl wrapper --card-file card.yaml --module xdma_0 -o xdma_0.sv\n  \
                        fpgactl rtl build top.sv xdma_0.sv --card-file card.yaml -o model"
)]
pub struct RtlWrapperArgs {
    /// Description of the card
    #[arg(long, value_name = "FILE.yaml")]
    pub card_file: PathBuf,
    /// Name of the module: that of the IP instance
    #[arg(long, value_name = "NAME", default_value = "xdma_0")]
    pub module: String,
    /// Lines of usr_irq_req, 1 to 16 [default: MSI-X vectors that the channels do not use, at most 16]
    #[arg(long, value_name = "N", value_parser = whole::<u8>(1, 16))]
    pub user_interrupts: Option<u8>,
    /// The IP has descriptor bypass on all channels
    #[arg(long)]
    pub descriptor_bypass: bool,
    /// The IP has the configuration management interface
    #[arg(long)]
    pub cfg_mgmt: bool,
    /// axi_aclk is sys_clk, for test benches that make the clock
    #[arg(long)]
    pub clock_input: bool,
    /// File to write
    #[arg(short, long, value_name = "FILE.sv", default_value = "-")]
    pub out: PathBuf,
}

/// Options of `rtl registers`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Offsets and fields are those of `fpgactl regs --map` and of the typed bindings of the same map.\n\n\
                        Examples:\n  \
                        fpgactl rtl registers filter.yaml -o filter_registers.sv"
)]
pub struct RtlRegistersArgs {
    /// Register map
    #[arg(value_name = "MAP.yaml")]
    pub map: PathBuf,
    /// Name of the module [default: that of the map's file, and _registers]
    #[arg(long, value_name = "NAME")]
    pub module: Option<String>,
    /// File to write
    #[arg(short, long, value_name = "FILE.sv", default_value = "-")]
    pub out: PathBuf,
}

/// Options of `rtl board`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Boards: alveo-u50, kc705. The folder has the sources of the network interface, parameters.tcl with the numbers of the card \
                        description, ni_design.tcl and constraints. This project has no vendor tools: the bitstream was never built by it.\n\n\
                        Examples:\n  \
                        fpgactl rtl board alveo-u50 -o u50 && cd u50 && vivado -mode batch -source ni_design.tcl"
)]
pub struct RtlBoardArgs {
    /// Board
    #[arg(value_name = "BOARD")]
    pub board: String,
    /// Description of the card, whose numbers the bitstream has [default: 2 MiB of memory on the chip, 2 channels of each direction]
    #[arg(long, value_name = "FILE.yaml")]
    pub card_file: Option<PathBuf>,
    /// Connect the network port to AXI4-Stream ports of the block design, for a MAC [default: to itself]
    #[arg(long)]
    pub external_network: bool,
    /// Folder to write
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
}

/// Options of `rtl build`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The top module has no inputs, except with --harness: fpga_xdma makes the clock and the reset of the AXI side. Verilator is found by the \
                        variable VERILATOR or in PATH.\n\n\
                        Examples:\n  \
                        fpgactl rtl build top.sv filter.sv -o model\n  \
                        fpgactl rtl build rtl/*.sv --top top --card-file card.yaml --trace -o model"
)]
pub struct RtlBuildArgs {
    /// SystemVerilog and Verilog sources
    #[arg(required = true, value_name = "FILE.sv")]
    pub sources: Vec<PathBuf>,
    /// Top module [default: the only module that no other one instantiates]
    #[arg(long, value_name = "MODULE")]
    pub top: Option<String>,
    /// Description of the card, which agrees with the parameters of fpga_xdma [default: a card with these parameters]
    #[arg(long, value_name = "FILE.yaml")]
    pub card_file: Option<PathBuf>,
    /// Build in support for waveforms, which makes the model slower
    #[arg(long)]
    pub trace: bool,
    /// Drive the inputs of the top module: clocks with 100 MHz, resets inactive, others 0, by their names
    #[arg(long, requires = "top")]
    pub harness: bool,
    /// Further argument of Verilator. Repeatable
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub verilator: Vec<String>,
    /// Folder of the model
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
}

/// Options of `rtl run`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "--record FILE writes a record of the simulation: accesses of the host, AXI commands, data and responses, \
                        interrupts, each with the simulated time and the host's. Its format is in driver/sim/rtl/README.md.\n\n\
                        Examples:\n  \
                        fpgactl rtl run model --socket /tmp/card &\n  \
                        fpgactl info --card vfio-user:/tmp/card\n\n  \
                        fpgactl rtl run model --socket /tmp/card --trace wave.fst +seed=7\n  \
                        fpgactl rtl run model --socket /tmp/card --trace wave.fst --trace-from write:0x10 --trace-after 500\n  \
                        fpgactl rtl run model --socket /tmp/card --ratio 0.001"
)]
pub struct RtlRunArgs {
    /// Folder of the model
    #[arg(value_name = "DIR")]
    pub model: PathBuf,
    /// Plusargs of the simulation
    #[arg(value_name = "+PLUSARG")]
    pub plusargs: Vec<String>,
    /// Socket to listen on
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
    /// Waveform to write
    #[arg(long, value_name = "FILE.fst")]
    pub trace: Option<PathBuf>,
    /// Global option `--record`: here the record of the simulation.
    #[arg(skip)]
    pub record: Option<PathBuf>,
    /// Begin the waveform at a trigger: cycle:N, read:ADDRESS, write:ADDRESS, dma, error or design
    #[arg(long, value_name = "WHEN", value_parser = trigger, requires = "trace")]
    pub trace_from: Option<String>,
    /// End the waveform after a trigger that follows its begin
    #[arg(long, value_name = "WHEN", value_parser = trigger, requires = "trace")]
    pub trace_until: Option<String>,
    /// Cycles of the waveform after --trace-until [default: 64], or without it, after its begin
    #[arg(long, value_name = "CYCLES", value_parser = whole::<u64>(0, u64::MAX), requires = "trace")]
    pub trace_after: Option<u64>,
    /// Simulated time always advances [default: from an access of the host, a transfer or an interrupt until 64 cycles later (+fpga_settle=N), then it stands still, even if the design works]
    #[arg(long)]
    pub free: bool,
    /// Simulated time always advances, by at most R nanoseconds per nanosecond of the wall clock (1e-9 to 1000)
    #[arg(long, value_name = "R", value_parser = ratio)]
    pub ratio: Option<f64>,
}

fn trigger(text: &str) -> Result<String, String> {
    fpga_rtl::model::check_trigger(text).map(|()| text.to_owned())
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio| (1e-9..=1000.0).contains(ratio));
    ratio.ok_or_else(|| "not a ratio from 1e-9 to 1000".to_owned())
}
