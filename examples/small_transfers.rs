//! Small transfers at high rates: memory is attached to the channel once, a transfer names a part of it, and what succeeds is
//! only counted. The card works on a thread of its own here, as a real one works by itself.
//!
//!     cargo run --release -p fpga-examples --example small_transfers
#![forbid(unsafe_code)]

use std::error::Error;
use std::time::Instant;

use fpga_driver::sim::{SimNetwork, ThreadOptions};
use fpga_driver::{Card, CardAddr, ChannelOptions, RunMode};

/// Bytes of one transfer.
const SIZE: usize = 64;
/// Places in host memory, and as many on the card.
const PLACES: usize = 4096;
/// Transfers in flight at most.
const DEPTH: u64 = 256;
/// Transfers queued between two looks.
const BATCH: u64 = 32;
const TRANSFERS: u64 = 200_000;

fn main() -> Result<(), Box<dyn Error>> {
    let network = SimNetwork::builder().cards(1).threaded(ThreadOptions::default()).build()?;
    let card = Card::open(network.backend(0))?;

    // Credits keep the engine running from batch to batch. `fpgactl validate` tells whether a card can do it; every card can
    // do stop runs, the default.
    let options = ChannelOptions::default().descriptors(512).transfers(256).run_mode(RunMode::Credit);
    let mut h2c = card.h2c_with(0, options)?;
    let memory = h2c.register_memory(card.registered_memory(SIZE * PLACES)?)?;
    let bytes = h2c.memory(memory).ok_or("just attached")?;
    bytes.fill(0, SIZE * PLACES, 0x5A)?;

    let began = Instant::now();
    let mut submitted = 0;
    while h2c.ended() < TRANSFERS {
        let room = DEPTH - (submitted - h2c.ended());
        for _ in 0..room.min(BATCH).min(TRANSFERS - submitted) {
            let place = usize::try_from(submitted)? % PLACES * SIZE;
            h2c.submit_at(memory, place, SIZE, CardAddr::new(place as u64))?;
            submitted += 1;
        }
        // Tells the engine of the batch (one posted write), and takes up what has ended (one word of memory).
        h2c.poll()?;
        // What failed would be here; what went well is not.
        if let Some(done) = h2c.next_completion() {
            return Err(done.outcome.err().map_or("a transfer was cancelled".into(), |fault| fault.into()));
        }
    }
    println!("{} transfers of {SIZE} bytes in {:.1?}", h2c.ended(), began.elapsed());

    let area = h2c.deregister_memory(memory)?;
    println!("{} bytes of memory back", area.len());
    Ok(())
}
