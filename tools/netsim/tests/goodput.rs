//! Goodput of a link with loss and reordering: the registry scheme with all its defaults.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue may as well stop")]

use fpga_netmodel::{Conditions, Loss, Order, Probability};
use fpga_netsim::{BitRate, Scenario, Simulation};
use fpga_protocol::Nanos;
use fpga_protocol::sender::SenderConfig;

const LENGTH: u64 = 4 << 20;

fn goodput(scenario: &Scenario) -> u64 {
    let report = Simulation::new(scenario).unwrap().run().unwrap();
    assert_eq!(report.failures(), 0, "{report:?}");
    report.flows[0].goodput(LENGTH).get()
}

/// Fraction of the goodput at 0.5 % loss and a disorder of 64, the minimum of several seeds.
fn share(op_entries: u32, one_way: Nanos) -> f64 {
    let mut sender = SenderConfig::default();
    sender.op_entries = op_entries;
    let link =
        Scenario::new(LENGTH).congestion(None).rate(BitRate::from_gbps(80)).delay(one_way).sender(sender);
    let conditions = Conditions::default().loss(Loss::Independent(Probability::new(0.005).unwrap()));
    let order = Order::Degree { degree: 64, patience: Nanos::new(60 * 64) };
    let impaired = link.clone().data(conditions).control(conditions).order(order);
    let ideal = goodput(&link);
    let least = (0..4).map(|seed| goodput(&impaired.clone().seed(seed))).min().unwrap();
    #[expect(clippy::cast_precision_loss, reason = "rates below 2^53, to be divided")]
    let share = least as f64 / ideal as f64;
    share
}

/// With the default op table on a link whose bandwidth-delay product is 32 packets; and on one where it is 390, which requires a larger
/// table.
#[test]
fn goodput_under_loss_and_disorder_stays_high() {
    assert!(share(SenderConfig::default().op_entries, Nanos::new(800)) >= 0.85);
    assert!(share(1024, Nanos::from_micros(10)) > share(256, Nanos::from_micros(10)));
}
