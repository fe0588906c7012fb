//! Latency and bandwidth between two processes, each with a simulated card.
//!
//!     cargo run --release -p fpga-messages --example pingpong               # prints its address
//!     cargo run --release -p fpga-messages --example pingpong -- ADDRESS    # in another terminal

mod shared;

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fpga_driver::{HugePages, SharedMemory};
use fpga_messages::{
    Address, CompleteWhen, Completion, HostRanges, Messenger, MessengerOptions, PeerId, ReceiveRequest,
    Regions, SendRequest, TagPattern, Token,
};
use shared::{LARGEST, Memory, NoAtomics};

fn wait(messenger: &mut Messenger, token: u64) -> Result<Completion, Box<dyn Error>> {
    loop {
        messenger.progress();
        while let Some(done) = messenger.next_completion() {
            done.result.clone()?;
            if done.token.context == token {
                return Ok(done);
            }
        }
    }
}

fn ranges(length: usize) -> HostRanges {
    HostRanges::one(0, length as u64).unwrap_or_default()
}

fn send(messenger: &mut Messenger, peer: PeerId, length: usize, context: u64) -> Result<(), Box<dyn Error>> {
    let complete = if length as u64 <= fpga_messages::MAX_INJECT {
        CompleteWhen::Injected
    } else {
        CompleteWhen::Transmitted
    };
    let request = SendRequest {
        peer,
        data: ranges(length),
        tag: Some(1),
        immediate: None,
        complete,
        token: Token { context, user: 0 },
    };
    Ok(messenger.send(&request)?)
}

fn post(messenger: &mut Messenger, length: usize) -> Result<(), Box<dyn Error>> {
    let request = ReceiveRequest {
        from: None,
        tag: Some(TagPattern { tag: 1, ignore: 0 }),
        data: ranges(length),
        multi: None,
        token: Token { context: 1, user: 0 },
    };
    Ok(messenger.receive(&request)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let memory = Arc::new(Memory(SharedMemory::anonymous(LARGEST, HugePages::Transparent)?));
    let options = MessengerOptions::from_environment()?;
    let mut messenger = Messenger::open(&options, memory, Arc::new(NoAtomics), Arc::new(Regions::default()))?;
    let Some(address) = std::env::args().nth(1) else {
        println!("{}", messenger.address());
        serve(&mut messenger)?;
        return Ok(());
    };
    let peer = messenger.add_peer(address.parse::<Address>()?)?;
    let own = messenger.address().to_string();
    println!("{own} to {address}: half of a round trip");
    for length in [0, 8, 64, 512, 4096, 16_384, 65_536, 262_144, 1 << 20, LARGEST] {
        let rounds = if length <= 16_384 { 4_000 } else { 200 };
        let mut times = Vec::new();
        for _ in 0..rounds {
            let begun = Instant::now();
            post(&mut messenger, LARGEST)?;
            send(&mut messenger, peer, length, 2)?;
            wait(&mut messenger, 1)?;
            times.push(begun.elapsed() / 2);
        }
        times.sort_unstable();
        let median = times.get(rounds / 2).copied().unwrap_or_default();
        let rate = length as f64 / median.as_secs_f64() / 1e9;
        println!("{length:>8} bytes  median {:>9.2} us  {rate:>6.3} GB/s", median.as_secs_f64() * 1e6);
    }
    send(&mut messenger, peer, 1, 2)?;
    let begun = Instant::now();
    while !messenger.is_idle() && begun.elapsed() < Duration::from_secs(1) {
        messenger.progress();
    }
    Ok(())
}

/// Returns every message, until one of a single byte.
fn serve(messenger: &mut Messenger) -> Result<(), Box<dyn Error>> {
    loop {
        post(messenger, LARGEST)?;
        let done = wait(messenger, 1)?;
        let source = done.source.ok_or("a message without a sender")?;
        if done.length == 1 {
            return Ok(());
        }
        send(messenger, source, usize::try_from(done.length)?, 2)?;
    }
}
