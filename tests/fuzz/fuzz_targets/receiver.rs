//! Fuzzes the receiver with any packets, in any order, at any time: it does not panic, does not write outside open windows, counts every
//! packet that it does not write by its cause, and becomes idle.
#![no_main]

use fpga_firmware::generated::Permissions;
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_firmware::wire::{Arrived, Common, Control, DataHeader, Flags, Packet, StartFields, finish};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{MemoryFault, MemoryWindow, Output, ReceiveMemory, Receiver, ReceiverConfig};
use fpga_registers::CardAddr;
use libfuzzer_sys::fuzz_target;

const NODE: NodeId = NodeId::new(2);
const KEY: u64 = 7;
const BASE: u64 = 0x1000;
const LENGTH: u64 = 0x800;
const PACKET: u64 = 64;

/// Memory of the window, if it is open; its last bytes return a memory fault.
struct Bounded {
    open: bool,
    writes: u64,
}

impl ReceiveMemory for Bounded {
    fn write(&mut self, at: CardAddr, bytes: &[u8]) -> Result<(), MemoryFault> {
        assert!(self.open, "a write through a closed window");
        self.writes += 1;
        let end = at.get().checked_add(bytes.len() as u64).expect("a write inside the address space");
        assert!(at.get() >= BASE && end <= BASE + LENGTH, "{} bytes at {at}", bytes.len());
        if end > BASE + LENGTH - PACKET {
            return Err(MemoryFault { address: at, length: bytes.len() as u64 });
        }
        Ok(())
    }
}

/// Receiver with small tables, so that they fill up soon.
fn receiver() -> Receiver {
    let mut config = ReceiverConfig::new(NODE, Incarnation::new(9));
    config.packet_size_log2 = 6;
    config.mask_bits = 8;
    config.registry_entries = 2;
    config.escape_slots = 3;
    config.transfers = 3;
    config.sources = 2;
    config.tombstones = 2;
    config.windows = 1;
    config.packet_events = true;
    let mut receiver = Receiver::new(config).expect("a good configuration");
    receiver.access_mut().install(0, window(Permissions::WRITE)).expect("a good window");
    receiver
}

fn window(permissions: Permissions) -> MemoryWindow {
    MemoryWindow { source: NodeId::ANY, base: CardAddr::new(BASE), length: LENGTH, key: KEY, permissions }
}

/// Number of packets that were not written, over all causes.
fn causes(receiver: &Receiver) -> u64 {
    let counters = receiver.counters();
    counters.duplicates
        + counters.escape_hits
        + counters.escape_dropped
        + counters.registry_full
        + counters.bad_packets
        + counters.violations
        + counters.tombstone_hits
        + counters.superseded
        + counters.unpolled
}

/// Delivers a packet and checks that it is either written or counted with a cause.
fn deliver(receiver: &mut Receiver, now: Nanos, header: &DataHeader, payload: &[u8], memory: &mut Bounded) {
    let before =
        (causes(receiver), memory.writes, receiver.counters().packets + receiver.counters().unpolled);
    receiver.handle_packet(now, header, payload, memory);
    let after = (causes(receiver), memory.writes, receiver.counters().packets + receiver.counters().unpolled);
    assert_eq!(after.2, before.2 + 1);
    assert!(after.0 > before.0 || after.1 > before.1, "a packet was neither written nor counted: {header:?}");
}

fn drain(receiver: &mut Receiver) {
    while let Some(output) = receiver.poll_output().copied() {
        if let Output::Send(control) = output {
            let mut frame = [0; 256];
            assert!(control.encode(&mut frame).is_ok(), "an answer that cannot be encoded: {control:?}");
        }
    }
}

/// A plausible packet: few nodes, incarnations, transfers and segments, so that packets meet. Sometimes single fields are wrong, as from a
/// broken or hostile sender.
fn plausible(bytes: &[u8; 8]) -> (DataHeader, usize) {
    let [who, transfer, segment, packet, count, length, odd, op] = bytes.map(u64::from);
    let small = |value: u64| u32::try_from(value).expect("a byte");
    let segment_count = 1 + count % 3;
    let segment = segment % segment_count;
    let segment_length = PACKET * 8;
    let transfer_base = BASE + (who >> 4) * 3 + if odd & 1 != 0 { LENGTH } else { 0 };
    let base = transfer_base + segment * segment_length;
    let last_length = 1 + (length * 2) % segment_length;
    let this_length = if segment + 1 == segment_count { last_length } else { segment_length };
    let packets = this_length.div_ceil(PACKET);
    let index = packet % packets;
    let payload = PACKET.min(this_length - index * PACKET);
    let address = base + index * PACKET + if odd & 2 != 0 { 1 } else { 0 };
    let start = (index == 0).then_some(StartFields {
        base: CardAddr::new(base),
        segment_length: small(this_length) + u32::from(odd & 4 != 0) * 64,
        packets: u16::try_from(packets).expect("at most 8") + u16::from(odd & 8 != 0),
        transfer_base: CardAddr::new(transfer_base),
        transfer_length: (segment_count - 1) * segment_length + last_length,
    });
    let header = DataHeader {
        common: Common {
            source: NodeId::new(small(3 + who % 3)),
            destination: if odd & 16 != 0 { NodeId::new(8) } else { NODE },
            incarnation: Incarnation::new(small((who >> 2) & 1)),
            flags: if count & 0x80 != 0 { Flags::NOTIFY_RECEIVER } else { Flags::NONE }, path: 0,
        },
        transfer: TransferId::new(small(transfer % 6)),
        oldest_live: TransferId::new(small((transfer >> 4).min(transfer % 6))),
        segment: small(segment),
        segment_count: small(segment_count),
        address: CardAddr::new(address),
        key: if odd & 32 != 0 { KEY + 1 } else { KEY },
        op: OpNumber::from(small(op)),
        tries: 1,
        packet_size_log2: if odd & 64 != 0 { 7 } else { 6 },
        start,
    };
    (header, usize::try_from(payload).expect("at most 64"))
}

fuzz_target!(|input: &[u8]| {
    let mut receiver = receiver();
    let mut memory = Bounded { open: true, writes: 0 };
    let mut now = Nanos::ZERO;
    let payload = [0x5A; 64];
    let mut rest = input;
    while let Some((&[what, ..], tail)) = rest.split_first_chunk::<1>() {
        rest = tail;
        match what % 8 {
            // A whole packet from the input, with the checksum repaired and the fields unchanged.
            0 => {
                let length = rest.len().min(160);
                let mut frame = rest[..length].to_vec();
                rest = &rest[length..];
                let Some(body) = length.checked_sub(4) else { continue };
                if finish(&mut frame, body).is_err() {
                    continue;
                }
                match Packet::parse(&frame) {
                    Ok(Packet::Data(data)) => {
                        deliver(&mut receiver, now, &data.header(), data.payload(), &mut memory);
                    }
                    Ok(Packet::Control(Control::Arrived(arrived))) => receiver.handle_arrived(now, &arrived),
                    _ => {}
                }
            }
            1 => {
                now = now.saturating_add(Nanos::new(1 << (u32::from(what) >> 3)));
                receiver.handle_timeout(now);
            }
            2 => {
                let common = Common {
                    source: NodeId::new(3 + u32::from(what >> 3) % 3),
                    destination: NODE,
                    incarnation: Incarnation::new(0),
                    flags: Flags::NONE, path: 0,
                };
                let transfer = TransferId::new(u32::from(what >> 5));
                let address = CardAddr::new(BASE);
                receiver.handle_arrived(now, &Arrived { common, transfer, address, length: 1, key: KEY });
            }
            7 if what & 0x40 != 0 => {
                let span = |bits: u8| Nanos::new(1 << (bits & 31));
                receiver.set_timeouts(span(what), span(what >> 2), span(what >> 3));
            }
            // The host closes the window, opens it for reads only, or opens it again.
            7 => {
                let access = receiver.access_mut();
                memory.open = what & 0x10 != 0;
                let result = match what >> 3 & 3 {
                    0 => access.remove(0),
                    1 => access.install(0, window(Permissions::READ)),
                    _ => access.install(0, window(Permissions::WRITE)),
                };
                result.expect("window 0 exists");
            }
            _ => {
                let Some((bytes, tail)) = rest.split_first_chunk::<8>() else { break };
                rest = tail;
                let (header, length) = plausible(bytes);
                deliver(&mut receiver, now, &header, &payload[..length], &mut memory);
            }
        }
        if what & 0x80 == 0 {
            drain(&mut receiver);
        }
    }
    drain(&mut receiver);
    assert!(receiver.registry_occupancy() <= 2 && receiver.escape_occupancy() <= 3);

    // Without further input all state is released: no entry, slot or timer stays for ever.
    for _ in 0..64 {
        let Some(at) = receiver.poll_timeout() else { break };
        now = now.max(at);
        receiver.handle_timeout(now);
        drain(&mut receiver);
    }
    assert_eq!((receiver.registry_occupancy(), receiver.escape_occupancy()), (0, 0));
    assert_eq!(receiver.transfers_in_progress(), 0);
});
