//! `cdma copy`: card memory to card memory.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use fpga_driver::CdmaError;
use fpga_driver::errors::CopyFault;
use fpga_registers::quantity;
use serde::Serialize;

use crate::cli::CdmaCommand;
use crate::error::CliError;
use crate::output::{Report, pairs};
use crate::progress::Progress;
use crate::settings::Settings;
use crate::target;
use crate::units::{binary_size, gigabytes_per_second, rate};

/// Result of a copy.
#[derive(Debug, Serialize)]
pub struct CopyReport {
    command: &'static str,
    card: String,
    src: String,
    dst: String,
    bytes: u64,
    /// Duration by the wall clock.
    seconds: f64,
    gb_per_s: f64,
    /// Duration by the card's clock, which is virtual on a simulated card.
    card_us: f64,
    #[serde(skip)]
    span: Duration,
}

impl Report for CopyReport {
    fn text(&self) -> String {
        pairs(&[
            ("copied", format!("{} {} -> {}", self.card, self.src, self.dst)),
            ("bytes", format!("{} ({})", self.bytes, binary_size(self.bytes))),
            ("time", format!("{:.6} s ({:.1} µs of card time)", self.seconds, self.card_us)),
            ("rate", rate(self.bytes, self.span)),
        ])
    }
}

/// Runs the command.
pub fn run(settings: &Settings, command: &CdmaCommand) -> Result<CopyReport, CliError> {
    let CdmaCommand::Copy { src, dst, len } = *command;
    let opened = target::open(&settings.card)?;
    let mut cdma = opened.card.cdma()?;
    let progress = Progress::new(len, settings.progress);
    progress.phase(format!("copying inside {}", opened.card.name()));
    let (began, began_card) = (Instant::now(), opened.now());
    let what = |done| format!("copying inside {} ({done} of {})", opened.card.name(), quantity(len, "byte"));
    let mut ended = None;
    // One call, so that the whole range is checked before anything is copied.
    let copied = cdma.copy_with_progress(src, dst, len, settings.deadline.left(), &mut |done| {
        progress.at(done);
        // The limit counts on the wall clock, too: the clock of a simulated card may be slower or faster.
        match settings.deadline.check(|| what(done)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                ended = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    copied.map_err(|error| match (&error.kind, ended, settings.deadline.limit()) {
        (CdmaError::Copy { cause: CopyFault::Stopped, .. }, Some(ended), _) => ended,
        (CdmaError::Copy { cause: CopyFault::TimedOut { .. }, done, .. }, _, Some(limit)) => {
            CliError::timed_out(what(*done), limit)
        }
        _ => error.into(),
    })?;
    let (span, card_time) = (began.elapsed(), opened.now().saturating_sub(began_card));
    Ok(CopyReport {
        command: "cdma copy",
        card: opened.card.name().to_owned(),
        src: format!("{:#x}", src.get()),
        dst: format!("{:#x}", dst.get()),
        bytes: len,
        seconds: span.as_secs_f64(),
        gb_per_s: gigabytes_per_second(len, span),
        card_us: crate::units::micros(card_time),
        span,
    })
}
