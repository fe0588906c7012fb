//! Wrapper of `fpga_xdma` with the name and the ports of one instance of the vendor's IP.
//!
//! The port names and widths are those of the IP's generated instantiation template (PG195). A port that `fpga_xdma` does not have stays in
//! the wrapper and is driven with 0, so that a top level compiles unchanged.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use fpga_sim::CardDescription;

use crate::model::XDMA;

/// Bits of the ids of `m_axi` and `m_axib`.
const ID_BITS: u32 = 4;
/// User interrupt lines of the IP.
const MAX_USER_INTERRUPTS: u8 = 16;
/// Frequencies of `axi_aclk` in kHz, and half a period in ps.
const CLOCKS: [(u64, u32); 3] = [(62_500, 8000), (125_000, 4000), (250_000, 2000)];

/// Parts of an IP instance that a card description does not contain.
#[derive(Clone, Debug, Default)]
pub struct WrapperOptions {
    /// Name of the instance's module.
    pub module: String,
    /// Lines of `usr_irq_req`, 1 to 16. `None`: MSI-X vectors that the channels do not use, at most 16.
    pub user_interrupts: Option<u8>,
    /// Descriptor bypass on all channels.
    pub descriptor_bypass: bool,
    /// Configuration management interface (`cfg_mgmt_*`).
    pub cfg_mgmt: bool,
    /// `axi_aclk` is `sys_clk`, for test benches that make the clock.
    pub clock_input: bool,
}

/// Reasons why no wrapper is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WrapperError {
    /// The name is not an identifier.
    #[error("`{0}` is not a module name")]
    Name(String),
    /// `fpga_xdma` has the same number of channels in both directions.
    #[error(
        "xdma.h2c_channels is {h2c} and xdma.c2h_channels is {c2h}: fpga_xdma has the same number in both directions"
    )]
    Channels {
        /// H2C channels.
        h2c: u8,
        /// C2H channels.
        c2h: u8,
    },
    /// The number of user interrupts is not possible.
    #[error("{0} user interrupts: the IP has 1 to {MAX_USER_INTERRUPTS}")]
    UserInterrupts(u8),
}

impl WrapperError {
    /// Returns what to do about it.
    #[must_use]
    pub const fn help(&self) -> Option<&'static str> {
        Some(match self {
            Self::Name(_) => "begin it with a letter, and use only letters, digits and _",
            Self::Channels { .. } => "change one of them in the card file",
            Self::UserInterrupts(_) => "correct --user-interrupts",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Input,
    Output,
}
use Direction::{Input, Output};

/// A port; a width of 0 is a scalar.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Port {
    direction: Direction,
    bits: u32,
    name: String,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.direction == Input { "input " } else { "output" };
        let range = self.bits.checked_sub(1).map_or(String::new(), |high| format!("[{high}:0]"));
        write!(f, "{direction} wire {range:8} {}", self.name)
    }
}

/// Ports of an interface: names without their prefix, and bits.
type Interface = [(Direction, u32, &'static str)];

/// AXI4-Lite master.
const LITE: &Interface = &[
    (Output, 32, "awaddr"),
    (Output, 3, "awprot"),
    (Output, 0, "awvalid"),
    (Input, 0, "awready"),
    (Output, 32, "wdata"),
    (Output, 4, "wstrb"),
    (Output, 0, "wvalid"),
    (Input, 0, "wready"),
    (Input, 0, "bvalid"),
    (Input, 2, "bresp"),
    (Output, 0, "bready"),
    (Output, 32, "araddr"),
    (Output, 3, "arprot"),
    (Output, 0, "arvalid"),
    (Input, 0, "arready"),
    (Input, 32, "rdata"),
    (Input, 2, "rresp"),
    (Input, 0, "rvalid"),
    (Output, 0, "rready"),
];

/// Configuration management interface.
const CFG_MGMT: &Interface = &[
    (Input, 19, "addr"),
    (Input, 0, "write"),
    (Input, 32, "write_data"),
    (Input, 4, "byte_enable"),
    (Input, 0, "read"),
    (Output, 32, "read_data"),
    (Output, 0, "read_write_done"),
    (Input, 0, "type1_cfg_reg_access"),
];

/// AXI4 master with a data bus of `bits`.
fn axi(bits: u32) -> Vec<(Direction, u32, &'static str)> {
    vec![
        (Output, ID_BITS, "awid"),
        (Output, 64, "awaddr"),
        (Output, 8, "awlen"),
        (Output, 3, "awsize"),
        (Output, 2, "awburst"),
        (Output, 3, "awprot"),
        (Output, 0, "awvalid"),
        (Input, 0, "awready"),
        (Output, 0, "awlock"),
        (Output, 4, "awcache"),
        (Output, bits, "wdata"),
        (Output, bits / 8, "wstrb"),
        (Output, 0, "wlast"),
        (Output, 0, "wvalid"),
        (Input, 0, "wready"),
        (Input, ID_BITS, "bid"),
        (Input, 2, "bresp"),
        (Input, 0, "bvalid"),
        (Output, 0, "bready"),
        (Output, ID_BITS, "arid"),
        (Output, 64, "araddr"),
        (Output, 8, "arlen"),
        (Output, 3, "arsize"),
        (Output, 2, "arburst"),
        (Output, 3, "arprot"),
        (Output, 0, "arvalid"),
        (Input, 0, "arready"),
        (Output, 0, "arlock"),
        (Output, 4, "arcache"),
        (Input, ID_BITS, "rid"),
        (Input, bits, "rdata"),
        (Input, 2, "rresp"),
        (Input, 0, "rlast"),
        (Input, 0, "rvalid"),
        (Output, 0, "rready"),
    ]
}

/// AXI4-Stream whose source is the master of direction `forward`.
fn stream(bits: u32, forward: Direction) -> [(Direction, u32, &'static str); 5] {
    let back = if forward == Output { Input } else { Output };
    [
        (forward, bits, "tdata"),
        (forward, 0, "tlast"),
        (forward, 0, "tvalid"),
        (back, 0, "tready"),
        (forward, bits / 8, "tkeep"),
    ]
}

/// Descriptor bypass of a channel.
const DESCRIPTORS: &Interface = &[
    (Output, 0, "ready"),
    (Input, 64, "src_addr"),
    (Input, 64, "dst_addr"),
    (Input, 28, "len"),
    (Input, 16, "ctl"),
    (Input, 0, "load"),
];

/// The IP instance.
struct Instance {
    parameters: Vec<(&'static str, String)>,
    ports: Vec<Port>,
}

impl Instance {
    fn new(card: &CardDescription, options: &WrapperOptions) -> Result<Self, WrapperError> {
        let (xdma, link) = (&card.xdma, &card.link);
        if xdma.h2c_channels != xdma.c2h_channels {
            return Err(WrapperError::Channels { h2c: xdma.h2c_channels, c2h: xdma.c2h_channels });
        }
        let channels = xdma.h2c_channels;
        let interrupts = options.user_interrupts.unwrap_or_else(|| {
            let left = card.interrupts.msix_vectors.saturating_sub(u16::from(channels) * 2);
            u8::try_from(left).unwrap_or(MAX_USER_INTERRUPTS).clamp(1, MAX_USER_INTERRUPTS)
        });
        if !(1..=MAX_USER_INTERRUPTS).contains(&interrupts) {
            return Err(WrapperError::UserInterrupts(interrupts));
        }
        let bits = u32::from(xdma.data_width);
        // What the link carries: 1 Gb/s per lane and 2.5 GT/s are two units of the clock times bits.
        let gigabits = u64::from(link.width) << link.speed.min(5);
        let needed = gigabits * 1_000_000 / u64::from(bits.max(1));
        let own = CLOCKS.iter().find(|(kilohertz, _)| *kilohertz >= needed).unwrap_or(&CLOCKS[2]).1;
        let half = if options.clock_input { 0 } else { own };
        // One bit for each channel.
        let bypassed = if options.descriptor_bypass { (1_u32 << channels) - 1 } else { 0 };
        let bypassed = format!("4'd{bypassed}");
        let parameters = vec![
            ("DATA_WIDTH", bits.to_string()),
            ("ADDR_WIDTH", "64".to_owned()),
            ("ID_WIDTH", ID_BITS.to_string()),
            ("CHANNELS", channels.to_string()),
            ("AXIL_ADDR_WIDTH", "32".to_owned()),
            ("USER_INTERRUPTS", interrupts.to_string()),
            ("LANES", link.width.to_string()),
            ("HALF_PERIOD", half.to_string()),
            ("STREAM", u8::from(xdma.stream).to_string()),
            ("BYPASS_BAR", u8::from(card.bars.bypass.is_some()).to_string()),
            ("H2C_DSC_BYPASS", bypassed.clone()),
            ("C2H_DSC_BYPASS", bypassed),
        ];
        let mut ports = Vec::new();
        let mut add = |prefix: &str, interface: &Interface, suffix: &str| {
            ports.extend(interface.iter().map(|&(direction, bits, name)| Port {
                direction,
                bits,
                name: format!("{prefix}{name}{suffix}"),
            }));
        };
        add("", &[(Input, 0, "sys_clk")], "");
        // The 7-series IP has no second reference clock.
        if card.pci.device >> 12 != 7 {
            add("", &[(Input, 0, "sys_clk_gt")], "");
        }
        let (lanes, lines) = (u32::from(link.width), u32::from(interrupts));
        add("", &[(Input, 0, "sys_rst_n"), (Output, 0, "user_lnk_up")], "");
        add("pci_exp_", &[(Output, lanes, "txp"), (Output, lanes, "txn")], "");
        add("pci_exp_", &[(Input, lanes, "rxp"), (Input, lanes, "rxn")], "");
        add("axi_", &[(Output, 0, "aclk"), (Output, 0, "aresetn")], "");
        add("usr_irq_", &[(Input, lines, "req"), (Output, lines, "ack")], "");
        add("msi_", &[(Output, 0, "enable"), (Output, 3, "vector_width")], "");
        if !xdma.stream {
            add("m_axi_", &axi(bits), "");
        }
        if card.bars.user.is_some() {
            add("m_axil_", LITE, "");
        }
        if card.bars.bypass.is_some() {
            add("m_axib_", &axi(bits), "");
        }
        for channel in 0..channels {
            let suffix = format!("_{channel}");
            if xdma.stream {
                add("s_axis_c2h_", &stream(bits, Input), &suffix);
                add("m_axis_h2c_", &stream(bits, Output), &suffix);
            }
            if options.descriptor_bypass {
                add("c2h_dsc_byp_", DESCRIPTORS, &suffix);
                add("h2c_dsc_byp_", DESCRIPTORS, &suffix);
            }
        }
        if options.cfg_mgmt {
            add("cfg_mgmt_", CFG_MGMT, "");
        }
        Ok(Self { parameters, ports })
    }
}

/// Parameters and ports of a module, read from its source.
#[derive(Debug, Default)]
struct Header {
    parameters: BTreeSet<String>,
    /// In the order of the source.
    ports: Vec<(Direction, String)>,
}

impl Header {
    /// Reads the header of a source that declares one parameter or some ports of one direction per line.
    fn read(source: &str) -> Self {
        let mut header = Self::default();
        for line in source.lines() {
            let line = line.split("//").next().unwrap_or_default().trim();
            if line == ");" {
                break;
            }
            let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let last_word = |text: &str| {
                let text = text.rsplit(|c: char| c.is_whitespace() || c == ']').next().unwrap_or_default();
                text.to_owned()
            };
            match first {
                "parameter" => {
                    let name = rest.split('=').next().unwrap_or_default().trim();
                    header.parameters.insert(last_word(name));
                }
                "input" | "output" => {
                    let direction = if first == "input" { Input } else { Output };
                    let names = rest.split(',').map(|name| last_word(name.trim()));
                    header.ports.extend(names.filter(|name| !name.is_empty()).map(|name| (direction, name)));
                }
                _ => {}
            }
        }
        header
    }
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// SystemVerilog source of the module `options.module`, with the ports of the IP of `card`.
///
/// # Errors
/// [`WrapperError`].
pub fn wrapper(card: &CardDescription, options: &WrapperOptions) -> Result<String, WrapperError> {
    let module = &options.module;
    if !is_identifier(module) || module == "fpga_xdma" {
        return Err(WrapperError::Name(module.clone()));
    }
    let instance = Instance::new(card, options)?;
    let model = Header::read(XDMA);
    let mut s = String::new();
    let name = card.name.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(s, "// Simulation model with the ports of the XDMA IP instance {module}.");
    let _ = writeln!(s, "// Generated by `fpgactl rtl wrapper` from the description of the card \"{name}\".");
    let _ = writeln!(s, "\n`timescale 1ps / 1ps\n\nmodule {module} (");
    let ports: Vec<String> = instance.ports.iter().map(|port| format!("    {port}")).collect();
    let _ = writeln!(s, "{}\n);", ports.join(",\n"));
    let known = instance.parameters.iter().filter(|(name, _)| model.parameters.contains(*name));
    let parameters: Vec<String> = known.map(|(name, value)| format!("        .{name}({value})")).collect();
    let _ = writeln!(s, "    fpga_xdma #(\n{}\n    ) model (", parameters.join(",\n"));
    let is_port = |name: &str| instance.ports.iter().any(|port| port.name == name);
    let connections = model.ports.iter().map(|(direction, name)| match direction {
        _ if is_port(name) => format!("        .{name}({name})"),
        Input => format!("        .{name}('0)"),
        Output => format!("        .{name}()"),
    });
    let _ = writeln!(s, "{}\n    );", connections.collect::<Vec<_>>().join(",\n"));
    let has = |port: &&Port| model.ports.iter().any(|(_, name)| *name == port.name);
    let missing: Vec<&Port> = instance.ports.iter().filter(|port| !has(port)).collect();
    if !missing.is_empty() {
        let _ = writeln!(s, "\n    // Without a function in the model.");
        for port in missing.iter().filter(|port| port.direction == Output) {
            let _ = writeln!(s, "    assign {} = '0;", port.name);
        }
    }
    let _ = writeln!(s, "endmodule");
    Ok(s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_of_model_is_read() {
        let header = Header::read(XDMA);
        assert!(header.parameters.contains("DATA_WIDTH") && header.parameters.contains("HALF_PERIOD"));
        let find = |name: &str| header.ports.iter().find(|port| port.1 == name).map(|port| port.0);
        assert_eq!(find("axi_aclk"), Some(Output));
        assert_eq!(find("m_axi_rdata"), Some(Input));
        assert_eq!(find("m_axil_rready"), Some(Output));
    }

    #[test]
    fn several_ports_on_a_line_are_read() {
        let header =
            Header::read("module m (\n  input wire [3:0] a, b, // c\n  output logic d\n);\n input e;");
        let names: Vec<&str> = header.ports.iter().map(|port| port.1.as_str()).collect();
        assert_eq!(names, ["a", "b", "d"]);
    }

    #[test]
    fn impossible_instances_are_refused() {
        let mut card = CardDescription::default();
        let options =
            |module: &str| WrapperOptions { module: module.to_owned(), ..WrapperOptions::default() };
        for name in ["", "0x", "a b", "fpga_xdma", "a;"] {
            assert_eq!(wrapper(&card, &options(name)), Err(WrapperError::Name(name.to_owned())));
        }
        let many = WrapperOptions { user_interrupts: Some(17), ..options("x") };
        assert_eq!(wrapper(&card, &many), Err(WrapperError::UserInterrupts(17)));
        card.xdma.c2h_channels = 1;
        assert_eq!(wrapper(&card, &options("x")), Err(WrapperError::Channels { h2c: 4, c2h: 1 }));
    }
}
