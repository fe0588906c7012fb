//! Completions as futures: two channels at the same time, on one thread.
//!
//! The library has no runtime and needs none: a completion polls its own channel, so any executor works. The executor below has twenty
//! lines; with tokio or smol, use their `join!`.
//!
//!     cargo run -p fpga-examples --example async_completion

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use fpga_driver::{C2hChannel, Card, CardAddr, DmaBuffer, H2cChannel};

type Task<'a> = Pin<Box<dyn Future<Output = Result<(), Box<dyn Error>>> + 'a>>;

/// Polls the tasks in turn until all have ended.
fn run(mut tasks: Vec<Task<'_>>) -> Result<(), Box<dyn Error>> {
    let mut context = Context::from_waker(Waker::noop());
    while !tasks.is_empty() {
        let mut waiting = Vec::with_capacity(tasks.len());
        for mut task in tasks {
            match task.as_mut().poll(&mut context) {
                Poll::Ready(result) => result?,
                Poll::Pending => waiting.push(task),
            }
        }
        tasks = waiting;
    }
    Ok(())
}

async fn write(mut channel: H2cChannel, mut buffer: DmaBuffer) -> Result<(), Box<dyn Error>> {
    for round in 0..4u8 {
        buffer.fill(round);
        let at = CardAddr::new(u64::from(round) << 20);
        let ticket = channel.submit(buffer, at)?;
        let done = channel.completion(ticket).await?;
        println!("{} round {round}: {} bytes to {at}", channel.name(), done.outcome?);
        buffer = done.buffer.ok_or("the buffer is in quarantine")?;
    }
    Ok(())
}

async fn read(mut channel: C2hChannel, mut buffer: DmaBuffer) -> Result<(), Box<dyn Error>> {
    for round in 0..4u8 {
        let at = CardAddr::new(0x1000_0000 + (u64::from(round) << 20));
        let ticket = channel.submit(buffer, at)?;
        let done = channel.completion(ticket).await?;
        println!("{} round {round}: {} bytes from {at}", channel.name(), done.outcome?);
        buffer = done.buffer.ok_or("the buffer is in quarantine")?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let card = Card::open("mock")?;
    run(vec![
        Box::pin(write(card.h2c(0)?, card.buffer(64 << 10)?)),
        Box::pin(read(card.c2h(0)?, card.buffer(64 << 10)?)),
    ])?;
    println!("both channels done");
    Ok(())
}
