//! Many copies inside the card: a ring of descriptors in card memory keeps the CDMA engine busy without pauses.
//!
//!     cargo run -p fpga-examples --example cdma_ring

use std::error::Error;

use fpga_driver::{Card, CardAddr, CdmaRingOptions, CdmaSegment, DescriptorPath, WaitMode, WaitOptions};

/// Matrix of 64 rows that is transposed block by block.
const ROWS: u64 = 64;
const BLOCK: u64 = 512;
const FROM: CardAddr = CardAddr::new(0x100_0000);
const TO: CardAddr = CardAddr::new(0x200_0000);

fn block(matrix: CardAddr, row: u64, column: u64) -> CardAddr {
    CardAddr::new(matrix.get() + (row * ROWS + column) * BLOCK)
}

fn main() -> Result<(), Box<dyn Error>> {
    let card = Card::open("mock")?;
    card.enable_interrupts()?;
    let mut matrix = vec![0; usize::try_from(ROWS * ROWS * BLOCK)?];
    for (index, place) in matrix.chunks_mut(usize::try_from(BLOCK)?).enumerate() {
        place.fill(u8::try_from(index % 251)?);
    }
    card.h2c(0)?.write(card.buffer_from(&matrix)?, FROM)?;

    // Descriptors are at 1 MiB of card memory and are written through the bypass BAR, whose first byte is card address 0. The engine's
    // interrupt is user interrupt 0, at most one per 16 descriptors; the delay covers the remaining descriptors.
    let options = CdmaRingOptions::new(CardAddr::new(0x10_0000))
        .descriptors(1024)
        .user_interrupt(0)
        .interrupt_threshold(16)
        .interrupt_delay(20);
    let mut ring = card.cdma()?.into_ring(DescriptorPath::bypass(CardAddr::ZERO), options)?;

    let before = card.counters().unwrap_or_default();
    let mut last = None;
    let mut rows = 0;
    for row in 0..ROWS {
        // A row is one copy of 64 segments. Its number is the payload, which comes back in the completion.
        let copies: Vec<_> = (0..ROWS)
            .map(|column| CdmaSegment::new(block(FROM, row, column), block(TO, column, row), BLOCK))
            .collect();
        let mut payload = row;
        last = loop {
            match ring.submit(&copies, payload) {
                Ok(ticket) => break Some(ticket),
                // A full ring is back-pressure: the refusal returns the payload.
                Err(refused) if refused.is_full() => payload = refused.payload,
                Err(refused) => return Err(refused.into()),
            }
            ring.poll()?;
            ring.relax();
            while let Some(done) = ring.next_completion() {
                done.outcome?;
                rows += 1;
            }
        };
    }
    let last = last.ok_or("no rows")?;
    let done = ring.wait(last, WaitOptions::default().mode(WaitMode::Interrupt))?;
    println!("last row: {}, {} bytes", done.payload, done.outcome?);
    while ring.next_completion().is_some() {
        rows += 1;
    }
    let after = card.counters().unwrap_or_default();
    println!(
        "{} rows of {ROWS} descriptors; {} interrupts, {} register reads",
        rows + 1,
        after.interrupts - before.interrupts,
        after.mmio_reads - before.mmio_reads
    );

    let transposed = card.c2h(0)?.read(card.buffer(matrix.len())?, TO)?.to_vec();
    let bytes = usize::try_from(BLOCK)?;
    let side = usize::try_from(ROWS)?;
    let part =
        |bytes_of: &[u8], row: usize, column: usize| bytes_of.get((row * side + column) * bytes).copied();
    for row in 0..side {
        for column in 0..side {
            if part(&transposed, row, column) != part(&matrix, column, row) {
                return Err(format!("block {row}, {column} differs from its source").into());
            }
        }
    }
    println!("the transposed matrix is correct");

    // Closing the ring returns the engine for simple copies.
    let (mut cdma, _, _) = ring.close();
    cdma.copy(FROM, TO, BLOCK)?;
    Ok(())
}
