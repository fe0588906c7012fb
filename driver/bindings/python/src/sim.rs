//! Simulated cards and their network; faults, memory and interrupts for tests.

use std::path::Path;

use fpga_driver::{CardAddr, CardRange, OpenOptions};
use fpga_firmware::Nanos;
use fpga_netmodel::{BitRate, Conditions, Loss, Probability, Rate};
use fpga_netmodel::{Impairments, Order};
use fpga_pci::Process;
use fpga_registers::quantity;
use fpga_sim::{CardDescription, CardFailure, FaultPlan, SimNetwork, ThreadOptions};
use fpga_sim::{FaultsDescription, SimNetworkError};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::card::Card;
use crate::card_state::CardState;
use crate::error::{Class, Failure};
use crate::foreign::Foreign;
use crate::numbers;
use crate::wait;

/// Maximum length of one `peek` in bytes.
const MAX_PEEK: usize = 1 << 30;
/// Maximum time of one step of `advance` in real time, between which signal handlers run.
const MAX_ADVANCE_STEP: std::time::Duration = std::time::Duration::from_millis(20);

/// Simulated cards and the network between them.
#[pyclass(frozen, module = "fpga_rdma.sim")]
pub(crate) struct Network(OwnNetwork);

/// A network, and the process that has built it. A child process has neither its threads nor usable locks.
#[derive(Clone)]
struct OwnNetwork {
    network: SimNetwork,
    process: Process,
}

impl OwnNetwork {
    fn new(network: SimNetwork) -> Self {
        Self { network, process: Process::current() }
    }

    fn get(&self) -> Result<&SimNetwork, Failure> {
        self.process.check()?;
        Ok(&self.network)
    }
}

/// One simulated card, as its design and its slot see it.
#[pyclass(frozen, module = "fpga_rdma.sim")]
pub(crate) struct SimulatedCard {
    network: OwnNetwork,
    index: usize,
    memory: Option<CardRange>,
}

/// Reads a description: the name of a built-in card, or a file.
fn description(name: &str) -> Result<CardDescription, Failure> {
    let name = name.strip_prefix("mock:").unwrap_or(name);
    if name.is_empty() || name == "mock" {
        return Ok(CardDescription::default());
    }
    CardDescription::find(Path::new(name)).map_err(|error| Failure::new(Class::OpenError, error.to_string()))
}

fn seconds(span: f64, name: &str) -> Result<Nanos, Failure> {
    let span = std::time::Duration::try_from_secs_f64(span)
        .map_err(|_| Failure::value(format!("{name} is {span} s: give a time of 0 s or more")))?;
    Ok(Nanos::from(span))
}

fn probability(fraction: f64, name: &str) -> Result<Probability, Failure> {
    Probability::new(fraction).map_err(|error| Failure::value(format!("{name}: {error}")))
}

#[pymethods]
impl Network {
    #[new]
    #[pyo3(signature = (cards = None, *, loss = 0.0, duplicates = 0.0, damage = 0.0, reorder = 0, delay = 0.0, rate = None, seed = 0, threaded = false))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        cards: Option<&Bound<'_, PyAny>>,
        loss: f64,
        duplicates: f64,
        damage: f64,
        #[pyo3(from_py_with = numbers::reorder)] reorder: usize,
        delay: f64,
        rate: Option<f64>,
        #[pyo3(from_py_with = numbers::seed)] seed: u64,
        threaded: bool,
    ) -> Result<Self, Failure> {
        let mut builder = SimNetwork::builder().seed(seed);
        for (index, mut card) in descriptions(cards)?.into_iter().enumerate() {
            // Cards of one kind have one node id in their description: number them.
            card.ni.node_id = u32::try_from(index + 1).unwrap_or(u32::MAX);
            builder = builder.card(card);
        }
        let conditions = Conditions::default()
            .loss(Loss::Independent(probability(loss, "loss")?))
            .copies(probability(duplicates, "duplicates")?, fpga_netmodel::Delay::default())
            .damage(probability(damage, "damage")?);
        let mut impairments = Impairments::both(conditions).distance(seconds(delay, "delay")?);
        if reorder > 0 {
            impairments = impairments.order(Order::random(reorder));
        }
        if let Some(bits) = rate {
            if !(1.0..=1e15).contains(&bits) {
                return Err(Failure::value(format!("rate is {bits} bit/s: give 1 to 1e15")));
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 1e15")]
            let rate = BitRate::new(bits as u64);
            impairments = impairments.rate(Rate { rate, queue: Nanos::MAX });
        }
        builder = builder.impairments(impairments);
        if threaded {
            builder = builder.threaded(ThreadOptions::default());
        }
        let network = builder.build().map_err(|error: SimNetworkError| {
            let failure = Failure::new(Class::OpenError, error.to_string());
            match error.help() {
                Some(help) => failure.advice(help),
                None => failure,
            }
        })?;
        Ok(Self(OwnNetwork::new(network)))
    }

    fn __len__(&self) -> Result<usize, Failure> {
        Ok(self.0.get()?.card_count())
    }

    fn __getitem__(
        &self,
        #[pyo3(from_py_with = numbers::index)] index: i64,
    ) -> Result<SimulatedCard, Failure> {
        let position = usize::try_from(index).unwrap_or(usize::MAX);
        let memory = self.0.get()?.with_card(position, |card| {
            let memory = &card.description().memory;
            CardRange::new(CardAddr::new(memory.base), memory.size)
        });
        match memory {
            Some(memory) => {
                Ok(SimulatedCard { network: self.0.clone(), index: position, memory: Some(memory) })
            }
            None => {
                let count = quantity(self.0.get()?.card_count(), "card");
                Err(PyIndexError::new_err(format!("there is no card {index}; the network has {count}"))
                    .into())
            }
        }
    }

    /// Opens all cards.
    #[pyo3(signature = (*, interrupts = false))]
    fn open(&self, py: Python<'_>, interrupts: bool) -> Result<Vec<Card>, Failure> {
        (0..self.0.get()?.card_count())
            .map(|index| self.__getitem__(i64::try_from(index).unwrap_or(i64::MAX))?.open(py, interrupts))
            .collect()
    }

    #[getter]
    fn threaded(&self) -> bool {
        self.0.network.is_threaded()
    }

    #[getter]
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of days fit")]
    fn now(&self) -> Result<f64, Failure> {
        Ok(self.0.get()?.now().get() as f64 / 1e9)
    }

    fn step(&self, py: Python<'_>) -> Result<bool, Failure> {
        let network = self.0.get()?;
        Ok(py.detach(|| network.step()))
    }

    fn step_until_idle(&self, py: Python<'_>) -> Result<u64, Failure> {
        let network = self.0.get()?;
        Ok(py.detach(|| network.step_until_idle()))
    }

    fn advance(&self, py: Python<'_>, span: f64) -> Result<(), Failure> {
        let mut left = std::time::Duration::from(seconds(span, "the time to advance")?);
        loop {
            let network = self.0.get()?;
            // Real time is slept in steps; virtual time passes at once.
            let part = if network.is_threaded() { left.min(MAX_ADVANCE_STEP) } else { left };
            py.detach(|| network.advance(part.into()));
            left -= part;
            if left.is_zero() {
                return Ok(());
            }
            py.check_signals()?;
        }
    }

    /// Numbers of frames that the cards have sent, and of what happened to them.
    #[getter]
    fn counters(&self) -> Result<std::collections::BTreeMap<&'static str, u64>, Failure> {
        let counters = self.0.get()?.network_counters();
        let (data, control) = (counters.data, counters.control);
        Ok([
            ("sent", data.offered + control.offered),
            ("lost", data.lost + control.lost),
            ("duplicated", data.duplicated + control.duplicated),
            ("damaged", data.damaged + control.damaged),
            ("delivered", counters.delivered),
            ("bytes", counters.bytes),
        ]
        .into())
    }

    fn __repr__(&self) -> String {
        let time = if self.threaded() { "real time" } else { "virtual time" };
        match self.0.get() {
            Ok(network) => {
                format!("<Network of {}, {time}>", quantity(network.card_count(), "simulated card"))
            }
            Err(_) => format!("<Network of another process, {time}>"),
        }
    }
}

/// Returns descriptions for a number of cards, or for a sequence of names.
fn descriptions(cards: Option<&Bound<'_, PyAny>>) -> Result<Vec<CardDescription>, Failure> {
    let Some(cards) = cards else { return Ok(vec![CardDescription::default()]) };
    if cards.hasattr("__index__")? {
        return Ok((0..numbers::cards::<u16>(cards)?).map(|_| CardDescription::default()).collect());
    }
    if let Ok(name) = cards.cast::<PyString>() {
        return Ok(vec![description(&name.to_cow()?)?]);
    }
    cards.try_iter()?.map(|name| description(&name?.str()?.to_cow()?)).collect()
}

impl SimulatedCard {
    fn with<T>(&self, access: impl FnOnce(&mut fpga_card::Card) -> T) -> Result<T, Failure> {
        self.network
            .get()?
            .with_card(self.index, access)
            .ok_or_else(|| Failure::new(Class::RangeError, "there is no such card"))
    }

    /// Checks the number of a user interrupt.
    fn line(line: u8) -> Result<u8, Failure> {
        if line < 16 {
            Ok(line)
        } else {
            Err(Failure::value(format!("user interrupt {line}: there are 0 to 15 (PG195)")))
        }
    }
}

#[pymethods]
impl SimulatedCard {
    #[getter]
    const fn index(&self) -> usize {
        self.index
    }

    #[pyo3(signature = (*, interrupts = false))]
    fn open(&self, py: Python<'_>, interrupts: bool) -> Result<Card, Failure> {
        let backend = self.network.get()?.backend(self.index);
        let mut options = OpenOptions::default();
        options.card_memory = self.memory;
        let card = wait::detached(py, || fpga_driver::Card::from_backend_with(backend, options))?;
        if interrupts {
            wait::detached(py, || card.enable_interrupts())?;
        }
        Ok(Card::new(CardState::new(card)))
    }

    fn peek<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = numbers::address)] address: u64,
        #[pyo3(from_py_with = numbers::length)] length: usize,
    ) -> Result<Bound<'py, PyBytes>, Failure> {
        if length > MAX_PEEK {
            return Err(Failure::value(format!("a peek of {length} bytes: at most {MAX_PEEK}")));
        }
        let mut bytes = vec![0; length];
        self.with(|card| card.peek(CardAddr::new(address), &mut bytes))?
            .map_err(|error| Failure::new(Class::RangeError, error.to_string()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn poke(
        &self,
        #[pyo3(from_py_with = numbers::address)] address: u64,
        data: &Bound<'_, PyAny>,
    ) -> Result<(), Failure> {
        let bytes = Foreign::readable(data)?.to_vec();
        self.with(|card| card.poke(CardAddr::new(address), &bytes))?
            .map_err(|error| Failure::new(Class::RangeError, error.to_string()))
    }

    fn poison(
        &self,
        #[pyo3(from_py_with = numbers::address)] address: u64,
        #[pyo3(from_py_with = numbers::length)] length: u64,
    ) -> Result<(), Failure> {
        self.with(|card| card.poison(CardAddr::new(address), length))
    }

    fn silence(
        &self,
        #[pyo3(from_py_with = numbers::address)] address: u64,
        #[pyo3(from_py_with = numbers::length)] length: u64,
    ) -> Result<(), Failure> {
        self.with(|card| card.silence(CardAddr::new(address), length))
    }

    fn set_faults(&self, plan: &str) -> Result<(), Failure> {
        let wrong = |message: String| Failure::value(format!("fault plan: {message}"));
        let plan = if plan.trim().is_empty() {
            FaultPlan::default()
        } else {
            let faults: FaultsDescription =
                serde_yaml::from_str(plan).map_err(|error| wrong(error.to_string()))?;
            faults.plan().map_err(|(entry, problem)| wrong(format!("entry {entry}: {problem}")))?
        };
        self.with(|card| card.set_fault_plan(&plan))
    }

    /// Opportunities and strikes of each fault of the plan.
    #[getter]
    fn fault_progress(&self) -> Result<Vec<(u64, u64)>, Failure> {
        self.with(|card| card.fault_progress().collect())
    }

    #[pyo3(signature = (how = "gone"))]
    fn fail(&self, how: &str) -> Result<(), Failure> {
        let failure = match how {
            "gone" => CardFailure::Gone,
            "all-ones" => CardFailure::AllOnes,
            "none" => CardFailure::None,
            _ => {
                return Err(Failure::value(format!(
                    "'{how}' is not a failure: give 'gone', 'all-ones' or 'none'"
                )));
            }
        };
        self.network.get()?.fail(self.index, failure);
        Ok(())
    }

    fn replug(&self) -> Result<(), Failure> {
        self.network.get()?.replug(self.index);
        Ok(())
    }

    fn set_user_interrupt(
        &self,
        #[pyo3(from_py_with = numbers::line)] line: u8,
        asserted: bool,
    ) -> Result<(), Failure> {
        self.network.get()?.set_user_interrupt(self.index, Self::line(line)?, asserted);
        Ok(())
    }

    fn pulse_user_interrupt(&self, #[pyo3(from_py_with = numbers::line)] line: u8) -> Result<bool, Failure> {
        Ok(self.network.get()?.pulse_user_interrupt(self.index, Self::line(line)?).unwrap_or(false))
    }

    fn __repr__(&self) -> String {
        match self.network.get() {
            Ok(network) => format!("<SimulatedCard {} of {}>", self.index, network.card_count()),
            Err(_) => format!("<SimulatedCard {} of another process>", self.index),
        }
    }
}
