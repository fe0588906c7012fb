//! Small transfers at high rates: memory is registered with the channel once, a transfer names a part of it, and a success is only counted.
//! The simulated card runs in its own thread here, so it works independently of the caller, as a real card does.
//!
//!     cargo run --release -p fpga-examples --example small_transfers

use std::error::Error;
use std::time::Instant;

use fpga_driver::sim::SimNetwork;
use fpga_driver::{Card, CardAddr, ChannelOptions, RunMode};
use fpga_sim::ThreadOptions;

/// Length of one transfer in bytes.
const SIZE: usize = 64;
/// Number of slots in host memory, and on the card.
const PLACES: usize = 4096;
/// Maximum number of transfers in flight.
const DEPTH: u64 = 256;
/// Number of transfers queued between two polls.
const BATCH: u64 = 32;
const TRANSFERS: u64 = 200_000;

fn main() -> Result<(), Box<dyn Error>> {
    let network = SimNetwork::builder().cards(1).threaded(ThreadOptions::default()).build()?;
    let card = Card::from_backend(network.backend(0))?;

    // Credit mode keeps the engine running from batch to batch. `fpgactl validate` shows whether a card supports it. Batch mode, the
    // default, works on every card.
    let options = ChannelOptions::default().descriptors(512).transfers(256).run_mode(RunMode::Credit);
    let mut h2c = card.h2c_with(0, options)?;
    let memory = h2c.register_memory(card.registered_memory(SIZE * PLACES)?)?;
    let bytes = h2c.memory(memory).ok_or("the memory is not registered")?;
    bytes.fill(0, SIZE * PLACES, 0x5A)?;

    let began = Instant::now();
    let mut submitted = 0;
    while h2c.ended() < TRANSFERS {
        let free = DEPTH - (submitted - h2c.ended());
        for _ in 0..free.min(BATCH).min(TRANSFERS - submitted) {
            let place = usize::try_from(submitted)? % PLACES * SIZE;
            h2c.submit_at(memory, place, SIZE, CardAddr::new(place as u64))?;
            submitted += 1;
        }
        // Posts the batch (one posted write) and collects completions (one word of memory).
        h2c.poll()?;
        // Only failures have completions.
        if let Some(done) = h2c.next_completion() {
            return Err(done.outcome.err().map_or("a transfer was cancelled".into(), |fault| fault.into()));
        }
    }
    println!("{} transfers of {SIZE} bytes in {:.1?}", h2c.ended(), began.elapsed());

    let area = h2c.deregister_memory(memory)?;
    println!("{} bytes of memory returned", area.len());
    Ok(())
}
