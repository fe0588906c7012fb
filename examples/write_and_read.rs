//! Write of a buffer to card memory, and read back.
//!
//!     cargo run -p fpga-examples --example write_and_read

use std::error::Error;

use fpga_driver::{Card, CardAddr};

const LENGTH: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    // One simulated card. For a real card, write `Card::open("0000:65:00.0")?`; the rest stays the same.
    let card = Card::open("mock")?;
    println!("{}: {} H2C channels", card.name(), card.info().xdma.h2c_channels);

    // A channel has one owner. Dropping it returns it to the card.
    let mut h2c = card.h2c(0)?;
    let mut c2h = card.c2h(0)?;

    // The buffer is memory that the card can access, so it is never a slice: bytes are copied in and out.
    let data: Vec<u8> = (0..=250).cycle().take(LENGTH).collect();
    let mut buffer = card.buffer(LENGTH)?;
    buffer.write(0, &data)?;

    // The buffer moves into the transfer and comes back with the result, so it cannot change meanwhile.
    let at = CardAddr::new(0x1000);
    let sent = h2c.write(buffer, at)?;
    println!("{} {at}: {} bytes written", h2c.name(), sent.len());

    let received = c2h.read(card.buffer(LENGTH)?, at)?;
    println!("{} {at}: {} bytes read", c2h.name(), received.len());

    if received.to_vec() != data {
        return Err("the bytes read back differ from the bytes written".into());
    }
    println!("all bytes equal");
    Ok(())
}
