//! Clos networks, routing, marks, priorities, trimming, link failures, flow lists and explanations, against calculated results.

use fpga_netsim::explain::{CauseKind, explain, vertex_name};
use fpga_netsim::{
    BitRate, Clos, Flow, Marking, Outage, Report, Routing, Scenario, Simulation, Tier, Topology,
    TopologyError, file,
};
use fpga_protocol::Nanos;

#[expect(clippy::unwrap_used, reason = "a panic is the failure report")]
fn run(scenario: &Scenario) -> Report {
    Simulation::new(scenario).unwrap().run().unwrap()
}

fn observed(mut scenario: Scenario) -> Scenario {
    scenario.observe = true;
    scenario
}

/// 4 leaves of 4 hosts, `up` spines.
#[expect(clippy::unwrap_used, reason = "a panic is the failure report")]
fn leaf_spine(up: u32) -> Scenario {
    let clos = Clos::new(&[Tier::new(4, up), Tier::new(4, 0)]).unwrap();
    Scenario::new(1).congestion(None).topology(Topology::Clos(clos)).rate(BitRate::from_gbps(80))
}

fn failure(from: u32, to: u32) -> Outage {
    Outage {
        from,
        to,
        number: None,
        one_way: false,
        at: Nanos::ZERO,
        length: None,
        period: None,
        times: None,
    }
}

#[test]
fn clos_counts_hosts_switches_and_oversubscription() {
    let rate = BitRate::from_gbps(100);
    // Radix 4: 4^3 / 4 hosts, 8 leaves, 8 aggregation switches, 4 cores.
    let fat = Clos::fat_tree(4, 3).unwrap();
    assert_eq!((fat.hosts(), [0, 1, 2].map(|tier| fat.switches(tier))), (16, [8, 8, 4]));
    // 8 hosts and 2 uplinks of each leaf: 4 times oversubscribed; 4 leaves.
    let tiny = Clos::new(&[Tier::new(8, 2), Tier::new(4, 0)]).unwrap();
    assert_eq!((tiny.hosts(), tiny.switches(0), tiny.switches(1)), (32, 4, 2));
    assert_eq!((tiny.oversubscription(0, rate), tiny.oversubscription(1, rate)), (Some(4.0), None));
    // Bundles: 8 uplinks to 4 spines by 2 links each; 8 ports of a spine for 4 leaves.
    let bundled = Clos::new(&[Tier::new(8, 8), Tier { bundle: 2, ..Tier::new(8, 0) }]).unwrap();
    assert_eq!((bundled.hosts(), bundled.switches(0), bundled.switches(1)), (32, 4, 4));
    assert!(matches!(Clos::fat_tree(5, 3), Err(TopologyError::Radix { found: 5 })));
    assert!(matches!(Clos::new(&[Tier::new(4, 4)]), Err(TopologyError::Tiers { found: 1 })));
    assert!(matches!(
        Clos::new(&[Tier::new(4, 3), Tier { bundle: 2, ..Tier::new(4, 0) }]),
        Err(TopologyError::Bundle { .. })
    ));
    assert!(matches!(Clos::fat_tree(128, 3), Err(TopologyError::Large { .. })));
}

/// 512 bytes in one packet: delays and packet times of each tier in turn.
#[test]
fn clos_single_packet_takes_sum_of_links() {
    let mut spine = Tier::new(2, 0);
    (spine.rate, spine.delay, spine.forwarding) =
        (Some(BitRate::from_gbps(40)), Some(Nanos::new(500)), Nanos::new(30));
    let mut leaf = Tier::new(2, 2);
    (leaf.delay, leaf.forwarding) = (Some(Nanos::new(100)), Nanos::new(20));
    let topology = Topology::Clos(Clos::new(&[leaf, spine]).unwrap());
    let scenario = observed(Scenario::new(1).topology(topology).rate(BitRate::from_gbps(80)));
    let report = run(&scenario.flows(vec![Flow::new(0, 3, 512)]));
    let header = report.hosts[0].bytes - 512;
    let bytes = 512 + header;
    // 80 Gbit/s: 0.1 ns per byte, 40 Gbit/s: 0.2 ns. Links: 100 + 20, 500 + 30, 500 + 20, 100.
    let picos = bytes * (100 + 200 + 200 + 100) + (120 + 530 + 520 + 100) * 1000;
    assert_eq!(report.flows[0].latency(), Some(Nanos::new(picos / 1000)));
    assert_eq!(report.delays[0].ideal, Nanos::new(picos / 1000));
}

#[test]
fn clos_permutation_arrives_with_every_routing() {
    let fat = Topology::Clos(Clos::fat_tree(4, 3).unwrap());
    for topology in [fat, leaf_spine(4).topology, Topology::Tree { arity: 4, levels: 2, up: 4 }] {
        for routing in
            [Routing::Adaptive, Routing::AdaptiveFlow, Routing::Ecmp, Routing::RoundRobin, Routing::Fixed]
        {
            let scenario = Scenario::new(1).topology(topology).routing(routing).permutation(20_000);
            let (report, again) = (run(&scenario), run(&scenario));
            assert_eq!(report.failures(), 0, "{topology}: {routing:?}");
            assert_eq!(report, again, "{topology}: {routing:?}");
        }
    }
}

/// 4 flows leave one leaf over 4 spines: round-robin gives each uplink a quarter; ECMP leaves each flow on one uplink.
#[test]
fn routing_round_robin_spreads_packets_and_ecmp_keeps_flows() {
    let flows: Vec<Flow> = (0..4).map(|host| Flow::new(host, 4 + host, 512 * 100)).collect();
    let uplinks = |routing| {
        let report = run(&observed(leaf_spine(4)).routing(routing).flows(flows.clone()));
        let sent = report.queues.iter().filter(|queue| queue.from == 16 && queue.to >= 20);
        sent.map(|queue| queue.bytes).collect::<Vec<_>>()
    };
    let even = uplinks(Routing::RoundRobin);
    let (least, most) = (even.iter().min().unwrap(), even.iter().max().unwrap());
    assert!(even.len() == 4 && most - least <= 4 * 700, "{even:?}");
    let hashed = uplinks(Routing::Ecmp);
    let flow = hashed.iter().sum::<u64>() / 4;
    assert!(
        hashed.iter().all(|bytes| bytes.abs_diff(flow * ((bytes + flow / 2) / flow)) < 2000),
        "{hashed:?}"
    );
    let kept = uplinks(Routing::AdaptiveFlow);
    assert_eq!(kept.len(), 4, "the first packets find the other uplinks free: {kept:?}");
}

/// Two senders into one port: its queue grows at the rate of one link. 80 Gbit/s are 10 bytes per ns.
#[test]
fn explanation_names_queue_of_incast() {
    let topology = Topology::Clos(Clos::new(&[Tier::new(4, 2), Tier::new(2, 0)]).unwrap());
    let mut scenario =
        observed(Scenario::new(1).congestion(None).topology(topology).rate(BitRate::from_gbps(80)));
    scenario = scenario.queue(1 << 24).flows(vec![Flow::new(0, 3, 70_000), Flow::new(1, 3, 70_000)]);
    scenario.series = Some(Nanos::from_micros(1));
    let report = run(&scenario);
    let explained = explain(&scenario, &report);
    let cause = &explained.causes[0];
    let queue = cause.queue.unwrap();
    assert_eq!((cause.flows, cause.of, queue.from, queue.to, queue.number), (2, 2, 8, 3, 3));
    assert!(matches!(cause.kind, CauseKind::Queue(_)) && queue.dropped == 0 && queue.full == Nanos::ZERO);
    assert!(
        cause.text.starts_with("2 of 2 flows waited up to ")
            && cause.text.contains("leaf 0 port 3 (to host 3)")
    );
    assert_eq!(vertex_name(&scenario.topology, 10), "spine 0");
    // Half of what arrives while both send waits: one flow's bytes at the end, with headers of about 60 bytes.
    assert!((70_000..80_000).contains(&queue.max_bytes), "{queue:?}");
    // A triangle over most of the run: up in the first half, down in the second.
    assert!(queue.mean_bytes * 100 / queue.max_bytes >= 35 && queue.mean_bytes * 100 / queue.max_bytes <= 55);
    let flow = explained.slow[0];
    assert!(flow.delay.waited < flow.time.unwrap() && flow.delay.waited > flow.excess);
    let series = report.series.unwrap();
    assert_eq!((series.queues[0].port, series.truncated), (queue.port, false));
    // 1 us at 10 bytes per ns; the first packets arrive after 1 us, so the fourth sample is 3 us later.
    assert!(series.queues[0].sent[3].abs_diff(10_000) <= 1, "{series:?}");
    assert!((28_000..31_000).contains(&series.queues[0].bytes[3]), "{series:?}");
}

#[test]
fn explanation_of_idle_network_names_nothing() {
    let scenario = observed(leaf_spine(4)).flows(vec![Flow::new(0, 15, 1 << 20)]);
    let report = run(&scenario);
    let explained = explain(&scenario, &report);
    assert_eq!(explained.causes, Vec::new(), "{explained:?}");
    let (time, ideal) = (report.flows[0].latency().unwrap(), report.delays[0].ideal);
    assert!(ideal <= time && time.get() < ideal.get() * 21 / 20, "{time} {ideal}");
}

#[test]
fn marking_threshold_marks_packets_behind_long_queue() {
    let flows = vec![Flow::new(0, 3, 200_000), Flow::new(1, 3, 200_000)];
    let with = |marking| {
        let mut scenario = observed(leaf_spine(4)).queue(1 << 24).flows(flows.clone());
        scenario.marking = marking;
        run(&scenario)
    };
    let marked = |report: &Report| report.flows.iter().map(|flow| flow.marked).sum::<u64>();
    assert_eq!(marked(&with(None)), 0);
    assert_eq!(marked(&with(Some(Marking::threshold(1 << 23)))), 0);
    let all = with(Some(Marking::threshold(0)));
    assert_eq!(marked(&all), all.flows.iter().map(|flow| flow.arrived).sum::<u64>());
    let some = marked(&with(Some(Marking::threshold(50_000))));
    // The queue passes 50 KB when each sender has sent about 50 KB: three quarters of the packets are marked.
    assert!((400..650).contains(&some), "{some} of 782");
    // A ramp from 0 to 400 KB: the mean length of about 100 KB marks a quarter.
    let ramp = marked(&with(Some(Marking { min: 0, max: 400_000 })));
    assert!((120..300).contains(&ramp), "{ramp} of 782");
    let report = with(None);
    assert!(report.flows.iter().all(|flow| flow.max_queueing > Nanos::from_micros(10)));
}

/// Acknowledgements of the reverse flow share the queue with data: with priority they do not wait behind it.
#[test]
fn priorities_deliver_all_and_shorten_answers() {
    // Host 3 gets two flows; host 2 sends to host 0 and its answers come from host 0, which also sends to host 3.
    let flows = vec![Flow::new(0, 3, 400_000), Flow::new(1, 3, 400_000), Flow::new(3, 2, 20_000)];
    let with = |first| {
        let mut scenario = observed(leaf_spine(4)).queue(1 << 24).flows(flows.clone());
        scenario.control_first = first;
        run(&scenario)
    };
    let (plain, first) = (with(false), with(true));
    assert_eq!((plain.failures(), first.failures()), (0, 0));
    // Its acknowledgements come to host 3 through the port that the other flows fill.
    assert!(first.flows[2].completed < plain.flows[2].completed, "{:?} {:?}", first.flows[2], plain.flows[2]);
    assert!(first.flows[2].completed.unwrap() < Nanos::from_micros(12));
    // The port sends the same bytes: the last data packet arrives at the same time but for the answers before it.
    let last = |report: &Report| report.flows.iter().filter_map(|flow| flow.received).max().unwrap();
    assert!(last(&first).get().abs_diff(last(&plain).get()) < 2000);
}

#[test]
fn trimming_replaces_drops_by_requests() {
    let with = |trimming| {
        let mut scenario = observed(leaf_spine(4)).queue(20_000).incast(8, 100_000);
        (scenario.control_first, scenario.trimming) = (true, trimming);
        run(&scenario)
    };
    let (dropped, trimmed) = (with(false), with(true));
    assert_eq!((dropped.failures(), trimmed.failures()), (0, 0), "{:?}", trimmed.flows);
    assert!(dropped.dropped > 0 && dropped.trimmed == 0);
    assert!(
        trimmed.trimmed > 0 && trimmed.dropped < dropped.dropped / 10,
        "{} {}",
        trimmed.dropped,
        trimmed.trimmed
    );
    let timeouts = |report: &Report| report.hosts.iter().map(|host| host.timeouts).sum::<u64>();
    assert!(timeouts(&trimmed) < timeouts(&dropped) / 2, "{} {}", timeouts(&trimmed), timeouts(&dropped));
}

/// A removed link is avoided at once, by the switches before it too; without another route nothing arrives.
#[test]
fn link_failure_is_avoided_or_reported() {
    for routing in
        [Routing::Adaptive, Routing::AdaptiveFlow, Routing::Ecmp, Routing::RoundRobin, Routing::Fixed]
    {
        let mut scenario = observed(leaf_spine(4)).routing(routing).permutation(50_000);
        // Spine 0 to leaf 1: all leaves avoid this spine for hosts 4 to 7.
        scenario.outages = vec![failure(20, 17)];
        let report = run(&scenario);
        assert_eq!((report.failures(), report.cut), (0, 0), "{routing:?}");
        assert!(report.queues.iter().all(|queue| (queue.from, queue.to) != (20, 17)), "{routing:?}");
    }
    let mut alone = observed(leaf_spine(1)).flows(vec![Flow::new(0, 15, 1000)]);
    alone.outages = vec![failure(16, 20)];
    alone.limit = Nanos::from_millis(1);
    let report = run(&alone);
    assert!(report.failures() == 1 && report.cut > 0);
}

/// A link that fails for 10 us of every 20 us, without detection: half of what is sent is lost, and all arrives after retransmission.
#[test]
fn link_flapping_loses_packets_and_is_named() {
    let mut scenario = observed(leaf_spine(1)).flows(vec![Flow::new(0, 15, 400_000)]);
    let mut flap = failure(16, 20);
    (flap.length, flap.period) = (Some(Nanos::from_micros(10)), Some(Nanos::from_micros(20)));
    flap.one_way = true;
    scenario.outages = vec![flap];
    scenario.detection = Nanos::from_micros(10);
    let report = run(&scenario);
    assert_eq!(report.failures(), 0);
    // 400 KB take 43 us: two full failures of 10 us with about 180 packets each, and more that waited.
    assert!((300..2000).contains(&report.cut), "{}", report.cut);
    let explained = explain(&scenario, &report);
    assert!(
        explained.causes[0].text.contains("lost packets on the failed link of leaf 0 port 4 (to spine 0)")
    );
}

/// A link that is 4 times slower from 10 us on takes 4 times as long for the rest.
#[test]
fn link_slow_phase_lasts_as_stated() {
    let mut scenario = observed(leaf_spine(1)).queue(1 << 24).flows(vec![Flow::new(0, 15, 400_000)]);
    let plain = run(&scenario).flows[0].latency().unwrap();
    let mut slow = failure(16, 20);
    (slow.at, slow.times) = (Nanos::from_micros(10), Some(4));
    scenario.outages = vec![slow];
    let slowed = run(&scenario).flows[0].latency().unwrap();
    // The link begins after 1 us and has sent 9 us of it.
    let expected = plain.get() + 3 * (plain.get() - 4000 - 9000);
    assert!(slowed.get().abs_diff(expected) < expected / 20, "{slowed} {expected}");
}

#[test]
fn flow_list_csv_and_matrix_give_same_flows() {
    let csv = "# three flows\nfrom,to,bytes,at_ns\n0,13,2000000,0\n13, 0,5,7\n1,2,3,1\n";
    let matrix = "Nodes 16\nConnections 3\n0->13 start 0 size 2000000\n13->0 id 4 start 7000 size 5\n\n1->2 start 1999 size 3 prio 2\n";
    let flows = file::parse_flows("a.csv", csv, None).unwrap();
    assert_eq!(flows, file::parse_flows("a.cm", matrix, None).unwrap());
    assert_eq!(flows[1], Flow { at: Nanos::new(7), ..Flow::new(13, 0, 5) });
    for (text, named) in [
        ("", "bad:1: the list is empty"),
        ("from,to,bytes\n1,2,3\n", "bad:1: not one column at_ns"),
        ("from,to,bytes,at_ns\n1,2,x,4\n", "bad:2: bytes = x: give a whole number"),
        ("from,to,bytes,at_ns\n1,2,3\n", "bad:2: 3 values: give 4"),
        ("from,to,bytes,at_ns\n1,1,3,0\n", "bad:2: from host 1 to itself"),
        ("from,to,bytes,at_ns\n", "bad:1: no flow follows"),
        ("Nodes 4\n0->1 start 0\n", "bad:2: a connection without start and size"),
        ("0->1 size 4 trigger 3\n", "bad:1: trigger: triggers are not supported"),
        ("Nodes 4\nConnections 2\n0->1 start 0 size 1\n", "bad:2: Connections 2, but the list has 1"),
        ("Nodes 4\nfailure switch_type TOR\n", "bad:2: failures are not read"),
        ("0->1 start -3 size 1\n", "bad:1: start = -3"),
        ("0->1 start 0 size 0\n", "bad:1: 0 bytes"),
        ("0->1 go 0 size 0\n", "bad:1: unknown word go"),
    ] {
        let error = file::parse_flows("bad", text, None).unwrap_err().to_string();
        assert!(error.contains(named), "{text:?}: {error}");
    }
}

/// Any text gives flows or an error with a line: the parser neither panics nor accepts what a scenario refuses.
#[test]
fn flow_list_any_text_is_parsed_or_refused() {
    let words = [
        "0->1",
        "Nodes",
        "Connections",
        "start",
        "size",
        "from,to,bytes,at_ns",
        "1,2,3,4",
        "->",
        "\n",
        " ",
        "9",
        "-1",
        "1e9",
        "id",
        ",",
        "#",
        "é",
        "18446744073709551616",
        "Triggers",
        "0",
        "NaN",
        "inf",
    ];
    let mut state = 1_u64;
    let mut next = |most: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % most
    };
    for _ in 0..20_000 {
        let text: String =
            (0..next(14)).map(|_| [words[next(words.len())], [" ", "\n", ""][next(3)]].concat()).collect();
        match file::parse_flows("any", &text, None) {
            Ok(flows) => {
                assert!(!flows.is_empty() && flows.iter().all(|flow| flow.from != flow.to && flow.length > 0))
            }
            Err(error) => assert!(error.line >= 1 && error.to_string().starts_with("flow list any:")),
        }
    }
}

const CLOS: &str = "schema_version: 1\ntopology: {clos: {tiers: [{down: 8, oversubscription: 4, rate_gbps: 100}, {down: 4, rate_gbps: 100, delay_ns: 500}]}}\n\
    routing: ecmp\necn: {min_bytes: 10, max_bytes: 20}\ncontrol_first: true\ntrimming: true\n\
    link_failures:\n  - {from: 32, to: 36, at_ns: 10, for_ns: 5, every_ns: 20, times: 4, one_way: true}\nreroute_ns: 7\nseries_ns: 1000\n\
    traffic: {permutation: {bytes: 1000}}\n";

#[test]
fn scenario_network_keys_parse_and_run() {
    let scenario = file::parse("clos.yaml", CLOS).unwrap();
    assert_eq!((scenario.topology.hosts(), scenario.topology.to_string()), (32, "clos 8/2 4".to_owned()));
    assert_eq!((scenario.routing, scenario.marking), (Routing::Ecmp, Some(Marking { min: 10, max: 20 })));
    assert!(scenario.control_first && scenario.trimming && scenario.series == Some(Nanos::new(1000)));
    let outage = scenario.outages[0];
    assert_eq!(
        (outage.at, outage.length, outage.period),
        (Nanos::new(10), Some(Nanos::new(5)), Some(Nanos::new(20)))
    );
    assert_eq!((outage.times, outage.one_way, scenario.detection), (Some(4), true, Nanos::new(7)));
    assert_eq!(run(&scenario).failures(), 0);
    for (right, wrong, named) in [
        ("oversubscription: 4", "oversubscription: 3", "oversubscription 3 gives 800/300 ports"),
        ("oversubscription: 4", "oversubscription: 4, up: 2", "give one of them"),
        ("oversubscription: 4, ", "", "give up or oversubscription"),
        ("{down: 4, rate", "{down: 4, up: 3, rate", "highest tier"),
        ("{clos: {tiers", "{fat-tree: {radix: 7}, clos: {tiers", "not one topology"),
        ("max_bytes: 20", "max_bytes: 5", ":4:1: ecn: ECN marks begin above"),
        (", max_bytes: 20", "", ":4:1: ecn: give threshold_bytes"),
        ("to: 36", "to: 99", ":8:3: link_failures[0]: link failure 0: there is no such link from 32 to 99"),
        ("every_ns: 20", "every_ns: 4", "at most the period"),
        ("control_first: true", "control_first: false", ":6:1: trimming: trimming needs"),
        ("series_ns: 1000", "series_ns: 0", "series_ns"),
        ("routing: ecmp", "routing: magic", "round-robin"),
    ] {
        assert!(CLOS.contains(right));
        let error = file::parse("wrong.yaml", &CLOS.replacen(right, wrong, 1)).unwrap_err().to_string();
        assert!(error.contains(named), "{wrong}: {error}");
    }
}

#[test]
fn scenario_flow_file_is_relative_and_checked() {
    let folder = std::env::temp_dir().join(format!("netsim-flows-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let text = "schema_version: 1\ntopology: {fat-tree: {radix: 4}}\ntraffic: {file: flows.cm}\n";
    let name = folder.join("one.yaml").display().to_string();
    let mut found = Vec::new();
    for list in
        ["Nodes 16\n0->15 start 0 size 9\n", "Nodes 17\n0->15 start 0 size 9\n", "0->16 start 0 size 9\n"]
    {
        std::fs::write(folder.join("flows.cm"), list).unwrap();
        found
            .push(file::parse(&name, text).map(|scenario| scenario.flows).map_err(|error| error.to_string()));
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(found[0], Ok(vec![Flow::new(0, 15, 9)]));
    assert!(
        found[1]
            .as_ref()
            .is_err_and(|error| error.contains("flows.cm:1: 17 nodes, but the topology has 16 hosts"))
    );
    assert!(
        found[2]
            .as_ref()
            .is_err_and(|error| error.contains("flows.cm:1: host 16, but the topology has hosts 0 to 15"))
    );
    let missing = file::parse(&name, text).unwrap_err().to_string();
    assert!(missing.contains("flow list ") && missing.contains("cannot read it"), "{missing}");
}
