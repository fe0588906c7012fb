//! `area_figure CSV SVG`: draws what `cargo xtask area` measured, in the style of the simulator's figures.

#![expect(clippy::print_stderr, reason = "a program for developers")]

use std::process::ExitCode;

use fpga_netsim::figures::picture::{Curve, Panel, Picture, Scale};

/// Row of the CSV file.
struct Row {
    module: String,
    /// `compared` or `hashed`.
    kind: String,
    entries: f64,
    mask: f64,
    luts: f64,
    flip_flops: f64,
    levels: f64,
}

/// Shown family of devices.
const FAMILY: &str = "xcup";

/// Curves: module, kind of its registry, name.
const CURVES: [(&str, &str, &str); 4] = [
    ("ni_registry", "compared", "registry, all keys compared"),
    ("ni_registry", "hashed", "registry, hash table with 4 ways"),
    ("ni_receive", "compared", "receiver, all keys compared"),
    ("ni_receive", "hashed", "receiver, hash table with 4 ways"),
];

fn row(line: &str) -> Option<Row> {
    let cells: Vec<&str> = line.split(',').collect();
    let [variant, FAMILY, luts, flip_flops, lut_rams, _, _, levels] = cells[..] else { return None };
    let parts: Vec<&str> = variant.split('-').collect();
    let [module, kind, entries, mask] = parts[..] else { return None };
    let number = |text: &str| text.parse::<f64>().ok();
    Some(Row {
        module: module.to_owned(),
        kind: kind.to_owned(),
        entries: number(entries)?,
        mask: number(mask)?,
        luts: number(luts)? + number(lut_rams)?,
        flip_flops: number(flip_flops)?,
        levels: number(levels)?,
    })
}

/// Panel of `y` over entries (`by_entries`), with masks of 32 bits, or over bits of the mask, with 64 entries.
fn panel(rows: &[Row], title: &str, label: &str, by_entries: bool, y: fn(&Row) -> f64) -> Panel {
    let mut panel = Panel::default();
    panel.title = title.to_owned();
    panel.x_label = if by_entries { "registry entries" } else { "bits of a mask" }.to_owned();
    panel.y_label = label.to_owned();
    panel.x_scale = Scale::Decades;
    panel.y_scale = if label == "LUT levels" { Scale::Linear } else { Scale::Decades };
    for (colour, (module, kind, name)) in CURVES.into_iter().enumerate() {
        let own = rows.iter().filter(|row| row.module == module && row.kind == kind);
        let own = own.filter(|row| if by_entries { row.mask == 32.0 } else { row.entries == 64.0 });
        let mut points: Vec<[f64; 4]> = own
            .map(|row| {
                let (x, y) = (if by_entries { row.entries } else { row.mask }, y(row));
                [x, y, y, y]
            })
            .collect();
        points.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let mut curve = Curve::default();
        (curve.name, curve.colour, curve.points) = (name.to_owned(), colour, points);
        panel.curves.push(curve);
    }
    panel
}

fn picture(rows: &[Row]) -> Picture {
    let mut picture = Picture::default();
    picture.title = "Network interface on an UltraScale+ device".to_owned();
    picture.caption = vec![
        "Synthesis by Yosys for xcup, without placement. LUT: as logic and as memory. LUT levels: the longest path between registers, \
         memories and ports, without multiplexers and carry chains. Receiver: with 64 senders, 128 transfers, 64 slots of its escape channel."
            .to_owned(),
    ];
    picture.columns = 2;
    picture.panels = vec![
        panel(rows, "mask 32", "LUT", true, |row| row.luts),
        panel(rows, "64 entries", "LUT", false, |row| row.luts),
        panel(rows, "mask 32", "flip-flops", true, |row| row.flip_flops),
        panel(rows, "mask 32", "LUT levels", true, |row| row.levels),
    ];
    picture
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [csv, svg] = &arguments[..] else {
        eprintln!("usage: area_figure CSV SVG");
        return ExitCode::from(2);
    };
    let drawn = std::fs::read_to_string(csv).and_then(|text| {
        let rows: Vec<Row> = text.lines().filter_map(row).collect();
        std::fs::write(svg, picture(&rows).svg())
    });
    match drawn {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{csv}, {svg}: {error}");
            ExitCode::FAILURE
        }
    }
}
