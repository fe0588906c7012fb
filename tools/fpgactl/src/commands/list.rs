//! `list`: the cards of this machine, and the simulated ones.

use fpga_host::{IommuGroup, LinkParameters, OtherFunction, PciFunction, Roots, functions};
use fpga_sim::CardDescription;
use serde::Serialize;

use crate::cli::ListArgs;
use crate::error::CliError;
use crate::output::{Report, render, table};

/// PCI function.
#[derive(Debug, Serialize)]
struct Function {
    address: String,
    vendor: String,
    device: String,
    subsystem_vendor: Option<String>,
    subsystem_device: Option<String>,
    name: String,
    known: bool,
    driver: Option<String>,
    driver_override: Option<String>,
    iommu_group: Option<u32>,
    /// Other functions of the group.
    group_members: Vec<Member>,
    link: Option<LinkReport>,
    numa_node: Option<u32>,
    physical_function: Option<String>,
    virtual_functions: u64,
    /// Properties that could not be read or understood.
    remarks: Vec<String>,
}

/// Another function of a group.
#[derive(Debug, Serialize)]
struct Member {
    address: String,
    driver: Option<String>,
    /// Whether its driver keeps the group from being used.
    #[serde(rename = "in_the_way")]
    is_blocking: bool,
}

/// PCIe link.
#[derive(Debug, Serialize)]
struct LinkReport {
    speed_gt_per_s: Option<f64>,
    width: Option<u8>,
    max_speed_gt_per_s: Option<f64>,
    max_width: Option<u8>,
    /// Upstream port and its capabilities.
    port: Option<String>,
    port_max_speed_gt_per_s: Option<f64>,
    port_max_width: Option<u8>,
    /// Rate in one direction, before packet headers.
    gb_per_s: Option<f64>,
    /// Whether it runs slower or narrower than both ends support.
    below_possible: bool,
    #[serde(skip)]
    text: String,
}

/// Simulated card.
#[derive(Debug, Serialize)]
struct Simulated {
    card: String,
    about: &'static str,
}

/// All cards found.
#[derive(Debug, Serialize)]
pub struct ListReport {
    functions: Vec<Function>,
    /// Functions whose ids cannot be read, with the reason.
    unreadable: Vec<String>,
    /// Functions that are not listed because their ids are unknown.
    hidden: usize,
    simulated: Vec<Simulated>,
}

/// Runs the command.
pub fn run(args: &ListArgs) -> Result<ListReport, CliError> {
    let roots = args.host.roots();
    let listing = functions(&roots)?;
    let total = listing.functions.len();
    let shown = listing.functions.into_iter().filter(|function| args.all || function.is_known());
    let functions = shown.map(|function| describe(&roots, function)).collect::<Result<Vec<_>, _>>()?;
    let simulated = CardDescription::builtins().enumerate().map(|(index, builtin)| Simulated {
        card: if index == 0 { "mock".to_owned() } else { format!("mock:{}", builtin.name) },
        about: builtin.about,
    });
    Ok(ListReport {
        hidden: total - functions.len(),
        functions,
        unreadable: listing.unreadable.iter().map(ToString::to_string).collect(),
        simulated: simulated.collect(),
    })
}

/// Description of one function with its group and its link.
pub(super) fn described(roots: &Roots, function: PciFunction) -> Result<String, CliError> {
    let report = ListReport {
        functions: vec![describe(roots, function)?],
        unreadable: Vec::new(),
        hidden: 0,
        simulated: Vec::new(),
    };
    Ok(report.functions_text())
}

fn describe(roots: &Roots, function: PciFunction) -> Result<Function, CliError> {
    let group = function.group.map(|number| IommuGroup::read(roots, number)).transpose()?;
    let others = group.iter().flat_map(|group| group.others(function.address));
    let hex = |id: u16| format!("{id:#06x}");
    Ok(Function {
        address: function.address.to_string(),
        vendor: hex(function.id.vendor),
        device: hex(function.id.device),
        subsystem_vendor: function.subsystem.map(|id| hex(id.vendor)),
        subsystem_device: function.subsystem.map(|id| hex(id.device)),
        name: function.name(),
        known: function.is_known(),
        group_members: others.map(member).collect(),
        link: link(&function),
        driver: function.driver,
        driver_override: function.driver_override,
        iommu_group: function.group,
        numa_node: function.numa_node,
        physical_function: function.physical_function.map(|address| address.to_string()),
        virtual_functions: function.virtual_functions,
        remarks: function.remarks,
    })
}

fn member(other: &OtherFunction) -> Member {
    Member {
        address: other.address.to_string(),
        driver: other.driver.clone(),
        is_blocking: other.blocks_group(),
    }
}

fn link(function: &PciFunction) -> Option<LinkReport> {
    let state = function.link?;
    let speed = |link: LinkParameters| link.speed.map(fpga_host::LinkSpeed::gigatransfers);
    let possible = state.possible();
    let below_possible = state.current.is_below(possible);
    let text =
        if below_possible { format!("{} of {possible}", state.current) } else { state.current.to_string() };
    Some(LinkReport {
        speed_gt_per_s: speed(state.current),
        width: state.current.width,
        max_speed_gt_per_s: speed(state.maximum),
        max_width: state.maximum.width,
        port: state.port.map(|(address, _)| address.to_string()),
        port_max_speed_gt_per_s: state.port.and_then(|(_, link)| speed(link)),
        port_max_width: state.port.and_then(|(_, link)| link.width),
        gb_per_s: state.current.gigabytes_per_second(),
        below_possible,
        text,
    })
}

impl ListReport {
    /// Functions, their groups, and remarks on them.
    fn functions_text(&self) -> String {
        let mut text = String::new();
        if self.functions.is_empty() {
            text += "no PCI function has ids of a known XDMA design\n";
        } else {
            let mut table = table(&["CARD", "IDS", "DRIVER", "GROUP", "NODE", "LINK", "NAME"], &[]);
            for function in &self.functions {
                let ids = [&function.vendor, &function.device].map(|id| id.trim_start_matches("0x"));
                table.add_row([
                    function.address.clone(),
                    ids.join(":"),
                    function.driver.clone().unwrap_or_else(|| "-".to_owned()),
                    function.iommu_group.map_or_else(|| "-".to_owned(), |group| group.to_string()),
                    function.numa_node.map_or_else(|| "-".to_owned(), |node| node.to_string()),
                    function.link.as_ref().map_or_else(|| "-".to_owned(), |link| link.text.clone()),
                    function.name.clone(),
                ]);
            }
            text += &render(&table);
        }
        for function in &self.functions {
            if !function.group_members.is_empty() {
                let members = function.group_members.iter().map(|member| {
                    let driver = member.driver.as_deref().unwrap_or("no driver");
                    let note = if member.is_blocking { ", blocks the group" } else { "" };
                    format!("{} ({driver}{note})", member.address)
                });
                let members = members.collect::<Vec<_>>().join(", ");
                text += &format!("{} shares its group with {members}\n", function.address);
            }
            for remark in &function.remarks {
                text += &format!("{}: {remark}\n", function.address);
            }
        }
        text
    }
}

impl Report for ListReport {
    fn text(&self) -> String {
        let mut text = self.functions_text();
        for error in &self.unreadable {
            text += &format!("not listed: {error}\n");
        }
        if self.hidden > 0 {
            let plural = if self.hidden == 1 { "function" } else { "functions" };
            text += &format!("{} other PCI {plural}: --all lists them\n", self.hidden);
        }
        text += "\nSimulated, always available:\n";
        let mut cards = table(&[], &[]);
        for simulated in &self.simulated {
            cards.add_row([simulated.card.as_str(), simulated.about]);
        }
        text + &render(&cards)
    }
}
