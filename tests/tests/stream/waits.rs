//! Waits for packets.

use std::os::fd::AsFd;

use fpga_card::{FaultPlan, InjectedFault, PlannedFault};
use fpga_driver::{WaitMode, stream::StreamError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

/// Pauses between packets cost no register reads either.
#[test]
fn cost_receive_poll_of_slow_packets() {
    let sections = "xdma: { stream: true }\nstream:\n  logic: source\n  flush_empty: true\n  source: { gap_ns: 5000000 }\n";
    let network = Setup { sections, ..Setup::new(RunMode::Credit) }.network();
    let card = cards::open(&network);
    let mut rx = card.c2h_stream(0).unwrap();
    rx.wait_packet(WaitOptions::default()).unwrap();
    let before = card.counters().unwrap();
    for _ in 0..64 {
        rx.wait_packet(WaitOptions::default()).unwrap();
    }
    let now = card.counters().unwrap();
    let (reads, writes) = (now.mmio_reads - before.mmio_reads, now.mmio_writes - before.mmio_writes);
    assert!(reads == 0 && writes <= 4, "{reads} reads, {writes} writes");
}

#[test]
fn wait_by_interrupt_needs_interrupts() {
    let mut ends = Setup::new(RunMode::Credit).open(16, 512);
    let options = WaitOptions::default().mode(WaitMode::Interrupt);
    assert!(ends.rx.wait_packet(options).is_err() && ends.rx.events().is_err());
    ends.assert_works(1);
}

#[test]
fn wait_lost_interrupts_lose_no_packet() {
    for setup in setups() {
        let network = setup.network();
        let card = cards::open(&network);
        card.enable_interrupts().unwrap();
        let mut ends = setup.on(network, card, 16, 512);
        let plan = FaultPlan::new(1)
            .with(PlannedFault::new(InjectedFault::LostInterrupt { vector: Some(2) }).times(3));
        ends.network.with_card(0, |card| card.set_fault_plan(&plan)).unwrap();
        for n in 0..6 {
            let data = bytes(n, 400);
            ends.send(&data);
            let packet = ends.rx.wait_packet(WaitOptions::default().mode(WaitMode::Interrupt)).unwrap();
            assert!(packet.to_vec() == data, "{setup:?} {n}");
        }
    }
}

/// An event loop on the event fd: it misses no packet, and no wait lasts without reason.
#[test]
fn wait_event_loop_misses_no_packet() {
    let setup = Setup { threaded: true, ..Setup::new(RunMode::Credit) };
    let network = setup.network();
    let card = cards::open(&network);
    card.enable_interrupts().unwrap();
    let mut ends = setup.on(network, card, 16, 512);
    let memory = ends.register_memory(&bytes(1, 4096));
    let events = ends.rx.events().unwrap();
    let (mut sent, mut got) = (0, 0);
    while got < 500 {
        while sent < 500 && sent - got < 20 && ends.tx.submit_at(memory, 0, 100 + sent % 900).is_ok() {
            sent += 1;
        }
        ends.tx.poll().unwrap();
        let _ = events.take();
        ends.rx.arm().unwrap();
        let before = got;
        while let Some(packet) = ends.rx.next_packet().unwrap() {
            assert_eq!(packet.len(), 100 + got % 900);
            got += 1;
        }
        if got == before {
            let mut fds = [PollFd::new(&events, PollFlags::IN)];
            let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
            assert_eq!(poll(&mut fds, Some(&limit)).unwrap(), 1, "{sent} sent, {got} received, no wake-up");
        }
    }
    assert!(events.as_fd().try_clone_to_owned().is_ok());
    ends.rx.disarm().unwrap();
}

/// A stop that a sleeping wait sees ends the stream: descriptors without data are not lost packets.
#[test]
fn stop_seen_by_interrupt_wait_ends_stream() {
    let setup = Setup { sections: "xdma: { stream: true }\n", ..Setup::new(RunMode::Credit) };
    let network = setup.network();
    let card = cards::open(&network);
    card.enable_interrupts().unwrap();
    let mut ends = setup.on(network, card, 16, 512);
    let short = WaitOptions::default().mode(WaitMode::Interrupt).timeout(Duration::from_micros(10));
    assert!(ends.rx.wait_packet(short).is_err_and(|error| error.is_timeout()));
    ends.send(&bytes(1, 400));
    assert_eq!(ends.rx.wait_packet(short.timeout(Duration::from_secs(1))).unwrap().len(), 400);
    ends.rx.stop().unwrap();
    let ended = ends.rx.wait_packet(short.timeout(Duration::from_secs(1))).unwrap_err();
    assert!(matches!(ended.kind, StreamError::Stopped), "{ended}");
    assert_eq!(ends.rx.statistics().lost, 0);
}
