//! Planted faults: copies of the module with one change each. The lockstep must find every one.

use super::{FILES, SMALL, Scheme, random};
use crate::planted_fault::{PlantedFault, fault, missed};

/// Faults of different parts of the receiver; each `from` occurs once.
const FAULTS: &[PlantedFault] = &[
    // A packet of another message of the same sender is taken for one of this message.
    fault("ni_message_receive.sv", "r_live && r_name == h_name", "r_live && r_name[63:0] == h_name[63:0]"),
    // Numbers of messages are compared without their wrap.
    fault("ni_message_receive.sv", "(p_behind != 0 && !p_behind[19])", "(h_message[19:0] > p_number)"),
    // A refused write does not end its message.
    fault("ni_message_receive.sv", "is_answered && head_error && !is_stale", "1'b0"),
    // A message that ends does not give its reserved slot back.
    fault(
        "ni_message_receive.sv",
        "if (close && r_notifies && r_left == 0)",
        "if (close && r_notifies && 1'b0)",
    ),
    // A later incarnation does not end the messages of the earlier one.
    fault("ni_message_receive.sv", "wire is_former = r_live &&", "wire is_former = 1'b0 && r_live &&"),
    // The notice of a transfer is also raised by its other messages.
    fault("ni_message_receive.sv", "r_left == 0 && r_notifies ? NOTICE", "r_notifies ? NOTICE"),
    // The window moves as far as before the packet.
    fault("ni_message_window.sv", "searched <= ~(here | (WINDOW'(1) << packet_bit));", "searched <= ~here;"),
    // The wait for a requested packet does not double.
    fault("ni_message_window.sv", "45'({round_trip, 1'b0}) << ranges", "45'({round_trip, 1'b0})"),
    // Packets that enter the window count as just sent.
    fault("ni_message_window.sv", "(wide_highest > window_end || dropped_count", "(dropped_count"),
    // A missing packet that was requested gets the time of later evidence.
    fault(
        "ni_message_window.sv",
        "wire [WINDOW-1:0] gap_missing = range_mask & ~requested;",
        "wire [WINDOW-1:0] gap_missing = range_mask;",
    ),
    // Packets far beyond the window are forgotten.
    fault(
        "ni_message_window.sv",
        "                            has_far <= 1'b1;",
        "                            has_far <= 1'b0;",
    ),
    // Everything is requested one time too early.
    fault("ni_message_window.sv", "strikes >= patience", "strikes + 8'd1 >= patience"),
    // A record of a peer is replaced while its message is in progress.
    fault("ni_message_peers.sv", "wire is_over = !record_live &&", "wire is_over ="),
    // Another hash: other records share a slot.
    fault("ni_message_peers.sv", "product ^ (product >> 29)", "product ^ (product >> 28)"),
    // The context freed last is not used first.
    fault(
        "ni_message_contexts.sv",
        "wire  recycle = released_count != 0;",
        "wire  recycle = released_count != 0 && used_count[SLOT_BITS];",
    ),
    // Silence is measured by the wrong comparison.
    fault("ni_message_timers.sv", "heards[slot] + silence", "heards[slot] + (silence << 1)"),
];

/// Builds the module with the fault, and returns whether the lockstep finds a difference within `packets`.
fn finds(number: usize, packets: u64) -> bool {
    let build = |name: &str, files: &[&str]| SMALL.build_files(name, files);
    FAULTS[number].is_found(&format!("messages-fault-{number}"), FILES, build, |program| {
        random(&program, SMALL, Scheme::of(32), packets, 11);
    })
}

#[test]
fn planted_faults_are_found() {
    assert!(finds(6, 10_000), "{}", FAULTS[6].from);
}

#[test]
#[ignore = "long: 150 s: builds the module once per fault"]
fn every_planted_fault_of_message_receiver_is_found() {
    let missed = missed(FAULTS, |number| finds(number, 30_000));
    assert!(missed.is_empty(), "not found: {missed:#?}");
}
