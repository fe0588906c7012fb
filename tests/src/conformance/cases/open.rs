//! Opening, inspecting, closing, and opening again.

use fpga_driver::{Error, ResourceError};
use fpga_registers::xdma::MAX_CHANNELS;

use super::{Case, CaseContext, Verdict, case};

pub(super) const CASES: &[Case] = &[
    case("open.info", &[], info),
    case("open.close_leaks_nothing", &[], closed),
    case("open.repeated", &[], again),
    case("open.second_owner_is_refused", &[], exclusive_channel),
];

/// The card's information is consistent, and the same at every opening.
fn info(context: &mut CaseContext<'_>) -> Verdict {
    let inspect = |context: &CaseContext<'_>| {
        let opened = context.open();
        let info = opened.card.info().clone();
        opened.close();
        info
    };
    let info = inspect(context);
    assert!(!info.name.is_empty());
    assert!(!matches!(info.ids.vendor, 0 | 0xFFFF), "{:x?}", info.ids);
    let xdma = &info.xdma;
    assert!(xdma.h2c_channels <= MAX_CHANNELS && xdma.c2h_channels <= MAX_CHANNELS, "{xdma:?}");
    assert!(xdma.channels().count() > 0, "{xdma:?}");
    assert!(xdma.data_width.is_some_and(|bits| bits.is_power_of_two()), "{xdma:?}");
    assert!(xdma.max_payload.is_some_and(|bytes| bytes >= 128), "{xdma:?}");
    assert!(info.roles.dma.size >= 0x8000, "{:?}", info.roles);
    assert_eq!(inspect(context), info, "the information is the same after reopening");
    Ok(())
}

fn closed(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let setup = opened.setups()[0];
    opened.pair(setup)?.assert_works(1);
    let buffer = opened.card.buffer(5000).expect("DMA memory");
    opened.assert_pool(1, 0);
    drop(buffer);
    opened.close();
    Ok(())
}

fn again(context: &mut CaseContext<'_>) -> Verdict {
    for seed in 0..8 {
        let opened = context.open();
        let setups = opened.setups();
        opened.pair(setups[usize::try_from(seed).unwrap_or(0) % setups.len().min(2)])?.assert_works(seed);
        opened.assert_pool(0, 0);
        opened.close();
    }
    Ok(())
}

/// A channel has one owner at a time, and the error for a missing channel reports the number of channels.
fn exclusive_channel(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    for setup in opened.setups() {
        let first = match setup.take(&opened.card, 0, setup.options()) {
            Ok(first) => first,
            Err(Error { kind: ResourceError::CreditModeUnsupported { .. }, .. }) => continue,
            Err(error) => panic!("{error}"),
        };
        let second = setup.take(&opened.card, 0, setup.options());
        assert!(
            matches!(second, Err(Error { kind: ResourceError::InUse { .. }, .. })),
            "{setup:?}: {second:?}"
        );
        drop(first);
        setup.take(&opened.card, 0, setup.options()).expect("the released channel is available");
        let there = opened.card.info().xdma.count(setup.direction);
        let absent = setup.take(&opened.card, there, setup.options());
        assert!(
            matches!(absent, Err(Error { kind: ResourceError::NoSuchChannel { available, .. }, .. }) if available == there),
            "{setup:?}: {absent:?}"
        );
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}
