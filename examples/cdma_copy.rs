//! Copy from card memory to card memory by the CDMA engine: the bytes never cross PCIe.
//!
//!     cargo run -p fpga-examples --example cdma_copy

use std::error::Error;

use fpga_driver::{Card, CardAddr};

const LENGTH: usize = 256 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let card = Card::open("mock")?;
    // Its registers are in the user BAR, at the offset in the card's identity block. For a design without an identity block use
    // `Card::cdma_at`.
    let mut cdma = card.cdma()?;
    println!("CDMA {}", cdma.status()?);

    let (source, destination) = (CardAddr::new(0x1_0000), CardAddr::new(0x4000_0000));
    let pattern: Vec<u8> = (0..=250).cycle().take(LENGTH).collect();
    card.h2c(0)?.write(card.buffer_from(&pattern)?, source)?;
    let before = card.counters().map_or(0, |counters| counters.dma_bytes);

    cdma.copy(source, destination, LENGTH as u64)?;
    let after = card.counters().map_or(0, |counters| counters.dma_bytes);
    println!("{LENGTH} bytes from {source} to {destination}; {} bytes crossed PCIe", after - before);

    let copy = card.c2h(0)?.read(card.buffer(LENGTH)?, destination)?;
    if copy.to_vec() != pattern {
        return Err("the copy differs from its source".into());
    }
    println!("the copy equals its source");

    // Invalid copies are refused before the engine is accessed.
    match cdma.copy(source, CardAddr::new(source.get() + 64), LENGTH as u64) {
        Err(error) => println!("refused: {error}"),
        Ok(()) => return Err("an overlapping copy was accepted".into()),
    }
    Ok(())
}
