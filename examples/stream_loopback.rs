//! Packets into a card and out of it again through AXI4-Stream channels.
//!
//!     cargo run -p fpga-examples --example stream_loopback

use fpga_driver::{
    Card, Error, WaitOptions,
    stream::{C2hStreamOptions, PacketFragment, StreamError},
};

const PACKETS: usize = 1000;
const HEADER: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Card whose H2C streams are looped back to its C2H streams.
    let card = Card::open("mock:us-plus-x8-stream")?;
    let mut tx = card.h2c_stream(0)?;
    // A ring of 64 buffers of 1 KiB that the card fills. A packet takes as many as it needs.
    let mut rx = card.c2h_stream_with(0, C2hStreamOptions::default().buffers(64).buffer_size(1024))?;

    // Packets are sent from registered memory: a header of whole beats, and payload.
    let area = card.registered_memory(1 << 16)?;
    let content: Vec<u8> = (0..=250).cycle().take(area.len()).collect();
    area.memory().write(0, &content)?;
    let memory = tx.register_memory(area)?;

    // The first call posts the buffers. Without them the card's stream stalls, and nothing is lost.
    while rx.next_packet()?.is_some() {}

    let (mut sent, mut received, mut bytes) = (0, 0, 0);
    while received < PACKETS {
        while sent < PACKETS {
            // Gathered from two fragments: every fragment except the last consists of whole beats of the data path.
            let payload = 1 + sent * 37 % 5000;
            let parts = [(0, HEADER), (1000, payload)];
            let parts = parts.map(|(offset, length)| PacketFragment { memory, offset, length });
            match tx.submit_list(&parts) {
                Ok(_) => sent += 1,
                // Back-pressure: the ring is full until the card has taken some packets.
                Err(error) if error.is_full() => break,
                Err(error) => return Err(error.into()),
            }
        }
        tx.poll()?;
        // The packet is borrowed in place; the next call returns its buffers to the card.
        if let Some(packet) = rx.next_packet()? {
            let payload = 1 + received * 37 % 5000;
            let mut last = [0];
            packet.read(packet.len() - 1, &mut last)?;
            if packet.len() != HEADER + payload || Some(&last[0]) != content.get(1000 + payload - 1) {
                return Err(format!("packet {received} differs from the packet sent").into());
            }
            bytes += packet.parts().map(|part| part.len()).sum::<usize>();
            received += 1;
        }
        rx.relax();
    }
    println!("{received} packets, {bytes} bytes, {:?}", rx.statistics());

    // After a stop, the engine closes the buffer that it waits with; on this card at once. Other cards stop only with the next packet:
    // there, send a last packet that fits into a buffer.
    rx.stop()?;
    match rx.wait_packet(WaitOptions::default()) {
        Err(stopped @ Error { kind: StreamError::Stopped, .. }) => println!("{stopped}"),
        other => return Err(format!("no packet was sent: {other:?}").into()),
    }
    drop(rx);

    // Single-buffer reception of one packet: the engine is idle before and after.
    let mut rx = card.c2h_stream(0)?;
    let ticket = tx.submit(card.buffer_from(b"one packet")?)?;
    tx.wait_ended(ticket, WaitOptions::default())?;
    let buffer = rx.receive(card.buffer(4096)?)?;
    println!("received {:?}", String::from_utf8_lossy(&buffer.to_vec()));
    Ok(())
}
