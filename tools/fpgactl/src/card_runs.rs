//! Transfers between two simulated cards with their drivers, in virtual time, for the simulator's figures.

use std::time::Duration;

use fpga_driver::{Card, CardRange, NodeId};
use fpga_netsim::figures::cards::{CardDesign, CardTime, CardTransfer};
use fpga_protocol::Nanos;
use fpga_rdma::{Endpoint, EndpointOptions, SendOptions, SendTimeout};
use fpga_sim::{CardDescription, SimNetwork};

/// Fixed timeout of paths without loss, on which a retransmission would only be spurious.
const TIMEOUT: Duration = Duration::from_millis(10);
/// Maximum wait for the other card's answer to a query, in virtual time.
const QUERY_TIMEOUT: Duration = Duration::from_millis(10);
/// Maximum duration of a transfer, in virtual time.
const LIMIT: Duration = Duration::from_secs(10);
/// Polls after opening: nothing of it is in flight then.
const SETTLING_POLLS: u32 = 64;
/// Entries of the event ring for each packet in flight: a quarter of the ring is for them, and a few are for other events.
const EVENT_ENTRIES_PER_PACKET: u32 = 8;

/// Runs a transfer on two new cards.
///
/// # Errors
/// Text for people: a card cannot be built or opened, or the transfer has failed.
pub fn run(transfer: &CardTransfer) -> Result<CardTime, String> {
    attempt(transfer).map_err(|error| error.to_string())
}

fn describe(design: &CardDesign, node: u32) -> CardDescription {
    let mut card = CardDescription::default();
    (card.link.speed, card.link.width) = design.link;
    card.link.read_latency_ns = design.read_latency_ns;
    card.cdma.data_width = design.copy_width;
    card.cdma.descriptor_ns = design.copy_descriptor_ns;
    card.memory.megabytes_per_second = design.memory_rate;
    card.ni.megabits_per_second = design.network_rate;
    (card.ni.packet_size, card.ni.mask_bits) = (design.packet, design.mask_bits);
    card.ni.node_id = node;
    card
}

fn options(transfer: &CardTransfer) -> EndpointOptions {
    let mut options = EndpointOptions::default();
    options.incarnation = Some(1);
    if let Some(packets) = transfer.design.in_flight {
        options.ops = Some(packets);
        options.event_entries = packets.saturating_mul(EVENT_ENTRIES_PER_PACKET).next_power_of_two();
    }
    if transfer.network.loss == 0.0 {
        options.timeout = SendTimeout::Fixed { timeout: TIMEOUT, max_tries: 0 };
    }
    if let Some(segment) = transfer.segment {
        options.segment_size = Some(u32::try_from(segment).unwrap_or(u32::MAX));
        // The swept length applies to short transfers as well.
        options.big_threshold = Some(0);
    }
    options
}

fn attempt(transfer: &CardTransfer) -> Result<CardTime, Box<dyn std::error::Error>> {
    let network = SimNetwork::builder()
        .card(describe(&transfer.design, 1))
        .card(describe(&transfer.design, 2))
        .impairments(transfer.network.impairments())
        .seed(transfer.seed)
        .build()?;
    let (a, b) = (Card::from_backend(network.backend(0))?, Card::from_backend(network.backend(1))?);
    let options = options(transfer);
    let mut to = Endpoint::open_with(&b, &options)?;
    let mut from = Endpoint::open_with(&a, &options)?;
    let region = to.open_region(NodeId::ANY, CardRange::new(to.usable_memory().start, transfer.length))?;
    from.wait_peer(to.node(), QUERY_TIMEOUT)?;
    for _ in 0..SETTLING_POLLS {
        if from.poll()? + to.poll()? == 0 {
            from.relax();
        }
    }
    let segment = from.segment_length(to.node(), transfer.length).into();
    let began = from.now();
    let source = from.usable_memory().start;
    let ticket = from.send(source, &region.remote, 0, transfer.length, SendOptions::default())?;
    let (mut received, mut retransmits) = (None, None);
    loop {
        let work = from.poll()? + to.poll()?;
        let now = from.now();
        while let Some(done) = from.next_completion() {
            if done.ticket == ticket {
                done.result?;
                retransmits = Some(done.retransmits);
            }
        }
        while to.next_notification().is_some() {
            received = Some(now.saturating_sub(began));
        }
        if let (Some(time), Some(retransmits)) = (received, retransmits) {
            return Ok(CardTime { time: Nanos::from(time), segment, retransmits });
        }
        if now.saturating_sub(began) > LIMIT {
            return Err(format!("{} bytes have not arrived after {LIMIT:?}", transfer.length).into());
        }
        if work == 0 {
            from.relax();
        }
    }
}
