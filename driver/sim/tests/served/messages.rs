//! Memory that the client maps without a file: the card accesses it by messages.

use crate::served::client::{Client, DMA, PAGE, Served, descriptor, file, until};
use fpga_registers::CardAddr;
use fpga_sim::SimNetwork;
use fpga_vfio_user::wire::{
    DmaTransfer, Kind, RegionAccess, Reply, Request, encode_error, encode_reply, encode_request,
};
use std::time::Duration;

/// Card-visible address of the client's memory: first the descriptor, then data.
const MEMORY: u64 = 0x10_0000;
const DATA: u64 = MEMORY + PAGE;

/// A client's memory, and the behaviour of its replies.
struct Memory {
    bytes: Vec<u8>,
    questions: u64,
    /// Error with which every request is answered.
    refuses: Option<u32>,
}

impl Memory {
    fn new() -> Self {
        Self { bytes: vec![0; 4 * 4096], questions: 0, refuses: None }
    }

    fn part(&mut self, at: u64, count: usize) -> Option<&mut [u8]> {
        let start = usize::try_from(at.checked_sub(MEMORY)?).ok()?;
        self.bytes.get_mut(start..start.checked_add(count)?)
    }

    /// Builds the reply to a request of the server.
    fn answer(&mut self, id: u16, request: &Request<'_>) -> Vec<u8> {
        self.questions += 1;
        let mut out = Vec::new();
        if let Some(errno) = self.refuses {
            encode_error(id, request.command(), errno, &mut out);
            return out;
        }
        match request {
            Request::DmaRead(transfer) => {
                let part = self.part(transfer.address, usize::try_from(transfer.count).unwrap()).unwrap();
                encode_reply(id, &Reply::DmaRead(*transfer, part), &mut out);
            }
            Request::DmaWrite(transfer, data) => {
                self.part(transfer.address, data.len()).unwrap().copy_from_slice(data);
                encode_reply(id, &Reply::DmaWrite(*transfer), &mut out);
            }
            other => encode_error(id, other.command(), 95, &mut out),
        }
        out
    }

    /// Sends a request, and answers the server's requests until the reply arrives.
    fn ask(&mut self, client: &mut Client, id: u16, request: &Request<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        encode_request(id, false, request, &mut out);
        client.send_bytes(&out);
        loop {
            let (header, body) = client.receive().unwrap();
            let body = body.to_vec();
            match header.kind {
                Kind::Reply { error } => {
                    assert_eq!((header.id, error), (id, None));
                    return body;
                }
                Kind::Request { .. } => {
                    let request = Request::decode(header.command, &body).unwrap();
                    let answer = self.answer(header.id, &request);
                    client.send_bytes(&answer);
                }
            }
        }
    }

    /// Returns the channel status of the engine at `base` once it is idle. Nothing else queries the network meanwhile: it waits for
    /// replies.
    fn idle(&mut self, client: &mut Client, base: u64) -> u32 {
        for id in 0x100.. {
            let status = RegionAccess { offset: base + 0x40, region: DMA, count: 4 };
            let body = self.ask(client, id, &Request::RegionRead(status));
            let status = u32::from_le_bytes(body[16..20].try_into().unwrap());
            if status & 1 == 0 {
                return status;
            }
        }
        panic!("still busy")
    }
}

/// Register write without waiting, as on a bus.
fn post(client: &mut Client, offset: u64, data: &[u8]) {
    let access = RegionAccess { offset, region: DMA, count: u32::try_from(data.len()).unwrap() };
    client.send(&Request::RegionWrite(access, data), true, &[]);
}

/// Starts a channel (H2C 0 at 0, C2H 0 at 0x1000) on the descriptor at `MEMORY`.
fn start(client: &mut Client, base: u64) {
    post(client, base + 0x4, &0_u32.to_le_bytes());
    post(client, base + 0x4080, &MEMORY.to_le_bytes());
    post(client, base + 0x4, &0x00F8_3E1F_u32.to_le_bytes());
}

#[test]
fn message_memory_answering_client_is_accessed_while_it_asks() {
    for threaded in [false, true] {
        let network = SimNetwork::builder().cards(1);
        let network = if threaded { network.threaded(fpga_sim::ThreadOptions::default()) } else { network };
        let served = Served::of(network.build().unwrap());
        let mut client = served.connect();
        let mut memory = Memory::new();
        client.map(MEMORY, 4 * PAGE, 3, None).unwrap();
        client.bus_master(true);
        let data: Vec<u8> = (0..6000_u32).map(|n| ((n * 7) >> 2).to_le_bytes()[0]).collect();
        memory.part(DATA, 6000).unwrap().copy_from_slice(&data);
        memory.part(MEMORY, 32).unwrap().copy_from_slice(&descriptor(6000, DATA, 0x5000));
        start(&mut client, 0);
        assert_eq!(memory.idle(&mut client, 0) & 0x00FF_FFF8, 0, "no error");
        let mut back = vec![0; 6000];
        served.network.with_card(0, |card| card.peek(CardAddr::new(0x5000), &mut back)).unwrap().unwrap();
        assert!(back == data);
        // Back to other addresses.
        memory.part(MEMORY, 32).unwrap().copy_from_slice(&descriptor(5000, 0x5001, DATA + 100));
        memory.part(DATA, 8192).unwrap().fill(0xEE);
        start(&mut client, 0x1000);
        assert_eq!(memory.idle(&mut client, 0x1000) & 0x00FF_FFF8, 0, "no error");
        let end = [&[0xEE; 100][..], &data[1..5001], &[0xEE; 3092]].concat();
        assert!(memory.part(DATA, 8192).unwrap() == end);
        drop(client);
        let counts = served.stop();
        assert_eq!(counts.memory_messages, memory.questions);
        assert_eq!((counts.broken_connections, counts.refused_requests), (0, 0));
    }
}

#[test]
fn message_memory_access_spans_file_and_messages() {
    let served = Served::start();
    let mut client = served.connect();
    let mut memory = Memory::new();
    let shared = file(1, true);
    rustix::io::pwrite(&shared, &[0x77; 4096], 0).unwrap();
    client.map(MEMORY, 2 * PAGE, 3, None).unwrap();
    client.map(MEMORY + 2 * PAGE, PAGE, 3, Some((&shared, 0))).unwrap();
    client.bus_master(true);
    memory.part(DATA, 4096).unwrap().fill(0x55);
    memory.part(MEMORY, 32).unwrap().copy_from_slice(&descriptor(8000, DATA, 0));
    start(&mut client, 0);
    assert_eq!(memory.idle(&mut client, 0) & 0x00FF_FFF8, 0, "no error");
    let mut back = vec![0; 8000];
    served.network.with_card(0, |card| card.peek(CardAddr::new(0), &mut back)).unwrap().unwrap();
    assert!(back[..4096].iter().all(|byte| *byte == 0x55) && back[4096..].iter().all(|byte| *byte == 0x77));
    served.stop();
}

#[test]
fn message_memory_refused_access_is_retried_next_time() {
    let served = Served::start();
    let mut client = served.connect();
    let mut memory = Memory::new();
    client.map(MEMORY, 4 * PAGE, 3, None).unwrap();
    client.bus_master(true);
    memory.refuses = Some(14);
    memory.part(MEMORY, 32).unwrap().copy_from_slice(&descriptor(64, DATA, 0));
    start(&mut client, 0);
    assert_ne!(memory.idle(&mut client, 0) & 0x00F8_0000, 0, "a descriptor error");
    let refused = served.network.refused_accesses(0).reads;
    assert!(refused > 0);
    memory.refuses = None;
    memory.ask(&mut client, 1, &Request::RegionRead(RegionAccess { offset: 0x44, region: DMA, count: 4 }));
    start(&mut client, 0);
    assert_eq!(memory.idle(&mut client, 0) & 0x00FF_FFF8, 0, "no error");
    assert_eq!(served.network.refused_accesses(0).reads, refused);
    drop(client);
    let counts = served.stop();
    assert_eq!((counts.memory_messages, counts.broken_connections), (memory.questions, 0));
}

#[test]
fn message_memory_silent_client_is_asked_once() {
    let network = SimNetwork::builder().cards(1).build().unwrap();
    let served = Served::with(network, |server| server.answer(Duration::from_millis(20)));
    let mut client = served.connect();
    client.map(MEMORY, 4 * PAGE, 3, None).unwrap();
    client.bus_master(true);
    start(&mut client, 0);
    let (first, _) = client.asked();
    until(|| served.network.refused_accesses(0).reads > 0);
    // A late reply is ignored.
    let mut late = Vec::new();
    encode_error(first.id, first.command, 95, &mut late);
    client.send_bytes(&late);
    assert_eq!(client.read32(DMA, 0) >> 16, 0x1FC0, "the connection is still open");
    client.read32(DMA, 0x44);
    let refused = served.network.refused_accesses(0).reads;
    start(&mut client, 0);
    until(|| served.network.refused_accesses(0).reads > refused);
    client.read32(DMA, 0);
    drop(client);
    let counts = served.stop();
    assert_eq!((counts.memory_messages, counts.broken_connections), (1, 0));
}

/// QEMU places the data of these messages four bytes early: data would be shifted in both directions.
#[test]
fn message_memory_other_layout_is_not_asked_for_data() {
    let served = Served::start();
    let mut client = served.connect();
    client.map(MEMORY, 4 * PAGE, 3, None).unwrap();
    client.bus_master(true);
    start(&mut client, 0);
    let (header, body) = client.asked();
    assert_eq!(
        Request::decode(header.command, &body).unwrap(),
        Request::DmaWrite(DmaTransfer { address: MEMORY, count: 0 }, &[])
    );
    // As QEMU replies to a write: the header alone. The reply to an unmapping has the same length.
    let mut answer = Vec::new();
    encode_reply(header.id, &Reply::DmaMap, &mut answer);
    answer[2..4].copy_from_slice(&header.command.0.to_ne_bytes());
    client.send_bytes(&answer);
    until(|| served.network.refused_accesses(0).reads > 0);
    client.read32(DMA, 0x44);
    let refused = served.network.refused_accesses(0).reads;
    start(&mut client, 0);
    until(|| served.network.refused_accesses(0).reads > refused);
    assert_eq!(client.read32(DMA, 0) >> 16, 0x1FC0);
    drop(client);
    assert_eq!(served.stop().memory_messages, 1);
}

#[test]
fn message_memory_unrelated_answer_ends_connection() {
    type Twist = fn(&mut DmaTransfer, &mut Vec<u8>, &mut u16);
    let twists: [Twist; 4] = [
        |transfer, _, _| transfer.address += 4,
        |transfer, data, _| {
            transfer.count += 1;
            data.push(0);
        },
        |_, data, _| data.truncate(3),
        |_, _, id| *id += 1,
    ];
    for twist in twists {
        let served = Served::start();
        let mut client = served.connect();
        let mut memory = Memory::new();
        client.map(MEMORY, 4 * PAGE, 3, None).unwrap();
        client.bus_master(true);
        start(&mut client, 0);
        let (nothing, body) = client.asked();
        let request = Request::decode(nothing.command, &body).unwrap();
        let answer = memory.answer(nothing.id, &request);
        client.send_bytes(&answer);
        let (read, body) = client.asked();
        let Ok(Request::DmaRead(mut transfer)) = Request::decode(read.command, &body) else { panic!() };
        let (mut data, mut id) = (vec![0; usize::try_from(transfer.count).unwrap()], read.id);
        twist(&mut transfer, &mut data, &mut id);
        let mut out = Vec::new();
        encode_reply(id, &Reply::DmaRead(transfer, &data), &mut out);
        client.send_bytes(&out);
        assert!(client.receive().is_err());
        // The next client finds the card free.
        served.connect().read32(DMA, 0);
        let counts = served.stop();
        assert_eq!((counts.broken_connections, counts.connections), (1, 2));
    }
}

#[test]
fn message_memory_request_flood_ends_connection() {
    let served = Served::start();
    let mut client = served.connect();
    client.map(MEMORY, 4 * PAGE, 3, None).unwrap();
    client.bus_master(true);
    start(&mut client, 0);
    client.asked();
    let mut flood = Vec::new();
    let access = RegionAccess { offset: 0x88, region: DMA, count: 4 };
    for _ in 0..5000 {
        encode_request(1, true, &Request::RegionWrite(access, &[0; 4]), &mut flood);
    }
    // The connection may be ended before all of it is sent.
    let _ = client.connection.send(&flood, &[], crate::served::client::LONG);
    while client.receive().is_ok() {}
    served.connect().read32(DMA, 0);
    assert_eq!(served.stop().broken_connections, 1);
}
