//! Senders that restart repeatedly while packets of earlier incarnations are in flight.

use crate::messages::net::{KEY, Memory, Net, node_id, write};
use crate::messages::{all_rules, configs, node};
use fpga_firmware::event::EventKind;
use fpga_firmware::generated::Permissions;
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_netmodel::{Conditions, Delay, Impairments, Loss, Probability};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::MemoryWindow;
use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::scheme::messages::{Receiver, Sender};
use fpga_protocol::scheme::traits::{Action, Header, SchemeReceiver, SchemeSender};
use fpga_protocol::sender::SendFailure;
use fpga_registers::CardAddr;

/// Maximum time of a packet in the network, copies included.
const PACKET_LIFETIME: Nanos = Nanos::from_micros(120);
const LENGTH: usize = 700;

/// Each incarnation sends other bytes to the same address. Every other one is aborted at some moment; the data of the others must arrive
/// and stay. Returns the number of violations, and the number of messages given up for a newer incarnation.
fn incarnations(lifetime: Nanos, count: u32, seed: u64) -> (u64, u64) {
    let chance = |fraction| Probability::new(fraction).unwrap();
    let most = PACKET_LIFETIME.saturating_sub(Nanos::from_micros(2));
    let conditions = Conditions::default()
        .loss(Loss::Independent(chance(0.05)))
        .delay(Delay::Uniform { least: Nanos::ZERO, most: Nanos::from_micros(30) })
        .copies(
            chance(0.3),
            Delay::Uniform { least: Nanos::ZERO, most: most.saturating_sub(Nanos::from_micros(30)) },
        );
    let impairments = Impairments::both(conditions).distance(Nanos::from_micros(2));
    let (mut spoilt, mut given_up) = (0, 0);
    for rules in all_rules() {
        let nodes = [0, 1].map(|at| {
            let (sender, mut receiver) = configs(rules, at);
            receiver.lifetime = lifetime;
            node(sender, receiver)
        });
        let mut net = Net::new(nodes, &impairments, seed);
        let mut dice = seed;
        for number in 1..=count {
            let incarnation = Incarnation::new(0x2000 + number);
            net.nodes[0].sender = Sender::new(configs(rules, 0).0, incarnation).unwrap();
            net.nodes[0].completions.clear();
            net.nodes[1].events.clear();
            let byte = u8::try_from(number % 255 + 1).unwrap();
            net.nodes[0].memory.0[..LENGTH].fill(byte);
            net.nodes[0].sender.submit(net.now, write(1, 0, 0, LENGTH as u64)).unwrap();
            if number % 2 == 1 {
                dice = dice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                let until = net.now.saturating_add(Nanos::new((dice >> 33) % 400_000));
                net.run(|net| net.now >= until);
                continue;
            }
            assert!(net.run(|net| net.nodes[0].completions.len() == 1), "{rules:?}");
            let notices = net.nodes[1].events.iter().filter(|event| {
                event.kind == EventKind::Notice
                    && (event.node, event.incarnation) == (node_id(0), incarnation)
            });
            let succeeded = net.nodes[0].completions[0].result == Ok(()) && notices.count() == 1;
            // All packets in flight arrive and change nothing.
            net.drain();
            let stays = net.nodes[1].memory.0[..LENGTH] == net.nodes[0].memory.0[..LENGTH];
            spoilt += u64::from(!(succeeded && stays));
        }
        given_up += net.nodes[1].receiver.counters().abandoned;
    }
    (spoilt, given_up)
}

#[test]
fn incarnation_former_packets_never_overwrite_newer_data() {
    let results = (0..8).map(|seed| incarnations(PACKET_LIFETIME, 60, seed));
    let (spoilt, given_up) = results.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert_eq!(spoilt, 0);
    assert!(given_up > 100, "{given_up}");
}

/// The order of incarnations decides, not a packet lifetime that the receiver assumes.
#[test]
fn incarnation_former_packets_never_overwrite_without_packet_lifetime() {
    let spoilt: u64 = (0..8).map(|seed| incarnations(Nanos::ZERO, 60, seed).0).sum();
    assert_eq!(spoilt, 0);
}

/// A packet with its payload.
type Sent = (Header, Vec<u8>);

/// A receiver, and the senders of its peer's incarnations one after the other.
struct TestBed {
    rules: SchemeConfig,
    receiver: Receiver,
    memory: Memory,
    now: Nanos,
}

/// Two packets of 64 bytes and one of 22.
const SHORT: usize = 150;

impl TestBed {
    fn new(rules: SchemeConfig) -> Self {
        let (_, mut config) = configs(rules, 1);
        config.peers = 8;
        let mut receiver = Receiver::new(config).unwrap();
        let window = MemoryWindow {
            source: NodeId::ANY,
            base: CardAddr::new(0),
            length: 1 << 16,
            key: KEY,
            permissions: Permissions::WRITE,
        };
        receiver.access_mut().install(0, window).unwrap();
        Self { rules, receiver, memory: Memory(vec![0; 1 << 16]), now: Nanos::ZERO }
    }

    /// Delivers a packet. Returns the answers.
    fn deliver(&mut self, (header, payload): &Sent) -> Vec<Header> {
        self.receiver.handle_packet(self.now, header, payload, &mut self.memory);
        let actions = std::iter::from_fn(|| self.receiver.poll_action());
        actions
            .filter_map(|action| if let Action::Send(header) = action { Some(header) } else { None })
            .collect()
    }

    fn advance(&mut self, span: Nanos) {
        self.now = self.now.saturating_add(span);
        while self.receiver.poll_timeout().is_some_and(|due| due <= self.now) {
            self.receiver.handle_timeout(self.now);
            while self.receiver.poll_action().is_some() {}
        }
    }

    /// Runs a transfer of `byte`s without loss, of which `limit` packets arrive. `late` is delivered after packet number `at`.
    /// Returns all packets sent, and whether the transfer succeeded.
    fn run(
        &mut self,
        number: u32,
        byte: u8,
        limit: usize,
        (at, late): (usize, &[&Sent]),
    ) -> (Vec<Sent>, bool) {
        let mut sender = Sender::new(configs(self.rules, 0).0, Incarnation::new(number)).unwrap();
        sender.submit(self.now, write(1, 0, 0, SHORT as u64)).unwrap();
        let (mut sent, mut delivered) = (Vec::new(), 0);
        for _ in 0..1000 {
            while let Some(departure) = sender.poll_packet(self.now) {
                sent.push((departure.header, vec![byte; departure.payload as usize]));
            }
            if let Some(completion) = sender.poll_completion() {
                return (sent, completion.result == Ok(()));
            }
            if delivered == limit {
                return (sent, false);
            }
            if delivered < sent.len() {
                let mut answers = self.deliver(&sent[delivered]);
                delivered += 1;
                if delivered == at {
                    answers.extend(late.iter().flat_map(|packet| self.deliver(packet)));
                }
                answers.iter().for_each(|answer| sender.handle_packet(self.now, answer));
                continue;
            }
            let due = sender.poll_timeout().into_iter().chain(self.receiver.poll_timeout()).min().unwrap();
            self.advance(due.saturating_sub(self.now));
            sender.handle_timeout(self.now);
        }
        panic!("no end in sight");
    }
}

/// Every copy and every pair of copies of an earlier incarnation's packets, at every moment of the later one's transfer and at any age
/// after it, whatever part of the earlier transfer had arrived. Returns the numbers of cases and of failures.
fn delayed_duplicates(rules: SchemeConfig, numbers: [u32; 2]) -> (u32, u32) {
    let (mut cases, mut failures) = (0, 0);
    let all = TestBed::new(rules).run(numbers[0], 1, usize::MAX, (0, &[])).0;
    let ages = [Nanos::ZERO, Nanos::from_millis(40), Nanos::from_secs(10), Nanos::from_secs(86_400)];
    for arrived in 0..=all.len() {
        let mut former = TestBed::new(rules);
        let (packets, _) = former.run(numbers[0], 1, arrived, (0, &[]));
        let count = packets.len();
        for gap in ages {
            for (one, two) in (0..count).flat_map(|one| (0..=count).map(move |two| (one, two))) {
                let late: Vec<&Sent> = [packets.get(one), packets.get(two)].into_iter().flatten().collect();
                let begin = || {
                    let mut bed = TestBed::new(rules);
                    bed.run(numbers[0], 1, arrived, (0, &[]));
                    bed.advance(gap);
                    bed
                };
                for at in 1..=all.len() {
                    let mut bed = begin();
                    let (_, succeeded) = bed.run(numbers[1], 2, usize::MAX, (at, &late));
                    failures += u32::from(!succeeded || bed.memory.0[..SHORT] != [2; SHORT]);
                    cases += 1;
                }
                for age in ages {
                    let mut bed = begin();
                    let (_, succeeded) = bed.run(numbers[1], 2, usize::MAX, (0, &[]));
                    bed.advance(age);
                    late.iter().for_each(|packet| drop(bed.deliver(packet)));
                    failures += u32::from(!succeeded || bed.memory.0[..SHORT] != [2; SHORT]);
                    cases += 1;
                }
            }
        }
    }
    (cases, failures)
}

#[test]
fn incarnation_delayed_duplicates_of_earlier_one_change_nothing_at_any_age() {
    let mut cases = 0;
    for rules in all_rules() {
        for numbers in [[1, 2], [u32::MAX, 1]] {
            let (more, failures) = delayed_duplicates(rules, numbers);
            assert_eq!(failures, 0, "{rules:?} {numbers:?}");
            cases += more;
        }
    }
    println!("{cases} cases");
    assert!(cases > 10_000, "{cases}");
}

/// The later run has an earlier number: it is refused until it gives up.
#[test]
fn incarnation_out_of_order_is_told_newest_known_one() {
    for rules in all_rules() {
        let mut bed = TestBed::new(rules);
        assert!(bed.run(9, 1, usize::MAX, (0, &[])).1);
        bed.advance(Nanos::from_secs(86_400));
        let mut sender = Sender::new(configs(rules, 0).0, Incarnation::new(8)).unwrap();
        sender.submit(bed.now, write(1, 0, 0, SHORT as u64)).unwrap();
        let departure = sender.poll_packet(bed.now).unwrap();
        let answers = bed.deliver(&(departure.header, vec![2; departure.payload as usize]));
        answers.iter().for_each(|answer| sender.handle_packet(bed.now, answer));
        let newest = Incarnation::new(9);
        let result = sender.poll_completion().unwrap().result;
        assert!(
            matches!(result, Err(SendFailure::Superseded { newest: found, .. }) if found == newest),
            "{result:?}"
        );
        assert_eq!(bed.receiver.counters().superseded, 1);
        assert!(bed.memory.0[..SHORT] == [1; SHORT]);
    }
}
