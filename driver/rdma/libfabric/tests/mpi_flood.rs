//! Small messages of seven MPI ranks to one that receives them later, in any order, with limited memory.
//!
//! `FPGA_FLOOD` is the number of messages in all.

use crate::mpi::{compiled, output, with_libraries};

const RANKS: u32 = 8;
const MESSAGES: &str = "14000";
/// Maximum memory of a process in KiB: a simulated card and its links, and the messages that are kept for seven peers with the default of
/// `FPGA_UNEXPECTED`.
const MAX_MEMORY: u64 = (512 + 7 * 32) << 10;

#[test]
fn mpi_flood_is_received_in_any_order_with_bounded_memory() {
    let messages = std::env::var("FPGA_FLOOD").unwrap_or_else(|_| MESSAGES.to_owned());
    with_libraries(|library, installed, _| {
        let program = compiled(library, installed, "flood.c");
        for order in ["any", "each"] {
            let mut command = library.command(installed, RANKS);
            command.arg(&program).args([&messages, order]);
            let text = output(installed, command, RANKS).unwrap();
            let shown = text.lines().filter(|line| line.starts_with("rank ") || line.starts_with(order));
            println!("{}", shown.collect::<Vec<_>>().join("\n"));
            let memory = |line: &str| {
                line.strip_prefix("rank ")?.split_once(": ")?.1.strip_suffix(" KiB")?.parse().ok()
            };
            let memory: Vec<u64> = text.lines().filter_map(memory).collect();
            assert!(
                memory.len() == RANKS as usize && memory.iter().all(|kib| *kib < MAX_MEMORY),
                "{memory:?}"
            );
        }
    });
}
