//! Simulated cards and the network between them. A library without simulated cards has the functions, which report so.

#![cfg_attr(
    not(feature = "sim"),
    expect(unused_variables, reason = "without simulated cards, calls only report an error")
)]

use core::ffi::c_char;

use crate::call::call;
#[cfg(feature = "sim")]
use crate::call::{bytes, bytes_mut, read_options, set, set_if, text};
use crate::error::Failure;
#[cfg(feature = "sim")]
use crate::handle;
use crate::layout::c_struct;
use crate::status::Status;
#[cfg(feature = "sim")]
use fpga_driver::CardAddr;
use fpga_sim::CardFailure;

c_struct! {
    /// Options of simulated cards and their network. A member that is 0 stands for its default.
    COptions = "fpga_network_options" {
        description: *const c_char,
        cards: u32,
        threaded: u32,
        seed: u64,
        lost_one_in: u32,
        duplicated_one_in: u32,
        damaged_one_in: u32,
        reorder: u32,
        delay_ns: u64,
        jitter_ns: u64,
        rate_bits_per_s: u64,
    }
}

/// Body of a call that needs simulated cards.
#[cfg(feature = "sim")]
macro_rules! simulated {
    ($($body:tt)*) => { call(|| { $($body)* }) };
}

/// Body of a call that needs simulated cards: there are none.
#[cfg(not(feature = "sim"))]
macro_rules! simulated {
    ($($body:tt)*) => {
        call(|| {
            let failure = Failure::of(Status::Unsupported, "the library is built without simulated cards");
            Err(failure.advise("build it with the feature `sim`"))
        })
    };
}

#[cfg(feature = "sim")]
pub(crate) use inner::Network;
#[cfg(feature = "sim")]
use inner::{faults, network, open, with_card};

#[cfg(feature = "sim")]
mod inner {
    use fpga_driver::{Card, CardAddr, CardRange, OpenOptions};
    use fpga_firmware::Nanos;
    use fpga_netmodel::Impairments;
    use fpga_netmodel::{BitRate, Conditions, Delay, Loss, Order, Probability, Rate};
    use fpga_sim::FaultsDescription;
    use fpga_sim::{CardDescription, FaultPlan, SimNetwork, ThreadOptions};

    use super::COptions;
    use crate::call::text;
    use crate::error::Failure;
    use crate::handle;
    use crate::status::Status;

    /// Maximum number of cards, of which each one reserves its memory in the address space.
    const MAX_CARDS: u32 = 1024;

    /// Simulated cards. Threads share them.
    pub(crate) struct Network {
        network: SimNetwork,
        memory: CardRange,
    }

    // SAFETY: the only type of this kind.
    unsafe impl handle::Object for Network {
        const KIND: handle::Kind = handle::Kind::Network;
    }

    fn optional(one_in: u32) -> Probability {
        if one_in == 0 { Probability::default() } else { Probability::one_in(one_in) }
    }

    fn impairments(options: &COptions) -> Impairments {
        let mut conditions = Conditions::default();
        if options.lost_one_in != 0 {
            conditions = conditions.loss(Loss::Independent(optional(options.lost_one_in)));
        }
        if options.jitter_ns != 0 {
            let most = Nanos::new(options.jitter_ns);
            conditions = conditions.delay(Delay::Uniform { least: Nanos::ZERO, most });
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
        pub(crate) fn build(options: &COptions) -> Result<Self, Failure> {
            if options.cards > MAX_CARDS {
                return Err(Failure::argument(&format!("cards is above {MAX_CARDS}")));
            }
            let given = !options.description.is_null();
            let description = given.then(|| text(options.description, "the description")).transpose()?;
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

    pub(super) fn network(network: u64) -> Result<SimNetwork, Failure> {
        Ok(handle::shared(network, |network: &Network| network.network.clone())?)
    }

    fn no_card(index: u32) -> Failure {
        Failure::of(Status::Range, &format!("there is no simulated card {index}"))
    }

    pub(super) fn open(network: u64, index: u32) -> Result<Card, Failure> {
        let (network, memory) =
            handle::shared(network, |network: &Network| (network.network.clone(), network.memory))?;
        let card = usize::try_from(index).ok().filter(|card| *card < network.card_count());
        let backend = network.backend(card.ok_or_else(|| no_card(index))?);
        Ok(Card::from_backend_with(backend, OpenOptions::default().card_memory(memory))?)
    }

    /// Runs `body` with a network and the index of a card that it has.
    pub(super) fn with_card<R>(
        handle_of: u64,
        index: u32,
        body: impl FnOnce(&SimNetwork, usize) -> Option<R>,
    ) -> Result<R, Failure> {
        let network = network(handle_of)?;
        usize::try_from(index)
            .ok()
            .filter(|card| *card < network.card_count())
            .and_then(|card| body(&network, card))
            .ok_or_else(|| no_card(index))
    }

    /// Reads a fault plan.
    pub(super) fn faults(yaml: &str) -> Result<FaultPlan, Failure> {
        if yaml.trim().is_empty() {
            return Ok(FaultPlan::default());
        }
        let faults: FaultsDescription = serde_yaml::from_str(yaml)
            .map_err(|error| Failure::argument(&format!("the fault plan is not valid: {error}")))?;
        faults.plan().map_err(|(index, problem)| {
            Failure::argument(&format!("list[{index}].{}: {problem}", problem.key()))
        })
    }
}

/// Creates simulated cards.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_network_create(options: *const COptions, size: usize, out: *mut u64) -> Status {
    simulated! {
        set(out, 0)?;
        let options = read_options(options, size)?;
        set(out, handle::add(Network::build(&options)?)?)
    }
}

/// Closes the handle of simulated cards.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_network_close(handle_of: u64) -> Status {
    simulated! { Ok(handle::close_shared::<Network>(handle_of)?) }
}

/// Opens one of the cards.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_network_open(handle_of: u64, card: u32, out: *mut u64) -> Status {
    simulated! {
        set(out, 0)?;
        set(out, handle::add(open(handle_of, card)?)?)
    }
}

/// Plans faults of a card, given as a text.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_network_set_faults(handle_of: u64, card: u32, yaml: *const c_char) -> Status {
    simulated! {
        let plan = faults(text(yaml, "the fault plan")?)?;
        with_card(handle_of, card, |network, card| {
            network.with_card(card, |card| card.set_fault_plan(&plan))
        })
    }
}

/// Plans faults of a card, given in a file.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_network_load_faults(handle_of: u64, card: u32, file: *const c_char) -> Status {
    simulated! {
        network(handle_of)?;
        let file = text(file, "the name of the file")?;
        let yaml = std::fs::read_to_string(file)
            .map_err(|error| Failure::argument(&format!("{file}: {error}")))?;
        let plan = faults(&yaml)?;
        with_card(handle_of, card, |network, card| {
            network.with_card(card, |card| card.set_fault_plan(&plan))
        })
    }
}

/// Makes a card fail, or work again.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_network_fail(handle_of: u64, card: u32, failure: i32) -> Status {
    simulated! {
        let failure = match failure {
            0 => CardFailure::None,
            1 => CardFailure::Gone,
            2 => CardFailure::AllOnes,
            _ => return Err(Failure::argument("failure is no fpga_card_failure")),
        };
        with_card(handle_of, card, |network, card| network.fail(card, failure).then_some(()))
    }
}

/// Inserts a card again, in its power-on state.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_network_replug(handle_of: u64, card: u32) -> Status {
    simulated! { with_card(handle_of, card, |network, card| network.replug(card).then_some(())) }
}

#[cfg(feature = "sim")]
fn line_of(line: u32) -> Result<u8, Failure> {
    let valid = u8::try_from(line).ok().filter(|line| *line < fpga_sim::USER_INTERRUPTS);
    valid.ok_or_else(|| Failure::of(Status::Range, "there is no such line: a card has lines 0 to 15"))
}

/// Raises or lowers a user interrupt.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_network_set_user_interrupt(
    handle_of: u64,
    card: u32,
    line: u32,
    asserted: u32,
) -> Status {
    simulated! {
        let line = line_of(line)?;
        with_card(handle_of, card, |network, card| {
            network.set_user_interrupt(card, line, asserted != 0).then_some(())
        })
    }
}

/// Raises a user interrupt until it is acknowledged.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_network_pulse_user_interrupt(
    handle_of: u64,
    card: u32,
    line: u32,
    acknowledged: *mut u32,
) -> Status {
    simulated! {
        set_if(acknowledged, 0)?;
        let line = line_of(line)?;
        let done = with_card(handle_of, card, |network, card| network.pulse_user_interrupt(card, line))?;
        set_if(acknowledged, done.into())
    }
}

#[cfg(feature = "sim")]
fn inside<E: core::fmt::Display>(done: Result<(), E>) -> Result<(), Failure> {
    done.map_err(|error| Failure::of(Status::Range, &error.to_string()))
}

/// Reads card memory without DMA.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_network_peek(
    handle_of: u64,
    card: u32,
    address: u64,
    data: *mut u8,
    length: usize,
) -> Status {
    simulated! {
        let into = bytes_mut(data, length)?;
        let address = CardAddr::new(address);
        inside(with_card(handle_of, card, |network, card| {
            network.with_card(card, |card| card.peek(address, into))
        })?)
    }
}

/// Writes card memory without DMA.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_network_poke(
    handle_of: u64,
    card: u32,
    address: u64,
    data: *const u8,
    length: usize,
) -> Status {
    simulated! {
        let from = bytes(data, length)?;
        let address = CardAddr::new(address);
        inside(with_card(handle_of, card, |network, card| {
            network.with_card(card, |card| card.poke(address, from))
        })?)
    }
}

/// Makes card memory answer accesses with an error.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_network_poison(handle_of: u64, card: u32, address: u64, length: u64) -> Status {
    simulated! {
        with_card(handle_of, card, |network, card| {
            network.with_card(card, |card| card.poison(CardAddr::new(address), length))
        })
    }
}

/// Does one unit of work.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_network_step(handle_of: u64, worked: *mut u32) -> Status {
    simulated! {
        set_if(worked, 0)?;
        set_if(worked, network(handle_of)?.step().into())
    }
}

/// Works until there is nothing to do.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_network_settle(handle_of: u64, units: *mut u64) -> Status {
    simulated! {
        set_if(units, 0)?;
        set_if(units, network(handle_of)?.step_until_idle())
    }
}

/// Lets time pass.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_network_advance(handle_of: u64, span_ns: u64) -> Status {
    simulated! {
        network(handle_of)?.advance(fpga_firmware::Nanos::new(span_ns));
        Ok(())
    }
}

#[cfg(all(test, not(feature = "sim")))]
mod tests {
    use super::*;

    #[test]
    fn network_without_simulator_is_unsupported() {
        let mut network = 7;
        assert_eq!(fpga_network_create(core::ptr::null(), 0, &raw mut network), Status::Unsupported);
        assert_eq!(fpga_network_step(1, core::ptr::null_mut()), Status::Unsupported);
    }
}
