//! A card that is removed at the first register access of a program, at the second, and so on.

use core::time::Duration;
use std::error::Error;
use std::sync::Arc;

use fpga_card::fault_plan::{FaultEntry, FaultName};
use fpga_driver::{Card, CardAddr, Direction, RunMode, ScatterGatherEntry, WaitMode, WaitOptions};
use fpga_pci::Backend;
use fpga_sim::CardFailure;

use super::{Case, CaseContext, Verdict, case};
use crate::bed::{Channel, TestSetup};
use crate::conformance::Capability;
use crate::conformance::faults::{AfterFault, MemoryOutcome, row};
use crate::fault_injecting::FaultInjectingBackend;

pub(super) const CASES: &[Case] = &[
    case("removal.all_ones_at_any_access", REMOVAL, |context| {
        removal(context, CardFailure::AllOnes, "all_ones")
    }),
    case("removal.gone_at_any_access", REMOVAL, |context| removal(context, CardFailure::Gone, "removed")),
];

const REMOVAL: &[Capability] = &[Capability::Removal];

/// A short program: open, interrupts, transfers in each direction, a list, a wait by interrupt, a copy inside the card, close. It ends with
/// the first error. `pools` gets the pool as soon as there is one.
fn program(
    injector: &Arc<FaultInjectingBackend>,
    pools: &mut Vec<fpga_pci::DmaPool>,
    setup: TestSetup,
) -> Result<(), Box<dyn Error>> {
    let card = Card::from_backend(Arc::<FaultInjectingBackend>::clone(injector) as Arc<dyn Backend>)?;
    pools.push(card.memory().clone());
    card.enable_interrupts()?;
    let at = CardAddr::new(1 << 20);
    let mut channel: Channel = setup.take(&card, 0, setup.options())?;
    let memory = channel.register_memory(card.registered_memory(1 << 14)?)?;
    let short = WaitOptions::default().timeout(Duration::from_secs(1));
    for _ in 0..2 {
        let first = channel.submit(card.buffer(5000)?, at)?;
        let part = channel.submit_at(memory, 0, 4096, at)?;
        channel.poll()?;
        let entries = [0, 1].map(|n| ScatterGatherEntry {
            memory,
            offset: n * 8192,
            length: 100,
            card: CardAddr::new((2 << 20) + n as u64 * 4096),
        });
        let list = channel.submit_list(&entries)?;
        channel.wait_ended(part, short)?;
        let done = channel.wait(first, short)?;
        drop(done.into_buffer()?);
        channel.wait_ended(list, short.mode(WaitMode::Interrupt))?;
    }
    let flying = channel.submit(card.buffer(9000)?, at)?;
    channel.poll()?;
    channel.cancel(flying)?;
    let back =
        TestSetup { direction: if setup.to_card() { Direction::C2h } else { Direction::H2c }, ..setup };
    let mut other = back.take(&card, 0, back.options())?;
    other.transfer(card.buffer(4096)?, at, short)?;
    card.cdma()?.copy(at, CardAddr::new(4 << 20), 4096)?;
    channel.submit(card.buffer(4096)?, at)?;
    channel.poll()?;
    Ok(())
}

/// The card is removed at the first register access, at the second, and so on until the program completes. In every case there are typed
/// errors only, every buffer is accounted for, and the card opens and works once it is back.
fn removal(context: &mut CaseContext<'_>, failure: CardFailure, name: &str) -> Verdict {
    let row = row(name);
    assert_eq!((row.memory, row.after), (MemoryOutcome::Quarantined, AfterFault::Reopen));
    // The whole card fails, not only its registers: a card outside this process does that by its own fault plan.
    let behind = context.simulated().is_none();
    let fault = if failure == CardFailure::AllOnes { FaultName::AllOnes } else { FaultName::SurpriseRemoval };
    let probe = context.open();
    let mut setups = probe.setups();
    probe.close();
    if behind {
        setups.retain(|setup| setup.mode == RunMode::Batch);
    }
    for setup in setups {
        // In real time every wait for a missing event takes its full time, and accesses differ from run to run.
        let step = if behind {
            61
        } else if context.real_time() {
            13
        } else {
            1
        };
        let (mut accesses, mut failed) = (0, 0);
        loop {
            let injector = context.open_backend();
            if behind {
                context.set_faults([FaultEntry { skip: accesses, ..FaultEntry::new(fault) }]);
            } else {
                injector.fail_after(accesses, failure);
            }
            let mut pools = Vec::new();
            let ended = program(&injector, &mut pools, setup);
            let happened = if behind { context.strikes() > 0 } else { injector.has_failed() };
            for pool in pools {
                let stats = pool.stats();
                assert_eq!(
                    stats.in_use, 0,
                    "{setup:?}, {failure:?} at access {accesses}: {stats:?}, {ended:?}"
                );
                assert_eq!(pool.quarantined().len(), stats.quarantined);
                assert!(
                    happened || stats.quarantined == 0,
                    "{setup:?}: quarantine without a fault: {stats:?}"
                );
            }
            if let Err(error) = &ended {
                assert!(happened, "{setup:?}: an error without a fault: {error}");
                failed += 1;
                let text = error.to_string();
                assert!(
                    ["gone", "all ones", "does not answer", "reset"].iter().any(|part| text.contains(part)),
                    "{setup:?}, {failure:?} at access {accesses}: {text}"
                );
            }
            if behind {
                context.set_faults([]);
                context.replug();
            }
            injector.restore();
            drop(injector);
            if !happened {
                break;
            }
            if accesses % 16 == 0 {
                let again = context.open();
                again.pair(setup)?.assert_works(accesses);
                again.close();
            }
            accesses += step;
            assert!(accesses < 10_000, "the program completes");
        }
        assert!(failed > 0, "{setup:?}: no failure had an effect");
        let again = context.open();
        again.pair(setup)?.assert_works(7);
        again.assert_pool(0, 0);
        again.close();
    }
    Ok(())
}
