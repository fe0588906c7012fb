//! `irq`: user interrupts of a card.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::{Duration, Instant};

use fpga_driver::user_interrupt::{Delivery, UserInterruptState};
use fpga_driver::{Error, user_interrupt::UserInterruptError};
use fpga_registers::quantity;
use serde::Serialize;

use crate::cli::{IrqCommand, IrqWaitArgs};
use crate::error::CliError;
use crate::output::{self, Report};
use crate::settings::Settings;
use crate::target;

/// Maximum wait without a check of signals and the time limit.
const WAIT: Duration = Duration::from_millis(100);

/// All interrupt lines of a card.
#[derive(Debug, Serialize)]
pub struct ListReport {
    card: String,
    /// Vectors that the card or the system has.
    vectors: u32,
    lines: Vec<LineReport>,
}

#[derive(Debug, Serialize)]
struct LineReport {
    line: u8,
    enabled: bool,
    pending: bool,
    vector: u8,
}

impl From<UserInterruptState> for LineReport {
    fn from(state: UserInterruptState) -> Self {
        let UserInterruptState { line, enabled, pending, vector, .. } = state;
        Self { line, enabled, pending, vector }
    }
}

impl Report for ListReport {
    fn text(&self) -> String {
        let mut table = output::table(&["LINE", "ENABLED", "PENDING", "VECTOR"], &[0, 3]);
        let yes = |on: bool| if on { "yes" } else { "no" }.to_owned();
        for line in &self.lines {
            let (enabled, pending) = (yes(line.enabled), yes(line.pending));
            table.add_row([line.line.to_string(), enabled, pending, line.vector.to_string()]);
        }
        format!("{}: {}\n{}", self.card, quantity(self.vectors, "interrupt vector"), output::render(&table))
    }
}

/// Interrupts of a line that arrived together.
#[derive(Debug, Serialize)]
struct ArrivalReport {
    card: String,
    line: u8,
    /// Number of interrupts that arrived together.
    requests: u64,
    /// Number of interrupts of this line since the command began.
    total: u64,
    /// Seconds since the command began to wait.
    seconds: f64,
}

impl Report for ArrivalReport {
    fn text(&self) -> String {
        let Self { card, line, requests, total, seconds } = self;
        let times = if *requests == 1 { String::new() } else { format!(", {}", quantity(*requests, "time")) };
        format!("{card} after {seconds:.3} s: user interrupt {line}{times} ({total} in all)\n")
    }
}

/// Runs the command.
///
/// # Errors
/// As [`target::open`]; wrong usage for a card on which nothing can raise a line; [`CliError::timed_out`],
/// [`CliError::stopped`].
pub fn run(settings: &Settings, command: &IrqCommand, out: &mut dyn Write) -> Result<(), CliError> {
    match command {
        IrqCommand::List => output::print(&list(settings)?, settings.json, out),
        IrqCommand::Wait(args) => wait(settings, args, out),
    }
}

fn list(settings: &Settings) -> Result<ListReport, CliError> {
    let opened = target::observe(&settings.card)?;
    let lines = opened.card.user_interrupt_states()?.into_iter().map(Into::into).collect();
    Ok(ListReport { card: settings.card.to_string(), vectors: opened.backend.interrupt_vectors(), lines })
}

const fn way(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Message => "by a dedicated vector",
        Delivery::SharedMessage => "by a shared vector",
        Delivery::Level => "by the legacy line (INTx)",
        Delivery::Polled => "polled: the card or the system provides no interrupts",
        _ => "by other means",
    }
}

/// Reason why a line can miss short pulses.
const fn limit(delivery: Delivery) -> Option<&'static str> {
    match delivery {
        Delivery::SharedMessage => Some(
            "a shared vector does not tell its lines apart, so their level is read after each interrupt: a pulse that is over by then is not seen",
        ),
        Delivery::Level => Some(
            "a legacy interrupt lasts only as long as the line is high: a pulse that is over before its level is read is not seen",
        ),
        Delivery::Polled => Some("the level of the lines is read every 10 ms: a shorter pulse is not seen"),
        _ => None,
    }
}

/// Prints each interrupt, with `--json` one JSON document per line, up to the requested number.
fn wait(settings: &Settings, args: &IrqWaitArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let card = settings.card.to_string();
    if settings.card.is_simulated() {
        let text = format!("{card}: nothing raises user interrupts of a simulated card in this process");
        return Err(CliError::usage(text).advise("serve one with `fpgactl card serve`, wait with --card vfio-user:SOCKET, and raise the line with `fpgactl card control`"));
    }
    let opened = target::open(&settings.card)?;
    let numbers: BTreeSet<u8> = args.lines.iter().copied().collect();
    let lines = opened.card.user_interrupts(&numbers.into_iter().collect::<Vec<_>>())?;
    for line in &lines {
        eprintln!("fpgactl: {card}: waiting for user interrupt {}, {}", line.line(), way(line.delivery()));
    }
    // All lines of a card are delivered alike, apart from those that share a vector.
    if let Some(why) = lines.iter().find_map(|line| limit(line.delivery())) {
        eprintln!("fpgactl: {card}: {why}; hold a line high until it is served");
    }
    let began = Instant::now();
    let mut seen = 0_u64;
    loop {
        let slice = settings.deadline.left().map_or(WAIT, |left| left.min(WAIT));
        let taken = match lines.wait(slice) {
            Err(Error { kind: UserInterruptError::TimedOut { .. }, .. }) => Vec::new(),
            taken => taken?,
        };
        let seconds = began.elapsed().as_secs_f64();
        for (number, requests) in taken {
            seen = seen.saturating_add(requests);
            let total = lines.iter().find(|line| line.line() == number).map_or(requests, |line| line.count());
            let report = ArrivalReport { card: card.clone(), line: number, requests, total, seconds };
            output::print_line(&report, settings.json, out)?;
        }
        if seen >= args.count {
            return Ok(());
        }
        settings
            .deadline
            .check(|| format!("{card}: waiting for user interrupts, {seen} of {} seen", args.count))?;
    }
}
