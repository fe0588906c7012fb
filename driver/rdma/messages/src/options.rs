//! Options of a messenger.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How simulated cards of different processes are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkChoice {
    /// Shared memory between processes of one machine, UDP otherwise.
    #[default]
    Auto,
    /// UDP only.
    Udp,
    /// Shared memory only.
    Shm,
}

/// Maximum of [`MessengerOptions::reorder`].
const MAX_REORDER: u32 = 256;

/// Maximum of [`MessengerOptions::unexpected`] in the environment, in bytes.
const MAX_UNEXPECTED: u64 = 64 << 30;

/// Options of a messenger.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MessengerOptions {
    /// The card, as `fpgactl --card` names it. Default `mock`: a simulated card of this process, linked with those of others.
    pub card: String,
    /// Links of a simulated card.
    pub link: LinkChoice,
    /// Address at which a simulated card's link receives; port 0: a free one. Default: the address of this machine, port 0.
    pub listen: Option<SocketAddr>,
    /// File of the key that all simulated cards of the network share: datagrams by UDP carry a tag, and those without are dropped. Views of
    /// a shared card use the key of the card's owner. Default: none.
    pub link_key: Option<PathBuf>,
    /// Share of the packets that a simulated card sends and its network loses, for tests: 0 to 1. Default 0.
    pub loss: f64,
    /// Number of packets among which a simulated card's network delivers in random order, for tests. Default 1: in order.
    pub reorder: u32,
    /// Seed of both.
    pub seed: u64,
    /// Maximum time without an answer of a peer before its operations fail. Default 30 s.
    pub give_up: Duration,
    /// Bytes of each peer's messages that are kept before they match a receive. Each message uses 256 bytes more than its data. Beyond this the
    /// peer announces its messages, and sends their data once they have matched. Default 16 MiB.
    pub unexpected: u64,
    /// Whether every access of a peer to registered memory has a completion: [`RemoteWrite`](crate::CompletionKind::RemoteWrite) for writes
    /// and atomic operations without a result, [`RemoteRead`](crate::CompletionKind::RemoteRead) for reads and atomic operations with one.
    /// Default: writes with immediate data only.
    pub reports_access: bool,
}

impl Default for MessengerOptions {
    fn default() -> Self {
        Self {
            card: "mock".to_owned(),
            link: LinkChoice::Auto,
            listen: None,
            link_key: None,
            loss: 0.0,
            reorder: 1,
            seed: 0,
            give_up: Duration::from_secs(30),
            unexpected: 16 << 20,
            reports_access: false,
        }
    }
}

impl MessengerOptions {
    /// Reads the environment variables `FPGA_CARD`, `FPGA_LINK` (`auto`, `udp`, `shm`), `FPGA_ADDRESS` (IP address, or IP:PORT), `FPGA_LINK_KEY` (file),
    /// `FPGA_LOSS` (percent), `FPGA_REORDER` (packets), `FPGA_SEED`, `FPGA_GIVE_UP` (seconds) and `FPGA_UNEXPECTED` (bytes). None of them is required.
    ///
    /// # Errors
    /// Text that names the variable and what it accepts.
    pub fn from_environment() -> Result<Self, String> {
        let mut options = Self::default();
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        if let Some(card) = variable("FPGA_CARD") {
            options.card = card;
        }
        if let Some(link) = variable("FPGA_LINK") {
            options.link = match link.as_str() {
                "auto" => LinkChoice::Auto,
                "udp" => LinkChoice::Udp,
                "shm" => LinkChoice::Shm,
                _ => return Err(format!("FPGA_LINK is {link}: give auto, udp or shm")),
            };
        }
        if let Some(address) = variable("FPGA_ADDRESS") {
            let whole = address.parse().ok();
            let socket = whole.or_else(|| address.parse().ok().map(|ip| SocketAddr::new(ip, 0)));
            options.listen = Some(
                socket.ok_or_else(|| format!("FPGA_ADDRESS is {address}: give an IP address, or IP:PORT"))?,
            );
        }
        options.link_key = variable("FPGA_LINK_KEY").map(PathBuf::from);
        if let Some(loss) = variable("FPGA_LOSS") {
            let percent: Option<f64> = loss.trim_end_matches('%').trim().parse().ok();
            let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
            options.loss = percent
                .ok_or_else(|| format!("FPGA_LOSS is {loss}: give a percentage from 0 to 100"))?
                / 100.0;
        }
        if let Some(packets) = variable("FPGA_REORDER") {
            let number = packets.parse().ok().filter(|packets| (1..=MAX_REORDER).contains(packets));
            options.reorder = number.ok_or_else(|| {
                format!("FPGA_REORDER is {packets}: give a number of packets from 1 to {MAX_REORDER}")
            })?;
        }
        if let Some(seed) = variable("FPGA_SEED") {
            options.seed = seed.parse().map_err(|_| format!("FPGA_SEED is {seed}: give a number"))?;
        }
        if let Some(seconds) = variable("FPGA_GIVE_UP") {
            let span = seconds.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            options.give_up = span
                .filter(|span| !span.is_zero())
                .ok_or_else(|| format!("FPGA_GIVE_UP is {seconds}: give a number of seconds above 0"))?;
        }
        if let Some(bytes) = variable("FPGA_UNEXPECTED") {
            let number = bytes.parse().ok().filter(|bytes| *bytes <= MAX_UNEXPECTED);
            options.unexpected = number.ok_or_else(|| {
                format!("FPGA_UNEXPECTED is {bytes}: give a number of bytes from 0 to {MAX_UNEXPECTED}")
            })?;
        }
        Ok(options)
    }
}
