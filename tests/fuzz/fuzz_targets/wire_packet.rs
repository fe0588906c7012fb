//! Fuzzes packets: each is parsed or refused, and a parsed packet has exactly one encoding.
#![no_main]

use fpga_firmware::wire::{MAX_PACKET_LENGTH, Packet, finish};
use libfuzzer_sys::fuzz_target;

fn check(bytes: &[u8]) {
    let mut again = [0xa5; MAX_PACKET_LENGTH];
    let length = match Packet::parse(bytes) {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
        Ok(Packet::Data(data)) => {
            assert!(data.address().checked_add(data.payload().len() as u64).is_some());
            data.header().encode(data.payload(), &mut again)
        }
        Ok(Packet::Control(control)) => control.encode(&mut again),
        Ok(Packet::Message(bytes)) => {
            let (message, payload) = bytes.read().expect("a parsed packet can be decoded");
            message.encode(payload, &mut again)
        }
        Ok(Packet::Link(packet)) => packet.encode(&mut again),
    };
    let length = length.expect("a parsed packet can be encoded");
    assert_eq!(&again[..length], bytes);
}

fuzz_target!(|input: &[u8]| {
    check(input);
    // The checksum stops nearly every mutation: test the same bytes with a valid one too.
    let mut repaired = input.to_vec();
    if let Some(body) = repaired.len().checked_sub(4)
        && finish(&mut repaired, body).is_ok()
    {
        check(&repaired);
    }
});
