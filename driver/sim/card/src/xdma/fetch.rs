//! Fetch of a block of descriptors from host memory.

use super::channel::Channel;
use super::prefetch::{DESCRIPTOR_BYTES, FetchEnd};
use super::state::EngineOptions;
use crate::fault_log::FaultKind;
use crate::host::HostPort;
use crate::link::{EngineContext, Unsupported, Upstream};
use fpga_registers::Iova;
use fpga_registers::invariant::DebugExpect as _;
use fpga_registers::xdma::descriptor;

const FETCH_BOUNDARY: u64 = descriptor::BLOCK_BOUNDARY as u64;

impl Channel {
    fn fetch_count(&self) -> usize {
        let wanted = self.engine.prefetch.block;
        if self.fetch_halted || self.bypass {
            0
        } else if self.credit_mode {
            wanted.min(usize::try_from(self.credits).unwrap_or(0))
        } else {
            wanted
        }
    }

    /// Returns the number of descriptors that are executed before the next fetch; 0 if a fetch is due or no descriptor is there.
    #[inline]
    pub(super) fn until_fetch(&self) -> usize {
        self.engine.prefetch.until_fetch(self.fetch_count())
    }

    pub(super) fn may_fetch(&self) -> bool {
        let prefetch = &self.engine.prefetch;
        let count = self.fetch_count();
        !prefetch.ended && count > 0 && prefetch.len() + count <= prefetch.capacity
    }

    /// Returns the number of bytes that the next fetch reads.
    pub(super) fn fetch_bytes(&self) -> u64 {
        (self.fetch_count() * DESCRIPTOR_BYTES) as u64
    }

    /// Reads the next block, or the part of it for which there are credits.
    pub(super) fn fetch<H: HostPort + ?Sized>(
        &mut self,
        rules: EngineOptions,
        lanes: &mut EngineContext<'_, H>,
    ) {
        let count = self.fetch_count();
        let unit = self.unit;
        let prefetch = &mut self.engine.prefetch;
        // A descriptor address has no bits 4:0.
        let start = prefetch.next & !31;
        let before_boundary = (FETCH_BOUNDARY - start % FETCH_BOUNDARY) / DESCRIPTOR_BYTES as u64;
        let readable = usize::try_from(before_boundary).unwrap_or(count).min(count);
        lanes.upstream.counters.descriptor_fetches += 1;
        let Upstream { plan, faults, .. } = &mut lanes.upstream;
        if plan.watches_channels() && plan.fetch_refused(unit, faults) {
            faults.push(FaultKind::DescriptorFetchRefused, unit, start, 0);
            self.engine.prefetch.end(FetchEnd::Refused);
            return;
        }
        let prefetch = &mut self.engine.prefetch;
        let [head, tail] = prefetch.vacant(readable);
        let in_head = head.len();
        let behind = Iova::new(start.wrapping_add(in_head as u64));
        let mut before = 0;
        let mut read = lanes.upstream.read(unit, FaultKind::DescriptorFetchRefused, Iova::new(start), head);
        if read.is_ok() && !tail.is_empty() {
            before = in_head;
            read = lanes.upstream.read(unit, FaultKind::DescriptorFetchRefused, behind, tail);
        }
        // Hardware reads a block in several requests; those before the refused one were answered.
        let arrived = match read {
            Ok(()) => readable,
            Err(Unsupported { arrived }) => ((before + arrived) / DESCRIPTOR_BYTES).min(readable),
        };
        if self.credit_mode {
            self.credits -=
                u32::try_from(count).debug_expect("at most a block").unwrap_or(0).min(self.credits);
        }
        let quirk = rules.long_descriptor_quirk && prefetch.long_seen && prefetch.blocks > 0 && count > 1;
        prefetch.blocks = prefetch.blocks.saturating_add(u32::from(count > 1));
        if quirk && arrived > 0 {
            prefetch.end(FetchEnd::Garbage);
            return;
        }
        prefetch.accept(arrived, rules.long_descriptor_quirk);
        if prefetch.ended {
            return;
        }
        if arrived < readable {
            prefetch.end(FetchEnd::Refused);
        } else if readable < count {
            lanes.upstream.faults.push(
                FaultKind::BlockCrossesPage,
                unit,
                start,
                u32::try_from(count).unwrap_or(0),
            );
            prefetch.end(FetchEnd::Garbage);
        }
    }
}
