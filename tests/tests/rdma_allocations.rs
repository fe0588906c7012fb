//! Sender and receiver take nothing from the heap per packet, with losses, disorder and everything that follows from them.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use fpga_core::Nanos;
use fpga_core::receiver::{MemoryFault, MemoryWindow, Output, ReceiveMemory, Receiver, ReceiverConfig};
use fpga_core::sender::{Answer, Command, Notify, Sender, SenderConfig};
use fpga_firmware::generated::Permissions;
use fpga_firmware::wire::{Common, Control, DataHeader, Flags, StartFields};
use fpga_firmware::{Incarnation, NodeId, OpNumber};
use fpga_pci::testing::CountingAllocator;
use fpga_registers::CardAddr;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

struct Nowhere;

impl ReceiveMemory for Nowhere {
    fn write(&mut self, _: CardAddr, _: &[u8]) -> Result<(), MemoryFault> {
        Ok(())
    }
}

/// One transfer from end to end; every `lossy`-th packet and answer is lost.
fn transfer(sender: &mut Sender, receiver: &mut Receiver, now: &mut Nanos, length: u64, lossy: u64) -> u64 {
    let command = Command {
        source: CardAddr::ZERO,
        node: NodeId::new(2),
        destination: CardAddr::ZERO,
        length,
        key: 0,
        notify: Notify::Receiver,
        deadline: None,
        priority: 0,
    };
    sender.submit(*now, command).unwrap();
    let mut packets = 0;
    loop {
        while let Some(transmit) = sender.poll_transmit(*now) {
            // The last first, so that the escape channel has something to do.
            for at in (0..transmit.ops.len()).rev() {
                let op = &transmit.ops.as_slice()[usize::from(at)];
                let packet = transmit.first_packet + at;
                packets += 1;
                let at = u64::from(packet) << 9;
                if packets % lossy == 0 {
                    continue;
                }
                let whole = u64::from(transmit.segment_length);
                let header = DataHeader {
                    common: Common {
                        source: NodeId::new(1),
                        destination: NodeId::new(2),
                        incarnation: Incarnation::new(3),
                        flags: Flags::NOTIFY_RECEIVER,
                    },
                    transfer: transmit.transfer,
                    oldest_live: transmit.oldest_live,
                    segment: transmit.segment,
                    segment_count: transmit.segment_count,
                    address: CardAddr::new(transmit.segment_base.get() + at),
                    key: 0,
                    op: *op,
                    tries: transmit.tries,
                    packet_size_log2: 9,
                    start: (packet == 0).then_some(StartFields {
                        base: transmit.segment_base,
                        segment_length: transmit.segment_length,
                        packets: transmit.segment_packets,
                        transfer_base: transmit.transfer_base,
                        transfer_length: transmit.transfer_length,
                    }),
                };
                let payload = [0; 512];
                let length = usize::try_from((whole - at).min(512)).unwrap();
                receiver.handle_packet(*now, &header, &payload[..length], &mut Nowhere);
                answer(sender, receiver, *now, packets % lossy == 1);
            }
        }
        if sender.poll_completion().is_some() {
            return packets;
        }
        *now = sender.poll_timeout().unwrap().max(*now);
        sender.handle_timeout(*now);
        receiver.handle_timeout(*now);
        answer(sender, receiver, *now, false);
    }
}

fn answer(sender: &mut Sender, receiver: &mut Receiver, now: Nanos, lost: bool) {
    while let Some(output) = receiver.poll_output() {
        let Output::Send(control) = output else { continue };
        let Common { source: node, incarnation: life, .. } = control.common();
        let answer = |incarnation, op, tries| Answer { node, incarnation, op, tries, life };
        if lost {
            continue;
        }
        match control {
            Control::Ack(ack) => sender.handle_ack(now, answer(ack.peer_incarnation, ack.op, ack.tries)),
            Control::Nack(nack) => {
                sender.handle_nack(now, answer(nack.peer_incarnation, nack.op, nack.tries), nack.reason);
            }
            Control::SegmentDone(done) => {
                let told = answer(done.peer_incarnation, OpNumber::new(0), 0);
                sender.handle_segment_done(now, told, done.transfer, done.segment);
            }
            _ => {}
        }
    }
}

#[test]
fn no_packet_touches_the_heap() {
    let mut sender = Sender::new(SenderConfig::default(), Incarnation::new(3)).unwrap();
    let mut receiver = Receiver::new(ReceiverConfig::new(NodeId::new(2), Incarnation::new(9))).unwrap();
    let window = MemoryWindow {
        source: NodeId::new(1),
        base: CardAddr::ZERO,
        length: 1 << 30,
        key: 0,
        permissions: Permissions::WRITE,
    };
    receiver.access_mut().install(0, window).unwrap();
    let mut now = Nanos::ZERO;
    // From the first transfer on: everything was allocated with the tables.
    let (count, packets) = CountingAllocator::count(|| {
        (0..50)
            .map(|n| transfer(&mut sender, &mut receiver, &mut now, 1 + n * 20_011, 7 + n % 5))
            .sum::<u64>()
    });
    assert_eq!(count, 0, "{packets} packets");
    assert!(packets > 40_000);
    assert!(sender.counters().retransmits > 1_000 && receiver.counters().escape_hits > 1_000);
}
