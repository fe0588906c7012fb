//! Memory from the system's reserve of huge pages, where there is one: it is used, it is one mapping of whole pages, and the card reaches
//! all of it.

use std::fs;

use fpga_driver::{Direction, OpenOptions, RunMode};
use fpga_pci::{DmaPoolOptions, HugePages};

use super::{Case, CaseContext, Verdict, case};
use crate::bed::TestSetup;
use crate::bytes;
use crate::conformance::case_context::long_wait;
use crate::conformance::{Capability, Skip};

pub(super) const CASES: &[Case] = &[
    case("pages.huge.2MiB", &[Capability::HugePages], of_2_mib),
    case("pages.huge.1GiB", &[Capability::HugePages], of_1_gib),
];

fn of_2_mib(context: &mut CaseContext<'_>) -> Verdict {
    used(context, HugePages::Prefer2MiB, 2 << 20)
}

fn of_1_gib(context: &mut CaseContext<'_>) -> Verdict {
    used(context, HugePages::Prefer1GiB, 1 << 30)
}

/// Skips the case unless pages of this size are free: Documentation/admin-guide/mm/hugetlbpage.rst of the kernel.
fn reserve(page: usize) -> Result<(), Skip> {
    let folder = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", page >> 10);
    let count = |name: &str| {
        let text = fs::read_to_string(format!("{folder}/{name}")).unwrap_or_default();
        text.trim().parse::<u64>().unwrap_or(0)
    };
    if count("free_hugepages") > count("resv_hugepages") {
        return Ok(());
    }
    Err(Skip(format!("the system has no free huge pages: write a number to {folder}/nr_hugepages")))
}

/// Page size at an address of this process, from proc_pid_smaps(5).
fn page_size(at: usize) -> Option<usize> {
    let text = fs::read_to_string("/proc/self/smaps").ok()?;
    let mut inside = false;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let first = words.next()?;
        if let Some(("KernelPageSize", "")) = first.split_once(':') {
            if inside {
                return Some(words.next()?.parse::<usize>().ok()? << 10);
            }
        } else if let Some((from, to)) = first.split_once('-') {
            let bound = |text| usize::from_str_radix(text, 16);
            if let (Ok(from), Ok(to)) = (bound(from), bound(to)) {
                inside = (from..to).contains(&at);
            }
        }
    }
    None
}

fn used(context: &mut CaseContext<'_>, huge: HugePages, page: usize) -> Verdict {
    reserve(page)?;
    let mut memory = DmaPoolOptions::default();
    memory.huge = huge;
    memory.region_size = page;
    memory.limit = page;
    let opened = context.open_with(OpenOptions::default().memory(memory));
    let length = opened.scratch.length.min(1 << 20);
    let data = bytes(page as u64, usize::try_from(length).unwrap_or(4096));
    let at = opened.at(0);
    {
        let take = |direction| {
            let setup = TestSetup { direction, mode: RunMode::Batch, threaded: context.real_time() };
            setup.take(&opened.card, 0, setup.options()).expect("a channel")
        };
        let (mut h2c, mut c2h) = (take(Direction::H2c), take(Direction::C2h));
        let buffer = opened.card.buffer_from(&data).expect("DMA memory");
        let size = page_size(buffer.memory().host_address());
        assert_eq!(size, Some(page), "page size of the buffer's memory");
        let mappings = opened.injector.mappings();
        assert!(
            mappings.len() == 1 && mappings.iter().all(|mapping| mapping.iova.is_aligned_to(page as u64)),
            "{mappings:x?}"
        );
        let mut buffer = h2c.transfer(buffer, at, long_wait()).unwrap_or_else(|failed| panic!("{failed}"));
        buffer.fill(0xEE);
        let buffer = c2h.transfer(buffer, at, long_wait()).unwrap_or_else(|failed| panic!("{failed}"));
        assert!(buffer.to_vec() == data, "data read back differs from the data written");
    }
    opened.assert_pool(0, 0);
    opened.close();
    reserve(page)
}
