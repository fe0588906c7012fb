//! Clients that send and write anything. The owner and its other clients go on.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use fpga_driver::{C2hStream, Card, CardAddr, WaitOptions};
use fpga_pci::memory::RingWriter;
use fpga_sim::CardDescription;
use fpga_vfio_user::wire::{
    DmaUnmap, Kind, RegionAccess, Request, SmallWrite, WRITE_RING, dma_unmap_flags, encode_error,
    encode_request, region,
};
use fpgad::OwnerOptions;
use rustix::io::pwrite;

use crate::raw::{Client, DMA, LONG, PAGE, USER, file};
use crate::{Shared, bytes, read, write};

/// Address and pages of the client's memory.
const MEMORY: u64 = 0x10_0000;
const PAGES: u64 = 64;
const END: u64 = MEMORY + PAGES * PAGE;
/// Registers of channel 0 of a direction (PG195): the identifier, beside those of the scatter-gather block at 0x4000.
const H2C: u64 = 0;
const C2H: u64 = 0x1000;
/// Distance of channels.
const CHANNEL: u64 = 0x100;
/// Control register: Run, and the error reports.
const RUN: u32 = 0x00F8_3E1F;
/// Control bits of a descriptor: Stop, and Completed (interrupt).
const LAST: u32 = 3;

/// A client without a driver, and its memory.
struct Hostile {
    client: Client,
    memory: OwnedFd,
}

impl Hostile {
    fn connect(shared: &Shared) -> Self {
        let memory = file(PAGES, true);
        let mut client = Client::connect(&shared.socket());
        client.map(MEMORY, PAGES * PAGE, 3, Some((&memory, 0))).unwrap();
        client.bus_master(true);
        Self { client, memory }
    }

    /// Writes a descriptor to the client's memory at `at`.
    fn descriptor(&self, at: u64, control: u32, length: u32, [source, destination, next]: [u64; 3]) {
        let mut bytes = Vec::new();
        for word in [0xAD4B_0000 | control, length] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for address in [source, destination, next] {
            bytes.extend_from_slice(&address.to_le_bytes());
        }
        pwrite(&self.memory, &bytes, at - MEMORY).unwrap();
    }

    /// Starts a channel on the descriptor at `at`.
    fn start(&mut self, channel: u64, at: u64) {
        self.client.write32(DMA, channel + 4, 0);
        // Read to clear.
        self.client.read32(DMA, channel + 0x44);
        self.client.write(DMA, 0x4080 + channel, &at.to_le_bytes()).unwrap();
        self.client.write32(DMA, 0x4088 + channel, 0);
        self.client.write32(DMA, channel + 4, RUN);
    }

    /// Stops a channel, and returns its status when it is idle.
    fn idle(&mut self, channel: u64, stops: bool) -> u32 {
        if stops {
            self.client.write32(DMA, channel + 4, 0);
        }
        let began = Instant::now();
        loop {
            let status = self.client.read32(DMA, channel + 0x40);
            if status & 1 == 0 {
                return status;
            }
            assert!(began.elapsed() < LONG, "status {status:#x}");
        }
    }

    /// Number of descriptors that the channel has completed since its start.
    fn completed(&mut self, channel: u64) -> u32 {
        self.client.read32(DMA, channel + 0x48)
    }
}

/// A client that works as it should.
struct Other {
    card: Card,
    rounds: u32,
}

impl Other {
    fn new(shared: &Shared) -> Self {
        Self { card: shared.client(), rounds: 0 }
    }

    /// Writes memory that the hostile clients do not write, and reads it.
    fn check(&mut self) {
        self.rounds += 1;
        let data = bytes(3000, self.rounds);
        write(&self.card, 1, 0x300_0000, &data);
        assert_eq!(read(&self.card, 2, 0x300_0000, data.len()), data);
    }
}

#[test]
fn descriptors_with_any_address_and_length_end() {
    const LENGTHS: [u32; 6] = [0, 1, 4097, 0x1_0001, 0x0FFF_FFFF, u32::MAX];
    let shared = Shared::new();
    let mut other = Other::new(&shared);
    let mut hostile = Hostile::connect(&shared);
    let list = MEMORY;
    for length in LENGTHS {
        // The access ends with the address space.
        let wraps = 0_u64.wrapping_sub(length.into());
        let own = [MEMORY + PAGE, END - 64, END, 0, u64::MAX, wraps];
        let card = [0, 1 << 56, (1 << 56) + (2 << 30) - 64, 1 << 50, u64::MAX, wraps];
        for (at, to) in own.into_iter().flat_map(|at| card.map(|to| (at, to))) {
            for (channel, addresses) in [(H2C, [at, to, 0]), (C2H, [to, at, 0])] {
                hostile.descriptor(list, LAST, length, addresses);
                hostile.start(channel, list);
                hostile.idle(channel, false);
            }
        }
        other.check();
    }
    // The client works again.
    hostile.descriptor(list, LAST, 64, [MEMORY + PAGE, 0, 0]);
    hostile.start(H2C, list);
    assert_eq!((hostile.idle(H2C, false) & 0xFFFF_FFF8, hostile.completed(H2C)), (0, 1));
}

#[test]
fn lists_with_any_address_end_in_error() {
    let shared = Shared::new();
    let mut other = Other::new(&shared);
    let mut hostile = Hostile::connect(&shared);
    for at in [0, END, END - 16, u64::MAX, u64::MAX - 31, MEMORY + 1] {
        for channel in [H2C, C2H] {
            hostile.start(channel, at);
            assert_ne!(hostile.idle(channel, false) & 0xFFFF_FFF8, 0, "{at:#x}");
            // As the second descriptor of a list.
            hostile.descriptor(MEMORY + PAGE, 0, 64, [MEMORY + 2 * PAGE, MEMORY + 2 * PAGE, at]);
            hostile.start(channel, MEMORY + PAGE);
            hostile.idle(channel, false);
        }
    }
    other.check();
}

#[test]
fn lists_without_end_leave_card_to_others() {
    let shared = Shared::new();
    let mut other = Other::new(&shared);
    for length in [0, 64, 4096, 150_000] {
        let mut hostile = Hostile::connect(&shared);
        for (number, direction) in (0..4).flat_map(|number| [(number, H2C), (number, C2H)]) {
            let (channel, list) =
                (direction + number * CHANNEL, MEMORY + number * 64 + direction / CHANNEL * 2);
            let (own, card) = (MEMORY + 16 * PAGE, number << 20);
            let addresses = if direction == H2C { [own, card, list] } else { [card, own, list] };
            hostile.descriptor(list, 0, length, addresses);
            hostile.start(channel, list);
        }
        for _ in 0..10 {
            other.check();
        }
        // Its registers answer, and its channels stop.
        for channel in [H2C, C2H] {
            while hostile.completed(channel) == 0 {
                std::thread::yield_now();
            }
            hostile.idle(channel, true);
        }
        // It ends while the others run.
        drop(hostile);
        other.check();
    }
}

#[test]
fn memory_unmapped_during_transfers_ends_them() {
    let shared = Shared::new();
    let mut other = Other::new(&shared);
    let mut hostile = Hostile::connect(&shared);
    for round in 0..20 {
        for channel in [H2C, C2H] {
            let (list, own) = (MEMORY + channel / 8, MEMORY + 16 * PAGE);
            let addresses = if channel == H2C { [own, 0, list] } else { [0, own, list] };
            hostile.descriptor(list, 0, 150_000, addresses);
            hostile.start(channel, list);
        }
        while hostile.completed(H2C) == 0 || hostile.completed(C2H) == 0 {
            std::thread::yield_now();
        }
        let unmap = if round % 2 == 0 {
            DmaUnmap { argsz: 0, flags: dma_unmap_flags::ALL, address: 0, size: 0 }
        } else {
            DmaUnmap { argsz: 0, flags: 0, address: MEMORY, size: PAGES * PAGE }
        };
        hostile.client.ask(&Request::DmaUnmap(unmap), &[]).unwrap();
        for channel in [H2C, C2H] {
            assert_ne!(hostile.idle(channel, false) & 0xFFFF_FFF8, 0, "round {round}");
        }
        other.check();
        hostile.client.map(MEMORY, PAGES * PAGE, 3, Some((&hostile.memory, 0))).unwrap();
    }
}

#[test]
fn client_that_reads_no_replies_leaves_card_to_others() {
    let shared = Shared::new();
    let mut other = Other::new(&shared);
    let hostile = Hostile::connect(&shared);
    let request = Request::RegionRead(RegionAccess { offset: 0, region: DMA, count: 4096 });
    let mut message = Vec::new();
    encode_request(1, false, &request, &mut message);
    // Until the owner has no space for replies, and does not read any more.
    let began = Instant::now();
    while began.elapsed() < LONG
        && hostile.client.connection.send(&message, &[], Duration::from_millis(100)).is_ok()
    {}
    for _ in 0..20 {
        other.check();
    }
    // A register of the card, which is read without the view's lock.
    assert!(other.card.user_bar().unwrap().read32(fpga_driver::BarOffset::new(0)).is_ok());
    drop(hostile);
    other.check();
}

#[test]
fn garbage_in_ring_of_writes_ends_that_client() {
    let shared = Shared::new();
    let mut other = Other::new(&shared);
    let size = u32::try_from(WRITE_RING.length() - 4096).unwrap();
    // Positions beyond the ring, moved back, and not a multiple of a record; lengths of the record.
    let positions = [size + 64, u32::MAX, 1, 63].map(|word| (0, word));
    let lengths = [0, 25, size, u32::MAX - 1, u32::MAX].map(|word| (4096, word));
    for (at, word) in positions.into_iter().chain(lengths) {
        let (mut client, memory) = Client::with_ring(&shared.socket());
        let mut ring = RingWriter::new(WRITE_RING, memory.clone());
        let posted = SmallWrite::new(DMA, 0x90, &[6, 0, 0, 0]).unwrap();
        assert!(ring.push(&[&posted.to_bytes()]).unwrap());
        if at > 0 {
            memory.store_u32(at, word).unwrap();
        }
        ring.publish().unwrap();
        if at == 0 {
            // After the valid one is executed.
            assert_eq!(client.read32(DMA, 0x90), 6);
            memory.store_u32(at, word).unwrap();
        }
        let mut message = Vec::new();
        encode_request(1, false, &Request::RegionWriteMulti(Vec::new()), &mut message);
        let _ = client.connection.send(&message, &[], LONG);
        assert!(client.receive().is_err(), "{at} {word:#x}");
        other.check();
    }
    // The position before the last record: a write that was executed.
    let (mut client, memory) = Client::with_ring(&shared.socket());
    let mut ring = RingWriter::new(WRITE_RING, memory.clone());
    for value in [2, 4] {
        ring.push(&[&SmallWrite::new(DMA, 0x90, &[value, 0, 0, 0]).unwrap().to_bytes()]).unwrap();
        ring.publish().unwrap();
        assert_eq!(client.read32(DMA, 0x90), u32::from(value));
    }
    memory.store_u32(0, 64).unwrap();
    let mut message = Vec::new();
    encode_request(1, false, &Request::RegionWriteMulti(Vec::new()), &mut message);
    let _ = client.connection.send(&message, &[], LONG);
    assert!(client.receive().is_err());
    other.check();
}

#[test]
fn writes_to_any_register_change_no_other_view() {
    let shared = Shared::new();
    let mut other = Other::new(&shared);
    let mut hostile = Hostile::connect(&shared);
    for seed in 0..3 {
        let words = bytes(0x4000, seed);
        for (offset, word) in (0..).step_by(4).zip(words.chunks(4)) {
            for bar in [DMA, USER, region::CONFIG] {
                // Refused beyond a region.
                let _ = hostile.client.write(bar, offset, word);
            }
        }
        other.check();
        let mut cdma = other.card.cdma().unwrap();
        let own = other.card.info().ni.as_ref().unwrap().card_ranges().first().unwrap().start;
        cdma.copy(CardAddr::new(0x300_0000), own, 3000).unwrap();
    }
}

#[test]
fn stream_lists_without_end_free_channel_with_their_client() {
    let mut description = CardDescription::default();
    description.xdma.stream = true;
    let shared = Shared::with(description, OwnerOptions::default());
    for _ in 0..3 {
        let mut hostile = Hostile::connect(&shared);
        for (channel, list) in [(H2C, MEMORY), (C2H, MEMORY + 64)] {
            // Packets of one byte, and of as much as a descriptor has.
            let length = if channel == H2C { 1 } else { 0x0FFF_FFFF };
            hostile.descriptor(list, 0x10, length, [MEMORY + PAGE, MEMORY + 2 * PAGE, list]);
            hostile.start(channel, list);
        }
        let card = shared.client();
        let (mut tx, mut rx) = (card.h2c_stream(1).unwrap(), card.c2h_stream(1).unwrap());
        let data = bytes(5000, 1);
        for _ in 0..5 {
            exchange(&card, (&mut tx, &mut rx), &data);
        }
        drop(hostile);
        // Packets of the hostile client are in the card.
        let (mut tx, mut rx) = (claim(|| card.h2c_stream(0)), claim(|| card.c2h_stream(0)));
        tx.submit(card.buffer_from(&data).unwrap()).unwrap();
        let began = Instant::now();
        loop {
            tx.poll().unwrap();
            let packet = rx.wait_packet(WaitOptions::default()).unwrap().to_vec();
            if packet == data {
                break;
            }
            assert!(packet.len() <= 64 && began.elapsed() < LONG, "{} bytes", packet.len());
        }
    }
}

/// Takes a channel when its client has ended.
fn claim<T, E: std::fmt::Debug>(mut take: impl FnMut() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        match take() {
            Ok(taken) => return taken,
            Err(error) => assert!(began.elapsed() < LONG, "{error:?}"),
        }
    }
}

fn exchange(card: &Card, (tx, rx): (&mut fpga_driver::H2cStream, &mut C2hStream), data: &[u8]) {
    tx.send(card.buffer_from(data).unwrap()).unwrap();
    assert_eq!(rx.wait_packet(WaitOptions::default()).unwrap().to_vec(), data);
}

/// A client whose memory is reached by messages, and that never answers: its view waits.
#[test]
fn client_that_does_not_answer_holds_up_no_interrupts() {
    let shared = Shared::new();
    let mut before_answer = false;
    // The owner waits a second for an answer: on a busy machine it may be over before the interrupt.
    for _ in 0..20 {
        let mut client = Client::connect(&shared.socket());
        // Its view is after that of the hostile client.
        let other = shared.client();
        let line = other.user_interrupt(4).unwrap();
        client.map(MEMORY, PAGES * PAGE, 3, None).unwrap();
        client.bus_master(true);
        for (offset, data) in [(0x4080, &MEMORY.to_le_bytes()[..]), (0x4, &RUN.to_le_bytes())] {
            let count = u32::try_from(data.len()).unwrap();
            client.send(&Request::RegionWrite(RegionAccess { offset, region: DMA, count }, data), true, &[]);
        }
        let (header, _) = client.asked();
        shared.network.pulse_user_interrupt(0, 4).unwrap();
        assert!(line.wait(LONG).unwrap() >= 1);
        let mut refusal = Vec::new();
        encode_error(header.id, header.command, 22, &mut refusal);
        client.send_bytes(&refusal);
        // The owner asks for the descriptor only if the answer came in time.
        client.send(&Request::RegionRead(RegionAccess { offset: 0, region: DMA, count: 4 }), false, &[]);
        let (header, _) = client.receive().unwrap();
        if matches!(header.kind, Kind::Request { .. }) {
            before_answer = true;
            break;
        }
    }
    assert!(before_answer);
}
