//! `bind` and `release`: bind a card to vfio-pci, and release it.

use fpga_host::bind::{Bound, Released, bind as give, release as take_back};
use fpga_host::function::find;
use serde::Serialize;

use crate::cli::{BindArgs, ReleaseArgs};
use crate::error::CliError;
use crate::output::Report;

/// Function that was bound.
#[derive(Debug, Serialize)]
pub struct BindReport {
    command: &'static str,
    card: String,
    driver: String,
    /// Previous driver.
    previous: Option<String>,
    /// Whether the function was bound already.
    already: bool,
    iommu_group: u32,
    /// Other functions of the group: address and driver.
    others: Vec<String>,
    /// Those of `others` whose drivers keep the group from being used.
    #[serde(rename = "in_the_way")]
    blocking_members: Vec<String>,
    /// Files that open the card.
    files: Vec<String>,
}

/// Function that was released.
#[derive(Debug, Serialize)]
pub struct ReleaseReport {
    command: &'static str,
    card: String,
    driver: Option<String>,
    /// Previous driver.
    previous: Option<String>,
    /// Whether the original driver was known.
    remembered: bool,
}

/// Runs `bind`.
pub fn bind(args: &BindArgs) -> Result<BindReport, CliError> {
    let roots = args.host.roots();
    let Bound { address, driver, previous, already, group, others, files, .. } =
        give(&roots, &find(&roots, &args.address)?, args.force)?;
    Ok(BindReport {
        command: "bind",
        card: address.to_string(),
        driver,
        previous,
        already,
        iommu_group: group,
        blocking_members: others
            .iter()
            .filter(|other| other.blocks_group())
            .map(ToString::to_string)
            .collect(),
        others: others.iter().map(ToString::to_string).collect(),
        files: files.iter().map(|file| file.display().to_string()).collect(),
    })
}

/// Runs `release`.
pub fn release(args: &ReleaseArgs) -> Result<ReleaseReport, CliError> {
    let roots = args.host.roots();
    let Released { address, driver, previous, remembered, .. } =
        take_back(&roots, &find(&roots, &args.address)?)?;
    Ok(ReleaseReport { command: "release", card: address.to_string(), driver, previous, remembered })
}

impl Report for BindReport {
    fn text(&self) -> String {
        let Self { card, driver, iommu_group, .. } = self;
        let mut text = match (self.already, &self.previous) {
            (true, _) => format!("{card} is already bound to {driver}\n"),
            (false, None) => format!("{card} is bound to {driver}; it had no driver before\n"),
            (false, Some(previous)) => {
                format!("{card} is bound to {driver}; `fpgactl release {card}` returns it to {previous}\n")
            }
        };
        text += &match self.others.as_slice() {
            [] => format!("group {iommu_group}: no other functions\n"),
            others => format!("group {iommu_group}: with {}\n", others.join(", ")),
        };
        if !self.blocking_members.is_empty() {
            let others = self.blocking_members.join(", ");
            text +=
                &format!("note: the group cannot be used while the kernel uses {others}: bind these too\n");
        }
        text += &match self.files.as_slice() {
            [] => "note: its file in /dev/vfio does not exist yet; check that udev runs\n".to_owned(),
            files => format!("opened by {}\n", files.join(" or ")),
        };
        text
    }
}

impl Report for ReleaseReport {
    fn text(&self) -> String {
        let Self { card, .. } = self;
        let source = if self.remembered { "as before" } else { "as the kernel chose" };
        match &self.driver {
            Some(driver) => format!("{card} is bound to {driver}, {source}\n"),
            None => format!("{card} has no driver, {source}\n"),
        }
    }
}
