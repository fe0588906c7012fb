//! A card that is removed while a program waits for something that the card alone can cause: the wait reports the removal.

use core::time::Duration;
use std::error::Error;

use fpga_card::fault_plan::{FaultEntry, FaultName};
use fpga_driver::{CardAddr, CardRange, Direction, NodeId};
use fpga_pci::Backend;
use fpga_rdma::{Endpoint, EndpointOptions, RemoteRegion, SendOptions, SharedEndpoint};
use fpga_sim::CardFailure;

use super::{Case, CaseContext, Verdict, case};
use crate::bed::SETUPS;
use crate::conformance::Capability;
use crate::conformance::case_context::Opened;

pub(super) const CASES: &[Case] = &[case("removal.ends_idle_waits", &[Capability::Removal], idle_waits_end)];

/// Timeout of every wait: reached only if the wait does not notice the removal.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time of a wait in virtual time, and on a busy machine.
const SOON: Duration = Duration::from_secs(1);
const SOON_ON_BUSY_MACHINE: Duration = Duration::from_secs(20);
/// Removals, with the number of register accesses before them: in the middle of the wait, and at its first access.
const REMOVALS: [(CardFailure, u64); 2] = [(CardFailure::AllOnes, 3), (CardFailure::Gone, 0)];
/// A node that does not exist.
const NOBODY: NodeId = NodeId::new(0x7777);

/// Waits that nothing ends but the removal. `removed` is called when everything is prepared.
type Wait = fn(&Opened, removed: &mut dyn FnMut()) -> Result<(), Box<dyn Error>>;

const WAITS: [(&str, bool, Wait); 8] = [
    ("user interrupt", false, |opened, removed| {
        let line = opened.card.user_interrupt(3)?;
        removed();
        line.wait(TIMEOUT)?;
        Ok(())
    }),
    ("several user interrupts", false, |opened, removed| {
        let lines = opened.card.user_interrupts(&[3, 5])?;
        removed();
        lines.wait(TIMEOUT)?;
        Ok(())
    }),
    ("notification", true, |opened, removed| {
        let mut end = endpoint(opened)?;
        removed();
        end.wait_notification(TIMEOUT)?;
        Ok(())
    }),
    ("peer", true, |opened, removed| {
        let mut end = endpoint(opened)?;
        removed();
        end.wait_peer(NOBODY, TIMEOUT)?;
        Ok(())
    }),
    ("notification of a shared endpoint", true, |opened, removed| {
        let end = SharedEndpoint::from(endpoint(opened)?);
        removed();
        end.wait_notification(TIMEOUT)?;
        Ok(())
    }),
    ("peer of a shared endpoint", true, |opened, removed| {
        let end = SharedEndpoint::from(endpoint(opened)?);
        removed();
        end.wait_peer(NOBODY, TIMEOUT)?;
        Ok(())
    }),
    ("polls of a send", true, |opened, removed| {
        let end = SharedEndpoint::from(endpoint(opened)?);
        let away = RemoteRegion {
            node: NOBODY,
            ..end.open_region(NOBODY, CardRange::new(opened.at(1 << 20), 4096))?.remote
        };
        let mut sent = end.send(opened.at(0), &away, 0, 64, SendOptions::default())?;
        removed();
        poll_until(opened, || sent.try_take().map(|done| done.is_some()))
    }),
    ("polls of a channel", false, |opened, removed| {
        let setup = SETUPS.into_iter().find(|setup| setup.direction == Direction::H2c).ok_or("no channel")?;
        let mut channel = setup.take(&opened.card, 0, setup.options())?;
        // The doorbell is among the accesses at which the card is removed.
        removed();
        let ticket = channel.submit(opened.card.buffer(64)?, CardAddr::ZERO)?;
        poll_until(opened, || {
            channel.poll()?;
            Ok::<_, fpga_driver::Error<fpga_driver::ChannelError>>(channel.has_ended(ticket))
        })
    }),
];

fn endpoint(opened: &Opened) -> Result<Endpoint, Box<dyn Error>> {
    Ok(Endpoint::open_with(&opened.card, &EndpointOptions::default())?)
}

/// Polls as a program that does nothing but ask whether a transfer has ended.
fn poll_until<E: Error + 'static>(
    opened: &Opened,
    mut is_done: impl FnMut() -> Result<bool, E>,
) -> Result<(), Box<dyn Error>> {
    let began = opened.injector.now();
    while Duration::from_nanos(opened.injector.now().saturating_sub(began)) < TIMEOUT {
        if is_done()? {
            return Ok(());
        }
        opened.injector.relax();
    }
    Err("no end within the timeout".into())
}

fn idle_waits_end(context: &mut CaseContext<'_>) -> Verdict {
    let soon = if context.real_time() { SOON_ON_BUSY_MACHINE } else { SOON };
    let is_elsewhere = context.simulated().is_none();
    for (failure, accesses) in REMOVALS {
        for (name, needs_ni, wait) in WAITS {
            let opened = context.open();
            if needs_ni && opened.card.info().ni.is_none() {
                opened.close();
                continue;
            }
            let mut began = 0;
            let ended = wait(&opened, &mut || {
                began = opened.injector.now();
                if is_elsewhere {
                    let fault = if failure == CardFailure::Gone {
                        FaultName::SurpriseRemoval
                    } else {
                        FaultName::AllOnes
                    };
                    context.set_faults([FaultEntry { skip: accesses, ..FaultEntry::new(fault) }]);
                } else {
                    opened.injector.fail_after(accesses, failure);
                }
            });
            let took = Duration::from_nanos(opened.injector.now().saturating_sub(began));
            let about = format!("{name}, {failure:?} at access {accesses}, after {took:?}: {ended:?}");
            let text = ended.map_or_else(|error| error.to_string(), |()| String::new());
            assert!(text.contains("gone") || text.contains("all ones"), "{about}: {text}");
            assert!(took <= soon, "{about}");
            if is_elsewhere {
                context.set_faults([]);
                context.replug();
            }
            opened.injector.restore();
            drop(opened);
            context.reset();
        }
    }
    Ok(())
}
