//! Cases by topic.

mod addresses;
mod cdma;
mod cdma_faults;
mod channels;
mod cost;
mod drop_and_abort;
mod faults;
mod open;
mod pages;
mod recovery;
mod registers;
mod removal;
mod removal_waits;
mod streams;
mod transfers;
mod user_interrupts;
mod validate;
mod waits;

use super::{Capability, Case, CaseBody, CaseContext, Verdict};

pub(super) use faults::scenario;

/// Every case in execution order: basic ones first, those that may leave a card in a faulty state last.
#[must_use]
pub fn cases() -> Vec<Case> {
    [
        open::CASES,
        registers::CASES,
        transfers::CASES,
        pages::CASES,
        channels::CASES,
        cdma::CASES,
        waits::CASES,
        user_interrupts::CASES,
        cost::CASES,
        streams::CASES,
        drop_and_abort::CASES,
        validate::CASES,
        addresses::CASES,
        recovery::CASES,
        faults::CASES,
        removal::CASES,
        removal_waits::CASES,
        cdma_faults::CASES,
        streams::FAULTS,
    ]
    .concat()
    .into_iter()
    .chain(faults::scenarios())
    .collect()
}

/// Builds a case from a function.
const fn case(
    name: &'static str,
    needs: &'static [Capability],
    run: fn(&mut CaseContext<'_>) -> Verdict,
) -> Case {
    Case { name, needs, run: CaseBody::Code(run) }
}
