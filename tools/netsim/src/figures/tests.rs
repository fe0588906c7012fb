use super::*;

fn make(figure: Figure, runs: u32, seed: u64, threads: usize) -> Made {
    let mut done = 0;
    let made = figure.make(&Options { runs, seed, threads }, &mut |runs| done += runs).unwrap();
    assert_eq!(made.failures, 0, "{figure:?}: {}", made.csv);
    made
}

/// The same seed gives the same bytes, data and drawing, for any number of threads; another seed does not. And every line has as
/// many fields as the header.
#[test]
fn the_same_seed_gives_the_same_bytes() {
    for figure in Figure::ALL {
        let first = make(figure, 2, 7, 1);
        let again = make(figure, 2, 7, 3);
        assert_eq!(first.csv, again.csv, "{figure:?}");
        assert_eq!(first.picture.svg().unwrap(), again.picture.svg().unwrap(), "{figure:?}");
        assert!(!first.findings.is_empty() && !first.picture.panels.is_empty());
        if figure == Figure::StateBits {
            continue;
        }
        let mut lines = first.csv.lines();
        assert_eq!(lines.next(), Some(HEADER));
        let columns = HEADER.split(',').count();
        let lines: Vec<&str> = lines.collect();
        assert!(
            lines.iter().all(|line| line.split(',').count() == columns && line.starts_with(figure.name()))
        );
        assert_eq!(lines.len() as u64, first.points);
    }
    assert_ne!(make(Figure::LossSweep, 2, 7, 2).csv, make(Figure::LossSweep, 2, 8, 2).csv);
}

/// What the frozen set of parameters has to give: document 004's two points within 5 points, as a check that nothing has changed;
/// and what is sent again for nothing by the scheme that is to do better.
#[test]
fn the_reorder_figure_has_the_documents_points() {
    let made = make(Figure::Reorder, 60, 1, 2);
    let field = |scheme: &str, degree: &str, window: &str, field: usize| -> f64 {
        let line = made.csv.lines().find(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            (fields[1], fields[2], fields[6], fields[7]) == (scheme, "point-to-point", degree, window)
        });
        line.unwrap().split(',').nth(field).unwrap().parse().unwrap()
    };
    for (window, wanted) in [("32", 0.70), ("64", 0.95)] {
        let speed = field("receiver-window", "64", window, 14);
        assert!((speed - wanted).abs() <= 0.05, "window {window}: {speed}, not {wanted}");
    }
    let needless = field("selective", "128", "512", 13) - 1.0;
    assert!(needless < 0.001, "{needless} sent again for nothing");
}

/// 256 KiB at half a percent of loss: speed against that without loss and disorder, and packets sent over packets needed.
#[test]
fn selective_keeps_its_speed() {
    let made = make(Figure::Selective, 60, 1, 2);
    for (degree, least) in [("0", 0.95), ("16", 0.95), ("64", 0.88), ("128", 0.76)] {
        let line = made.csv.lines().find(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            (fields[1], fields[5], fields[6]) == ("selective", "0.005", degree)
        });
        let fields: Vec<f64> = line.unwrap().split(',').map(|field| field.parse().unwrap_or(0.0)).collect();
        assert!(fields[14] >= least && fields[13] <= 1.02, "disorder {degree}: {fields:?}");
    }
}
