//! The NI's fault log block.

use fpga_firmware::event::FaultReason;
use fpga_firmware::generated::fault_log as block;
use fpga_registers::cast::{high32, low32};
use std::collections::VecDeque;

/// Maximum number of kept faults.
pub(super) const ENTRIES: usize = 64;

/// One fault in the contract's format.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) reason: FaultReason,
    pub(super) window: u32,
    pub(super) node: u32,
    pub(super) transfer: u32,
    pub(super) segment: u32,
    pub(super) detail: u32,
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) time: u64,
}

impl Fault {
    pub(super) const fn new(reason: FaultReason) -> Self {
        Self {
            reason,
            window: 0,
            node: 0,
            transfer: 0,
            segment: 0,
            detail: 0,
            address: 0,
            length: 0,
            time: 0,
        }
    }
}

/// Fault log, and the entry that INDEX latched.
#[derive(Debug)]
pub(super) struct FaultBlock {
    faults: VecDeque<Fault>,
    count: u32,
    index: u32,
    shadow: Option<Fault>,
}

impl FaultBlock {
    pub(super) fn new() -> Self {
        Self { faults: VecDeque::with_capacity(ENTRIES), count: 0, index: 0, shadow: None }
    }

    pub(super) fn reset(&mut self) {
        self.faults.clear();
        (self.count, self.index, self.shadow) = (0, 0, None);
    }

    pub(super) fn push(&mut self, fault: Fault) {
        if self.faults.len() == ENTRIES {
            self.faults.pop_front();
        }
        self.faults.push_back(fault);
        self.count = self.count.wrapping_add(1);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// Latches the entry of age `index`; age 0 is the newest fault.
    pub(super) fn latch(&mut self, index: u32) {
        self.index = index;
        let age = usize::try_from(index).unwrap_or(usize::MAX);
        self.shadow = self.faults.iter().rev().nth(age).copied();
    }

    pub(super) fn read(&self, register: u32) -> u32 {
        match register {
            block::INDEX => return self.index,
            block::COUNT => return self.count,
            _ => {}
        }
        let Some(fault) = &self.shadow else { return 0 };
        match register {
            block::VALID => 1,
            block::REASON => fault.reason.value().into(),
            block::WINDOW => fault.window,
            block::NODE => fault.node,
            block::TRANSFER => fault.transfer,
            block::SEGMENT => fault.segment,
            block::DETAIL => fault.detail,
            block::ADDRESS_LOW => low32(fault.address),
            block::ADDRESS_HIGH => high32(fault.address),
            block::LENGTH_LOW => low32(fault.length),
            block::LENGTH_HIGH => high32(fault.length),
            block::TIME_LOW => low32(fault.time),
            block::TIME_HIGH => high32(fault.time),
            _ => 0,
        }
    }
}
