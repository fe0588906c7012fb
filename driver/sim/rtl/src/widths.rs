//! Widths of the signals at the ports of the XDMA, from Verilator's warnings. Verilator itself pads or truncates them.

use std::fmt;

/// Beginnings of the names of the XDMA's ports.
const PORTS: [&str; 8] = [
    "m_axi_",
    "m_axil_",
    "m_axib_",
    "m_axis_h2c_",
    "s_axis_c2h_",
    "usr_irq_",
    "h2c_dsc_byp_",
    "c2h_dsc_byp_",
];
/// Parts of the names of ports that lose data or responses if their width is wrong. Others are addresses, whose upper bits a design may ignore,
/// and constants.
const VITAL: [&str; 10] = ["data", "strb", "keep", "awid", "bid", "arid", "rid", "resp", "valid", "ready"];

/// A signal of another width than its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongWidth {
    /// File and line.
    pub place: String,
    /// Instance that contains the XDMA's instance.
    pub parent: String,
    /// Port of the XDMA.
    pub port: String,
    /// Bits of the port.
    pub expected: u32,
    /// Bits of the signal.
    pub found: u32,
}

impl fmt::Display for WrongWidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, parent, port, expected, found } = self;
        write!(
            f,
            "{place}: port {port} of the IP in {parent} has {expected} bits, the signal at it has {found}"
        )
    }
}

impl WrongWidth {
    /// Returns whether data or responses are lost.
    pub(crate) fn is_vital(&self) -> bool {
        VITAL.iter().any(|part| self.port.contains(part))
    }
}

/// Finds the warnings about ports of the XDMA in Verilator's output.
pub(crate) fn wrong_widths(output: &str) -> Vec<WrongWidth> {
    let mut lines = output.lines().peekable();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let Some(mut wrong) = port_connection(line) else { continue };
        let parent = lines.peek().and_then(|next| next.rsplit_once("In instance "));
        if let Some((_, parent)) = parent {
            parent.trim().clone_into(&mut wrong.parent);
        }
        found.push(wrong);
    }
    found
}

/// Reads `%Warning-WIDTH: FILE:LINE:COLUMN: Input port connection 'PORT' expects N bits on the pin connection, but ... generates M bits.`
fn port_connection(line: &str) -> Option<WrongWidth> {
    let (_, rest) = line.strip_prefix("%Warning-WIDTH")?.split_once(": ")?;
    let (place, rest) = rest.split_once(": ")?;
    let place = place.rsplit_once(':').map_or(place, |(place, _)| place);
    let (_, rest) = rest.split_once("port connection '")?;
    let (port, rest) = rest.split_once('\'')?;
    let (_, rest) = rest.split_once("expects ")?;
    let (expected, rest) = rest.split_once(' ')?;
    let (_, found) = rest.rsplit_once("generates ")?;
    let wrong = WrongWidth {
        place: place.to_owned(),
        parent: "the design".to_owned(),
        port: port.to_owned(),
        expected: expected.parse().ok()?,
        found: found.split(' ').next()?.parse().ok()?,
    };
    PORTS.iter().any(|begin| wrong.port.starts_with(begin)).then_some(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
%Warning-WIDTH: rtl/top.sv:62:10: Output port connection 'm_axi_wdata' expects 256 bits on the pin connection, but pin connection's VARREF 'wdata' generates 128 bits.
                                : ... In instance top.shell
   62 |         .m_axi_wdata(wdata)
%Warning-WIDTHTRUNC: top.sv:63:10: Output port connection 'm_axi_awaddr' expects 64 bits on the pin connection, but pin connection's VARREF 'at' generates 32 bits.
%Warning-WIDTH: top.sv:70:10: Input port connection 's_wdata' expects 256 bits on the pin connection, but pin connection's VARREF 'wdata' generates 128 bits.
%Warning-WIDTH: top.sv:71:10: Operator ASSIGN expects 4 bits on the Assign RHS, but Assign RHS's VARREF 'x' generates 5 bits.
";

    #[test]
    fn wrong_widths_of_xdma_ports_are_found() {
        let found = wrong_widths(OUTPUT);
        let [data, address] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            data.to_string(),
            "rtl/top.sv:62: port m_axi_wdata of the IP in top.shell has 256 bits, the signal at it has 128"
        );
        assert!(data.is_vital());
        assert_eq!((&*address.port, address.expected, address.found), ("m_axi_awaddr", 64, 32));
        assert!(!address.is_vital());
    }
}
