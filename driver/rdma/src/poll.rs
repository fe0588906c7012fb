//! Polling: events, retransmissions, transmit windows and completions, in this order.

use fpga_firmware::event::{EventKind, FaultReason};
use fpga_firmware::generated::ni as at;
use fpga_protocol::Nanos;

use super::{Endpoint, EndpointError, Notification, SendCompletion, SendFailure, incarnation};
use fpga_driver::Error;
use fpga_driver::extension::At as _;

impl Endpoint {
    /// Takes events, fills transmit windows and retransmits packets that are due. Returns the amount of work done; 0 means that there is
    /// nothing to do until the card acts.
    ///
    /// # Errors
    /// See [`EndpointError`]: the endpoint has failed; drop it and open another.
    pub fn poll(&mut self) -> Result<usize, Error<EndpointError>> {
        self.poll_once().at(|| self.place())
    }

    pub(super) fn poll_once(&mut self) -> Result<usize, EndpointError> {
        self.card.check_process()?;
        if let Some(error) = &self.health.failed {
            return Err(error.clone());
        }
        self.health.counters.turns += 1;
        let now = self.time();
        self.step(now)
            .and_then(|work| self.check_presence(now, work > 0).map(|()| work))
            .inspect_err(|error| self.health.failed = Some(error.clone()))
    }

    fn step(&mut self, now: Nanos) -> Result<usize, EndpointError> {
        let mut work = self.take_events(now)?;
        if work == 0 && now < self.next_poll {
            return Ok(0);
        }
        // After the events: an answer that has already arrived prevents the timeout, even after a long time without a poll.
        self.sender.handle_timeout(now);
        self.retry_queries(now)?;
        work += self.poll_reads(now)?;
        if self.quiet_until.is_none_or(|until| until <= now) {
            self.quiet_until = None;
            work += self.transmit.fill_windows(now, &mut self.sender)?;
        }
        let mut is_complete = true;
        while let Some(completion) = self.sender.poll_completion() {
            self.transmit.sources.ended(completion.source);
            let completion = SendCompletion::of(completion);
            self.peers.invalidate(&completion);
            if let Err(SendFailure::Superseded { newest, .. }) = completion.result {
                incarnation::raise(newest, &self.settings.state_files);
            }
            if !self.take_internal(now, &completion)? {
                self.queues.completions.push_back(completion);
            }
            // Its end may let another transfer begin.
            is_complete = false;
            work += 1;
        }
        self.next_poll = if is_complete { self.next_poll_time(now) } else { Nanos::ZERO };
        Ok(work)
    }

    fn take_events(&mut self, now: Nanos) -> Result<usize, EndpointError> {
        let (mut count, mut at_once) = (0, false);
        self.events.refresh()?;
        while let Some(event) = self.events.take()? {
            count += 1;
            if self.sender.handle_event(now, &event) {
                continue;
            }
            match event.kind {
                EventKind::WindowFree => {
                    self.transmit.window_free(event.index, now)?;
                    let ni = &self.ni;
                    // If the card does not accept the write, it is gone, which the next access reports.
                    self.transmit.repeat_cancels(|number| {
                        let _ = ni.write(at::COMMAND_CANCEL, number);
                    });
                }
                EventKind::Hello => self.peers.answer(&event),
                EventKind::Notice => {
                    let notification = Notification::of(&event);
                    if !self.take_arrival(now, &notification)? {
                        self.health.counters.notifications += 1;
                        self.queues.notifications.push_back(notification);
                    }
                }
                EventKind::Fault => {
                    self.health.counters.faults += 1 + u64::from(event.generation);
                    at_once = true;
                    if event.fault_reason() == Some(FaultReason::EventLost) {
                        // The lost events may include released windows and completed entries: credits and mirror stay wrong permanently.
                        return Err(self.events.overflowed(event.count));
                    }
                    self.health.counters.faults_dropped +=
                        self.health.faults.record(now, self.card.name(), event);
                }
                EventKind::Dropped => {
                    at_once = true;
                    self.receiving.resync.restart();
                    // Never an error: the event marks the mirror as stale.
                    let _ = self.receiving.mirror.handle_event(&event);
                }
                _ => {
                    if self.receiving.resync.is_resync_complete(self.events.taken()) {
                        self.receiving.mirror.end_resync();
                    }
                    self.note_segment(&event);
                    if let Err(error) = self.receiving.mirror.handle_event(&event) {
                        self.health.counters.faults_dropped +=
                            self.health.faults.record_mirror(now, self.card.name(), error);
                    }
                }
            }
        }
        if count > 0 {
            self.health.counters.events += count as u64;
            // The NI reports no further fault of the same reason before the first one is consumed, and no table event before a Dropped
            // event is.
            self.events.release(&self.ni, at_once)?;
        }
        if self.receiving.mirror.is_stale() {
            self.resynchronise()?;
        }
        Ok(count)
    }
}
