//! Scenarios as YAML: accepted files, and the errors for refused ones.

use fpga_netmodel::{Delay, Loss, Order};
use fpga_netsim::scheme::Rules;
use fpga_netsim::{BitRate, PlainSwitch, Scheme, Simulation, Topology, file};
use fpga_protocol::Nanos;
use fpga_protocol::scheme::any::SchemeConfig;

const WHOLE: &str = "\
schema_version: 1
scheme: receiver-window
topology: {torus: {side: 3}}
rate_gbps: 80
delay_ns: 800
queue_bytes: 65536
packet_bytes: 1024
seed: 7
limit_ns: 1000000000
round_trip_ns: 5000
contexts: 8
traffic:
  flows:
    - {from: 0, to: 5, bytes: 100000, at_ns: 50}
    - {from: 5, to: 0, bytes: 1}
data: {loss: 0.01, duplicate: 0.001, corrupt: 0.0001, jitter_ns: 300}
control: {loss: 0.02}
disorder: {degree: 8, patience_ns: 4000}
window: 64
credit: true
";

#[test]
fn scenario_full_file_parses() {
    let scenario = file::parse("whole.yaml", WHOLE).unwrap();
    assert_eq!((scenario.scheme, scenario.topology), (Scheme::ReceiverWindow, Topology::Torus { side: 3 }));
    assert_eq!((scenario.rate, scenario.delay), (BitRate::from_gbps(80), Nanos::new(800)));
    assert_eq!((scenario.queue, scenario.seed, scenario.contexts), (65536, 7, Some(8)));
    assert_eq!((scenario.flows.len(), scenario.flows[0].at), (2, Nanos::new(50)));
    assert_eq!(scenario.sender.packet_size_log2, 10);
    let Some(Rules::Card(SchemeConfig::ReceiverWindow(config))) = scenario.rules else {
        panic!("{:?}", scenario.rules)
    };
    assert!(config.credit && config.window == 64 && config.hole_timeout == Nanos::from_micros(10));
    let report = Simulation::new(&scenario).unwrap().run().unwrap();
    assert_eq!(report.failures(), 0, "{report:?}");
}

#[test]
fn scenario_minimal_file_parses() {
    for scheme in ["registry", "sender-window", "receiver-counter", "adaptive-window", "selective"] {
        let text =
            format!("schema_version: 1\nscheme: {scheme}\ntraffic: {{permutation: {{bytes: 3000}}}}\n");
        let scenario = file::parse("small.yaml", &text).unwrap();
        assert_eq!(scenario.topology, Topology::PointToPoint);
        assert_eq!(Simulation::new(&scenario).unwrap().run().unwrap().failures(), 0);
    }
    let text = "schema_version: 1\ntopology: {tree: {arity: 5, levels: 1}}\ntraffic: {incast: {senders: 4, bytes: 9}}";
    assert_eq!(file::parse("incast.yaml", text).unwrap().flows.len(), 4);
}

/// With a controller, links report their load, and rates change.
#[test]
fn scenario_controller_gets_link_feedback() {
    let text = "schema_version: 1\nscheme: selective\ntopology: {tree: {arity: 10, levels: 1}}\n\
                queue_bytes: 65536\ncontroller: 9\nplain_switches: [{switch: 10, drop: true}]\ntraffic: {incast: {senders: 8, bytes: 1000000}}\n";
    let scenario = file::parse("controller.yaml", text).unwrap();
    assert_eq!(scenario.controller, Some(9));
    assert_eq!(scenario.plain_switches, [PlainSwitch { vertex: 10, drops: true }]);
    let report = Simulation::new(&scenario).unwrap().run().unwrap();
    assert!(report.failures() == 0 && report.rates.is_empty());
    let scenario = file::parse("controller.yaml", &text.replacen("switch: 10", "switch: 9", 1));
    let problem = scenario.unwrap_err().to_string();
    assert!(problem.contains(":6:") && problem.contains("vertex 9 is not a switch"), "{problem}");
    let scenario =
        file::parse("controller.yaml", &text.replacen("plain_switches: [{switch: 10, drop: true}]\n", "", 1));
    let report = Simulation::new(&scenario.unwrap()).unwrap().run().unwrap();
    assert!(report.failures() == 0 && !report.rates.is_empty());
    for (right, wrong, named) in [
        (
            "controller: 9",
            "controller: 10",
            "wrong.yaml:5:1: controller: controller at host 10, but the topology has hosts 0 to 9",
        ),
        ("controller: 9", "controller: -1", ":5:"),
        ("controller: 9", "controller: here", "a whole number from 0 to 65535"),
        ("scheme: selective", "scheme: registry", ":5:1: controller: a controller with the scheme registry"),
    ] {
        let error = file::parse("wrong.yaml", &text.replacen(right, wrong, 1)).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(format!("{error} {source}").contains(named), "{wrong}: {error} {source}");
    }
}

/// The whole model of impairments; all transfers arrive.
#[test]
fn scenario_every_impairment_has_key() {
    let delays = [
        ("constant: {ns: 100}", Delay::Constant(Nanos::new(100))),
        (
            "uniform: {least_ns: 10, most_ns: 500}",
            Delay::Uniform { least: Nanos::new(10), most: Nanos::new(500) },
        ),
        (
            "exponential: {least_ns: 5, mean_ns: 300}",
            Delay::Exponential { least: Nanos::new(5), mean: Nanos::new(300) },
        ),
        (
            "normal: {mean_ns: 300, deviation_ns: 90}",
            Delay::Normal { mean: Nanos::new(300), deviation: Nanos::new(90) },
        ),
        (
            "log-normal: {least_ns: 5, median_ns: 300, sigma: 1.5}",
            Delay::LogNormal { least: Nanos::new(5), median: Nanos::new(300), sigma: 1.5 },
        ),
    ];
    for (law, delay) in delays {
        let text = format!(
            "schema_version: 1\nscheme: selective\ntraffic: {{permutation: {{bytes: 300000}}}}\n\
             data:\n  bursts: {{loss: 0.02, length: 3}}\n  delay: {{{law}}}\n  duplicate: 0.01\n  copy_delay: {{constant: {{ns: 5000}}}}\n\
             control: {{loss: 0.01}}\nshuffle: {{depth: 8, patience_ns: 2000}}\nthrottle: {{rate_mbps: 40000, queue_ns: 90000}}\n\
             blackouts: [{{from_ns: 9000, length_ns: 5000}}, {{from_ns: 40000, length_ns: 1}}]\n"
        );
        let scenario = file::parse("all.yaml", &text).unwrap();
        assert_eq!(
            (scenario.data.delay, scenario.data.copy_delay),
            (delay, Delay::Constant(Nanos::from_micros(5)))
        );
        assert!(
            matches!(scenario.data.loss, Loss::Bursts(bursts) if (bursts.leave.fraction() - 1.0 / 3.0).abs() < 1e-6)
        );
        assert_eq!(scenario.order, Order::Random { depth: 8, patience: Nanos::from_micros(2) });
        let throttle = scenario.throttle.unwrap();
        assert_eq!((throttle.rate, throttle.queue), (BitRate::from_gbps(40), Nanos::from_micros(90)));
        assert_eq!(scenario.blackouts.len(), 2);
        let report = Simulation::new(&scenario).unwrap().run().unwrap();
        assert_eq!(report.failures(), 0, "{law}: {report:?}");
        assert!(report.flows.iter().any(|flow| flow.retransmits > 0));
        // 300 KB take 60 microseconds at 40 Gbit/s.
        assert!(
            report.flows.iter().all(|flow| flow.latency().is_some_and(|span| span > Nanos::from_micros(60)))
        );
    }
}

/// Numbers that are valid alone, and too large together.
#[test]
fn scenario_absurd_sizes_are_refused_early() {
    for (topology, more, named) in [
        ("{torus: {side: 32}}", "contexts: 4096\n", [":4:", "contexts: ", "4096 MiB are allowed"]),
        ("{tree: {arity: 256, levels: 2}}", "", [":3:", "topology: ", "65536 hosts"]),
    ] {
        let text = format!(
            "schema_version: 1\nscheme: selective\ntopology: {topology}\n{more}traffic: {{permutation: {{bytes: 1000}}}}\n"
        );
        let error = file::parse("absurd.yaml", &text).unwrap_err().to_string();
        assert!(named.iter().all(|part| error.contains(part)), "{error}");
    }
    let text = "schema_version: 1\nscheme: sender-window\ntopology: {torus: {side: 16}}\npacket_bytes: 64\n\
                traffic: {permutation: {bytes: 1073741824}}\n";
    let error = file::parse("absurd.yaml", text).unwrap_err().to_string();
    assert!(error.contains(":5:1: traffic: ") && error.contains("100000000000 are allowed"), "{error}");
}

/// Errors whose position the parser does not know, and those that every key could have.
#[test]
fn scenario_every_error_has_line() {
    const HEAD: &str = "schema_version: 1\ntraffic: {permutation: {bytes: 1}}\n";
    let cases: [(&str, &str, &[&str]); 20] = [
        ("", "", &[":1:", "schema_version: ", "empty"]),
        ("", "# nothing\n---\n", &[":1:", "schema_version: ", "empty"]),
        ("", "schema_version: 1\n", &[":1:", "traffic"]),
        (
            "",
            "schema_version: 1\nseed: 1\nseed: 2\ntraffic: {permutation: {bytes: 1}}\n",
            &[":3:", "seed", "duplicate"],
        ),
        ("", "schema_version: 1\ntraffic: 5\n", &[":2:", "traffic", "permutation", "incast"]),
        ("", "5\n", &[":1:", "schema_version"]),
        (HEAD, "seed: -1", &[":3:", "seed", "-1", "0 to 18446744073709551614"]),
        (HEAD, "credit: maybe", &[":3:", "credit", "true or false"]),
        ("", "schema_version: 1\ntraffic: {permutation: 5}\n", &[":2:", "{bytes: N}"]),
        (HEAD, "data: {bursts: {loss: 0.5, length: 0}}", &[":3:", "length", "1 to 1000000"]),
        (HEAD, "data: {bursts: {loss: 1, length: 2}}", &[":3:", "data: ", "below 1"]),
        (HEAD, "data: {loss: 0.1, bursts: {loss: 0.1, length: 2}}", &[":3:", "data: ", "one of them"]),
        (HEAD, "data: {delay: {}}", &[":3:", "data: ", "log-normal"]),
        (
            HEAD,
            "data: {delay: {uniform: {least_ns: 5, most_ns: 4}}}",
            &[":3:", "data: ", "at least least_ns"],
        ),
        (
            HEAD,
            "data: {delay: {log-normal: {least_ns: 5, median_ns: 4, sigma: 9}}}",
            &[":3:", "sigma", "0 to 4"],
        ),
        (HEAD, "shuffle: {depth: 0, patience_ns: 4}", &[":3:", "depth", "1 to 4096"]),
        (HEAD, "throttle: {rate_mbps: 0, queue_ns: 4}", &[":3:", "rate_mbps", "1 to 100000000"]),
        (HEAD, "blackouts: [{from_ns: -4, length_ns: 4}]", &[":3:", "from_ns", "-4"]),
        (HEAD, "routing: magic", &[":3:", "magic", "fixed"]),
        (HEAD, "slow_links:\n  - {from: 0, to: 9, times: 2}", &[":4:", "slow_links[0]: ", "0 to 9"]),
    ];
    for (head, rest, named) in cases {
        let text = format!("{head}{rest}");
        let error = file::parse("wrong.yaml", &text).unwrap_err().to_string();
        assert!(error.starts_with("scenario wrong.yaml:"), "{error}");
        for part in named {
            assert!(error.contains(part), "{text}: {part:?} is not in {error:?}");
        }
    }
}

/// Each wrong file with the required content of its error: file, line, key, and allowed values.
#[test]
fn scenario_error_names_file_line_key_and_range() {
    let cases: [(&str, &str, &[&str]); 22] = [
        ("seed: 7", "sede: 7", &[":8:", "sede", "seed"]),
        ("side: 3", "sides: 3", &[":3:", "sides", "side"]),
        ("side: 3", "side: 1", &[":3:", "topology", "1: give", "2 to 32"]),
        ("side: 3", "side: 99", &[":3:", "2 to 32"]),
        ("rate_gbps: 80", "rate_gbps: 0", &[":4:", "rate_gbps", "1 to 100000"]),
        ("rate_gbps: 80", "rate_gbps: -5", &[":4:", "rate_gbps", "-5", "1 to 100000"]),
        ("rate_gbps: 80", "rate_gbps: fast", &[":4:", "rate_gbps", "fast", "1 to 100000"]),
        ("delay_ns: 800", "delay_ns: 99999999999999", &[":5:", "delay_ns", "0 to 60000000000"]),
        ("packet_bytes: 1024", "packet_bytes: 1000", &[":7:", "packet_bytes", "1024"]),
        ("loss: 0.01", "loss: 1.5", &[":16:", "data", "loss", "0 to 1"]),
        ("loss: 0.01", "lost: 0.01", &[":16:", "lost", "duplicate"]),
        ("scheme: receiver-window", "scheme: magic", &[":2:", "magic", "selective"]),
        ("schema_version: 1", "schema_version: 2", &[":1:", "schema_version", "1 to 1"]),
        ("schema_version: 1\n", "", &["schema_version"]),
        ("from: 5, to: 0", "from: 5, to: 27", &[":15:", "flows[1]: ", "to = 27", "0 to 26"]),
        ("from: 5, to: 0", "from: 5, to: 5", &[":15:", "flows[1]: ", "itself"]),
        ("bytes: 100000", "bytes: 0", &[":14:", "bytes", "1 to 1073741824"]),
        ("scheme: receiver-window", "scheme: selective", &[":20:", "credit: ", "receiver-window"]),
        ("{torus: {side: 3}}", "ring", &[":3:", "ring", "point-to-point"]),
        ("{torus: {side: 3}}", "{tree: {arity: 256, levels: 4}}", &[":3:", "topology: ", "65536 hosts"]),
        (
            "{torus: {side: 3}}",
            "{torus: {side: 3}, tree: {arity: 2, levels: 1}}",
            &[":3:", "not one topology"],
        ),
        ("window: 64", "window: [", &[":19:", "window"]),
    ];
    for (right, wrong, named) in cases {
        assert!(WHOLE.contains(right));
        let error = file::parse("wrong.yaml", &WHOLE.replacen(right, wrong, 1)).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        let shown = error.to_string();
        assert!(shown.starts_with("scenario wrong.yaml:") && shown.trim_end() == shown, "{shown:?}");
        let text = format!("{shown} {source}");
        for part in named {
            assert!(text.contains(part), "{wrong}: {part:?} is not in {text:?}");
        }
    }
    let both = "schema_version: 1\ntraffic:\n  permutation: {bytes: 1}\n  incast: {senders: 1, bytes: 1}\n";
    let error = file::parse("both.yaml", both).unwrap_err().to_string();
    assert!(error.contains("traffic: give one of"), "{error}");
    let many = "schema_version: 1\ntraffic:\n  incast: {senders: 2, bytes: 1}\n";
    let error = file::parse("many.yaml", many).unwrap_err().to_string();
    assert!(error.contains(":3:3: incast: senders = 2: give 1 to 1"), "{error}");
    let error = file::read(std::path::Path::new("/nowhere/at/all.yaml")).unwrap_err().to_string();
    assert!(error.starts_with("scenario /nowhere/at/all.yaml: "), "{error}");
}
