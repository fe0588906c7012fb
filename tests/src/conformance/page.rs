//! The fault table as a page for readers: `docs/faults.md`.

use core::fmt::Write as _;

use fpga_driver::{Direction, RunMode};

use super::Capability;
use super::faults::{AppliesTo, FaultRow, TABLE};

/// Text of the page. The page is committed; a test compares it with this text.
#[must_use]
pub fn faults() -> String {
    let mut page = String::from(HEAD);
    for row in TABLE {
        let said = match row.said {
            [] => "nothing: the work is done".to_owned(),
            said => said.iter().map(ToString::to_string).collect::<Vec<_>>().join(", then "),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "| {} | {} | {said} | {} | {} | {} | `{}` |",
            row.what,
            on(row),
            row.memory,
            row.after,
            backend_names(row.needs),
            row.case,
        );
    }
    page.push_str(TAIL);
    page
}

const HEAD: &str = "\
# What goes wrong, and what you see of it

Printed from the table that the conformance suite tests the driver by (`tests/src/conformance/faults.rs`): do not edit it here, run
`cargo run -p fpga-tests --bin conformance -- --fault-page > docs/faults.md`.

Whatever happens, a transfer ends exactly once, its buffer comes back or is counted in quarantine, and the process lives. A fault
names card, channel, descriptor and both addresses where the engine says enough to know them. *Doors*: \"every\" is run with a card in
process, with one on a thread, with one that is served on a socket, and on any card that is there; \"simulated\" takes a card that
can be made to fail: one of the first three, or a served one whose control socket is in reach, behind a kernel's VFIO too.

| Fault | Where | What the driver says | Buffers in flight | What works afterwards | Doors | Case |
|---|---|---|---|---|---|---|
";

const TAIL: &str = "
A write of the card's to host memory is posted: nothing answers it, and PG195 has no status bit for one that is refused. Of such a
transfer the engine reports success. It shows in the IOMMU's log (`dmesg`), in AER where the platform reports it, in a simulated
card's own fault log, and in `fpgactl validate`, which compares what has arrived.
";

fn on(row: &FaultRow) -> String {
    match row.on {
        AppliesTo::Cdma => "CDMA".to_owned(),
        AppliesTo::CdmaRing => "CDMA ring".to_owned(),
        AppliesTo::Stream => "C2H stream".to_owned(),
        AppliesTo::Function => "function".to_owned(),
        AppliesTo::Channels(direction, mode) => {
            let direction = match direction {
                Some(Direction::C2h) => "C2H",
                Some(_) => "H2C",
                None => "H2C, C2H",
            };
            match mode {
                Some(RunMode::Credit) => format!("{direction}, credit ring"),
                Some(_) => format!("{direction}, stop runs"),
                None => direction.to_owned(),
            }
        }
    }
}

fn backend_names(needs: &[Capability]) -> &'static str {
    let needs = |ability| needs.contains(&ability);
    if needs(Capability::CardFaults) || needs(Capability::Removal) {
        "simulated"
    } else if needs(Capability::DmaRefusal) {
        "every, where bad accesses may be provoked"
    } else if needs(Capability::BusReset) {
        "every, where there is a reset"
    } else {
        "every"
    }
}
