//! DPI-C library for simulators: the simulated card in front of a user's RTL.
//!
//! The SystemVerilog module `fpga_xdma` (`firmware-bindings/rtl/xdma`) has the ports of the vendor's XDMA IP. It imports the functions of
//! this library, which contain the card model and serve it as a vfio-user device. The simulator calls [`dpi`] once per clock cycle and once
//! per command, data beat and response; it never waits for the host, except where simulated time stands still.
//!
//! | Module | Contents |
//! |---|---|
//! | `dpi`, `dpi_cdma`, `dpi_network` | the imported functions: all unsafe code towards the simulator |
//! | `boundary` | simulations by handle |
//! | `options` | plusargs, environment, parameters of the module, the card that they describe |
//! | `simulation` | the card, its server, interrupts |
//! | `ports` | both AXI masters behind one lock; when simulated time advances; `state`: what the lock guards; `host`: the card's side; `group`: several instances |
//! | `record` | text record of the events of a simulation |
//! | `exit` | end of the process while the simulator's thread works |
//! | `bus`, `burst` | the AXI4 master: bursts, beats, responses |
//! | `lite` | the AXI4-Lite master |
//! | `cdma` | instances of `fpga_cdma` |
//! | `network` | instances of `fpga_network`: frames between designs |
//! | `stream` | the AXI4-Stream ports |
//! | `pace` | limit of simulated time by wall-clock time |
//! | `trace` | triggers of the waveform |
//! | `harness` | module above a top level with inputs (not a part of models) |
//! | [`model`] | building and starting models with Verilator (not a part of them) |
//! | [`board`], `sources` | Vivado project of a bitstream with the network interface (not a part of models) |
//! | `widths` | signals of a wrong width at the XDMA |
//! | [`wrapper`] | module with the name and the ports of one instance of the vendor's IP |

pub mod board;
mod boundary;
mod burst;
mod bus;
mod cdma;
pub mod dpi;
pub mod dpi_cdma;
pub mod dpi_network;
mod exit;
mod harness;
mod lite;
pub mod model;
mod network;
mod options;
mod pace;
mod ports;
mod record;
mod simulation;
mod sources;
mod stream;
mod trace;
mod widths;
pub mod wrapper;
