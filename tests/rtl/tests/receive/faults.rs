//! Planted faults: copies of the module with one change each. The lockstep must find every one.

use super::{FILES, HASHED, SMALL, random};
use crate::planted_fault::{PlantedFault, fault, missed};

/// Faults of different parts of the receiver; each `from` occurs once.
const FAULTS: &[PlantedFault] = &[
    // A packet is acknowledged although memory refused it.
    fault("ni_receive_control.sv", "is_answered && (head_error || &new_mask)", "is_answered && (&new_mask)"),
    // A second packet whose bit is under way is written again.
    fault(
        "ni_receive_control.sv",
        "&& !has_bit && !in_flight && probe_allows",
        "&& !has_bit && probe_allows",
    ),
    // The mask of a START is shifted by one bit too few.
    fault(
        "ni_receive.sv",
        "MASK_BITS{1'b1}} << h_packets[8:0]",
        "MASK_BITS{1'b1}} << (h_packets[8:0] - 9'd1)",
    ),
    // A trimmed START counts as written.
    fault("ni_receive.sv", "MASK_BITS'(!is_trimmed)", "MASK_BITS'(1)"),
    // Serial numbers are compared without their wrap.
    fault("ni_receive_control.sv", "is_older = b - a != 0 && b - a <= 32'h8000_0000;", "is_older = a < b;"),
    // A notification ignores reserved slots.
    fault("ni_notice_slots.sv", "slots > wide_reserved ? slots - wide_reserved : 32'd0", "slots"),
    // Escaped packets are answered without the time that they have waited.
    fault(
        "ni_receive_control.sv",
        "delay <= slot_wait[63:16] == 0 ? slot_wait[15:0] : 16'hFFFF;",
        "delay <= '0;",
    ),
    // The oldest live transfer also goes back.
    fault(
        "ni_receive_control.sv",
        "if (is_newer) oldest_live <= h_oldest_live;",
        "oldest_live <= h_oldest_live;",
    ),
    // A sweep forgets that a sender has moved on.
    fault(
        "ni_receive_control.sv",
        "state == ADVANCE && sender_transfers != 0",
        "state == ADVANCE && sender_transfers == 0",
    ),
    // The event of a trimmed registration does not say so.
    fault(
        "ni_receive_report.sv",
        "{start_trimmed, 3'd0, start_flags[3:1], 1'b0}",
        "{1'b0, 3'd0, start_flags[3:1], 1'b0}",
    ),
    // A sweep ends only what has expired, not what its sender has given up.
    fault(
        "ni_receive_sweep.sv",
        "entry_deadline <= now || is_older(entry_transfer_id, sender_oldest)",
        "entry_deadline <= now",
    ),
    // A transfer that is dropped with its notice gets no tombstone.
    fault(
        "ni_receive_end.sv",
        "with_tombstone <= !drop || transfer_awaits_notice;",
        "with_tombstone <= !drop;",
    ),
    // A refused START does not say when the next try has a chance.
    fault(
        "ni_receive_start.sv",
        "nack_delay <= is_full && !has_free_entry ? refusal_delay : 16'd0;",
        "nack_delay <= '0;",
    ),
    // Only the first expired packet leaves the escape channel.
    fault("ni_receive_timer.sv", "state <= is_last ? EARLIEST : SEARCH;", "state <= EARLIEST;"),
    // A released entry is reused last instead of first.
    fault(
        "ni_registry_cam.sv",
        "recycle = released_count != 0;",
        "recycle = released_count != 0 && used_count == (ENTRY_BITS + 1)'(ENTRIES);",
    ),
    // The key of an entry does not contain the incarnation.
    fault(
        "ni_registry_cam.sv",
        "live[i] && key == lookup_key;",
        "live[i] && {key[127:64], key[31:0]} == {lookup_key[127:64], lookup_key[31:0]};",
    ),
    // A removed entry keeps its bit.
    fault(
        "ni_registry_cam.sv",
        "if (remove) begin\n                live[index] <= 1'b0;",
        "if (remove) begin\n                live[0] <= 1'b0;",
    ),
    // Two ranges of completed transfers are joined on one side only.
    fault(
        "ni_tombstones.sv",
        "{left_length + 1'b1 + length, left_first}",
        "{left_length + 1'b1, left_first}",
    ),
    // A range that the oldest live transfer cuts keeps its length.
    fault(
        "ni_tombstones.sv",
        "write_data = {length - cut, first + cut};",
        "write_data = {length, first + cut};",
    ),
    // A window is allowed one byte more.
    fault("ni_access.sv", "&& !offset[64] && !rest[64] &&", "&& !offset[64] &&"),
    // A removed window still allows writes.
    fault("ni_access.sv", "if (remove) valid[index] <= 1'b0;", ""),
    // A copy in the escape channel takes a second slot.
    fault(
        "ni_escape.sv",
        "wire is_same = r_mode == SAME && matches_key && address_found == address;",
        "wire is_same = 1'b0;",
    ),
    // The escape timeout does not follow the waits.
    fault("ni_escape.sv", "bounded_wait > escape_timeout ? bounded_wait : escape_timeout", "escape_timeout"),
    // A copy in the escape channel gets a new deadline.
    fault(
        "ni_escape.sv",
        "            tries[index] <= {",
        "            deadlines[index] <= deadline;\n            tries[index] <= {",
    ),
    // Segments of a transfer are complete with the last one.
    fault(
        "ni_transfers.sv",
        "end else if (marking && bits[0]) begin",
        "end else if (marking && bits != 0) begin",
    ),
    // The lowest unused record is not used first.
    fault("ni_records.sv", "if (!free && |unused) begin", "if (|unused) begin"),
    // A node that is not idle is replaced.
    fault("ni_nodes.sv", "wire is_over = !record_used &&", "wire is_over ="),
    // The interval between releases is not smoothed.
    fault("ni_refusals.sv", "elapsed > MAX_WAIT_NS ? span : smoothed", "elapsed > MAX_WAIT_NS ? span : span"),
    // An answer does not repeat the mark.
    fault("ni_receive_report.sv", "c_marked && !segment_done", "1'b0"),
    // A shift of one word in the responses: the second write gets the response of the first.
    fault("ni_inflight.sv", "assign head_error = errors[head];", "assign head_error = errors[head + 1'b1];"),
    // A START may lie outside its transfer.
    fault("ni_receive_check.sv", "start_base >= transfer_base && ", ""),
    // Another set of the hash table is searched than the one that a new entry is in.
    fault("ni_registry_hash.sv", "key <= keys[set];", "key <= keys[set ^ 1'b1];"),
    // A removed entry of the hash table is still found.
    fault(
        "ni_registry_hash.sv",
        "matches_way[way] = live_found[way] && key",
        "matches_way[way] = used[{set_found, 2'(way)}] && key",
    ),
];

/// Builds the module with the fault, and returns whether the lockstep finds a difference within `packets`.
fn finds(number: usize, packets: u64) -> bool {
    let sizes = if FAULTS[number].file == "ni_registry_hash.sv" { HASHED } else { SMALL };
    let build = |name: &str, files: &[&str]| sizes.build_files(name, files);
    FAULTS[number].is_found(&format!("receive-fault-{number}"), FILES, build, |program| {
        random(&program, sizes, packets, 7);
    })
}

#[test]
fn planted_faults_are_found() {
    for number in fpga_ni_tests::sizes(&[1], &[21]) {
        assert!(finds(number, 20_000), "{}", FAULTS[number].from);
    }
}

#[test]
#[ignore = "long: 200 s: builds the module once per fault"]
fn every_planted_fault_is_found() {
    let missed = missed(FAULTS, |number| finds(number, 50_000));
    assert!(missed.is_empty(), "not found: {missed:#?}");
}
