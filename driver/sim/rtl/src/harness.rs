//! Module above a top level that drives its inputs.
//!
//! The ports are read from the header of the top module (ANSI style), without a parser of the language: comments are removed, and the list in
//! parentheses is split at its commas.

use std::fmt::Write as _;

/// Name of the module.
pub(crate) const NAME: &str = "fpga_harness";

/// Reason why there is no harness.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HarnessError {
    /// No source has the module.
    #[error("no source contains module {0}")]
    NoModule(String),
    /// The ports cannot be read.
    #[error("the ports of module {module} are not `input`, `output` or `inout` in its header: `{found}`")]
    Ports {
        /// Top module.
        module: String,
        /// Text of a port.
        found: String,
    },
}

impl HarnessError {
    /// Advice about it.
    pub(crate) const fn help(&self) -> &'static str {
        match self {
            Self::NoModule(_) => "correct --top, or add its source",
            Self::Ports { .. } => "write a module above it that drives its inputs, without --harness",
        }
    }
}

/// Value of an input, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drive {
    /// The clock, or its complement.
    Clock {
        is_inverted: bool,
    },
    Ones,
    Zeros,
}

impl Drive {
    fn of(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        let has = |word: &str| name.contains(word);
        if has("rst") || has("reset") {
            // Active low resets end with n: sys_rst_n, aresetn, pcie_perst_n, perstn_i.
            let stem = name.trim_end_matches("_i").trim_end_matches("_in");
            return if stem.ends_with('n') { Self::Ones } else { Self::Zeros };
        }
        if has("clk") || has("clock") {
            return Self::Clock { is_inverted: name.ends_with("_n") || name.ends_with("clkn") };
        }
        Self::Zeros
    }

    const fn expression(self) -> &'static str {
        match self {
            Self::Clock { is_inverted: false } => "clock",
            Self::Clock { is_inverted: true } => "~clock",
            Self::Ones => "'1",
            Self::Zeros => "'0",
        }
    }
}

/// Source without comments.
fn without_comments(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find('/') {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        rest = if from.starts_with("//") {
            from.find('\n').map_or("", |end| from.split_at(end).1)
        } else if let Some(body) = from.strip_prefix("/*") {
            text.push(' ');
            body.split_once("*/").map_or("", |(_, rest)| rest)
        } else {
            text.push('/');
            from.strip_prefix('/').unwrap_or_default()
        };
    }
    text.push_str(rest);
    text
}

const fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$'
}

/// Text in the parentheses with which `text` begins, and the text behind them.
fn parentheses(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start().strip_prefix('(')?;
    let mut depth = 1_usize;
    let end = text.find(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    let (inside, behind) = text.split_at(end);
    Some((inside, behind.strip_prefix(')')?))
}

/// Port list of module `module`.
fn port_list<'a>(text: &'a str, module: &str) -> Option<&'a str> {
    let mut rest = text;
    loop {
        let (before, from) = rest.split_once("module")?;
        rest = from;
        let found = from.trim_start();
        let is_keyword = !before.ends_with(is_word) && from.starts_with(char::is_whitespace);
        let Some(header) =
            found.strip_prefix(module).filter(|header| is_keyword && !header.starts_with(is_word))
        else {
            continue;
        };
        let mut header = header.trim_start();
        while header.starts_with("import") {
            header = header.split_once(';')?.1.trim_start();
        }
        if let Some(parameters) = header.strip_prefix('#') {
            header = parentheses(parameters)?.1.trim_start();
        }
        return if header.starts_with(';') { Some("") } else { parentheses(header).map(|(ports, _)| ports) };
    }
}

/// Names of the inputs in a port list.
fn inputs(list: &str, module: &str) -> Result<Vec<String>, HarnessError> {
    let (mut depth, mut is_input, mut names) = (0_i32, None, Vec::new());
    let ports = list.split(|c: char| {
        depth += i32::from(matches!(c, '(' | '[' | '{')) - i32::from(matches!(c, ')' | ']' | '}'));
        c == ',' && depth == 0
    });
    for port in ports.map(str::trim).filter(|port| !port.is_empty()) {
        let bad = || HarnessError::Ports { module: module.to_owned(), found: port.to_owned() };
        match port.split(|c| !is_word(c)).next() {
            Some("input") => is_input = Some(true),
            Some("output" | "inout") => is_input = Some(false),
            _ => {}
        }
        // The name is before an unpacked dimension or a default value.
        let declared = port.split('=').next().unwrap_or_default().trim_end();
        let declared = match declared.rsplit_once(']') {
            Some((before, "")) => before.rsplit_once('[').map_or("", |(before, _)| before).trim_end(),
            _ => declared,
        };
        let name = declared.rsplit(|c| !is_word(c)).next().unwrap_or_default();
        if name.is_empty() {
            return Err(bad());
        }
        if is_input.ok_or_else(bad)? {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Module [`NAME`] with module `top` of `sources`: clocks run with 100 MHz (a name with `_n` is the complement), resets are inactive, and other
/// inputs are 0.
pub(crate) fn harness(sources: &[String], top: &str) -> Result<String, HarnessError> {
    let texts: Vec<String> = sources.iter().map(|source| without_comments(source)).collect();
    let list = texts.iter().find_map(|text| port_list(text, top));
    let inputs = inputs(list.ok_or_else(|| HarnessError::NoModule(top.to_owned()))?, top)?;
    let mut s = format!("// Drives the inputs of {top}. Generated by `fpgactl rtl build --harness`.\n\n");
    let _ = writeln!(s, "`timescale 1ps / 1ps\n\nmodule {NAME};");
    let drives: Vec<(String, Drive)> =
        inputs.into_iter().map(|name| (Drive::of(&name), name)).map(|(drive, name)| (name, drive)).collect();
    if drives.iter().any(|(_, drive)| matches!(drive, Drive::Clock { .. })) {
        let _ = writeln!(s, "    bit clock = 1'b0;\n    always #5000 clock = ~clock;");
    }
    let connections: Vec<String> =
        drives.iter().map(|(name, drive)| format!("        .{name}({})", drive.expression())).collect();
    let _ = writeln!(s, "    {top} {top} (\n{}\n    );\nendmodule", connections.join(",\n"));
    Ok(s)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: &str = "
        // module top (input wrong);
        package p; endpackage
        module top_part (input wire a); endmodule
        module top import p::*; #(parameter int N = (2), /* input no */ M = 3) (
            input  wire sys_clk_p, sys_clk_n, // clock
            input  wire sys_rst_n,
            input  wire [7:0] pci_exp_rxp, pci_exp_rxn,
            output wire [N*(2)-1:0] led, other,
            inout  wire i2c,
            input  logic [3:0] switches [2] = '{0, 0},
            input  reset
        );
        endmodule";

    #[test]
    fn inputs_are_driven_by_name() {
        let text =
            harness(&["module other; endmodule".to_owned(), TOP.to_owned()], "top").expect("a harness");
        for line in [
            ".sys_clk_p(clock)",
            ".sys_clk_n(~clock)",
            ".sys_rst_n('1)",
            ".pci_exp_rxp('0)",
            ".pci_exp_rxn('0)",
            ".switches('0)",
            ".reset('0)",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        for name in ["led", "other", "i2c", "wrong", "(a", "no"] {
            assert!(!text.contains(&format!(".{name}(")), "{text}");
        }
    }

    #[test]
    fn missing_module_and_old_header_are_refused() {
        assert_eq!(harness(&[TOP.to_owned()], "to"), Err(HarnessError::NoModule("to".to_owned())));
        let old = "module old (a, b); input a; output b; endmodule".to_owned();
        assert!(matches!(harness(&[old], "old"), Err(HarnessError::Ports { .. })));
    }

    #[test]
    fn active_low_resets_are_recognized() {
        let ones = ["sys_rst_n", "aresetn", "PCIE_PERST_N", "perstn_i", "rst_n_in"];
        assert!(ones.iter().all(|name| Drive::of(name) == Drive::Ones));
        assert!(["rst", "sys_reset", "reset_in"].iter().all(|name| Drive::of(name) == Drive::Zeros));
    }
}
