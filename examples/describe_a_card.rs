//! Simulated card with the properties of your card, described in YAML.
//!
//! Properties that a description omits are those of the built-in card. A misspelt key is an error with file, line and key. `fpgactl --card
//! mock:FILE.yaml` opens the same files.
//!
//!     cargo run -p fpga-examples --example describe_a_card

use std::error::Error;
use std::path::Path;

use fpga_driver::Card;
use fpga_driver::sim::CardDescription;
use fpga_driver::sim::SimNetwork;

const SMALL: &str = "\
schema_version: 1
name: small card
xdma:
  h2c_channels: 1
  c2h_channels: 2
  data_width: 128
memory:
  size: 0x10000000
ni:
  packet_size: 256
  registry_entries: 8
";

const MISSPELT: &str = "\
schema_version: 1
xdma:
  h2c_chanels: 1
";

const IMPOSSIBLE: &str = "\
schema_version: 1
ni:
  packet_size: 500
";

/// Returns the properties that the driver finds on a card, one row each.
fn properties(description: CardDescription) -> Result<[(&'static str, String); 6], Box<dyn Error>> {
    let network = SimNetwork::builder().card(description).build()?;
    let card = Card::from_backend(network.backend(0))?;
    let info = card.info();
    let ni = info.ni.as_ref().ok_or("no network interface")?;
    Ok([
        ("H2C channels", info.xdma.h2c_channels.to_string()),
        ("C2H channels", info.xdma.c2h_channels.to_string()),
        ("data path, bits", info.xdma.data_width.map_or("unknown".to_owned(), |width| width.to_string())),
        ("card memory, MiB", (ni.memory.length >> 20).to_string()),
        ("packet, bytes", (1 << ni.packet_size_log2).to_string()),
        ("registry entries", ni.registry_entries.to_string()),
    ])
}

fn main() -> Result<(), Box<dyn Error>> {
    // `CardDescription::load` reads a file; `parse` takes its text, and uses the path only in messages.
    let small = CardDescription::parse(Path::new("small.yaml"), SMALL)?;
    let title = small.name.clone();
    println!("{:<18}{:>10}{title:>14}", "", "built-in");
    for ((property, usual), (_, found)) in
        properties(CardDescription::default())?.into_iter().zip(properties(small)?)
    {
        println!("{property:<18}{usual:>10}{found:>14}");
    }

    for (name, text) in [("misspelt.yaml", MISSPELT), ("impossible.yaml", IMPOSSIBLE)] {
        match CardDescription::parse(Path::new(name), text) {
            Err(error) => println!("\n{error}"),
            Ok(_) => return Err(format!("{name} was accepted").into()),
        }
    }

    // A description that a program has changed is checked in the same way.
    let mut changed = CardDescription::default();
    changed.xdma.h2c_channels = 9;
    match SimNetwork::builder().card(changed).build() {
        Err(error) => println!("\n{error}"),
        Ok(_) => return Err("a card with nine channels was accepted".into()),
    }
    Ok(())
}
