//! An endpoint's CDMA chain that is started once too often. A new tail needs two writes where addresses are wide, and an engine that
//! reaches the tail between the two writes runs past it.

use super::*;

use std::sync::Arc;

use fpga_pci::Backend;
use fpga_registers::cdma::CdmaBlock;
use fpga_tests::fault_injecting::FaultInjectingBackend;

/// The CDMA's registers in the user BAR of the built-in card.
const CDMA: BarOffset = BarOffset::new(0x1000);

/// Gives end 0 a backend that lets the cards do `steps` steps before the high word of each new tail; `None`: as many as there are to do.
fn delay_tail_writes(net: &mut Testbed, steps: Option<u32>) -> Arc<FaultInjectingBackend> {
    net.ends[0] = None;
    let injector = FaultInjectingBackend::new(net.network.backend(0), Vec::new());
    let card =
        Card::from_backend(Arc::<FaultInjectingBackend>::clone(&injector) as Arc<dyn Backend>).unwrap();
    net.ends[0] = Some(Endpoint::open_with(&card, &options(0x1A)).unwrap());
    let high = (0, CdmaBlock::TAILDESC_HIGH.address(CDMA).get());
    match steps {
        Some(steps) => injector.delay_writes(high, &vec![steps; 100_000]),
        None => injector.delay_write(Some(high)),
    }
    injector
}

#[test]
fn chain_engine_overtaking_tail_costs_reset_and_no_packet() {
    let mut overruns = 0;
    for steps in [Some(0), Some(1), Some(2), Some(3), Some(5), Some(8), Some(13), Some(40), None] {
        let mut net = Testbed::new(DeliveryOrder::Random { seed: 11, depth: 64 });
        let _injector = delay_tail_writes(&mut net, steps);
        for (round, length) in [100, 70_001, 1 << 20, 3].into_iter().enumerate() {
            let region = net.region(1, TARGET, 2 << 20);
            net.carry(at(SOURCE, 3), &region.remote, round as u64, &bytes(round as u64, length));
            net.end(1).close_region(&region).unwrap();
        }
        let counted = net.end(0).counters().chain_overruns;
        assert!(steps != Some(0) || counted == 0, "no write was overtaken");
        overruns += counted;
    }
    assert!(overruns > 0, "overruns occurred");
}
