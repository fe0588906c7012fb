//! Tests of refused input: exit status and message.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]

use crate::support::{file, fpgactl};

/// Runs `args` unchanged and with `--json`. Requires the same status, one message on standard error, and the same message in JSON.
#[track_caller]
fn refused(args: &[&str], status: i32, parts: &[&str]) {
    refused_in_text(args, status, parts);
    let mut with_json = args.to_vec();
    with_json.push("--json");
    let ran = fpgactl(&with_json);
    assert_eq!(ran.status, status, "{args:?} --json");
    let error = ran.json()["error"].clone();
    assert_eq!(error["kind"], if status == 2 { "usage" } else { "operation" });
    let message = error["message"].as_str().unwrap();
    let help = error["help"].as_str().unwrap_or_default();
    assert!(parts.iter().all(|part| message.contains(part) || help.contains(part)), "{args:?}: {error}");
    assert!(ran.stderr.contains(message) && ran.stderr.contains(help), "{args:?}: {}", ran.stderr);
}

/// Runs `args`, and requires one message on standard error.
#[track_caller]
fn refused_in_text(args: &[&str], status: i32, parts: &[&str]) {
    let ran = fpgactl(args);
    assert_eq!(ran.status, status, "{args:?}: {}", ran.stderr);
    assert_eq!(ran.stdout, "", "{args:?}");
    for part in parts {
        assert!(ran.stderr.contains(part), "{args:?}: \"{part}\" is not in: {}", ran.stderr);
    }
}

/// Runs every line of a table. One function reports every failure, so every tenth line is run with `--json`, too.
#[track_caller]
fn all_refused<'a>(status: i32, table: impl IntoIterator<Item = (&'a [&'a str], &'a [&'a str])>) {
    for (number, (args, parts)) in table.into_iter().enumerate() {
        let run = if number % 10 == 0 { refused } else { refused_in_text };
        run(args, status, parts);
    }
}

#[test]
fn wrong_usage_exits_2() {
    let table = [
        (&["frobnicate"][..], &["unrecognized subcommand"][..]),
        (&["transfer", "--loss", "101%"], &["not a probability"]),
        (
            &["rtl", "run", "model", "--socket", "s", "--trace", "w.fst", "--trace-from", "read:m_x:0"],
            &["read:m_x:0", "--trace-from", "`cycle:N`", "`design`"],
        ),
        (&["transfer", "--scheme", "selected"], &["registry", "selective"]),
        (&["transfer", "--size", "4KB"], &["4KB", "1000 or 1024", "4KiB"]),
        (&["transfer", "--size", "-1"], &["-1"]),
        (&["transfer", "--size", "99999999TiB"], &["64 bits"]),
        (
            &["transfer", "--size", "1MiB", "--packet", "512", "--segment", "1GiB"],
            &["--segment 1073741824", "give 512 to 16384"],
        ),
        (&["transfer", "--size", "1MiB", "--segment", "8GiB"], &["--segment", "4 GiB"]),
        (
            &["transfer", "--size", "1MiB", "--segment", "4KiB", "--threshold", "8KiB"],
            &["threshold", "lower it"],
        ),
        (
            &["transfer", "--size", "1MiB", "--segment", "0"],
            &["--segment 0 is less than a packet", "give 512 to 16384"],
        ),
        (
            &["transfer", "--size", "1MiB", "--packet", "512", "--threshold", "1MiB"],
            &["--threshold 1048576", "at most 16384 bytes on mock:", "give --threshold 16384 or less"],
        ),
        (&["transfer", "--segment", "3"], &["--segment 3", "512 bytes", "give 512 to 16384"]),
        (
            &["transfer", "--packet", "512", "--segment", "64MiB"],
            &["--segment 67108864", "mask", "give 512 to 16384"],
        ),
        (&["transfer", "--packet", "100"], &["power of two"]),
        (&["transfer", "--chunk", "0"], &["chunk"]),
        (&["transfer", "--reorder", "5000"], &["4096"]),
        (&["transfer", "--notify", "both"], &["receiver", "sender"]),
        (&["transfer", "/etc/hostname", "--size", "1"], &["cannot be used with"]),
        (&["transfer", "/dev/stdin"], &["/dev/stdin", "pipe", "regular file"]),
        (&["transfer", "/"], &["directory"]),
        (&["transfer", "--card", "0000:65:00.0"], &["--peer"]),
        (&["transfer", "--peer", "0000:65:00.0"], &["no common network"]),
        (&["info", "--card", "nonsense"], &["not a PCI address", "mock:FILE.yaml"]),
        (&["info", "--card", "0000:65:20.0"], &["device"]),
        (&["info", "--timeout", "5"], &["duration", "10us"]),
        (&["info", "--vfio", "cdev"], &["cdev", "auto, group or iommufd"]),
        (&["info", "--vf-token", "secret"], &["secret", "UUID"]),
        (&["dma", "write", "/etc/hostname"], &["--addr"]),
        (&["dma", "write", "/etc/hostname", "--addr", "0x"], &["hexadecimal", "0x1000"]),
        (&["dma", "read", "--addr", "0", "--len", "1.5MiB", "--out", "x"], &["fractions"]),
        (&["events"], &["mock has no events"]),
        (&["sim", "figure", "nine"], &["nine", "loss-free", "state-bits"]),
        (&["sim", "figure", "reorder", "--quick", "--runs", "5"], &["cannot be used with"]),
        (&["sim", "run", "x.yaml", "--runs", "0"], &["1 to 1000000"]),
        (&["events", "--count", "0"], &["count"]),
        (&["validate", "--scratch-size", "1MiB"], &["--scratch"]),
        (&["validate", "--scratch", "x"], &["x"]),
        (&["validate", "--seed", "-1"], &["-1"]),
        (&["abort", "--channel", "4"], &["is not a channel", "h2c0 to h2c3", "0 to 3"]),
        (&["abort", "--channel", "h2c4"], &["h2c4", "h2c0 to h2c3"]),
        (&["reset", "--level", "hard"], &["channel", "function", "bus"]),
        (&["completions", "dos"], &["bash"]),
        (&["dma", "bench", "--depth", "0"], &["--depth", "1 to 32768"]),
        (&["dma", "bench", "--batch", "0"], &["--batch"]),
        (&["dma", "bench", "--sizes", "64,0"], &["0 bytes move nothing"]),
        (&["dma", "bench", "--sizes", "256MiB"], &["--sizes", "268435456", "268431360"]),
        (&["dma", "bench", "--beside", "256MiB"], &["--beside", "268435456", "268431360"]),
        (&["dma", "bench", "--sizes", "4KB"], &["1000 or 1024"]),
        (&["dma", "bench", "--mode", "sleep"], &["poll", "irq", "hybrid"]),
        (&["dma", "bench", "--ring", "endless"], &["stop", "credit"]),
        (&["dma", "bench", "--direction", "d2d"], &["h2c", "c2h", "both"]),
        (&["dma", "bench", "--channels", "0"], &["--channels"]),
        (&["dma", "bench", "--seconds", "0"], &["more than 0"]),
        (&["dma", "bench", "--seconds", "-1"], &["-1"]),
        (&["dma", "bench", "--seconds", "nan"], &["nan", "not a measuring time"]),
        (&["dma", "bench", "--seconds", "1e99"], &["3600"]),
        (&["dma", "bench", "--seconds", "2 weeks"], &["3600"]),
        (&["dma", "bench", "--pin", "1"], &["does not name two CPUs"]),
        (&["peek", "config", "0"], &["dma, user or bypass"]),
        (&["peek", "6", "0"], &["from 0 to 5"]),
        (&["peek", "dma", "0x41"], &["1 byte into the word at 0x40"]),
        (&["peek", "dma", "0", "0"], &["words from 1 to 65536"]),
        (&["peek", "dma", "0", "65537"], &["words from 1 to 65536", "dma read"]),
        (&["peek", "dma"], &["OFFSET"]),
        (&["poke", "dma", "0x88", "0x100000000"], &["32 bits"]),
        (&["poke", "dma", "2", "0"], &["2 bytes into the word"]),
        (&["poke", "dma", "0x88"], &["VALUE"]),
        (&["regs", "write", "h2c0.control", "-1"], &["-1", "is not a number"]),
        (&["regs", "write", "ni.scheme", "Selectiv"], &["did you mean Selective?"]),
        (&["regs", "write", "ni.control.enable", "2"], &["does not fit 1 bit", "give at most 0x1"]),
        (&["regs", "watch"], &["NAMES"]),
        (&["regs", "watch", "ni.status", "--count", "0"], &["--count"]),
        (&["regs", "write", "h2c0.control", "4GiB"], &["32 bits"]),
        (&["transfer", "--chunk", "16GiB", "--size", "16GiB"], &["16 GiB", "--chunk"]),
        (
            &["dma", "write", "/etc/hostname", "--addr", "0", "--channel", "4"],
            &["channel h2c4 does not exist", "4 in this direction: h2c0 to h2c3"],
        ),
        (
            &["dma", "read", "--addr", "0", "--len", "1", "--out", "x", "--channel", "9"],
            &["channel c2h9 does not exist", "c2h0 to c2h3"],
        ),
        (
            &["dma", "read", "--addr", "0", "--len", "1", "--out", "x", "--channel", "c2h1"],
            &["the command determines the direction; write 1"],
        ),
        (&["dma", "write", "/etc/hostname", "--addr", "0", "--channel", "first"], &["give 0 to 3"]),
        (&["regs", "read", "h2c0.nothing"], &["h2c0.nothing", "h2c0 has", "status"]),
        (&["regs", "read", "h2c7.status"], &["did you mean h2c0.status, h2c1.status or h2c2.status?"]),
        (&["regs", "read", "dma9.gizmo"], &["h2c0 to h2c3", "regs list"]),
        (&["regs", "read", "node_id"], &["did you mean ni.node_id?"]),
        (&["regs", "read", "h2c0.status.bsuy"], &["did you mean busy?"]),
        (&["regs", "read", "h2c0.status.nothing"], &["h2c0.status has the fields busy"]),
        (&["regs", "watch", "h2c0.staus"], &["did you mean h2c0.status"]),
        (&["dma", "bench", "--channels", "5"], &["5 channels", "4 in direction h2c", "--channels"]),
        (&["regs", "write", "h2c0.nothing", "0"], &["h2c0.nothing", "h2c0 has"]),
        (&["peek", "3", "0"], &["no BAR 3", "0 (user), 1 (dma), 2 (bypass)"]),
        (&["peek", "dma", "0xfffc", "2"], &["0xfffc", "0x10000"]),
        (&["peek", "dma", "0xfffffffffffffffc"], &["0xfffffffffffffffc", "0x10000"]),
        (&["poke", "dma", "0x10000", "0"], &["0x10000"]),
        (&["info", "--card", "mock:us-plus-x61"], &["us-plus-x61", "us-plus-x16, "]),
    ];
    all_refused(2, table);
}

#[test]
fn failed_operation_exits_1() {
    let dir = tempfile::tempdir().unwrap();
    let input = file(dir.path(), "in", [1; 100]);
    let (input, out) = (input.to_str().unwrap(), dir.path().join("out"));
    let out = out.to_str().unwrap();
    let table = [
        (&["transfer", "/no/such/file"][..], &["/no/such/file", "No such file", "check the path"][..]),
        (&["transfer", input, "--out", "/no/such/dir/out"], &["/no/such/dir/out", "cannot write"]),
        (&["transfer", input, "--out", "/dev/full"], &["/dev/full", "free space"]),
        (&["dma", "write", "/no/such/file", "--addr", "0"], &["/no/such/file"]),
        (&["dma", "write", input, "--addr", "8GiB"], &["h2c0", "0x200000000"]),
        (&["dma", "write", input, "--addr", "0xffffffffffffffff"], &["h2c0"]),
        (&["dma", "read", "--addr", "8GiB", "--len", "1", "--out", out], &["c2h0", "0x200000000"]),
        (&["dma", "read", "--addr", "0", "--len", "1", "--out", "/no/such/dir/x"], &["/no/such/dir/x"]),
        (&["cdma", "copy", "--src", "8GiB", "--dst", "0", "--len", "4"], &["CDMA", "0x200000000"]),
        (&["cdma", "copy", "--src", "0", "--dst", "2", "--len", "4"], &["CDMA", "overlap"]),
        (&["regs", "watch", "h2c0.status_rc"], &["changes the card", "--force"]),
        (&["regs", "write", "h2c0.status_rc.busy", "0"], &["h2c0.status_rc.busy (RC) is not written"]),
        (&["regs", "read", "h2c0.status_rc"], &["changes the card", "--force"]),
        (&["regs", "read", "h2c0.control_set", "--force"], &["write-only", "h2c0.control"]),
        (&["dma", "bench", "--pin", "0,100000", "--sizes", "64"], &["CPU 100000"]),
        (
            &["regs", "write", "h2c0.completed", "0"],
            &["h2c0.completed (RO) is not written", "only the card", "poke"],
        ),
        (
            &["regs", "write", "H2C0.status_rc", "0"],
            &["h2c0.status_rc (RC) is not written", "a read clears it", "write h2c0.status"],
        ),
        (&["regs", "write", "msix0.data", "1"], &["writing msix0.data", "MSI-X", "--force"]),
        (&["peek", "dma", "0x44"], &["BAR 1 at 0x44", "h2c0.status_rc is clear-on-read", "--force"]),
        (&["peek", "1", "0", "0x1000"], &["h2c0.status_rc, h2c1.status_rc", "--force"]),
        (&["poke", "dma", "0x8000", "0"], &["MSI-X", "--force"]),
        (&["reset", "--card", "ffff:1f:1f.7"], &["ffff:1f:1f.7"]),
        (
            &["validate", "--card", "vfio-user:/no/card.sock"],
            &["no socket /no/card.sock", "start the server"],
        ),
        (&["info", "--card", "ffff:1f:1f.7"], &["ffff:1f:1f.7"]),
        (&["info", "--card", "vfio-user:/dev/null"], &["/dev/null is not a socket", "character device"]),
        (&["info", "--card", "mock:/no/such.yaml"], &["/no/such.yaml"]),
        (&["card", "check", "/no/such.yaml"], &["/no/such.yaml"]),
        (&["info", "--config", "/no/such.yaml"], &["configuration file /no/such.yaml", "check the path"]),
        (&["man", "--out", "/dev/null/x"], &["/dev/null/x"]),
    ];
    all_refused(1, table);
    assert!(!std::path::Path::new(out).exists(), "a refused command left a partial file");
}

#[test]
fn yaml_error_names_file_line_column_and_key() {
    let dir = tempfile::tempdir().unwrap();
    for (text, place, key) in [
        ("schema_version: 1\nmemory:\n  size: many\n", ":3:", "size"),
        ("schema_version: 1\nmemroy: {}\n", ":2:1", "memroy"),
        ("schema_version: 1\nmemory:\n  base: 0\n  size: 5\n", ":4:3", "memory.size"),
        ("schema_version: 1\nxdma: [\n", ":2:", "xdma"),
        ("schema_version: 9\n", ":1:", "schema_version"),
    ] {
        let card = file(dir.path(), "card.yaml", text);
        let card = card.to_str().unwrap();
        let place = format!("{card}{place}");
        refused(&["card", "check", card], 1, &[&place, key]);
        refused(&["transfer", "--card", &format!("mock:{card}")], 1, &[&place, key]);
    }
    for (text, place, key) in [
        ("schema_version: 1\ntransfer:\n  size: 4KB\n", ":3:", "transfer.size"),
        ("schema_version: 1\nsize: 4\n", ":2:1", "size"),
        ("schema_version: 2\n", ":1:", "schema_version"),
    ] {
        let config = file(dir.path(), "config.yaml", text);
        let config = config.to_str().unwrap();
        refused(&["transfer", "--config", config], 1, &[&format!("{config}{place}"), key]);
    }
}

#[test]
fn duplicate_node_id_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let peer = file(dir.path(), "peer.yaml", "schema_version: 1\nni: {node_id: 1}\n");
    refused(&["transfer", "--peer", &format!("mock:{}", peer.display())], 1, &["node id 1"]);
}

#[test]
fn output_over_input_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let input = file(dir.path(), "in", "content");
    let path = input.to_str().unwrap();
    refused(&["transfer", path, "--out", path], 2, &["the file that is read"]);
    assert_eq!(std::fs::read(&input).unwrap(), b"content");
}

#[test]
fn transfer_without_ni_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let card = file(dir.path(), "plain.yaml", "schema_version: 1\npci: {subsystem_device: 7}\n");
    let card = format!("mock:{}", card.display());
    refused(&["transfer", "--card", &card], 1, &["no network interface"]);
    refused(&["cdma", "copy", "--src", "0", "--dst", "64", "--len", "4", "--card", &card], 1, &["CDMA"]);
}

#[test]
fn bench_working_set_too_large_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let card = file(dir.path(), "small.yaml", "schema_version: 1\nmemory: {base: 0, size: 0x1000000}\n");
    let card = format!("mock:{}", card.display());
    let args = ["dma", "bench", "--card", &card, "--sizes", "64KiB", "--direction"];
    refused(&[&args[..], &["both"]].concat(), 2, &["32 MiB", "16 MiB", "--sizes"]);
}

#[test]
fn unknown_design_is_touched_only_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let card = file(dir.path(), "plain.yaml", "schema_version: 1\npci: {subsystem_device: 7}\n");
    let card = format!("mock:{}", card.display());
    for bar in ["user", "0", "bypass"] {
        refused(&["peek", bar, "0", "--card", &card], 1, &["subsystem 0x10ee:0x0007", "hang", "--force"]);
        refused(&["poke", bar, "0", "1", "--card", &card], 1, &["hang", "--force"]);
    }
    let bars = file(
        dir.path(),
        "dma.yaml",
        "schema_version: 1\nbars: {bypass: null, user: null}\npci: {subsystem_device: 7}\n",
    );
    let bars = format!("mock:{}", bars.display());
    refused(&["peek", "bypass", "0", "--card", &bars], 2, &["no BAR bypass", "the card has 0 (dma)"]);
}

#[test]
fn missing_channel_is_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    let card =
        file(dir.path(), "small.yaml", "schema_version: 1\nxdma: {h2c_channels: 2, c2h_channels: 1}\n");
    let card = format!("mock:{}", card.display());
    refused(
        &["abort", "--channel", "c2h1", "--card", &card],
        2,
        &["channel c2h1 does not exist", "1 in this direction"],
    );
    let read =
        ["dma", "read", "--addr", "0", "--len", "1", "--out", "/dev/null", "--card", &card, "--channel", "1"];
    refused(&read, 2, &["channel c2h1 does not exist", "1 in this direction: c2h0"]);
}

/// Every mistyped name gets a suggestion, and the failure counts as wrong usage.
#[test]
fn mistyped_name_gets_suggestion() {
    for (args, meant) in [
        (&["trasnfer"][..], "'transfer'"),
        (&["regs", "raed", "x"], "'read'"),
        (&["info", "--crad", "mock"], "'--card'"),
        (&["info", "--card", "mok"], "did you mean mock?"),
        (&["info", "--card", "us-x8"], "did you mean mock:us-x8?"),
        (&["info", "--card", "us-plus-x61"], "did you mean mock:us-plus-x16?"),
        (&["info", "--card", "moc:us-x8"], "did you mean mock:us-x8?"),
        (&["info", "--card", "vfiouser:/tmp/card"], "did you mean vfio-user:/tmp/card?"),
        (&["info", "--card", "/tmp/card"], "did you mean vfio-user:/tmp/card?"),
        (&["info", "--card", "own.yaml"], "did you mean mock:own.yaml?"),
        (&["info", "--card", "mock:us-x9"], "did you mean us-x8?"),
        (&["transfer", "--peer", "mokc"], "did you mean mock?"),
        (&["card", "check", "quirkky"], "did you mean quirky?"),
        (
            &["card", "serve", "--socket", "/no/dir/x", "--card-file", "artix"],
            "there are default, us-plus-x16",
        ),
        (&["abort", "--channel", "hc21"], "did you mean h2c1?"),
        (&["abort", "--channel", "C2H0"], "did you mean c2h0?"),
        (&["regs", "read", "h2c0.statsu"], "did you mean h2c0.status"),
        (&["regs", "read", "h2c0.status.bsy"], "did you mean busy?"),
        (&["regs", "dump", "cfonig.system_id"], "did you mean config.system_id?"),
        (&["regs", "write", "ni.scheme", "selctive"], "did you mean Selective?"),
        (&["regs", "watch", "ni.sttaus"], "did you mean ni.status?"),
        (&["peek", "usr", "0"], "did you mean user?"),
        (&["reset", "--level", "bsu"], "'bus'"),
        (&["transfer", "--scheme", "selektive"], "'selective'"),
        (&["transfer", "--notify", "recever"], "'receiver'"),
        (&["sim", "figure", "reoder"], "'reorder'"),
        (&["info", "--color", "alwyas"], "'always'"),
        (&["dma", "bench", "--mode", "pol"], "'poll'"),
        (&["completions", "bsh"], "'bash'"),
    ] {
        refused_in_text(args, 2, &[meant]);
    }
}

#[test]
fn invalid_scenario_is_named_by_file_line_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let right = "schema_version: 1\ntopology: {torus: {side: 3}}\ntraffic:\n  flows:\n    - {from: 0, to: 5, bytes: 9}\n";
    for (part, wrong, named) in [
        ("side: 3", "sides: 3", &[":2:", "sides", "side"][..]),
        ("side: 3", "side: 1", &[":2:", "topology", "2 to 32"]),
        ("to: 5", "to: 27", &[":5:5: flows[0]: ", "0 to 26"]),
        ("bytes: 9", "bytes: -1", &[":5:", "bytes", "1 to 1073741824"]),
        ("traffic:", "trafic:", &[":3:1: ", "trafic", "traffic"]),
    ] {
        let path = file(dir.path(), "wrong.yaml", right.replace(part, wrong));
        let mut parts = vec!["wrong.yaml"];
        parts.extend(named);
        refused(&["sim", "run", path.to_str().unwrap()], 1, &parts);
    }
    refused(
        &["sim", "run", "/nowhere/x.yaml"],
        1,
        &["scenario /nowhere/x.yaml: cannot read it", "check the path"],
    );
    let path = file(dir.path(), "right.yaml", right);
    refused(
        &["sim", "run", path.to_str().unwrap(), "--out", "/proc/nowhere"],
        1,
        &["/proc/nowhere", "write results"],
    );
}

#[test]
fn endless_or_oversized_file_is_refused_by_limit() {
    let dir = tempfile::tempdir().unwrap();
    let name = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let large = |name: &str, bytes: u64| {
        let path = dir.path().join(name);
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let served = crate::support::Served::start();
    let control = served.control();
    let (small, scenario) = (large("small.yaml", (1 << 20) + 1), large("scenario.yaml", (16 << 20) + 1));
    let (map, log) = (large("map.yaml", (8 << 20) + 1), large("log", (1 << 30) + 1));
    let commands = |config: &str, card: &str, plan: &str, scenario: &str, map: &str, log: &str| {
        let card_of = format!("mock:{card}");
        [
            vec!["info", "--config", config],
            vec!["info", "--card", &card_of],
            vec!["card", "check", card],
            vec!["card", "control", &control, "faults", plan],
            vec!["sim", "run", scenario],
            vec!["info", "--map", map],
            vec!["replay", log],
        ]
        .map(|words| words.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    let run = |words: &[String], parts: &[&str]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        refused_in_text(&words, 1, parts);
    };
    for device in ["/dev/zero", "/dev/urandom", "/"] {
        let kind = if device == "/" { "directory" } else { "character device" };
        for words in commands(device, device, device, device, device, device) {
            run(&words, &[&format!("{device}: this is a {kind}"), "; name a regular file or a pipe"]);
        }
    }
    for words in commands(&small, &small, &small, &scenario, &map, &log) {
        let (limit, size) = match words[0].as_str() {
            "sim" => ("16777216 (16 MiB)", "16777217 bytes"),
            "replay" => ("1073741824 (1 GiB)", "1073741825 bytes"),
            _ if words[1] == "--map" => ("8388608 (8 MiB)", "8388609 bytes"),
            _ => ("1048576 (1 MiB)", "1048577 bytes"),
        };
        run(&words, &[&name(dir.path()), size, limit, "; check that"]);
    }
    let binary = file(dir.path(), "binary", [0x7f, b'E', b'L', b'F', 0xFF, 0xFE]);
    let binary = binary.to_str().unwrap();
    for words in commands(binary, binary, binary, binary, binary, binary) {
        let ran = fpgactl(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(ran.status, 1, "{words:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("UTF-8") && !ran.stderr.contains("device"), "{words:?}: {}", ran.stderr);
    }
}

#[test]
fn exploding_yaml_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut aliases = "schema_version: 1\nverbose: &a0 [x, x, x]\n".to_owned();
    for level in 1..100 {
        aliases += &format!("a{level}: &a{level} [*a{0}, *a{0}, *a{0}]\n", level - 1);
    }
    let brackets = format!("schema_version: 1\nx: {}", "[".repeat(900_000));
    let levels = format!("schema_version: 1\nx: {}{}\n", "[".repeat(900), "]".repeat(900));
    for (name, text, part) in
        [("aliases", aliases, "aliases"), ("brackets", brackets, "1024"), ("levels", levels, "x")]
    {
        let path = file(dir.path(), &format!("{name}.yaml"), text);
        let path = path.to_str().unwrap();
        let card = format!("mock:{path}");
        refused(&["info", "--config", path], 1, &[path, part]);
        for words in [["info", "--card", &card], ["sim", "run", path]] {
            refused_in_text(&words, 1, &[path, part]);
        }
        let ran = fpgactl(&["info", "--map", path]);
        assert_eq!(ran.status, 1, "{name}: {}", ran.stderr);
        assert!(ran.stderr.contains(path), "{name}: {}", ran.stderr);
    }
}

/// File name of a shell's `<(command)`.
#[test]
fn pipes_are_read_like_files() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let path = pipe.to_str().unwrap();
    let writer = {
        let pipe = pipe.clone();
        std::thread::spawn(move || std::fs::write(pipe, "schema_version: 1\nname: piped\n"))
    };
    let ran = fpgactl(&["card", "check", path]).ok();
    writer.join().unwrap().unwrap();
    assert!(ran.stdout.contains("piped"), "{}", ran.stdout);
}

/// A card of a design that does not describe itself.
#[test]
fn unknown_design_follows_options() {
    let dir = tempfile::tempdir().unwrap();
    let plain = file(dir.path(), "plain.yaml", "schema_version: 1\npci: {subsystem_device: 7}\n");
    let card = format!("mock:{}", plain.display());
    let copy = ["cdma", "copy", "--src", "0", "--dst", "4096", "--len", "64", "--card", &card];
    refused(&copy, 1, &["no identity block", "with --cdma-offset"]);
    let known = fpgactl(&["regs", "list", "cdma", "--json"]).ok().json();
    let offset = known["registers"][0]["address"].as_str().unwrap().to_owned();
    fpgactl(&[&copy[..], &["--cdma-offset", &offset]].concat()).ok();
    refused(&[&copy[..], &["--cdma-offset", "0xfffffff0"]].concat(), 1, &["0xfffffff0"]);
    let listed = fpgactl(&["regs", "read", "cdma.sr", "--card", &card, "--cdma-offset", &offset]).ok();
    assert!(listed.stdout.contains("cdma.sr"), "{}", listed.stdout);
    let tested =
        fpgactl(&["validate", "--card", &card, "--cdma-offset", &offset, "--json", "--scratch", "0"]);
    let tests = tested.json()["tests"].clone();
    let copies = tests.as_array().unwrap().iter().find(|test| test["name"] == "cdma.copy");
    assert!(copies.is_none_or(|test| test["status"] == "pass"), "{tests}");
    fpgactl(&["reset", "--card", &card, "--cdma-offset", &offset]).ok();
    let send = ["transfer", "--size", "64KiB", "--card", &card];
    refused(&send, 1, &["no network interface", "say so with --ni"]);
    fpgactl(&[&send[..], &["--ni"]].concat()).ok();
    let info = fpgactl(&["info", "--card", &card, "--ni"]).ok();
    assert!(info.stdout.contains("contract"), "{}", info.stdout);
}

#[test]
fn dma_bar_option_is_used() {
    fpgactl(&["info", "--dma-bar", "1"]).ok();
    refused(&["info", "--dma-bar", "5"], 1, &["BAR 5", "does not exist"]);
    refused(&["info", "--dma-bar", "6"], 2, &["--dma-bar"]);
    refused(&["info", "--dma-bar", "0"], 1, &["BAR 0"]);
}

/// A hung engine is reported in one line, with advice, regardless of how much memory the driver quarantines.
#[test]
fn wedged_engine_is_reported_once_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let input = file(dir.path(), "in", [1; 100_000]);
    let card = file(dir.path(), "stall.yaml", "schema_version: 3\nfaults: {list: [{fault: stall}]}\n");
    let card = format!("mock:{}", card.display());
    let out = dir.path().join("out");
    for words in [
        &["dma", "write", input.to_str().unwrap(), "--addr", "0"][..],
        &["dma", "read", "--addr", "0", "--len", "1MiB", "--out", out.to_str().unwrap()],
    ] {
        let ran = fpgactl(&[words, &["--card", &card, "--timeout", "100ms"]].concat());
        assert_eq!(ran.status, 1, "{}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 2, "{}", ran.stderr);
        assert_eq!(ran.stderr.matches("\nhelp: ").count(), 1, "{}", ran.stderr);
        assert_eq!(ran.stderr.matches("fpgactl reset").count(), 1, "{}", ran.stderr);
        let told = fpgactl(&[words, &["--card", &card, "--timeout", "100ms", "-v"]].concat());
        assert!(told.stderr.contains("quarantine"), "{}", told.stderr);
    }
}

#[test]
fn unknown_block_lists_each_block_once() {
    let ran = fpgactl(&["regs", "dump", "nosuch"]);
    let (_, blocks) = ran.stderr.split_once("the card's blocks are ").unwrap();
    let (blocks, _) = blocks.split_once(';').unwrap();
    let blocks: Vec<&str> = blocks.split(", ").collect();
    let unique: std::collections::BTreeSet<&str> = blocks.iter().copied().collect();
    assert_eq!(blocks.len(), unique.len(), "{}", ran.stderr);
}

/// A message contains at most 60 characters of a file's value.
#[test]
fn long_yaml_values_are_shortened() {
    let folder = tempfile::tempdir().unwrap();
    let long = "x".repeat(200_000);
    for text in [
        format!("{long}\n"),
        format!("{long}: 1\n"),
        format!("schema_version: {long}\n"),
        format!(
            "schema_version: 1\nblocks:\n  - name: {long}\n    base: 0\n    size: 4\n    registers: []\n"
        ),
        format!("schema_version: 1\nlink: {long}\n"),
    ] {
        let path = file(folder.path(), "long.yaml", &text);
        let path = path.to_str().unwrap();
        for args in [
            &["sim", "check", path][..],
            &["card", "check", path],
            &["--config", path, "list"],
            &["--card", "mock", "--map", path, "regs", "list"],
        ] {
            let ran = fpgactl(args);
            let said = ran.stdout + &ran.stderr;
            let start = text.get(..30).unwrap();
            assert!(ran.status != 0 && said.len() < 2000, "{args:?} {start}: {} {}", ran.status, said.len());
            assert!(said.contains("long.yaml"), "{args:?} {start}: {said}");
        }
    }
}

#[test]
fn waveform_in_missing_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    std::fs::create_dir_all(model.join("obj")).unwrap();
    for name in ["obj/simulation", "traced"] {
        std::fs::write(model.join(name), "").unwrap();
    }
    let (model, wave) = (model.display().to_string(), folder.path().join("missing/wave.fst"));
    let wave = wave.display().to_string();
    refused(&["rtl", "run", &model, "--socket", "s", "--trace", &wave], 1, &[&wave, "cannot write it"]);
}
