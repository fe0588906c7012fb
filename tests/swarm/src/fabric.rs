//! Network of a world: an impaired link for each pair of nodes, cuts, and trimmed packets. It heals at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use fpga_firmware::generated::PacketKind;
use fpga_firmware::wire::{self, AnswerBody, Control, Packet};
use fpga_netmodel::{
    BitRate, Bursts, Class, Conditions, Delay, Frame as _, ImpairedLink, Impairments, Loss, Order,
    Probability, Rate,
};
use fpga_protocol::Nanos;
use fpga_sim::Fabric;

use crate::choices::{Choices, Trace, mix};
use crate::coverage::Coverage;
use crate::plan::{Fault, PATIENCE, Plan, QUEUE};

/// Maximum number of frames on a link.
const LINK_FRAMES: usize = 512;
/// First bytes of a frame's node numbers.
const SOURCE_AT: usize = 4;
const DESTINATION_AT: usize = 8;

/// Network of a world; clones are the same network.
#[derive(Clone, Debug)]
pub(crate) struct Wires(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    plan: Plan,
    /// Links before the world heals, by sender and receiver.
    links: BTreeMap<(usize, usize), ImpairedLink<Vec<u8>>>,
    /// Links afterwards.
    clean_links: BTreeMap<(usize, usize), ImpairedLink<Vec<u8>>>,
    /// Number of reasons for which no frames pass from one node to another.
    cuts: BTreeMap<(usize, usize), u32>,
    is_healed: bool,
    /// Time of the next delivery.
    next: Option<Nanos>,
    frames: usize,
    trims: Choices,
    trace: Trace,
    coverage: Coverage,
}

impl Wires {
    /// Creates the network of a plan.
    #[must_use]
    pub(crate) fn new(plan: &Plan) -> Self {
        Self(Arc::new(Mutex::new(State {
            plan: plan.clone(),
            links: BTreeMap::new(),
            clean_links: BTreeMap::new(),
            cuts: BTreeMap::new(),
            is_healed: false,
            next: None,
            frames: 0,
            trims: Choices::new(mix(plan.seed ^ 0x7419)),
            trace: Trace::default(),
            coverage: Coverage::default(),
        })))
    }

    fn with<T>(&self, access: impl FnOnce(&mut State) -> T) -> T {
        access(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins or ends a cut or a partition.
    pub(crate) fn change(&self, fault: Fault, begins: bool) {
        match fault {
            Fault::Cut { from, to } => self.cut(from, to, begins),
            Fault::Partition { below } => {
                let nodes = self.with(|state| state.plan.nodes);
                for (from, to) in (0..below).flat_map(|one| (below..nodes).map(move |two| (one, two))) {
                    self.cut(from, to, begins);
                    self.cut(to, from, begins);
                }
            }
            Fault::Pause { .. } | Fault::Restart { .. } | Fault::Removal { .. } => {}
        }
    }

    /// Stops or continues frames from one node to another. Cuts are counted.
    fn cut(&self, from: usize, to: usize, is_cut: bool) {
        self.with(|state| {
            let count = state.cuts.entry((from, to)).or_default();
            *count = if is_cut { *count + 1 } else { count.saturating_sub(1) };
        });
    }

    /// Ends all cuts and impairments for frames that are sent from now on.
    pub(crate) fn heal(&self) {
        self.with(|state| {
            state.is_healed = true;
            state.cuts.clear();
        });
    }

    /// Takes the hash of all frames, and the counts of states that frames show.
    pub(crate) fn finish(&self) -> (Trace, Coverage) {
        self.with(|state| (state.trace, std::mem::take(&mut state.coverage)))
    }
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn share(thousandths: u64) -> Probability {
    Probability::new(thousandths as f64 / 1000.0).unwrap_or(Probability::NEVER)
}

fn link(plan: &Plan, from: usize, to: usize, is_healed: bool) -> ImpairedLink<Vec<u8>> {
    let seed = mix(plan.seed ^ mix((from * 64 + to) as u64));
    let distance = Nanos::new(plan.hop.get() * plan.hops(from, to));
    let mut impairments = Impairments::default().distance(distance);
    if !is_healed {
        let planned = &plan.conditions;
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let loss = match planned.burst {
            0 => Loss::Independent(share(planned.loss)),
            length => Bursts::of(planned.loss as f64 / 1000.0, length as f64)
                .map_or(Loss::Independent(share(planned.loss)), Loss::Bursts),
        };
        let delay = if planned.delay == Nanos::ZERO {
            Delay::default()
        } else {
            Delay::Uniform { least: Nanos::ZERO, most: planned.delay }
        };
        let conditions = Conditions::default()
            .loss(loss)
            .delay(delay)
            .copies(share(planned.copies), delay)
            .damage(share(planned.damage));
        impairments = Impairments::both(conditions).distance(distance);
        if planned.disorder > 1 {
            impairments = impairments.order(Order::Random { depth: planned.disorder, patience: PATIENCE });
        }
        // Every third link is slow.
        if planned.slow > 0 && seed.is_multiple_of(3) {
            impairments = impairments
                .rate(Rate { rate: BitRate::new(planned.slow.saturating_mul(1_000_000)), queue: QUEUE });
            if planned.marks {
                impairments = impairments.mark_after(Nanos::from_micros(20));
            }
        }
    }
    // The depth was checked against the capacity: the link exists.
    ImpairedLink::new(impairments, LINK_FRAMES, seed).unwrap_or_else(|error| unreachable!("{error}"))
}

impl State {
    fn next_delivery(&self) -> Option<Nanos> {
        let links = self.links.values().chain(self.clean_links.values());
        links.filter_map(ImpairedLink::poll_timeout).min()
    }

    fn offer(&mut self, now: Nanos, sender: usize, mut frame: Vec<u8>) {
        let word = |at: usize| {
            frame.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
        };
        let to = (word(DESTINATION_AT) as usize).wrapping_sub(1);
        debug_assert_eq!(word(SOURCE_AT) as usize, sender + 1, "cards send their own frames");
        let kind = frame.get(1).copied().unwrap_or(0);
        self.trace.add(&[now.get(), sender as u64, to as u64, kind.into(), frame.len() as u64]);
        self.coverage.count("frames", 1);
        if kind == PacketKind::Nack as u8 || kind == PacketKind::MessageAnswer as u8 {
            self.count_answer(&frame);
        }
        if to >= self.plan.nodes {
            return;
        }
        if self.cuts.get(&(sender, to)).is_some_and(|count| *count > 0) {
            self.coverage.count("frames cut", 1);
            return;
        }
        if let Some((target, share)) = self.plan.conditions.target
            && !self.is_healed
            && kind == target
            && self.trims.below(1000) < share
        {
            self.coverage.count("frames of the targeted kind lost", 1);
            return;
        }
        let trims = self.plan.conditions.trims;
        if trims > 0
            && !self.is_healed
            && frame.class() == Class::Data
            && self.trims.below(1000) < trims
            && let Some(length) = wire::trim(&mut frame)
        {
            frame.truncate(length);
            self.coverage.count("frames trimmed", 1);
        }
        let links = if self.is_healed { &mut self.clean_links } else { &mut self.links };
        let (plan, is_healed) = (&self.plan, self.is_healed);
        let link = links.entry((sender, to)).or_insert_with(|| link(plan, sender, to, is_healed));
        let before = link.len();
        // A full link drops the frame.
        let _ = link.offer(now, frame);
        self.frames += link.len() - before;
        let due = link.poll_timeout();
        self.next = [self.next, due].into_iter().flatten().min();
    }

    /// Counts the reason of a refusal.
    fn count_answer(&mut self, frame: &[u8]) {
        match Packet::parse(frame) {
            Ok(Packet::Control(Control::Nack(nack))) => {
                self.coverage.count(&format!("refused {:?}", nack.reason), 1);
            }
            Ok(Packet::Message(message)) => {
                let Ok((wire::Message::Answer(answer), _)) = message.read() else { return };
                match answer.body {
                    AnswerBody::Refused(reason, ..) => {
                        self.coverage.count(&format!("message refused {reason:?}"), 1)
                    }
                    AnswerBody::Superseded(_) => self.coverage.count("message refused Superseded", 1),
                    AnswerBody::Resend { .. } => self.coverage.count("message resend", 1),
                    AnswerBody::Limit { .. } => self.coverage.count("message limit", 1),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn poll(&mut self, now: Nanos) -> Option<(usize, Vec<u8>)> {
        if self.next.is_none_or(|next| next > now) {
            return None;
        }
        let links = self.links.iter_mut().chain(&mut self.clean_links);
        let mut due = links.filter(|(_, link)| link.poll_timeout().is_some_and(|next| next <= now));
        let found = due.find_map(|((from, _), link)| link.poll(now).map(|frame| (*from, frame, link.len())));
        drop(due);
        self.frames = self.links.values().chain(self.clean_links.values()).map(ImpairedLink::len).sum();
        if found.is_none() {
            // A link's time may be too early.
            self.next = self.next_delivery().map(|next| next.max(now.saturating_add(Nanos::new(1))));
        }
        found.map(|(from, frame, _)| (from, frame))
    }
}

impl Fabric for Wires {
    fn offer(&mut self, now: Nanos, sender: usize, frame: Vec<u8>) {
        self.with(|state| state.offer(now, sender, frame));
    }

    fn poll(&mut self, now: Nanos) -> Option<(usize, Vec<u8>)> {
        self.with(|state| state.poll(now))
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.with(|state| state.next)
    }

    fn in_flight(&self) -> usize {
        self.with(|state| state.frames)
    }
}
