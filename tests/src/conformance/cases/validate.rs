//! The self-test passes, and leaves the card as it was.

use fpga_diag::validate::{self, Status, ValidateOptions};

use super::{Case, CaseContext, Verdict, case};
use crate::bytes;
use crate::conformance::case_context::Opened;

pub(super) const CASES: &[Case] = &[case("validate.passes", &[], self_test)];

/// Runs the self-test on the memory that cases use, with a long timeout, because other threads run in real time.
pub(super) fn report(opened: &Opened) -> validate::Report {
    let mut options = ValidateOptions::default().timeout(crate::TIMEOUT);
    options.scratch = opened.card.info().ni.is_none().then_some(opened.scratch);
    validate::run(&opened.card, options, &mut |_| ())
}

fn self_test(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let data = bytes(3, 4000);
    let setup = opened.setups()[0];
    opened.pair(setup)?.write(opened.at(0), &data);
    let report = report(&opened);
    let failed: Vec<_> = report.tests.iter().filter(|test| test.status == Status::Fail).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    for name in ["registers.identifiers", "writeback"] {
        assert!(report.test(name).is_none_or(|test| test.status != Status::Skip), "{name} was skipped");
    }
    assert!(report.count(Status::Pass) > 10, "{report:#?}");
    // Checks that a simulated card must pass. Checks with their own time limit are excluded, because other threads run in real time.
    if context.simulated().is_some() {
        for name in [
            "transfer.h2c1",
            "transfer.c2h1",
            "transfer.together",
            "writeback",
            "credits.run",
            "memory.restore",
        ] {
            let status = report.test(name).map(|test| test.status);
            assert_eq!(status, Some(Status::Pass), "{name}: {report:#?}");
        }
    }
    assert!(opened.pair(setup)?.read(opened.at(0), 4000) == data, "card memory is unchanged");
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}
