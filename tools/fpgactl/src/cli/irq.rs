//! `irq`: user interrupts.

use clap::{Args, Subcommand};

use super::whole;

/// User interrupts.
#[derive(Debug, Clone, Subcommand)]
pub enum IrqCommand {
    /// Show the lines of user logic (usr_irq_req): enabled, pending and vector
    #[command(
        after_help = "The card is not changed. `fpgactl irq wait LINE` counts interrupts while it runs.\n\n\
                        Examples:\n  \
                        fpgactl irq list --card 0000:65:00.0\n  \
                        fpgactl irq list --card vfio-user:/tmp/card --json"
    )]
    List,
    /// Wait for interrupts of user logic, and print each
    Wait(IrqWaitArgs),
}

/// Options of `irq wait`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The card is opened, the lines are enabled while the command runs, and masked when it ends. A line that is high then \
                        interrupts at once. An interrupt is a rising edge of the line: a line that stays high is printed once. If the line has \
                        a dedicated vector, edges that come faster than they are printed are counted (requests); if it shares a vector, or is \
                        polled, they count as one.\n\n\
                        Exit status: 0 after --count interrupts; 1 after --timeout, a signal, or a failure of the card; 2 if the line does not \
                        exist. With --json one document per line.\n\n\
                        Examples:\n  \
                        fpgactl irq wait 3 --card 0000:65:00.0\n  \
                        fpgactl irq wait 0 1 2 --count 100 --timeout 60s --json --card vfio-user:/tmp/card"
)]
pub struct IrqWaitArgs {
    /// Interrupt lines: 0 to 15
    #[arg(value_name = "LINE", required = true, value_parser = whole::<u8>(0, 15))]
    pub lines: Vec<u8>,
    /// Number of interrupts, over all lines, after which the command ends
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(1, u64::MAX))]
    pub count: u64,
}
