//! Project of a bitstream with the network interface: parameters and sources for `ni_design.tcl` (`firmware-bindings/rtl/boards`).
//!
//! The numbers are those of a card description, so that the simulated card, the RTL model and the bitstream of one file agree.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use fpga_sim::CardDescription;

/// Offset of the CDMA's registers in the user BAR: behind the registers of the network interface.
const CDMA_OFFSET: u64 = 0x1_0000;
/// Frequency of `axi_aclk` in MHz.
const CLOCK_MHZ: u32 = 250;

/// A board with public part numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Board {
    /// Name for the command line.
    pub name: &'static str,
    /// Part number.
    pub part: &'static str,
    constraints: &'static str,
    /// The buffer of the reference clock has two outputs (UltraScale+).
    has_gt_clock: bool,
    /// The pin `hbm_cattrip` switches the board off.
    has_cattrip: bool,
    /// Data bus of the XDMA in bits, link generation and lanes of the board's slot.
    data_width: u16,
    generation: u8,
    lanes: u8,
}

/// The boards.
pub const BOARDS: [Board; 2] = [
    Board {
        name: "alveo-u50",
        part: "xcu50-fsvh2104-2-e",
        constraints: include_str!("../../../../firmware-bindings/rtl/boards/alveo-u50.xdc"),
        has_gt_clock: true,
        has_cattrip: true,
        data_width: 512,
        generation: 3,
        lanes: 16,
    },
    Board {
        name: "kc705",
        part: "xc7k325tffg900-2",
        constraints: include_str!("../../../../firmware-bindings/rtl/boards/kc705.xdc"),
        has_gt_clock: false,
        has_cattrip: false,
        data_width: 128,
        generation: 2,
        lanes: 8,
    },
];

/// Connection of the network port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BoardNetwork {
    /// The card reaches itself.
    #[default]
    Loopback,
    /// AXI4-Stream ports of the block design.
    External,
}

/// Reasons why no project is written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BoardError {
    /// The name is not one of [`BOARDS`].
    #[error("there is no board `{0}`; the boards are {names}", names = BOARDS.map(|board| board.name).join(", "))]
    Unknown(String),
    /// A value of the card description that the RTL or the board does not have.
    #[error("{key} is {found}: {board} with this network interface has {wanted}")]
    Card {
        /// Name of the board.
        board: &'static str,
        /// Key in the card file.
        key: &'static str,
        /// Value found.
        found: String,
        /// Values that are possible.
        wanted: String,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {reason}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// Error of the system.
        reason: std::io::Error,
    },
}

impl BoardError {
    /// Returns what to do about it.
    #[must_use]
    pub const fn help(&self) -> Option<&'static str> {
        match self {
            Self::Unknown(_) => Some("choose one of them, or copy its files and change part and pins"),
            Self::Card { .. } => Some("change it in the card file"),
            Self::File { .. } => None,
        }
    }
}

impl Board {
    /// Returns the board of this name.
    ///
    /// # Errors
    /// [`BoardError::Unknown`].
    pub fn named(name: &str) -> Result<Self, BoardError> {
        let found = BOARDS.into_iter().find(|board| board.name == name);
        found.ok_or_else(|| BoardError::Unknown(name.to_owned()))
    }

    /// Returns the card that the bitstream is without a card file: 2 MiB of memory on the chip.
    #[must_use]
    pub fn card(&self) -> CardDescription {
        let mut card = CardDescription::default();
        card.name = self.name.to_owned();
        (card.xdma.h2c_channels, card.xdma.c2h_channels) = (2, 2);
        card.xdma.data_width = self.data_width;
        (card.link.speed, card.link.width) = (self.generation, self.lanes);
        card.bars.bypass = None;
        card.memory.size = 0x20_0000;
        card.ni.window_base = 0x10_0000_0000;
        (card.ni.commands, card.ni.event_push) = (0, false);
        card
    }

    /// Writes the project into `folder`: parameters, script, constraints and sources. Returns the files.
    ///
    /// # Errors
    /// [`BoardError`].
    pub fn write(
        &self,
        card: &CardDescription,
        network: BoardNetwork,
        folder: &Path,
    ) -> Result<Vec<PathBuf>, BoardError> {
        self.check(card)?;
        let sources = folder.join("rtl");
        std::fs::create_dir_all(&sources)
            .map_err(|reason| BoardError::File { path: sources.clone(), reason })?;
        let constraints = format!("{}.xdc", self.name);
        let design = include_str!("../../../../firmware-bindings/rtl/boards/ni_design.tcl");
        let mut files = vec![
            (folder.join("parameters.tcl"), self.parameters(card, network, &constraints)),
            (folder.join("ni_design.tcl"), design.to_owned()),
            (folder.join(&constraints), self.constraints.to_owned()),
        ];
        files.extend(crate::sources::NI.iter().map(|(name, text)| (sources.join(name), (*text).to_owned())));
        for (path, text) in &files {
            std::fs::write(path, text).map_err(|reason| BoardError::File { path: path.clone(), reason })?;
        }
        Ok(files.into_iter().map(|(path, _)| path).collect())
    }

    /// Checks what the RTL, the board and the block design do not have.
    fn check(&self, card: &CardDescription) -> Result<(), BoardError> {
        let rule = |holds: bool, key, found: String, wanted: String| match holds {
            true => Ok(()),
            false => Err(BoardError::Card { board: self.name, key, found, wanted }),
        };
        let (ni, xdma) = (&card.ni, &card.xdma);
        let channels = u32::from(xdma.h2c_channels.max(xdma.c2h_channels));
        rule(!xdma.stream, "xdma.stream", "true".to_owned(), "false".to_owned())?;
        rule(
            card.bars.bypass.is_none(),
            "bars.bypass",
            "a size".to_owned(),
            "none (bars: {bypass: null})".to_owned(),
        )?;
        rule(
            matches!(xdma.data_width, 64 | 128 | 256 | 512) && xdma.data_width <= self.data_width,
            "xdma.data_width",
            xdma.data_width.to_string(),
            format!("64 to {}", self.data_width),
        )?;
        rule(channels <= 4, "xdma.h2c_channels", channels.to_string(), "1 to 4".to_owned())?;
        rule(ni.commands == 0, "ni.commands", ni.commands.to_string(), "0".to_owned())?;
        rule(!ni.event_push, "ni.event_push", "true".to_owned(), "false".to_owned())?;
        let entries = (16..=1024).contains(&ni.registry_entries) && ni.registry_entries.is_power_of_two();
        rule(
            entries,
            "ni.registry_entries",
            ni.registry_entries.to_string(),
            "a power of two, 16 to 1024".to_owned(),
        )?;
        rule(
            matches!(ni.mask_bits, 32 | 64 | 128 | 256),
            "ni.mask_bits",
            ni.mask_bits.to_string(),
            "32, 64, 128 or 256".to_owned(),
        )?;
        rule(ni.packet_size <= 4096, "ni.packet_size", ni.packet_size.to_string(), "64 to 4096".to_owned())?;
        rule(card.memory.base == 0, "memory.base", format!("{:#x}", card.memory.base), "0".to_owned())
    }

    fn parameters(&self, card: &CardDescription, network: BoardNetwork, constraints: &str) -> String {
        let (ni, xdma, pci) = (&card.ni, &card.xdma, &card.pci);
        let speeds = ["2.5_GT/s", "5.0_GT/s", "8.0_GT/s", "16.0_GT/s", "32.0_GT/s"];
        let speed = speeds.get(usize::from(card.link.speed.saturating_sub(1))).copied().unwrap_or("8.0_GT/s");
        let packet_log2 = ni.packet_size.trailing_zeros();
        let range = ni.windows_size().next_power_of_two();
        let mut text = format!(
            "# Parameters of ni_design.tcl for {}: written by `fpgactl rtl board` from a card description. Change that instead.\n\n",
            self.name
        );
        let numbers: [(&str, String); 24] = [
            ("project", self.name.replace('-', "_")),
            ("part", self.part.to_owned()),
            ("constraints", constraints.to_owned()),
            ("has_gt_clock", u8::from(self.has_gt_clock).to_string()),
            ("has_cattrip", u8::from(self.has_cattrip).to_string()),
            ("link_width", format!("X{}", card.link.width)),
            ("link_speed", speed.to_owned()),
            ("clock_mhz", CLOCK_MHZ.to_string()),
            ("data_width", xdma.data_width.to_string()),
            ("h2c_channels", xdma.h2c_channels.to_string()),
            ("c2h_channels", xdma.c2h_channels.to_string()),
            ("vendor", format!("{:04x}", pci.vendor)),
            ("device", format!("{:04x}", pci.device)),
            ("subsystem_vendor", format!("{:04x}", pci.subsystem_vendor)),
            ("subsystem_device", format!("{:04x}", pci.subsystem_device)),
            ("memory_size", format!("{:#x}", card.memory.size)),
            ("packet_log2", packet_log2.to_string()),
            ("mask_bits", ni.mask_bits.to_string()),
            ("registry_entries", ni.registry_entries.to_string()),
            ("escape_slots", ni.escape_slots.to_string()),
            ("memory_windows", ni.memory_windows.to_string()),
            ("windows", ni.windows.to_string()),
            ("node_id", ni.node_id.to_string()),
            ("window_base", format!("{:#x}", ni.window_base)),
        ];
        let network = if network == BoardNetwork::Loopback { "loopback" } else { "external" };
        let last = [
            ("window_range", format!("{range:#x}")),
            ("cdma_offset", format!("{CDMA_OFFSET:#x}")),
            ("network", network.to_owned()),
        ];
        // Writing to a String cannot fail.
        let _ = writeln!(text, "namespace eval card {{");
        for (name, value) in numbers.iter().chain(&last) {
            let _ = writeln!(text, "    variable {name} {value}");
        }
        text.push_str("}\n");
        text
    }
}
