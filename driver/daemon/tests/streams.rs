//! Clients of a shared card whose channels are AXI4-Stream: the card returns what it is sent.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fpga_driver::stream::C2hStreamOptions;
use fpga_driver::{C2hStream, Card, H2cStream, ResourceError, RunMode, WaitOptions};
use fpga_sim::CardDescription;
use fpgad::OwnerOptions;

use crate::{Shared, bytes};

fn shared() -> Shared {
    let mut description = CardDescription::default();
    description.xdma.stream = true;
    Shared::with(description, OwnerOptions::default())
}

fn single(card: &Card, number: u8) -> C2hStream {
    let options = C2hStreamOptions::default().buffers(2).run_mode(RunMode::Batch);
    card.c2h_stream_with(number, options).unwrap()
}

fn receive(card: &Card, rx: &mut C2hStream) -> Vec<u8> {
    rx.receive(card.buffer(4 << 20).unwrap()).unwrap().to_vec()
}

fn send(card: &Card, tx: &mut H2cStream, data: &[u8]) {
    tx.send(card.buffer_from(data).unwrap()).unwrap();
}

/// Environment variables of a child process: the socket, and what it does until it is killed.
const CHILD_SOCKET: &str = "FPGAD_TEST_SOCKET";
const CHILD_TASK: &str = "FPGAD_TEST_TASK";
const READY: &str = "the client is ready";

/// Client in a process of its own, which is killed.
struct KilledClient(Child);

impl KilledClient {
    /// Starts a client that does `task` of [`child_process_client`], and waits until it has.
    fn start(shared: &Shared, task: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "streams::child_process_client", "--nocapture"])
            .env(CHILD_SOCKET, shared.socket())
            .env(CHILD_TASK, task)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains(READY)), "the client has ended");
        Self(child)
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The client of a child process; does nothing in the tests' own process.
#[test]
fn child_process_client() {
    let Ok(socket) = std::env::var(CHILD_SOCKET) else { return };
    let card = Card::open(&format!("vfio-user:{socket}")).unwrap();
    match std::env::var(CHILD_TASK).unwrap().as_str() {
        "receive the beginning of a packet" => {
            let mut rx = single(&card, 2);
            let part = rx.receive_part(card.buffer(4096).unwrap(), WaitOptions::default()).unwrap();
            assert_eq!((part.buffer.to_vec(), part.ends_packet), (bytes(4096, 1), false));
        }
        "send the beginning of a packet" => {
            let mut tx = card.h2c_stream(0).unwrap();
            let memory = tx.register_memory(card.registered_memory(4096).unwrap()).unwrap();
            tx.memory(memory).unwrap().write(0, &bytes(4096, 1)).unwrap();
            tx.submit_part_at(memory, 0, 4096).unwrap();
            while tx.ended() == 0 {
                tx.poll().unwrap();
                tx.relax();
            }
            std::mem::forget(tx);
        }
        "send to nobody" => {
            let mut tx = card.h2c_stream(0).unwrap();
            for seed in 0..40 {
                tx.submit(card.buffer_from(&bytes(16 << 10, seed)).unwrap()).unwrap();
            }
            tx.poll().unwrap();
            std::thread::sleep(Duration::from_millis(100));
            std::mem::forget(tx);
        }
        task => panic!("{task}"),
    }
    println!("{READY}");
    std::thread::sleep(Duration::from_secs(60));
}

/// A wait that finds nothing.
fn short() -> WaitOptions {
    WaitOptions::default().timeout(Duration::from_millis(100))
}

#[test]
fn client_packets_of_any_length_return() {
    let shared = shared();
    let card = shared.client();
    assert!(card.info().xdma.stream);
    for (number, mode) in [(0, RunMode::Batch), (3, RunMode::Credit)] {
        let mut tx = card.h2c_stream(number).unwrap();
        let options = C2hStreamOptions::default().buffers(1024).run_mode(mode);
        let mut rx = card.c2h_stream_with(number, options).unwrap();
        assert!(rx.next_packet().unwrap().is_none());
        for (seed, length) in (0..).zip([1, 63, 64, 65, 4096, 4097, 65_535, 65_537, 1_000_003]) {
            let data = bytes(length, seed);
            let ticket = tx.submit(card.buffer_from(&data).unwrap()).unwrap();
            tx.poll().unwrap();
            let packet = rx.wait_packet(WaitOptions::default()).unwrap();
            assert_eq!(packet.to_vec(), data, "{length} bytes");
            tx.wait(ticket, WaitOptions::default()).unwrap().into_buffer().unwrap();
        }
    }
}

#[test]
fn client_channels_stream_at_the_same_time() {
    let shared = shared();
    std::thread::scope(|scope| {
        for number in 0..4_u8 {
            let card = shared.client();
            scope.spawn(move || {
                let (mut tx, mut rx) = (card.h2c_stream(number).unwrap(), single(&card, number));
                for round in 0..50_u32 {
                    let data = bytes(1 + (round * 7919) as usize % 60_000, round ^ u32::from(number));
                    send(&card, &mut tx, &data);
                    assert_eq!(receive(&card, &mut rx), data);
                }
            });
        }
    });
}

#[test]
fn second_client_of_stream_is_refused_until_first_ends() {
    let shared = shared();
    let (one, other) = (shared.client(), shared.client());
    let tx = one.h2c_stream(1).unwrap();
    let rx = one.c2h_stream(1).unwrap();
    let error = other.h2c_stream(1).unwrap_err();
    assert!(matches!(error.kind, ResourceError::OtherClient { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&*shared.socket().to_string_lossy()) && text.contains("h2c1"), "{text}");
    assert_eq!(error.advice().unwrap().to_string(), "end that client, or use another channel");
    let error = other.c2h_stream(1).unwrap_err();
    assert!(matches!(error.kind, ResourceError::OtherClient { .. }), "{error}");
    // Another channel is free, and a handle that is dropped frees its channel.
    drop(other.c2h_stream(2).unwrap());
    drop(tx);
    let mut tx = other.h2c_stream(1).unwrap();
    drop((rx, one));
    let mut rx = single(&other, 1);
    let data = bytes(500, 1);
    send(&other, &mut tx, &data);
    assert_eq!(receive(&other, &mut rx), data);
}

#[test]
fn packets_after_client_go_to_next_client() {
    let shared = shared();
    let card = shared.client();
    let mut tx = card.h2c_stream(0).unwrap();
    for seed in 0..4 {
        send(&card, &mut tx, &bytes(1000, seed));
    }
    // Each client takes one packet. The others stay in the card.
    for seed in 0..4 {
        let client = shared.client();
        let mut rx = single(&client, 0);
        assert_eq!(receive(&client, &mut rx), bytes(1000, seed));
    }
    // A client that waits for nothing leaves its buffer posted: the next packet is whole.
    {
        let client = shared.client();
        let mut rx = single(&client, 0);
        let error = rx.receive_with(client.buffer(4096).unwrap(), short()).unwrap_err();
        assert!(error.error.is_timeout(), "{}", error.error);
    }
    send(&card, &mut tx, &bytes(700, 9));
    let client = shared.client();
    assert_eq!(receive(&client, &mut single(&client, 0)), bytes(700, 9));
}

#[test]
fn rest_of_packet_reaches_no_other_client() {
    let shared = shared();
    let sender = shared.client();
    let mut tx = sender.h2c_stream(2).unwrap();
    {
        let client = shared.client();
        let mut rx = single(&client, 2);
        send(&sender, &mut tx, &bytes(64, 0));
        assert_eq!(receive(&client, &mut rx), bytes(64, 0));
    }
    // A packet of which the client takes the beginning.
    let memory = tx.register_memory(sender.registered_memory(1 << 16).unwrap()).unwrap();
    tx.memory(memory).unwrap().write(0, &bytes(1 << 16, 1)).unwrap();
    tx.submit_part_at(memory, 0, 4096).unwrap();
    tx.poll().unwrap();
    KilledClient::start(&shared, "receive the beginning of a packet").kill();
    tx.submit_at(memory, 4096, 5000).unwrap();
    tx.poll().unwrap();
    let data = bytes(333, 7);
    let next = shared.client();
    let mut rx = single(&next, 2);
    let ticket = tx.submit(sender.buffer_from(&data).unwrap()).unwrap();
    tx.poll().unwrap();
    assert_eq!(receive(&next, &mut rx), data);
    tx.wait(ticket, WaitOptions::default()).unwrap().into_buffer().unwrap();
}

#[test]
fn packet_of_client_that_ends_is_ended() {
    let shared = shared();
    let receiver = shared.client();
    let mut rx = single(&receiver, 0);
    KilledClient::start(&shared, "send the beginning of a packet").kill();
    let next = shared.client();
    let mut tx = next.h2c_stream(0).unwrap();
    send(&next, &mut tx, &bytes(100, 2));
    let first = receive(&receiver, &mut rx);
    assert_eq!(first[..4096], bytes(4096, 1));
    assert!(first.len() <= 4096 + 64 && first[4096..].iter().all(|byte| *byte == 0), "{} bytes", first.len());
    assert_eq!(receive(&receiver, &mut rx), bytes(100, 2));
}

#[test]
fn client_that_does_not_read_holds_card_back() {
    let shared = shared();
    let (sender, receiver) = (shared.client(), shared.client());
    let mut rx = single(&receiver, 0);
    let mut tx = sender.h2c_stream(0).unwrap();
    // More than the card's FIFO holds.
    let count = 40;
    let tickets: Vec<_> = (0..count)
        .map(|seed| tx.submit(sender.buffer_from(&bytes(16 << 10, seed)).unwrap()).unwrap())
        .collect();
    let last = *tickets.last().unwrap();
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_millis(300) {
        tx.poll().unwrap();
        std::thread::yield_now();
    }
    assert!(!tx.has_ended(last));
    // Other channels work.
    let (mut other_tx, mut other_rx) = (sender.h2c_stream(1).unwrap(), single(&receiver, 1));
    send(&sender, &mut other_tx, &bytes(50, 1));
    assert_eq!(receive(&receiver, &mut other_rx), bytes(50, 1));
    for seed in 0..count {
        assert_eq!(receive(&receiver, &mut rx), bytes(16 << 10, seed));
        tx.poll().unwrap();
    }
    tx.wait(last, WaitOptions::default()).unwrap().into_buffer().unwrap();
}

#[test]
fn sender_without_receiver_ends_and_leaves_channel_usable() {
    let shared = shared();
    KilledClient::start(&shared, "send to nobody").kill();
    let next = shared.client();
    let mut tx = next.h2c_stream(0).unwrap();
    let mut rx = single(&next, 0);
    let data = bytes(77, 77);
    let ticket = tx.submit(next.buffer_from(&data).unwrap()).unwrap();
    tx.poll().unwrap();
    // Packets that the card has taken from the client before are in its FIFO.
    let found = (0..200).any(|_| receive(&next, &mut rx) == data);
    assert!(found);
    tx.wait(ticket, WaitOptions::default()).unwrap().into_buffer().unwrap();
}

#[test]
fn stream_without_packet_ends_goes_on_with_next_client() {
    let shared = shared();
    let sender = shared.client();
    let mut tx = sender.h2c_stream(0).unwrap();
    let memory = tx.register_memory(sender.registered_memory(1 << 16).unwrap()).unwrap();
    for _ in 0..3 {
        let client = shared.client();
        let mut rx = single(&client, 0);
        for _ in 0..2 {
            tx.submit_part_at(memory, 0, 8192).unwrap();
            tx.poll().unwrap();
            let part = rx.receive_part(client.buffer(8192).unwrap(), WaitOptions::default()).unwrap();
            assert_eq!((part.buffer.len(), part.ends_packet), (8192, false));
            // The next one starts with its submission only if this run has ended.
            while tx.in_flight() > 0 {
                tx.poll().unwrap();
                tx.relax();
            }
        }
    }
}
