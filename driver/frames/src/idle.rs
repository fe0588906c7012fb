//! What a loop does that polls in vain.

use std::time::Duration;

use fpga_driver::Endpoint;

/// So many looks in vain come first: what is on its way through a card needs some microseconds, and whoever sleeps gets it later.
const LOOKS: u32 = 200;
/// From so many on, whoever waits for this processor gets it in between. It may be the very thread that is waited for: three threads on two
/// processors that only look would each lose the processor for a time slice of some milliseconds, again and again.
const EAGER: u32 = 16;
/// Then this thread sleeps between two looks, so that a stream that waits costs little.
const PAUSE: Duration = Duration::from_micros(50);

/// How long nothing has happened, in looks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Idle {
    looks: u32,
}

impl Idle {
    /// There was so much to do at a look.
    pub(crate) const fn saw(&mut self, work: usize) {
        if work > 0 {
            self.looks = 0;
        }
    }

    pub(crate) fn rest(&mut self, endpoint: &Endpoint) {
        if self.looks < LOOKS {
            self.looks += 1;
            endpoint.relax();
            if self.looks > EAGER {
                std::thread::yield_now();
            }
        } else {
            endpoint.card().pause(PAUSE);
        }
    }
}
