//! Read of another node's memory: the other node answers the request with a write. Several threads share each node's endpoint.
//!
//! A read needs the other host, which has to poll its endpoint while requests arrive. Here a separate thread does that.
//!
//!     cargo run -p fpga-examples --example read_from_another_node

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fpga_driver::sim::SimNetwork;
use fpga_driver::{Card, CardAddr, CardRange};
use fpga_rdma::{Endpoint, SendOptions, SharedEndpoint};
use fpga_sim::ThreadOptions;

const LENGTH: u64 = 100_000;
const SOURCE: CardAddr = CardAddr::new(0x10_0000);
const TARGET: u64 = 0x2000_0000;

fn main() -> Result<(), Box<dyn Error>> {
    let network = SimNetwork::builder().cards(2).threaded(ThreadOptions::default()).build()?;
    let (near, far) = (Card::from_backend(network.backend(0))?, Card::from_backend(network.backend(1))?);
    let local = SharedEndpoint::from(Endpoint::open(&near)?);
    let peer = SharedEndpoint::from(Endpoint::open(&far)?);

    let data: Vec<u8> = (0..=250).cycle().take(usize::try_from(LENGTH)?).collect();
    far.h2c(0)?.write(far.buffer_from(&data)?, SOURCE)?;
    // The returned handle lets the named node, and no other, read.
    let readable = peer.open_readable(local.node(), CardRange::new(SOURCE, LENGTH))?;

    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                match peer.poll() {
                    Ok(0) => std::thread::yield_now(),
                    Ok(_) => {}
                    Err(error) => return eprintln!("{error}"),
                }
            }
        });
        let readers: Vec<_> = (0..4)
            .map(|n| {
                let (local, source) = (local.clone(), readable.remote);
                scope.spawn(move || -> Result<String, Box<dyn Error + Send + Sync>> {
                    let (offset, length) = (n * LENGTH / 4, LENGTH / 4);
                    let to = CardAddr::new(TARGET + offset);
                    let mut read = local.read(&source, offset, to, length, SendOptions::default())?;
                    read.wait(Duration::from_secs(10))?.result?;
                    Ok(format!("thread {n}: {length} bytes from node {} at {to}", source.node))
                })
            })
            .collect();
        for reader in readers {
            match reader.join() {
                Ok(Ok(line)) => println!("{line}"),
                Ok(Err(error)) => eprintln!("{error}"),
                Err(_) => eprintln!("a thread panicked"),
            }
        }
        done.store(true, Ordering::Relaxed);
    });

    let read = near.c2h(0)?.read(near.buffer(data.len())?, CardAddr::new(TARGET))?;
    if read.to_vec() != data {
        return Err("the bytes read differ from the other node's memory".into());
    }
    println!("all bytes equal");
    Ok(())
}
