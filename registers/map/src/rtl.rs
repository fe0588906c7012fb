//! RTL skeleton of a map: a SystemVerilog module with an AXI4-Lite slave and a port for each register or field.
//!
//! Offsets, bits and values are those of the [typed bindings](crate::bindings) of the same map. A register with fields has the ports of its
//! fields, `BLOCK_REGISTER_FIELD`; one without has ports of 32 bits, `BLOCK_REGISTER`. An array's element has its number in the name.
//!
//! | Access | Ports | Meaning |
//! |---|---|---|
//! | `rw` | output `NAME` | the value; bytes without a strobe keep theirs |
//! | `ro` | input `NAME` | the value that a read returns |
//! | `wo` | outputs `NAME`, `NAME_written` | the last value, and one cycle of 1 with each new one |
//! | `rw1c` | input `NAME_set`, output `NAME` | ones set bits, and win against a write that clears them at the same time |
//! | `w1s`, `w1c` | output `NAME` | written ones, for one cycle |
//! | `rc` | input `NAME`, output `NAME_read` | the value, and one cycle of 1 after a read |
//!
//! Other addresses answer DECERR.

use std::collections::HashMap;
use std::fmt::Write as _;

use fpga_registers::AccessKind;
use heck::ToShoutySnakeCase;

use crate::map::RegisterMap;
use crate::schema::Bits;

/// Maximum number of ports: Vivado and Verilator become slow with more.
const MAX_PORTS: usize = 4096;
/// Bits of the compared address, at least: one page.
const MIN_ADDRESS_BITS: u32 = 12;

/// Reasons why there is no skeleton.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SkeletonError {
    /// The module's name is not an identifier.
    #[error("`{0}` is not a module name")]
    Name(String),
    /// Two names of the map yield one name in SystemVerilog.
    #[error("{first} and {second} both become `{name}` in SystemVerilog")]
    Collision {
        /// Name in SystemVerilog.
        name: String,
        /// One name of the map.
        first: String,
        /// The other one.
        second: String,
    },
    /// The map is too large.
    #[error("the map has {ports} registers and fields, more than {MAX_PORTS}")]
    TooLarge {
        /// Number of registers and fields.
        ports: usize,
    },
}

impl SkeletonError {
    /// Returns what to do about it.
    #[must_use]
    pub const fn help(&self) -> Option<&'static str> {
        Some(match self {
            Self::Name(_) => "begin it with a letter, and use only letters, digits and _",
            Self::Collision { .. } => "rename one of them in the map",
            Self::TooLarge { .. } => {
                "put large arrays into memory of the design, and remove them from the map"
            }
        })
    }
}

/// Names that a port may not have: other ports of the module, and keywords that are made of two words.
const RESERVED: [&str; 9] = [
    "clk",
    "rst_n",
    "always_comb",
    "always_ff",
    "always_latch",
    "first_match",
    "wait_order",
    "reject_on",
    "until_with",
];

/// A field, or a register without fields.
struct Unit {
    name: String,
    access: AccessKind,
    bits: Bits,
    reset: u32,
}

struct Register {
    /// Name in the map.
    name: String,
    /// Name of its offset.
    offset: String,
    address: u64,
    units: Vec<Unit>,
}

fn identifier(name: &str) -> String {
    name.replace(['.', '['], "_").replace(']', "").to_ascii_lowercase()
}

struct Names(HashMap<String, String>);

impl Names {
    fn take(&mut self, name: String, of: &str) -> Result<String, SkeletonError> {
        match self.0.insert(name.clone(), of.to_owned()) {
            None => Ok(name),
            Some(first) => Err(SkeletonError::Collision { name, first, second: of.to_owned() }),
        }
    }
}

/// Ports of a unit: `true` for outputs, the range of one with all its bits or not, the name.
fn ports(unit: &Unit) -> Vec<(bool, bool, String)> {
    let name = unit.name.clone();
    match unit.access {
        AccessKind::ReadOnly => vec![(false, true, name)],
        AccessKind::WriteOnly => {
            let pulse = format!("{name}_written");
            vec![(true, true, name), (true, false, pulse)]
        }
        AccessKind::ReadWrite1Clear => {
            let set = format!("{name}_set");
            vec![(false, true, set), (true, true, name)]
        }
        AccessKind::ReadClears => {
            let pulse = format!("{name}_read");
            vec![(false, true, name), (true, false, pulse)]
        }
        // `rw`, `w1s`, `w1c`, and later kinds.
        _ => vec![(true, true, name)],
    }
}

fn registers(map: &RegisterMap) -> Result<Vec<Register>, SkeletonError> {
    let units = map.registers().iter().map(|register| map.fields(register).len().max(1)).sum();
    if units > MAX_PORTS {
        return Err(SkeletonError::TooLarge { ports: units });
    }
    let mut names =
        Names(RESERVED.iter().map(|name| ((*name).to_owned(), "a reserved name".to_owned())).collect());
    let mut all = Vec::new();
    for register in map.registers() {
        let reset = register.reset.unwrap_or(0);
        let name = identifier(&register.name);
        let offset = name.to_shouty_snake_case() + "_OFFSET";
        let fields = map.fields(register);
        let mut units: Vec<Unit> = fields
            .iter()
            .map(|field| Unit {
                name: format!("{name}_{}", identifier(&field.name)),
                access: field.access,
                bits: field.bits,
                reset: field.bits.extract(reset),
            })
            .collect();
        if fields.is_empty() {
            units.push(Unit { name, access: register.access, bits: Bits::ALL, reset });
        }
        for (unit, of) in units.iter().zip(
            fields
                .iter()
                .map(|field| format!("{}.{}", register.name, field.name))
                .chain([register.name.clone()]),
        ) {
            for (_, _, port) in ports(unit) {
                names.take(port, &of)?;
            }
        }
        all.push(Register { name: register.name.clone(), offset, address: register.address.get(), units });
    }
    Ok(all)
}

macro_rules! out {
    ($text:expr, $($arguments:tt)*) => {{
        // Writing to a String cannot fail.
        let _ = writeln!($text, $($arguments)*);
    }};
}

fn range(bits: Bits) -> String {
    if bits.width() == 1 { String::new() } else { format!("[{}:0]", bits.width() - 1) }
}

/// Bits of a word.
fn select(bits: Bits) -> String {
    if bits == Bits::ALL {
        String::new()
    } else if bits.width() == 1 {
        format!("[{}]", bits.low())
    } else {
        format!("[{}:{}]", bits.high(), bits.low())
    }
}

/// Comment of one line.
fn comment(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// SystemVerilog source of the module `module`, and of a package `module_pkg` with the offsets and the values of enums.
///
/// # Errors
/// [`SkeletonError`].
pub fn skeleton(map: &RegisterMap, module: &str) -> Result<String, SkeletonError> {
    if !crate::name::is_name(module) {
        return Err(SkeletonError::Name(module.to_owned()));
    }
    let registers = registers(map)?;
    let largest = registers.iter().map(|register| register.address + 3).max().unwrap_or(0);
    let address_bits = (u64::BITS - largest.leading_zeros()).max(MIN_ADDRESS_BITS);
    let mut s = String::new();
    out!(
        s,
        "// Registers of {}: generated from its register map by `fpgactl rtl registers`. Change the map instead.",
        comment(map.name())
    );
    out!(s, "\n`timescale 1ps / 1ps\n");
    write_package(&mut s, map, module, &registers)?;
    write_ports(&mut s, map, module, &registers, address_bits);
    write_writes(&mut s, &registers);
    write_reads(&mut s, &registers);
    out!(s, "endmodule");
    Ok(s)
}

fn write_package(
    s: &mut String,
    map: &RegisterMap,
    module: &str,
    registers: &[Register],
) -> Result<(), SkeletonError> {
    out!(s, "package {module}_pkg;");
    let mut names = Names(HashMap::new());
    for register in registers {
        let name = names.take(register.offset.clone(), &register.name)?;
        out!(s, "    localparam logic [63:0] {name} = 64'h{:x};", register.address);
    }
    for values in &map.values {
        for (variant, value) in &values.names {
            let of = format!("{}.{variant}", values.name);
            let name = format!("{}_{}", values.name.to_shouty_snake_case(), variant.to_shouty_snake_case());
            let name = names.take(name, &of)?;
            out!(s, "    localparam logic [31:0] {name} = 32'h{value:x};");
        }
    }
    out!(s, "endpackage\n");
    Ok(())
}

fn write_ports(s: &mut String, map: &RegisterMap, module: &str, registers: &[Register], address_bits: u32) {
    out!(
        s,
        "module {module} #(\n    // Bits of the bus's address; the lowest {address_bits} are compared.\n    parameter int ADDR_WIDTH = 32\n) ("
    );
    for line in [
        "input  wire                  clk,",
        "input  wire                  rst_n,",
        "input  wire [ADDR_WIDTH-1:0] s_axil_awaddr,",
        "input  wire                  s_axil_awvalid,",
        "output wire                  s_axil_awready,",
        "input  wire [31:0]           s_axil_wdata,",
        "input  wire [3:0]            s_axil_wstrb,",
        "input  wire                  s_axil_wvalid,",
        "output wire                  s_axil_wready,",
        "output logic [1:0]           s_axil_bresp,",
        "output logic                 s_axil_bvalid,",
        "input  wire                  s_axil_bready,",
        "input  wire [ADDR_WIDTH-1:0] s_axil_araddr,",
        "input  wire                  s_axil_arvalid,",
        "output wire                  s_axil_arready,",
        "output logic [31:0]          s_axil_rdata,",
        "output logic [1:0]           s_axil_rresp,",
        "output logic                 s_axil_rvalid,",
    ] {
        out!(s, "    {line}");
    }
    // The last port has no comma.
    let _ = write!(s, "    input  wire                  s_axil_rready");
    for (register, source) in registers.iter().zip(map.registers()) {
        let doc = comment(map.doc_of(source));
        let doc = if doc.is_empty() { String::new() } else { format!(": {doc}") };
        let _ = write!(s, ",\n    // {}{doc}\n", register.name);
        let lines = register.units.iter().flat_map(|unit| {
            ports(unit).into_iter().map(|(is_output, is_wide, name)| {
                let kind = if is_output { "output logic" } else { "input  wire " };
                let range = if is_wide { range(unit.bits) } else { String::new() };
                format!("    {kind} {range:7} {name}")
            })
        });
        s.push_str(&lines.collect::<Vec<_>>().join(",\n"));
    }
    out!(s, "\n);");
    out!(s, "    import {module}_pkg::*;\n");
    out!(s, "    localparam int BITS = {address_bits};");
    out!(s, "    localparam logic [1:0] OKAY = 2'b00, DECERR = 2'b11;\n");
}

fn write_writes(s: &mut String, registers: &[Register]) {
    out!(s, "    // A write needs its address and its data, and is over with its response.");
    out!(s, "    wire is_write = s_axil_awvalid && s_axil_wvalid && !s_axil_bvalid;");
    out!(s, "    assign s_axil_awready = is_write;\n    assign s_axil_wready = is_write;");
    out!(s, "    wire [BITS-1:0] write_address = {{s_axil_awaddr[BITS-1:2], 2'b00}};");
    out!(
        s,
        "    wire [31:0] mask = {{{{8{{s_axil_wstrb[3]}}}}, {{8{{s_axil_wstrb[2]}}}}, {{8{{s_axil_wstrb[1]}}}}, {{8{{s_axil_wstrb[0]}}}}}};"
    );
    out!(s, "    wire [31:0] ones = s_axil_wdata & mask;\n");
    out!(s, "    always_ff @(posedge clk) begin\n        if (!rst_n) begin");
    out!(s, "            s_axil_bvalid <= 1'b0;");
    for unit in registers.iter().flat_map(|register| &register.units) {
        let (name, reset) = (&unit.name, format!("{}'h{:x}", unit.bits.width(), unit.reset));
        match unit.access {
            AccessKind::ReadWrite | AccessKind::ReadWrite1Clear => out!(s, "            {name} <= {reset};"),
            AccessKind::WriteOnly => {
                out!(s, "            {name} <= {reset};\n            {name}_written <= 1'b0;");
            }
            AccessKind::Write1Set | AccessKind::Write1Clear => out!(s, "            {name} <= '0;"),
            _ => {}
        }
    }
    out!(s, "        end else begin");
    out!(s, "            if (s_axil_bready) s_axil_bvalid <= 1'b0;");
    for unit in registers.iter().flat_map(|register| &register.units) {
        let name = &unit.name;
        match unit.access {
            AccessKind::ReadWrite1Clear => out!(s, "            {name} <= {name} | {name}_set;"),
            AccessKind::WriteOnly => out!(s, "            {name}_written <= 1'b0;"),
            AccessKind::Write1Set | AccessKind::Write1Clear => out!(s, "            {name} <= '0;"),
            _ => {}
        }
    }
    out!(s, "            if (is_write) begin");
    out!(s, "                s_axil_bvalid <= 1'b1;\n                s_axil_bresp <= DECERR;");
    for register in registers {
        out!(
            s,
            "                if (write_address == BITS'({})) begin\n                    s_axil_bresp <= OKAY;",
            register.offset
        );
        for unit in &register.units {
            let (name, bits) = (&unit.name, select(unit.bits));
            let stored = format!("{name} & ~mask{bits} | ones{bits}");
            match unit.access {
                AccessKind::ReadWrite => out!(s, "                    {name} <= {stored};"),
                AccessKind::WriteOnly => {
                    out!(
                        s,
                        "                    {name} <= {stored};\n                    {name}_written <= |mask{bits};"
                    );
                }
                AccessKind::ReadWrite1Clear => {
                    out!(s, "                    {name} <= {name} & ~ones{bits} | {name}_set;")
                }
                AccessKind::Write1Set | AccessKind::Write1Clear => {
                    out!(s, "                    {name} <= ones{bits};")
                }
                _ => {}
            }
        }
        out!(s, "                end");
    }
    out!(s, "            end\n        end\n    end\n");
}

fn write_reads(s: &mut String, registers: &[Register]) {
    let units = || registers.iter().flat_map(|register| &register.units);
    let cleared = || units().filter(|unit| unit.access == AccessKind::ReadClears);
    out!(s, "    wire is_read = s_axil_arvalid && !s_axil_rvalid;\n    assign s_axil_arready = is_read;");
    out!(s, "    wire [BITS-1:0] read_address = {{s_axil_araddr[BITS-1:2], 2'b00}};\n");
    out!(
        s,
        "    always_ff @(posedge clk) begin\n        if (!rst_n) begin\n            s_axil_rvalid <= 1'b0;"
    );
    for unit in cleared() {
        out!(s, "            {}_read <= 1'b0;", unit.name);
    }
    out!(s, "        end else begin\n            if (s_axil_rready) s_axil_rvalid <= 1'b0;");
    for unit in cleared() {
        out!(s, "            {}_read <= 1'b0;", unit.name);
    }
    out!(
        s,
        "            if (is_read) begin\n                s_axil_rvalid <= 1'b1;\n                s_axil_rresp <= DECERR;\n                s_axil_rdata <= '0;"
    );
    for register in registers {
        out!(
            s,
            "                if (read_address == BITS'({})) begin\n                    s_axil_rresp <= OKAY;",
            register.offset
        );
        for unit in register.units.iter().filter(|unit| unit.access.is_readable()) {
            out!(s, "                    s_axil_rdata{} <= {};", select(unit.bits), unit.name);
            if unit.access == AccessKind::ReadClears {
                out!(s, "                    {}_read <= 1'b1;", unit.name);
            }
        }
        out!(s, "                end");
    }
    out!(s, "            end\n        end\n    end");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(blocks: &str) -> RegisterMap {
        let text = format!("schema_version: 1\nname: test\nblocks:\n{blocks}");
        RegisterMap::parse("test.yaml".as_ref(), &text).unwrap()
    }

    #[test]
    fn skeleton_names_that_meet_are_refused() {
        let map = map("  - {name: a, offset: 0, registers: [{name: b_c, offset: 0}]}\n  \
                        - {name: a_b, offset: 4, registers: [{name: c, offset: 0}]}\n");
        let error = skeleton(&map, "test").unwrap_err();
        assert!(error.to_string().contains("a.b_c and a_b.c"), "{error}");
    }

    #[test]
    fn skeleton_module_name_is_checked() {
        let map = map("  - {name: a, offset: 0, registers: [{name: b, offset: 0}]}\n");
        assert_eq!(skeleton(&map, "1st"), Err(SkeletonError::Name("1st".to_owned())));
        let source = skeleton(&map, "first").unwrap();
        assert!(source.contains("localparam logic [63:0] A_B_OFFSET = 64'h0;"), "{source}");
    }

    #[test]
    fn skeleton_of_large_map_is_refused() {
        let map = map("  - {name: a, offset: 0, registers: [{name: b, offset: 0, count: 5000}]}\n");
        assert_eq!(skeleton(&map, "test"), Err(SkeletonError::TooLarge { ports: 5000 }));
    }
}
