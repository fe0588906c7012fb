//! Descriptors in a row: what a channel does when it is given more than one unit of work at a time.
//!
//! Most descriptors are plain: right magic, neither Stop nor fixed address, a moderate length within one page of card
//! memory. Runs of them are executed here without the detours that the others need; whatever is not plain falls back
//! to `engine`, one unit at a time, in the same order and with the same effects.

use super::channel::{Channel, control, status};
use super::engine::{COMPLETED, Flight, Rules};
use super::prefetch::{MAGIC, STOP};
use crate::fault_log::FaultKind;
use crate::host::HostPort;
use crate::link::Lanes;
use crate::memory::PAGE;
use fpga_registers::Iova;
use fpga_registers::xdma::Direction;

/// Longest plain descriptor.
const PLAIN_LENGTH: u32 = 4096;
/// A turn ends when this many bytes were moved: channels share one AXI port, and a long transfer must not keep short
/// ones waiting for longer than one unit of it.
const TURN_BYTES: u64 = PAGE as u64;

impl Channel {
    /// Up to `most` units of work, in the order and with the effects of as many single ones. Returns how many.
    pub(crate) fn work<H: HostPort + ?Sized>(
        &mut self,
        rules: Rules,
        lanes: &mut Lanes<'_, H>,
        most: u32,
    ) -> u32 {
        let moved = |lanes: &Lanes<'_, H>| lanes.counters.h2c_bytes.wrapping_add(lanes.counters.c2h_bytes);
        let start = moved(lanes);
        let mut done = 0;
        while done < most && moved(lanes).wrapping_sub(start) < TURN_BYTES {
            // Starting over clears the status, which somebody has to have seen.
            let undisturbed = self.engine.undisturbed();
            if undisturbed {
                let plain = self.plain_run(rules, lanes, most - done);
                if plain > 0 {
                    done += plain;
                    continue;
                }
            }
            if !self.unit(rules, lanes) {
                break;
            }
            done += 1;
            if !undisturbed {
                break;
            }
        }
        done
    }

    /// Executes plain descriptors from the head of the buffer: at most `most`, and none beyond the point where the
    /// next block is to be fetched first.
    fn plain_run<H: HostPort + ?Sized>(&mut self, rules: Rules, lanes: &mut Lanes<'_, H>, most: u32) -> u32 {
        const PLAIN: u32 = 0xFFFF << 16 | STOP;
        if self.engine.flight.is_some() || self.control & control::NON_INCREMENTING != 0 || !lanes.bus_master
        {
            return 0;
        }
        let most = most.min(u32::try_from(self.until_fetch()).unwrap_or(u32::MAX));
        let counting = self.performance.is_counting();
        let mut done = 0;
        let mut bytes = 0;
        let mut refused = None;
        while done < most && bytes < TURN_BYTES {
            let Some(fetched) = self.engine.prefetch.front() else { break };
            if fetched.control & PLAIN != MAGIC << 16 || fetched.length.wrapping_sub(1) >= PLAIN_LENGTH {
                break;
            }
            let length = usize::try_from(fetched.length).unwrap_or(0);
            match self.direction {
                Direction::H2c => {
                    let Some(into) = lanes.space.plain_mut(fetched.destination, length) else { break };
                    if let Err(fault) = lanes.host.read(Iova::new(fetched.source), into) {
                        refused = Some((fetched, fault));
                        break;
                    }
                }
                Direction::C2h => {
                    let Some(from) = lanes.space.plain(fetched.source, length) else { break };
                    if let Err(fault) = lanes.host.write(Iova::new(fetched.destination), from) {
                        lanes.faults.push(FaultKind::HostWriteLost, self.unit, fault.at.get(), 0);
                    }
                }
            }
            self.engine.prefetch.drop_front();
            done += 1;
            bytes += u64::from(fetched.length);
            if counting {
                self.performance.count(length, self.engine.width_bytes);
            }
            self.completed = self.completed.wrapping_add(1);
            if fetched.control & COMPLETED != 0 {
                self.announce(rules, lanes);
            }
        }
        lanes.counters.descriptors += u64::from(done);
        match self.direction {
            Direction::H2c => lanes.counters.h2c_bytes += bytes,
            Direction::C2h => lanes.counters.c2h_bytes += bytes,
        }
        if let Some((fetched, fault)) = refused {
            self.engine.prefetch.drop_front();
            done += 1;
            lanes.faults.push(FaultKind::HostReadRefused, self.unit, fault.at.get(), 0);
            let length = usize::try_from(fetched.length).unwrap_or(0);
            let moved = Err(status::READ_UNSUPPORTED);
            self.settle(Flight::new(&fetched, false), length, moved, rules, lanes);
        }
        done
    }
}
