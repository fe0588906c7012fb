//! Failure of a transfer: content of the error, location of the buffer, and continued use of the channel.
//!
//!     cargo run -p fpga-examples --example when_things_fail

use fpga_driver::sim::SimNetwork;
use fpga_driver::{Card, CardAddr, Error, OpenError, TransferError, errors::FaultCause};
use fpga_sim::CardFailure;

const BAD: CardAddr = CardAddr::new(0x8000);
const GOOD: CardAddr = CardAddr::new(0x10_0000);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let network = SimNetwork::builder().cards(1).build()?;
    let card = Card::from_backend(network.backend(0))?;
    let mut h2c = card.h2c(0)?;

    // 1. The card's memory answers with an error in the middle of a transfer. A simulated card does so on request.
    network.with_card(0, |card| card.poison(CardAddr::new(BAD.get() + 0x1800), 64));
    let mut buffer = card.buffer(16 << 10)?;
    buffer.fill(0x5A);
    let Err(failed) = h2c.write(buffer, BAD) else {
        return Err("the write to poisoned memory succeeded".into());
    };
    println!("1. {failed}");

    // The error is data, not only text.
    if let TransferError::Fault(fault) = &failed.error.kind {
        let bits: Vec<String> = fault.status_errors().map(|bit| bit.to_string()).collect();
        let by_engine = matches!(fault.cause, FaultCause::Status(_));
        println!("   reported by the engine: {by_engine}, bits: {}", bits.join(", "));
    }

    // The engine was stopped and is idle, so the buffer was returned, and the channel works.
    let buffer = failed.buffer.ok_or("the buffer was not returned")?;
    println!("   buffer returned, first byte {:#04x}", buffer.to_vec().first().copied().unwrap_or(0));
    let buffer = h2c.write(buffer, GOOD)?;
    println!("   {} wrote {} bytes to {GOOD}", h2c.name(), buffer.len());

    // 2. Transfers outside the card's memory are refused before the card is accessed.
    let beyond = CardAddr::new(1 << 40);
    let Err(failed) = h2c.write(buffer, beyond) else {
        return Err("a write outside card memory succeeded".into());
    };
    println!("2. {failed}");
    let buffer = failed.buffer.ok_or("the buffer was not returned")?;

    // 3. The card is removed from the bus with a transfer in flight. It may return and still write, so its buffers are quarantined, and the
    //    error has their number.
    let ticket = h2c.submit(buffer, GOOD)?;
    h2c.poll()?;
    network.fail(0, CardFailure::Gone);
    match h2c.wait(ticket, fpga_driver::WaitOptions::default()) {
        Err(error) => println!("3. {error}"),
        Ok(done) => println!("3. {done:?}"),
    }
    // The buffer, and the channel's own ring.
    for record in card.memory().quarantined() {
        println!("   in quarantine: {record}");
    }

    // 4. The card cannot be opened again before it has returned.
    drop((h2c, card));
    match Card::from_backend(network.backend(0)) {
        Err(error @ Error { kind: OpenError::Gone, .. }) => println!("4. {error}"),
        other => return Err(format!("unexpected result of opening a removed card: {other:?}").into()),
    }
    network.fail(0, CardFailure::None);
    let card = Card::from_backend(network.backend(0))?;
    card.h2c(0)?.write(card.buffer(4096)?, GOOD)?;
    println!("5. the card is back; open and write succeeded");
    Ok(())
}
