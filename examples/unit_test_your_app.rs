//! Unit tests of code that drives a card: without a card, in milliseconds, with reproducible results.
//!
//! The application is a store of frames in card memory. Its tests, at the end, run it against a simulated card and check that card's
//! memory, its counters and its behaviour under faults.
//!
//!     cargo run  -p fpga-examples --example unit_test_your_app
//!     cargo test -p fpga-examples --example unit_test_your_app

use std::error::Error;

use fpga_driver::sim::SimNetwork;
use fpga_driver::{C2hChannel, Card, CardAddr, DmaBuffer, H2cChannel};

/// Frames of one size, stored consecutively in card memory. The store takes an opened card, so it works with real and simulated cards.
struct FrameStore {
    write: H2cChannel,
    read: C2hChannel,
    /// `None` only during a transfer, or after one that quarantined the buffer.
    frame: Option<DmaBuffer>,
    size: usize,
}

impl FrameStore {
    fn open(card: &Card, size: usize) -> Result<Self, Box<dyn Error>> {
        let frame = Some(card.buffer(size)?);
        Ok(Self { write: card.h2c(0)?, read: card.c2h(0)?, frame, size })
    }

    fn place(&self, number: u32) -> CardAddr {
        CardAddr::new(u64::from(number) * self.size as u64)
    }

    fn put(&mut self, number: u32, frame: &[u8]) -> Result<(), Box<dyn Error>> {
        if frame.len() != self.size {
            return Err(format!("a frame has {} bytes, not {}", self.size, frame.len()).into());
        }
        let at = self.place(number);
        let mut buffer = self.frame.take().ok_or("the store's buffer is in quarantine")?;
        buffer.write(0, frame)?;
        let outcome = self.write.write(buffer, at);
        // The buffer comes back after success and after failure.
        match outcome {
            Ok(buffer) => self.frame = Some(buffer),
            Err(failed) => {
                self.frame = failed.buffer;
                return Err(failed.error.into());
            }
        }
        Ok(())
    }

    fn get(&mut self, number: u32) -> Result<Vec<u8>, Box<dyn Error>> {
        let at = self.place(number);
        let buffer = self.frame.take().ok_or("the store's buffer is in quarantine")?;
        match self.read.read(buffer, at) {
            Ok(buffer) => Ok(self.frame.insert(buffer).to_vec()),
            Err(failed) => {
                self.frame = failed.buffer;
                Err(failed.error.into())
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let network = SimNetwork::builder().cards(1).build()?;
    let mut store = FrameStore::open(&Card::from_backend(network.backend(0))?, 4096)?;
    store.put(7, &[0x77; 4096])?;
    let equal = store.get(7)? == [0x77; 4096];
    println!("frame 7 written and read back, equal: {equal}");
    println!("to run its tests: cargo test -p fpga-examples --example unit_test_your_app");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (SimNetwork, FrameStore) {
        let network = SimNetwork::builder().cards(1).build().unwrap();
        let card = Card::from_backend(network.backend(0)).unwrap();
        let store = FrameStore::open(&card, 4096).unwrap();
        (network, store)
    }

    #[test]
    fn frame_store_put_writes_slot() {
        let (network, mut store) = store();
        store.put(3, &[0xAB; 4096]).unwrap();
        let mut found = [0; 4096];
        network.with_card(0, |card| card.peek(CardAddr::new(3 * 4096), &mut found)).unwrap().unwrap();
        assert_eq!(found, [0xAB; 4096]);
        assert_eq!(store.get(3).unwrap(), [0xAB; 4096]);
    }

    #[test]
    fn frame_store_fault_returns_buffer_and_store_works() {
        let (network, mut store) = store();
        network.with_card(0, |card| card.poison(CardAddr::new(4096), 4096));
        let error = store.put(1, &[1; 4096]).unwrap_err();
        assert!(error.to_string().contains("h2c0"), "{error}");
        store.put(2, &[2; 4096]).unwrap();
        assert_eq!(store.get(2).unwrap(), [2; 4096]);
    }

    #[test]
    fn frame_store_wrong_size_is_refused_before_card() {
        let (network, mut store) = store();
        assert!(store.put(0, &[1; 100]).is_err());
        assert_eq!(network.with_card(0, |card| card.counters().descriptors), Some(0));
    }
}
