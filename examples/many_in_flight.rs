//! Many transfers in flight on one channel: submit until the ring is full, poll, take completions, submit more.
//!
//! Transfers that are queued together run together, with one start of the engine for all of them. This gives high throughput without a
//! thread.
//!
//!     cargo run -p fpga-examples --example many_in_flight

use std::collections::HashMap;
use std::error::Error;

use fpga_driver::sim::SimNetwork;
use fpga_driver::{Card, CardAddr, ChannelOptions, DmaBuffer, Ticket};

const TRANSFERS: u64 = 100;
const LENGTH: usize = 8 << 10;
const BUFFERS: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let network = SimNetwork::builder().cards(1).build()?;
    let card = Card::from_backend(network.backend(0))?;
    // A small ring, to show back-pressure.
    let mut h2c = card.h2c_with(0, ChannelOptions::default().transfers(16))?;

    let mut idle: Vec<DmaBuffer> = (0..BUFFERS).map(|_| card.buffer(LENGTH)).collect::<Result<_, _>>()?;
    // The application keeps its own data for each ticket.
    let mut submitted: HashMap<Ticket, u64> = HashMap::new();
    let (mut next, mut done, mut refusals, mut most) = (0, 0, 0, 0);

    while done < TRANSFERS {
        while next < TRANSFERS
            && let Some(mut buffer) = idle.pop()
        {
            buffer.fill(u8::try_from(next)?);
            match h2c.submit(buffer, CardAddr::new(next * LENGTH as u64)) {
                Ok(ticket) => {
                    submitted.insert(ticket, next);
                    next += 1;
                }
                // The refusal returns the buffer.
                Err(refused) => {
                    idle.push(refused.payload);
                    if !refused.error.is_full() {
                        return Err(refused.error.into());
                    }
                    refusals += 1;
                    break;
                }
            }
        }
        most = most.max(h2c.in_flight());

        // Starts queued transfers and collects completed ones. A real application does other work in between.
        h2c.poll()?;
        while let Some(completion) = h2c.next_completion() {
            let number = submitted.remove(&completion.ticket).ok_or("a completion with an unknown ticket")?;
            let bytes = completion.outcome?;
            if number % 25 == 0 {
                println!("transfer {number}: {bytes} bytes");
            }
            idle.extend(completion.buffer);
            done += 1;
        }
        // Nothing else to do: a spin hint for the CPU; a simulated card works in this call.
        h2c.relax();
    }

    println!(
        "{done} transfers with {BUFFERS} buffers, at most {most} in flight, submit refused {refusals} times"
    );
    if let Some(counters) = card.counters() {
        let (writes, descriptors) = (counters.mmio_writes, counters.descriptors);
        println!("the card executed {descriptors} descriptors and received {writes} register writes");
    }
    Ok(())
}
