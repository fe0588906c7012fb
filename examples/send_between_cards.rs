//! Transfer from one host's card memory into another's, over a network that delivers packets in any order.
//!
//! The receiver opens a region and passes it to the sender by means of the application (here: a variable). The sender sends. The receiving
//! card writes the packets to their addresses and notifies its host when all have arrived.
//!
//!     cargo run -p fpga-examples --example send_between_cards

use fpga_diag::inspect::Inspect as _;
use std::error::Error;
use std::time::Duration;

use fpga_driver::sim::SimNetwork;
use fpga_driver::{Card, CardAddr, CardRange};
use fpga_rdma::{Endpoint, SendOptions};
use fpga_sim::Order;

const LENGTH: usize = 300_000;
const SOURCE: CardAddr = CardAddr::new(0x10_0000);
const TARGET: CardAddr = CardAddr::new(0x2000_0000);

fn main() -> Result<(), Box<dyn Error>> {
    let network = SimNetwork::builder().cards(2).impairments(Order::random(32)).seed(1).build()?;
    let card_a = Card::from_backend(network.backend(0))?;
    let card_b = Card::from_backend(network.backend(1))?;
    let mut a = Endpoint::open(&card_a)?;
    let mut b = Endpoint::open(&card_b)?;

    // Host B: node A, and no other node, may write these bytes.
    let region = b.open_region(a.node(), CardRange::new(TARGET, LENGTH as u64))?;
    println!("node {} opened {LENGTH} bytes at {TARGET} for node {}", b.node(), a.node());

    // Host A: write data into card memory, then send it to B.
    let data: Vec<u8> = (0..=250).cycle().take(LENGTH).collect();
    card_a.h2c(0)?.write(card_a.buffer_from(&data)?, SOURCE)?;
    let ticket = a.send(SOURCE, &region.remote, 0, LENGTH as u64, SendOptions::default())?;
    let sent = a.wait(ticket, Duration::from_secs(1))?;
    sent.result?;
    println!(
        "A: {} packets in {} segments, {} of them without completion event, {} packets retransmitted",
        sent.packets, sent.segments, sent.silent_segments, sent.retransmits
    );

    // Host B: its own card reports that all packets have arrived.
    b.poll()?;
    let arrived = b.next_notification().ok_or("no notification")?;
    println!("B: {} bytes from node {} at {}", arrived.length, arrived.node, arrived.address);
    let counted = b.tables().counters()?;
    println!(
        "B: {} packets arrived before the first packet of their segment and were buffered in the escape channel",
        counted.escape_hits
    );
    b.close_region(&region)?;

    let received = card_b.c2h(0)?.read(card_b.buffer(LENGTH)?, arrived.address)?;
    if received.to_vec() != data {
        return Err("the received bytes differ from the sent bytes".into());
    }
    println!("all bytes equal");
    Ok(())
}
