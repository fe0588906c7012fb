//! How this machine copies data, for the reports of simulated cards.

use fpga_pci::memory::{CopyRoutines, PageKind};
use serde::Serialize;

use crate::units::binary_size;

/// Routines that were chosen by measuring.
#[derive(Debug, Serialize)]
pub(crate) struct CopyRoutinesReport {
    /// Whether the variable `FPGA_COPY` names the routine, instead of a measurement.
    forced: bool,
    choices: Vec<RoutineChoice>,
}

/// Routine for one kind of pages and one length.
#[derive(Debug, Serialize)]
struct RoutineChoice {
    pages: &'static str,
    length: usize,
    routine: &'static str,
    /// Speed of each routine in gigabytes per second; empty without a measurement.
    measured: Vec<MeasuredSpeed>,
}

#[derive(Debug, Serialize)]
struct MeasuredSpeed {
    routine: &'static str,
    gb_per_s: f64,
}

impl CopyRoutinesReport {
    /// Measures the routines, if this process has not done so yet.
    pub(crate) fn get() -> Self {
        let routines = CopyRoutines::get();
        let of_pages = |pages: PageKind| {
            routines.of_pages(pages).rows().map(move |(length, routine, measured)| RoutineChoice {
                pages: pages.name(),
                length,
                routine: routine.name(),
                measured: measured
                    .iter()
                    .map(|one| MeasuredSpeed {
                        routine: one.routine.name(),
                        gb_per_s: (one.bytes_per_second * 1e-8).round() / 10.0,
                    })
                    .collect(),
            })
        };
        Self { forced: routines.is_forced(), choices: PageKind::ALL.into_iter().flat_map(of_pages).collect() }
    }

    /// Line for people: the routines for huge pages, which the buffers of the driver have.
    pub(crate) fn line(&self) -> String {
        self.lines().pop().map(|(_, line)| line).unwrap_or_default()
    }

    /// Lines for people: one for each kind of pages.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let how = if self.forced { " (FPGA_COPY)" } else { "" };
        let line = |pages: PageKind| {
            let those = self.choices.iter().filter(|choice| choice.pages == pages.name());
            let parts: Vec<_> = those
                .map(|choice| format!("{} {}", binary_size(choice.length as u64), choice.routine))
                .collect();
            let name = match pages {
                PageKind::Normal => "normal pages",
                PageKind::Huge => "huge pages",
            };
            (name, format!("{}{how}", parts.join(", ")))
        };
        PageKind::ALL.map(line).to_vec()
    }
}
