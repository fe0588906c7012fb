//! Simulated cards and the network between them.

use core::ffi::c_char;

use fpga_driver::{Card, CardAddr, CardRange, OpenOptions};
use fpga_firmware::Nanos;
use fpga_netmodel::{BitRate, Conditions, Delay, Impairments, Loss, Order, Probability, Rate};
use fpga_sim::{CardDescription, CardFailure, FaultPlan, FaultsDescription, SimNetwork, ThreadOptions};

use crate::abi::{FPGA_FAILURE_ALL_ONES, FPGA_FAILURE_GONE, FPGA_FAILURE_NONE, Status, fpga_network_options};
use crate::call::{bytes, bytes_mut, read_options, set, set_if, text};
use crate::error::Failure;
use crate::handle::{self, Kind, Object};

/// Maximum number of cards. Each one reserves its memory in the address space.
const MAX_CARDS: u32 = 1024;

/// Simulated cards. Threads share them.
pub(crate) struct Network {
    network: SimNetwork,
    memory: CardRange,
}

// SAFETY: the only type of this kind.
unsafe impl Object for Network {
    const KIND: Kind = Kind::Network;
}

fn optional(one_in: u32) -> Probability {
    if one_in == 0 { Probability::default() } else { Probability::one_in(one_in) }
}

fn impairments(options: &fpga_network_options) -> Impairments {
    let mut conditions = Conditions::default();
    if options.lost_one_in != 0 {
        conditions = conditions.loss(Loss::Independent(optional(options.lost_one_in)));
    }
    if options.jitter_ns != 0 {
        let delay = Delay::Uniform { least: Nanos::ZERO, most: Nanos::new(options.jitter_ns) };
        conditions = conditions.delay(delay);
    }
    if options.duplicated_one_in != 0 {
        conditions = conditions.copies(optional(options.duplicated_one_in), Delay::default());
    }
    conditions = conditions.damage(optional(options.damaged_one_in));
    let mut impairments = Impairments::both(conditions).distance(Nanos::new(options.delay_ns));
    if options.reorder > 1 {
        impairments =
            impairments.order(Order::random(usize::try_from(options.reorder).unwrap_or(usize::MAX)));
    }
    if options.rate_bits_per_s != 0 {
        impairments =
            impairments.rate(Rate { rate: BitRate::new(options.rate_bits_per_s), queue: Nanos::MAX });
    }
    impairments
}

impl Network {
    /// Builds the cards.
    fn build(options: &fpga_network_options) -> Result<Self, Failure> {
        if options.cards > MAX_CARDS {
            return Err(Failure::argument(&format!(
                "cards is {}, the maximum is {MAX_CARDS}",
                options.cards
            )));
        }
        let has_description = !options.description.is_null();
        let description =
            has_description.then(|| text(options.description, "the description")).transpose()?;
        let wrong = |error: &dyn core::fmt::Display| Failure::argument(&error.to_string());
        let found = description.map(|name| CardDescription::find(name.as_ref())).transpose();
        let card = found.map_err(|error| wrong(&error))?.unwrap_or_default();
        let memory = CardRange::new(CardAddr::new(card.memory.base), card.memory.size);
        let mut builder = SimNetwork::builder().seed(options.seed).impairments(impairments(options));
        for node in 1..=options.cards.max(1) {
            let mut card = card.clone();
            card.ni.node_id = node;
            builder = builder.card(card);
        }
        if options.threaded != 0 {
            builder = builder.threaded(ThreadOptions::default());
        }
        Ok(Self { network: builder.build().map_err(|error| wrong(&error))?, memory })
    }
}

fn network(network: u64) -> Result<SimNetwork, Failure> {
    Ok(handle::shared(network, |network: &Network| network.network.clone())?)
}

fn no_card(index: u32) -> Failure {
    Failure::of(Status::Range, &format!("there is no simulated card {index}"))
}

fn open(network: u64, index: u32) -> Result<Card, Failure> {
    let (network, memory) =
        handle::shared(network, |network: &Network| (network.network.clone(), network.memory))?;
    let card = usize::try_from(index).ok().filter(|card| *card < network.card_count());
    let backend = network.backend(card.ok_or_else(|| no_card(index))?);
    Ok(Card::from_backend_with(backend, OpenOptions::default().card_memory(memory))?)
}

/// Runs `body` with a network and the index of a card that it has.
fn with_card<R>(
    network_handle: u64,
    index: u32,
    body: impl FnOnce(&SimNetwork, usize) -> Option<R>,
) -> Result<R, Failure> {
    let network = network(network_handle)?;
    usize::try_from(index)
        .ok()
        .filter(|card| *card < network.card_count())
        .and_then(|card| body(&network, card))
        .ok_or_else(|| no_card(index))
}

/// Reads a fault plan.
fn faults(yaml: &str) -> Result<FaultPlan, Failure> {
    if yaml.trim().is_empty() {
        return Ok(FaultPlan::default());
    }
    let faults: FaultsDescription = serde_yaml::from_str(yaml)
        .map_err(|error| Failure::argument(&format!("the fault plan is not valid: {error}")))?;
    faults
        .plan()
        .map_err(|(index, problem)| Failure::argument(&format!("list[{index}].{}: {problem}", problem.key())))
}

pub(crate) fn fpga_network_create(
    options: *const fpga_network_options,
    size: usize,
    out: *mut u64,
) -> Result<(), Failure> {
    set(out, 0)?;
    let options = read_options(options, size)?;
    set(out, handle::add(Network::build(&options)?)?)
}

pub(crate) fn fpga_network_close(network_handle: u64) -> Result<(), Failure> {
    Ok(handle::close_shared::<Network>(network_handle)?)
}

pub(crate) fn fpga_network_open(network_handle: u64, card: u32, out: *mut u64) -> Result<(), Failure> {
    set(out, 0)?;
    set(out, handle::add(open(network_handle, card)?)?)
}

pub(crate) fn fpga_network_set_faults(
    network_handle: u64,
    card: u32,
    yaml: *const c_char,
) -> Result<(), Failure> {
    let plan = faults(text(yaml, "the fault plan")?)?;
    with_card(network_handle, card, |network, card| {
        network.with_card(card, |card| card.set_fault_plan(&plan))
    })
}

pub(crate) fn fpga_network_load_faults(
    network_handle: u64,
    card: u32,
    file: *const c_char,
) -> Result<(), Failure> {
    network(network_handle)?;
    let file = text(file, "the name of the file")?;
    let yaml =
        std::fs::read_to_string(file).map_err(|error| Failure::argument(&format!("{file}: {error}")))?;
    let plan = faults(&yaml)?;
    with_card(network_handle, card, |network, card| {
        network.with_card(card, |card| card.set_fault_plan(&plan))
    })
}

pub(crate) fn fpga_network_fail(network_handle: u64, card: u32, failure: i32) -> Result<(), Failure> {
    let failure = match failure {
        FPGA_FAILURE_NONE => CardFailure::None,
        FPGA_FAILURE_GONE => CardFailure::Gone,
        FPGA_FAILURE_ALL_ONES => CardFailure::AllOnes,
        _ => {
            return Err(Failure::argument(&format!(
                "failure is {failure}, which is not a value of fpga_card_failure"
            )));
        }
    };
    with_card(network_handle, card, |network, card| network.fail(card, failure).then_some(()))
}

pub(crate) fn fpga_network_replug(network_handle: u64, card: u32) -> Result<(), Failure> {
    with_card(network_handle, card, |network, card| network.replug(card).then_some(()))
}

fn line_of(line: u32) -> Result<u8, Failure> {
    let valid = u8::try_from(line).ok().filter(|line| *line < fpga_sim::USER_INTERRUPTS);
    valid.ok_or_else(|| {
        Failure::of(
            Status::Range,
            &format!("user interrupt line {line} does not exist: a card has lines 0 to 15"),
        )
    })
}

pub(crate) fn fpga_network_set_user_interrupt(
    network_handle: u64,
    card: u32,
    line: u32,
    asserted: u32,
) -> Result<(), Failure> {
    let line = line_of(line)?;
    with_card(network_handle, card, |network, card| {
        network.set_user_interrupt(card, line, asserted != 0).then_some(())
    })
}

pub(crate) fn fpga_network_pulse_user_interrupt(
    network_handle: u64,
    card: u32,
    line: u32,
    acknowledged: *mut u32,
) -> Result<(), Failure> {
    set_if(acknowledged, 0)?;
    let line = line_of(line)?;
    let done = with_card(network_handle, card, |network, card| network.pulse_user_interrupt(card, line))?;
    set_if(acknowledged, done.into())
}

fn inside<E: core::fmt::Display>(done: Result<(), E>) -> Result<(), Failure> {
    done.map_err(|error| Failure::of(Status::Range, &error.to_string()))
}

pub(crate) fn fpga_network_peek(
    network_handle: u64,
    card: u32,
    address: u64,
    data: *mut u8,
    length: usize,
) -> Result<(), Failure> {
    let into = bytes_mut(data, length)?;
    let address = CardAddr::new(address);
    inside(with_card(network_handle, card, |network, card| {
        network.with_card(card, |card| card.peek(address, into))
    })?)
}

pub(crate) fn fpga_network_poke(
    network_handle: u64,
    card: u32,
    address: u64,
    data: *const u8,
    length: usize,
) -> Result<(), Failure> {
    let from = bytes(data, length)?;
    let address = CardAddr::new(address);
    inside(with_card(network_handle, card, |network, card| {
        network.with_card(card, |card| card.poke(address, from))
    })?)
}

pub(crate) fn fpga_network_poison(
    network_handle: u64,
    card: u32,
    address: u64,
    length: u64,
) -> Result<(), Failure> {
    with_card(network_handle, card, |network, card| {
        network.with_card(card, |card| card.poison(CardAddr::new(address), length))
    })
}

pub(crate) fn fpga_network_step(network_handle: u64, worked: *mut u32) -> Result<(), Failure> {
    set_if(worked, 0)?;
    set_if(worked, network(network_handle)?.step().into())
}

pub(crate) fn fpga_network_settle(network_handle: u64, units: *mut u64) -> Result<(), Failure> {
    set_if(units, 0)?;
    set_if(units, network(network_handle)?.step_until_idle())
}

pub(crate) fn fpga_network_advance(network_handle: u64, span_ns: u64) -> Result<(), Failure> {
    network(network_handle)?.advance(Nanos::new(span_ns));
    Ok(())
}
