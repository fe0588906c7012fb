//! Target card: its form on the command line, and how it is opened.

mod pair;

use core::fmt;
use core::str::FromStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fpga_driver::{AccessOptions, Card, CardAddr, CardRange, CardSpec, OpenOptions, errors::Cause};
use fpga_input::FileKind;
use fpga_pci::Backend;
use fpga_pci::DmaPoolOptions;
use fpga_pci::ParsePciAddressError;
use fpga_pci::catch_bus_errors;
use fpga_pci::vfio::{VfToken, VfioInterface};
use fpga_sim::{CardDescription, DescriptionError, SimNetwork, ThreadOptions};

use fpga_register_map::{RegisterMap, hint, nearest};

use crate::design::Design;
use crate::error::CliError;
use crate::progress::Deadline;
use crate::record::Recording;
use crate::registers::{self, Register};
use crate::stream::{read_yaml, waits};

pub use pair::{HopOptions, Pair, SimOptions, open_pair};

/// Card as the command line names it, and its access if it is not in this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Which one.
    pub spec: CardSpec,
    /// How it is accessed.
    pub access: AccessChoice,
}

impl Default for Target {
    fn default() -> Self {
        Self::from(CardSpec::Simulated { description: None })
    }
}

impl From<CardSpec> for Target {
    fn from(spec: CardSpec) -> Self {
        Self { spec, access: AccessChoice::default() }
    }
}

/// Options for opening a card outside this process, as given on the command line; the rest comes from the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccessChoice {
    /// `--vfio`.
    pub interface: Option<VfioInterface>,
    /// `--vf-token`.
    pub token: Option<VfToken>,
    /// `--message-timeout`.
    pub message_timeout: Option<Duration>,
    /// `--timeout`: opening and stopping a card get a part of it.
    pub timeout: Option<Duration>,
}

impl AccessChoice {
    fn options(&self) -> AccessOptions {
        let mut options = AccessOptions::default();
        (options.vfio, options.vf_token) = (self.interface, self.token);
        options.message_timeout = self.message_timeout();
        options
    }

    /// Timeout of a message to a server: the command's replaces the default. `None`: the environment, then the default, decide.
    fn message_timeout(&self) -> Option<Duration> {
        self.message_timeout.or(self.timeout.map(|timeout| timeout.max(MIN_MESSAGE_TIMEOUT)))
    }
}

/// Minimum timeout of a message to a server.
const MIN_MESSAGE_TIMEOUT: Duration = Duration::from_millis(100);
/// Minimum timeout for an engine to become idle, and its fraction of `--timeout`. Two such waits are possible, when its channel and when
/// the card is closed.
const MIN_IDLE_TIMEOUT: Duration = Duration::from_millis(10);
const IDLE_TIMEOUT_FRACTION: u32 = 20;

/// Timeout for an engine to become idle in a command that has to end after `timeout`.
fn idle_timeout(timeout: Option<Duration>) -> Duration {
    let default = OpenOptions::default().idle_timeout;
    timeout.map_or(default, |timeout| (timeout / IDLE_TIMEOUT_FRACTION).clamp(MIN_IDLE_TIMEOUT, default))
}

/// Reasons why text names no card.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{source}; other forms are mock, mock:FILE.yaml, mock:NAME, vfio-user:SOCKET, rtl:FOLDER and shared:CARD{}", meant.as_deref().map_or_else(String::new, |meant| format!("; did you mean {meant}?")))]
pub struct ParseTargetError {
    /// Error of the text.
    r#source: Cause,
    /// Suggested card.
    meant: Option<String>,
}

/// Names of the built-in cards.
fn builtins() -> impl Iterator<Item = &'static str> + Clone {
    let names: Vec<&str> = CardDescription::builtins().map(|known| known.name).collect();
    names.into_iter()
}

/// Suggests a card for `text`, which names none.
fn suggest(text: &str) -> Option<String> {
    let one_of = |text: &str, names: &[&'static str]| nearest(text, names.iter().copied()).first().copied();
    if let Some((form, rest)) = text.split_once(':') {
        return one_of(form, &["mock", "vfio-user", "rtl", "shared"]).map(|form| format!("{form}:{rest}"));
    }
    if text.ends_with(".yaml") || text.ends_with(".yml") {
        return Some(format!("mock:{text}"));
    }
    if text.contains('/') {
        return Some(format!("vfio-user:{text}"));
    }
    let of_ours = || nearest(text, builtins()).first().map(|name| format!("mock:{name}"));
    one_of(text, &["mock"]).map(str::to_owned).or_else(of_ours)
}

impl FromStr for Target {
    type Err = ParseTargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(|spec: CardSpec| Self::from(spec)).map_err(|source| {
            let meant = source.get::<ParsePciAddressError>().and_then(|_| suggest(text));
            ParseTargetError { source, meant }
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec.fmt(f)
    }
}

impl Target {
    /// The same card, accessed as `access` says; of a card in this process, only the time limit matters.
    #[must_use]
    pub fn through(self, access: AccessChoice) -> Self {
        let simulated = AccessChoice { timeout: access.timeout, ..AccessChoice::default() };
        let access = if self.is_simulated() { simulated } else { access };
        Self { access, ..self }
    }

    /// Returns whether the card is simulated in this process.
    #[must_use]
    pub const fn is_simulated(&self) -> bool {
        matches!(self.spec, CardSpec::Simulated { .. })
    }

    /// Returns whether another process serves the card.
    #[must_use]
    pub const fn is_served(&self) -> bool {
        matches!(self.spec, CardSpec::VfioUser(_) | CardSpec::Rtl(_) | CardSpec::Shared(_))
    }

    /// Memory of an RTL simulation, if its card file has `memory.size`: the design need not have all addresses.
    fn stated_memory(&self) -> Result<Option<CardRange>, CliError> {
        let CardSpec::Rtl(folder) = &self.spec else { return Ok(None) };
        let file = folder.join("card.yaml");
        if !file.is_file() {
            return Ok(None);
        }
        let stated = CardDescription::stated_memory(&file)?;
        Ok(stated.map(|(base, size)| CardRange::new(CardAddr::new(base), size)))
    }

    /// Description of a simulated card; `None` for another kind of card.
    pub fn description(&self) -> Result<Option<CardDescription>, CliError> {
        match &self.spec {
            CardSpec::Simulated { description: None } => Ok(Some(CardDescription::default())),
            CardSpec::Simulated { description: Some(file) } => {
                read(file, Deadline::after(self.access.timeout)).map(Some)
            }
            _ => Ok(None),
        }
    }
}

/// Card of a command: target, register map of its user BAR, and recorder.
#[derive(Debug, Clone, Default)]
pub struct CardChoice {
    target: Target,
    design: Design,
    map: Option<Arc<RegisterMap>>,
    recording: Option<Arc<Recording>>,
    timeout: Option<Duration>,
}

impl CardChoice {
    /// Creates the choice of `target`, of this design, with the registers of `map` on its user BAR, and every access recorded.
    #[must_use]
    pub const fn new(
        target: Target,
        design: Design,
        map: Option<Arc<RegisterMap>>,
        recording: Option<Arc<Recording>>,
    ) -> Self {
        Self { target, design, map, recording, timeout: None }
    }

    /// Adapts the choice to a command that has to end after `timeout`.
    #[must_use]
    pub const fn within(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }

    /// Record of `--record`.
    #[must_use]
    pub const fn recording(&self) -> Option<&Arc<Recording>> {
        self.recording.as_ref()
    }
}

impl core::ops::Deref for CardChoice {
    type Target = Target;

    fn deref(&self) -> &Target {
        &self.target
    }
}

impl fmt::Display for CardChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.fmt(f)
    }
}

/// Inputs for opening a card.
pub trait CardOpener {
    /// Target card.
    fn target(&self) -> &Target;

    /// Time limit of the command.
    fn timeout(&self) -> Option<Duration> {
        self.target().access.timeout
    }

    /// Register map of its user BAR.
    fn map(&self) -> Option<Arc<RegisterMap>> {
        None
    }

    /// Design facts from the user.
    fn design(&self) -> Design {
        Design::default()
    }

    /// Puts an observer, if any, in front of the card's backend. Every card that a command opens passes here.
    fn with_observer(&self, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
        backend
    }

    /// Called after the card was opened, with its register names.
    fn opened(&self, opened: &Opened) {
        let _ = opened;
    }
}

impl CardOpener for Target {
    fn target(&self) -> &Target {
        self
    }
}

impl CardOpener for CardChoice {
    fn target(&self) -> &Target {
        &self.target
    }

    fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    fn map(&self) -> Option<Arc<RegisterMap>> {
        self.map.clone()
    }

    fn design(&self) -> Design {
        self.design
    }

    fn with_observer(&self, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
        match &self.recording {
            Some(recording) => Recording::of(recording, backend, self.design, self.map.as_ref()),
            None => backend,
        }
    }

    fn opened(&self, opened: &Opened) {
        if let Some(recording) = &self.recording {
            recording.knows(opened.registers());
        }
    }
}

/// Backend of a card outside this process; `None` for one inside.
fn outside(target: &Target) -> Result<Option<Arc<dyn Backend>>, CliError> {
    if target.is_simulated() {
        return Ok(None);
    }
    catch();
    target.spec.backend(&target.access.options()).map(Some).map_err(CliError::unreached)
}

/// Catches bus errors in this program's process: BARs may be mapped, the removal of a card causes an error message, and memory that a
/// client removes does not end the process.
pub(crate) fn catch() {
    if let Err(error) = catch_bus_errors() {
        tracing::warn!(%error, "bus errors are not caught; every access of a register is a system call");
    }
}

/// Loads a file, or, if there is none, a built-in description: names of built-in ones have neither folders nor an extension.
fn load(file: &Path) -> Result<CardDescription, CliError> {
    CardDescription::find(file).map_err(|error| match error {
        DescriptionError::UnknownName { name, known } => {
            let hint = hint(&name, builtins()).unwrap_or_default();
            let hint = if hint.is_empty() { hint } else { format!("{hint} ") };
            CliError::usage(format!("no built-in card is called `{name}`"))
                .advise(format!("{hint}there are {known}"))
        }
        other => other.into(),
    })
}

/// Loads a card file, or a built-in description of that name; `-` is standard input. A pipe is read until the deadline.
///
/// # Errors
/// Those of the file or of the name; for a pipe [`CliError::timed_out`], [`CliError::stopped`].
pub fn read(file: &Path, deadline: Deadline) -> Result<CardDescription, CliError> {
    if waits(file) {
        return Ok(CardDescription::parse(file, &read_yaml(FileKind::CARD, file, deadline)?)?);
    }
    load(file)
}

/// An opened card.
#[derive(Clone)]
pub struct Opened {
    /// The card.
    pub card: Card,
    /// Backend of the card.
    pub backend: Arc<dyn Backend>,
    /// Whether the card is simulated, so that its time is virtual.
    pub simulated: bool,
    /// Network of a simulated card whose time is virtual, if several cards of this process share it.
    pub network: Option<SimNetwork>,
    /// Whether another process serves it.
    pub served: bool,
    /// Register map of its user BAR.
    pub map: Option<Arc<RegisterMap>>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("card", &self.card)
            .field("simulated", &self.simulated)
            .finish_non_exhaustive()
    }
}

impl Opened {
    /// All registers of the card.
    #[must_use]
    pub fn registers(&self) -> Vec<Register> {
        registers::of(&self.card, &*self.backend, self.map.as_ref())
    }

    /// Opens the card behind a backend that [`CardOpener::with_observer`] returned.
    fn new(
        choice: &impl CardOpener,
        backend: Arc<dyn Backend>,
        options: OpenOptions,
    ) -> Result<Self, CliError> {
        let options = options.idle_timeout(idle_timeout(choice.timeout()));
        let options = match choice.target().stated_memory()? {
            Some(memory) => options.card_memory(memory),
            None => options,
        };
        let card = Card::from_backend_with(Arc::clone(&backend), options)?;
        Ok(Self::of(choice, card, backend))
    }

    /// Wraps a card that was opened behind such a backend.
    pub(crate) fn of(choice: &impl CardOpener, card: Card, backend: Arc<dyn Backend>) -> Self {
        let target = choice.target();
        let (simulated, served) = (target.is_simulated(), target.is_served());
        let opened = Self { card, backend, simulated, network: None, served, map: choice.map() };
        choice.opened(&opened);
        opened
    }

    /// Time of the card's clock, in nanoseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.backend.now()
    }
}

/// Opens one card.
pub fn open(choice: &impl CardOpener) -> Result<Opened, CliError> {
    let (target, options) = (choice.target(), choice.design().options());
    let (backend, options): (Arc<dyn Backend>, _) = match outside(target)? {
        Some(backend) => (backend, options),
        None => {
            let description = target.description()?.unwrap_or_default();
            let options = described(options, &description);
            (SimNetwork::builder().card(description).build()?.backend(0), options)
        }
    };
    Opened::new(choice, choice.with_observer(backend), options)
}

/// Options of a simulated card: the description states facts about its memory that the card itself need not report.
const fn described(options: OpenOptions, card: &CardDescription) -> OpenOptions {
    options.card_memory(CardRange::new(CardAddr::new(card.memory.base), card.memory.size))
}

/// Opens one card for inspection: nothing is stopped or set, so that a card with a hung engine opens.
pub fn observe(choice: &impl CardOpener) -> Result<Opened, CliError> {
    Opened::new(choice, reach(choice)?, choice.design().options().observe(true))
}

/// Returns the backend of one card without accessing its registers: for cards that cannot be opened.
pub fn reach(choice: &impl CardOpener) -> Result<Arc<dyn Backend>, CliError> {
    let target = choice.target();
    let backend = match outside(target)? {
        Some(backend) => backend,
        None => SimNetwork::builder().card(target.description()?.unwrap_or_default()).build()?.backend(0),
    };
    Ok(choice.with_observer(backend))
}

/// Time that the thread of a simulated card that is bound to a CPU polls for work before it sleeps.
const IDLE_SPIN: Duration = Duration::from_secs(1);

/// Opens one card for a steady load: a simulated one works on a separate thread, bound to `cpu` if one is named. `limit`: maximum DMA
/// memory that may be mapped, in bytes.
pub fn open_threaded(choice: &impl CardOpener, cpu: Option<usize>, limit: usize) -> Result<Opened, CliError> {
    // With a dedicated CPU it need not sleep: hardware has no wake-up latency either.
    let thread = ThreadOptions::default();
    open_on_thread(choice, cpu.map_or(thread, |cpu| thread.pin(cpu).spin(IDLE_SPIN)), limit)
}

/// Opens one card whose transfers many threads wait for: they do the work of a simulated one.
pub fn open_attended(choice: &impl CardOpener) -> Result<Opened, CliError> {
    open_on_thread(choice, ThreadOptions::default().attended(true), 0)
}

fn open_on_thread(choice: &impl CardOpener, thread: ThreadOptions, limit: usize) -> Result<Opened, CliError> {
    let target = choice.target();
    let mut memory = DmaPoolOptions::default();
    memory.limit = memory.limit.max(limit);
    let options = choice.design().options();
    let (backend, options): (Arc<dyn Backend>, _) = match outside(target)? {
        Some(backend) => (backend, options),
        None => {
            let description = target.description()?.unwrap_or_default();
            let options = described(options, &description);
            (SimNetwork::builder().card(description).threaded(thread).build()?.backend(0), options)
        }
    };
    Opened::new(choice, choice.with_observer(backend), options.memory(memory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn target_timeout_limits_messages_and_idle_timeout() {
        let seconds = Duration::from_secs;
        let choice =
            |message, timeout| AccessChoice { message_timeout: message, timeout, ..AccessChoice::default() };
        for (message, timeout, expected) in [
            (None, None, None),
            (None, Some(seconds(1)), Some(seconds(1))),
            (None, Some(seconds(9)), Some(seconds(9))),
            (None, Some(Duration::from_millis(3)), Some(MIN_MESSAGE_TIMEOUT)),
            (Some(seconds(7)), Some(seconds(1)), Some(seconds(7))),
        ] {
            assert_eq!(choice(message, timeout).message_timeout(), expected, "{message:?} {timeout:?}");
        }
        assert_eq!(idle_timeout(None), seconds(2));
        assert_eq!(idle_timeout(Some(seconds(1))), Duration::from_millis(50));
        assert_eq!(idle_timeout(Some(seconds(3600))), seconds(2));
        assert_eq!(idle_timeout(Some(Duration::from_millis(1))), MIN_IDLE_TIMEOUT);
        let card = CardChoice::new(Target::default(), Design::default(), None, None).within(Some(seconds(1)));
        assert_eq!(CardOpener::timeout(&card), Some(seconds(1)));
    }

    #[test]
    fn target_access_options_apply_to_external_cards_only() {
        let choice = AccessChoice {
            interface: Some(VfioInterface::Group),
            token: None,
            message_timeout: Some(Duration::from_secs(1)),
            timeout: None,
        };
        assert_eq!(Target::default().through(choice), Target::default());
        let card: Target = "65:00.1".parse().unwrap();
        assert_eq!(card.clone().through(choice).access, choice);
        assert_ne!(card.clone().through(choice), card);
        assert_eq!(card.clone().through(choice).to_string(), card.to_string());
        let served: Target = "vfio-user:/run/card".parse().unwrap();
        assert_eq!(served.through(choice).access, choice);
    }

    #[test]
    fn target_invalid_name_is_refused() {
        for (text, part) in [
            ("", "mock:FILE.yaml"),
            ("mock:", "card description is missing"),
            ("vfio-user:", "socket is missing"),
            ("Mock", "not a PCI address"),
            ("0000:65:00.9", "function"),
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn target_any_text_does_not_panic(text in ".*") {
            let _ = text.parse::<Target>();
        }
    }
}
