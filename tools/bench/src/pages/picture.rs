//! Picture of the throughput: share of the copy limit by operation size.

use fpga_netsim::figures::picture::{Curve, Extent, Panel, Picture, Scale};

use super::super::cells::{Direction, Ring};
use super::super::data::MachineFigures;

/// Upper end of the share axis: a run may exceed a copy that was measured in a slow moment.
const MAX_SHARE: f64 = 1.1;

/// One curve per machine and direction, in credit mode and the placement of the summary; a panel of its own for each machine would hide
/// their differences.
pub(super) fn throughput(machines: &[MachineFigures]) -> Picture {
    let mut panel = Panel::default();
    panel.x_label = "size of an operation".to_owned();
    panel.y_label = "rate / rate of a plain copy".to_owned();
    panel.x_scale = Scale::Bytes;
    panel.y_extent = Extent::Between(0.0, MAX_SHARE);
    for machine in machines {
        for direction in [Direction::H2c, Direction::C2h] {
            let placement = machine.main_placement();
            let points = machine.throughput.iter().filter_map(|row| {
                let key = row.key;
                let is_shown =
                    (key.ring, key.direction, key.placement) == (Ring::Credit, direction, placement);
                #[expect(clippy::cast_precision_loss, reason = "sizes are small")]
                let size = key.size as f64;
                let share = row.copy_share.filter(|_| is_shown)?;
                Some([size, share.median, share.least, share.most.min(MAX_SHARE)])
            });
            let name = format!("{}, {}", machine.cpu, direction.name());
            let mut curve = Curve::new(name, panel.curves.len());
            curve.points = points.collect();
            panel.curves.push(curve);
        }
    }
    let mut picture = Picture::default();
    picture.title = "Share of the copy limit".to_owned();
    picture.caption = vec![
        "Credit mode, simulated card; medians, with minimum and maximum. CPU placement: see BENCHMARKS.md."
            .to_owned(),
    ];
    picture.columns = 1;
    picture.panels = vec![panel];
    picture
}
