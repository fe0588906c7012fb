//! `sim`: scenarios and figures.

use std::fs;

use crate::support::{file, fpgactl};

const SCENARIO: &str = "\
schema_version: 1
scheme: selective
topology: {torus: {side: 2}}
seed: 5
traffic: {permutation: {bytes: 20000}}
data: {loss: 0.01, jitter_ns: 200}
";

#[test]
fn sim_run_result_is_independent_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "torus.yaml", SCENARIO);
    let run = |threads: &str, seed: &str| {
        let out = dir.path().join(format!("{threads}-{seed}"));
        let arguments =
            ["sim", "run", path.to_str().unwrap(), "--runs", "6", "--threads", threads, "--seed", seed];
        let ran = fpgactl(&[&arguments[..], &["--out", out.to_str().unwrap(), "--json"]].concat()).ok();
        let read = |ending: &str| fs::read_to_string(out.join(format!("torus.{ending}"))).unwrap();
        (ran.json(), read("csv"), read("svg"))
    };
    let (json, csv, svg) = run("1", "5");
    assert_eq!(
        (json["runs"].as_u64(), json["flows"].as_u64(), json["failures"].as_u64()),
        (Some(6), Some(48), Some(0))
    );
    assert!(json["mean_us"].as_f64().unwrap() > 0.0 && json["packets_ratio"].as_f64().unwrap() > 1.0);
    assert_eq!(csv.lines().count(), 49);
    assert!(csv.starts_with("seed,flow,from,to,size_bytes,") && csv.contains("\n5,0,0,4,20000,"), "{csv}");
    assert!(svg.starts_with("<svg") && svg.contains("selective on torus 2x2x2"));
    let (_, again, picture) = run("3", "5");
    assert_eq!((&csv, &svg), (&again, &picture));
    assert_ne!(csv, run("2", "6").1);
}

#[test]
fn sim_run_unfinished_flows_are_reported_without_failure() {
    let dir = tempfile::tempdir().unwrap();
    let text = SCENARIO.replace("loss: 0.01", "loss: 1");
    let path = file(dir.path(), "lost.yaml", text);
    let ran = fpgactl(&["sim", "run", path.to_str().unwrap(), "--out", dir.path().to_str().unwrap()]).ok();
    assert!(ran.stdout.contains("8 flows in 1 run, 8 failures; no flow has arrived"), "{}", ran.stdout);
    assert!(ran.stdout.contains("first failure: seed 5, flow 0: "), "{}", ran.stdout);
}

/// The report counts link feedback; without a controller there is none.
#[test]
fn sim_run_counts_link_feedback() {
    let dir = tempfile::tempdir().unwrap();
    let text = "schema_version: 1\nscheme: adaptive-window\ntopology: {tree: {arity: 10, levels: 1}}\n\
                queue_bytes: 32768\ncontroller: 9\ntraffic: {incast: {senders: 8, bytes: 300000}}\n";
    let out = dir.path().to_str().unwrap();
    let run = |name: &str, text: &str| {
        let path = file(dir.path(), name, text);
        let json = fpgactl(&["sim", "run", path.to_str().unwrap(), "--out", out, "--json"]).ok().json();
        (json, fpgactl(&["sim", "run", path.to_str().unwrap(), "--out", out]).ok().stdout)
    };
    let (json, shown) = run("controlled.yaml", text);
    let links = &json["link_feedback"];
    for key in ["inquiries", "passive", "active", "slowed", "rates_lowered", "rates_raised"] {
        assert!(links[key].as_u64().unwrap() > 0, "{key}: {links}");
    }
    assert_eq!((links["rerouted"].as_u64(), links["dropped"].as_u64()), (Some(0), Some(0)), "{links}");
    let line = format!("link feedback: {} inquiries, ", links["inquiries"]);
    assert!(shown.contains(&line), "{shown}");
    let (json, _) = run("plain.yaml", &format!("{text}plain_switches: [{{switch: 10, drop: true}}]\n"));
    let links = &json["link_feedback"];
    assert_eq!(links["dropped"], links["inquiries"], "{links}");
    assert_eq!((links["passive"].as_u64(), links["active"].as_u64()), (Some(0), Some(0)), "{links}");
    let (json, shown) = run("uncontrolled.yaml", &text.replacen("controller: 9\n", "", 1));
    assert!(json["link_feedback"].is_null() && !shown.contains("link feedback"), "{json}");
}

/// Flows that all take the same time: axes of constant values have distinct numbers, too.
#[test]
fn sim_figure_constant_values_are_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let text = "schema_version: 1\ntopology: {torus: {side: 3}}\ntraffic:\n  flows:\n    - {from: 0, to: 5, bytes: 90000}\n";
    let path = file(dir.path(), "alone.yaml", text);
    let arguments = ["sim", "run", path.to_str().unwrap(), "--runs", "2", "--chart"];
    let ran = fpgactl(&[&arguments[..], &["--out", dir.path().to_str().unwrap()]].concat()).ok();
    let chart = ran.stdout.split_once("over time").unwrap().1;
    assert!(!chart.contains("inf") && !chart.contains("NaN"), "{chart}");
    let axis = chart.lines().find(|line| line.contains('.')).unwrap();
    let labels: Vec<&str> = axis.split_whitespace().collect();
    assert!(labels.len() > 2 && labels.windows(2).all(|pair| pair[0] != pair[1]), "{axis}");
}

#[test]
fn sim_figure_writes_csv_and_svg() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("made/here");
    let arguments = [
        "sim",
        "figure",
        "loss-free",
        "--runs",
        "1",
        "--seed",
        "3",
        "--out",
        out.to_str().unwrap(),
        "--json",
    ];
    let json = fpgactl(&arguments).ok().json();
    assert_eq!(json["figures"][0]["name"], "loss-free");
    assert_eq!(json["failures"], 0);
    let csv = fs::read_to_string(out.join("loss-free.csv")).unwrap();
    assert!(csv.starts_with("figure,scheme,topology,size_bytes,packet_bytes,loss,disorder,window,hops,segment_bytes,mean_us,ci95_us,p99_us,packets_ratio,speed_ratio,failures,runs,seed\n"));
    assert!(csv.contains("\nloss-free,registry,point-to-point,32768,512,0,32,"), "{csv}");
    assert!(fs::read_to_string(out.join("loss-free.svg")).unwrap().contains("</svg>"));
}

/// More runs and points than could finish in hours.
#[test]
fn sim_time_limit_ends_runs_and_figures() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "torus.yaml", SCENARIO);
    let out = dir.path().to_str().unwrap();
    for [what, name] in [["run", path.to_str().unwrap()], ["figure", "selective"]] {
        let ran = fpgactl(&["--timeout", "50ms", "sim", what, name, "--runs", "1000000", "--out", out]);
        assert_eq!(ran.status, 1, "{what}: {}", ran.stderr);
        assert!(ran.stderr.contains("not done after 50ms (--timeout)"), "{what}: {}", ran.stderr);
    }
}

/// The same numbers as `transfer` with the same options.
#[test]
fn sim_grid_on_cards_has_times_and_retransmissions_of_transfers() {
    let grid =
        ["sim", "grid", "--cards", "--size", "16KiB", "--loss", "2%", "--disorder", "0", "--runs", "1"];
    let grid = fpgactl(&[&grid[..], &["--delay", "5us", "--json"]].concat()).ok().json();
    let point = &grid["points"][0];
    let schemes = point["schemes"].as_array().unwrap();
    assert_eq!((schemes[0]["scheme"].as_str(), point["delay_us"].as_f64()), (Some("registry"), Some(5.0)));
    assert!(schemes.len() > 2 && schemes.iter().all(|cell| cell["failures"] == 0), "{grid}");
    for cell in schemes {
        let scheme = cell["scheme"].as_str().unwrap();
        let transfer =
            ["transfer", "--size", "16KiB", "--loss", "2%", "--reorder", "0", "--delay", "5us", "--json"];
        let transfer =
            fpgactl(&[&transfer[..], &["--packet", "512", "--scheme", scheme]].concat()).ok().json();
        let micros = transfer["card_seconds"].as_f64().unwrap() * 1e6;
        assert!((cell["median_us"].as_f64().unwrap() - micros).abs() < 0.001, "{scheme}: {cell} {micros}");
        assert_eq!(cell["retransmitted"], transfer["retransmits"], "{scheme}");
    }
}
