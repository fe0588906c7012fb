//! Netlist of Yosys: counts of cells, and the longest path.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Reasons why a netlist cannot be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetlistError {
    /// It is not JSON of the expected shape.
    #[error("unexpected netlist: {0}")]
    Syntax(#[from] serde_json::Error),
    /// The top module is missing.
    #[error("the netlist has no module {0}")]
    NoTop(String),
    /// A loop of cells without a register.
    #[error("combinational loop at cell {0}")]
    Loop(String),
}

/// Cells of a design, and its longest path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) luts: u64,
    pub(crate) flip_flops: u64,
    /// LUTs used as memory.
    pub(crate) lut_rams: u64,
    /// Block memories of 18 Kbit; one of 36 Kbit counts twice.
    pub(crate) half_block_rams: u64,
    pub(crate) dsps: u64,
    /// LUTs of the longest path.
    pub(crate) levels: u32,
}

#[derive(Deserialize)]
struct File {
    modules: BTreeMap<String, Module>,
}

#[derive(Deserialize)]
struct Module {
    #[serde(default)]
    cells: BTreeMap<String, Cell>,
}

#[derive(Deserialize)]
struct Cell {
    #[serde(rename = "type")]
    kind: String,
    port_directions: BTreeMap<String, String>,
    connections: BTreeMap<String, Vec<Bit>>,
}

/// A net by number, or a constant.
#[derive(Clone, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(untagged)]
enum Bit {
    Net(u64),
    Constant(#[allow(dead_code)] String),
}

impl Cell {
    /// LUTs that the cell adds to a path; `None`: a path ends there.
    fn levels(&self) -> Option<u32> {
        match self.kind.as_str() {
            kind if kind.starts_with("LUT") => Some(1),
            kind if kind.starts_with("MUXF") || kind.starts_with("CARRY") => Some(0),
            "INV" | "XORCY" | "MUXCY" => Some(0),
            _ => None,
        }
    }

    fn nets<'a>(&'a self, direction: &'a str) -> impl Iterator<Item = u64> + 'a {
        let ports = self
            .connections
            .iter()
            .filter(move |(name, _)| self.port_directions.get(*name).is_some_and(|found| found == direction));
        ports.flat_map(|(_, bits)| bits).filter_map(|bit| match bit {
            Bit::Net(net) => Some(*net),
            Bit::Constant(_) => None,
        })
    }
}

/// Memory LUTs of a cell.
fn memory_luts(kind: &str) -> u64 {
    match kind {
        "RAM32M16" | "RAM64M8" | "RAM512X1S" => 8,
        "RAM32M" | "RAM64M" | "RAM256X1S" | "RAM128X1D" => 4,
        "RAM64X1D" | "RAM32X1D" | "RAM128X1S" => 2,
        _ => u64::from(kind.starts_with("RAM") || kind.starts_with("SRL")),
    }
}

/// Measures module `top` of a flat netlist.
pub(crate) fn measure(json: &str, top: &str) -> Result<Area, NetlistError> {
    let file: File = serde_json::from_str(json)?;
    let module = file.modules.get(top).ok_or_else(|| NetlistError::NoTop(top.to_owned()))?;
    let mut area = Area::default();
    for cell in module.cells.values() {
        let kind = cell.kind.as_str();
        match kind {
            _ if kind.starts_with("LUT") || kind == "INV" => area.luts += 1,
            _ if kind.starts_with("FD") || kind.starts_with("LD") => area.flip_flops += 1,
            _ if kind.starts_with("RAMB36") => area.half_block_rams += 2,
            _ if kind.starts_with("RAMB18") => area.half_block_rams += 1,
            _ if kind.starts_with("DSP") => area.dsps += 1,
            _ => area.lut_rams += memory_luts(kind),
        }
    }
    area.levels = longest_path(&module.cells)?;
    Ok(area)
}

/// LUTs of the longest path: cells in topological order, by the number of inputs that are not known yet.
fn longest_path(cells: &BTreeMap<String, Cell>) -> Result<u32, NetlistError> {
    let logic: Vec<(&String, &Cell, u32)> =
        cells.iter().filter_map(|(name, cell)| Some((name, cell, cell.levels()?))).collect();
    let mut driver = BTreeMap::new();
    for (number, (_, cell, _)) in logic.iter().enumerate() {
        driver.extend(cell.nets("output").map(|net| (net, number)));
    }
    let mut readers = vec![Vec::new(); logic.len()];
    let mut missing = vec![0_u32; logic.len()];
    for (number, (_, cell, _)) in logic.iter().enumerate() {
        for net in cell.nets("input") {
            if let Some(readers) = driver.get(&net).and_then(|from| readers.get_mut(*from)) {
                readers.push(number);
                if let Some(missing) = missing.get_mut(number) {
                    *missing += 1;
                }
            }
        }
    }
    let mut depth = vec![0_u32; logic.len()];
    let mut ready: Vec<usize> =
        missing.iter().enumerate().filter(|(_, missing)| **missing == 0).map(|(number, _)| number).collect();
    let (mut done, mut longest) = (0, 0);
    while let Some(number) = ready.pop() {
        done += 1;
        let Some((_, _, levels)) = logic.get(number) else { continue };
        let own = depth.get(number).copied().unwrap_or(0) + levels;
        longest = longest.max(own);
        for reader in readers.get(number).into_iter().flatten() {
            if let (Some(depth), Some(missing)) = (depth.get_mut(*reader), missing.get_mut(*reader)) {
                *depth = own.max(*depth);
                *missing -= 1;
                if *missing == 0 {
                    ready.push(*reader);
                }
            }
        }
    }
    if done < logic.len() {
        let stuck = missing.iter().zip(&logic).find(|(missing, _)| **missing > 0);
        return Err(NetlistError::Loop(stuck.map_or_else(String::new, |(_, (name, ..))| (*name).clone())));
    }
    Ok(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn netlist(cells: &str) -> String {
        format!(r#"{{"modules": {{"top": {{"cells": {{{cells}}}}}}}}}"#)
    }

    fn cell(name: &str, kind: &str, input: &str, output: &str) -> String {
        format!(
            r#""{name}": {{"type": "{kind}", "port_directions": {{"I": "input", "O": "output"}}, "connections": {{"I": [{input}], "O": [{output}]}}}}"#
        )
    }

    #[test]
    fn path_counts_luts_between_registers() {
        let cells = [
            cell("a", "LUT6", "2, 3", "4"),
            cell("b", "CARRY4", "4, \"0\"", "5"),
            cell("c", "LUT2", "5, 2", "6"),
            cell("d", "FDRE", "6", "7"),
            cell("e", "LUT1", "7", "8"),
            cell("f", "RAMB36E1", "8", "3"),
            cell("g", "RAM32M16", "8", "9"),
        ];
        let area = measure(&netlist(&cells.join(",")), "top").unwrap();
        let expected = Area { luts: 3, flip_flops: 1, lut_rams: 8, half_block_rams: 2, dsps: 0, levels: 2 };
        assert_eq!(area, expected);
    }

    #[test]
    fn combinational_loop_is_refused() {
        let cells = [cell("a", "LUT2", "2, 3", "4"), cell("b", "LUT1", "4", "3")];
        let error = measure(&netlist(&cells.join(",")), "top").unwrap_err();
        assert!(matches!(error, NetlistError::Loop(_)), "{error}");
        assert!(matches!(measure("{\"modules\": {}}", "top"), Err(NetlistError::NoTop(_))));
    }
}
