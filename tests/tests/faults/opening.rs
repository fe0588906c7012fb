//! Cards that cannot be opened, and channels that cannot be taken.

use super::*;
use fpga_driver::Error;
use fpga_firmware::generated::ni;
use fpga_pci::MmioError;
use fpga_rdma::{Endpoint, EndpointError};
use fpga_tests::causes::Lower as _;

#[test]
fn open_missing_bars_are_reported() {
    let none = network(described("bars: { user: null, dma: null, bypass: null }"));
    assert!(matches!(try_open(&none, ignored()), Err(Error { kind: OpenError::NoBars, .. })));

    // No MSI-X table in its usual BAR and no BAR of 64 KiB: the driver neither guesses nor reads user logic.
    let no_dma = network(described(
        "bars: { user: { size: 0x20000 }, dma: null, bypass: { size: 0x100000, width: 64 } }",
    ));
    let error = try_open(&no_dma, ignored()).unwrap_err();
    let Error { kind: OpenError::DmaBarUnclear { found, .. }, .. } = &error else { panic!("{error}") };
    assert_eq!(*found, [(0, 0x2_0000), (1, 0x10_0000)]);
    assert_message(&error, &["OpenOptions::dma_bar"]);
    assert_eq!(no_dma.with_card(0, |card| card.counters().mmio_reads), Some(0));
    // The option selects the BAR, and the driver verifies it.
    let error = try_open(&no_dma, ignored().dma_bar(1)).unwrap_err();
    assert!(matches!(error.kind, OpenError::NotXdma { index: 1, .. }), "{error}");

    let no_user = network(described("bars: { user: null }"));
    let error = try_open(&no_user, OpenOptions::default()).unwrap_err();
    assert!(matches!(error.kind, OpenError::RoleAbsent { .. }), "{error}");
    let card = open_with(&no_user, ignored());
    assert!(card.user_bar().is_none());
    assert!(matches!(card.cdma(), Err(Error { kind: ResourceError::Absent { .. }, .. })));
    assert_works(&no_user, &card, &mut card.h2c(0).unwrap(), 1);
}

#[test]
fn open_small_bars_are_reported() {
    let dma = network(described("bars: { dma: { size: 0x4000 } }"));
    let error = try_open(&dma, OpenOptions::default().dma_bar(1)).unwrap_err();
    let Error {
        kind: OpenError::BarTooSmall { role: "DMA", index: 1, size: 0x4000, needed: 0x8000, .. },
        ..
    } = error
    else {
        panic!("{error}")
    };
    let user = network(described("bars: { user: { size: 0x4000 } }"));
    let error = try_open(&user, OpenOptions::default()).unwrap_err();
    let Error { kind: OpenError::BarTooSmall { role: "user", index: 0, size: 0x4000, .. }, .. } = error
    else {
        panic!("{error}")
    };
    assert_closed(&user, 0);
    let card = open_with(&user, ignored());
    assert_works(&user, &card, &mut card.h2c(0).unwrap(), 1);
}

#[test]
fn open_wrong_options_are_refused() {
    let network = network(CardDescription::default());
    let error = try_open(&network, OpenOptions::default().dma_bar(5)).unwrap_err();
    assert!(matches!(error.kind, OpenError::BarAbsent { index: 5, .. }), "{error}");
    let error = try_open(&network, OpenOptions::default().dma_bar(200)).unwrap_err();
    assert!(matches!(error.kind, OpenError::BarAbsent { index: 200, .. }), "{error}");
    let error = try_open(&network, OpenOptions::default().dma_bar(0)).unwrap_err();
    assert!(matches!(error.kind, OpenError::NotXdma { index: 0, .. }), "{error}");
    assert_message(&error, &["BAR 0", "0x2000"]);
    assert_closed(&network, 0);
    let card = open_with(&network, OpenOptions::default().dma_bar(1));
    assert_works(&network, &card, &mut card.h2c(0).unwrap(), 1);
}

#[test]
fn open_card_without_channels_lists_none() {
    // Every channel identifier reads as 0.
    let network = network(CardDescription::default());
    let replaced = (0..4).flat_map(|n| [0x100 * n, 0x1000 + 0x100 * n]);
    let replaced = replaced.map(|at| ReplacedRegister { bar: DMA_BAR, at, value: 0 }).collect();
    let card =
        Card::from_backend_with(FaultInjectingBackend::new(network.backend(0), replaced), ignored()).unwrap();
    assert_eq!((card.info().xdma.h2c_channels, card.info().xdma.c2h_channels), (0, 0));
    assert!(matches!(
        card.h2c(0),
        Err(Error { kind: ResourceError::NoSuchChannel { available: 0, .. }, .. })
    ));
}

#[test]
fn open_foreign_identity_is_refused() {
    let version = |value: u32| described(&format!("ni: {{ version_override: {value} }}"));
    let cases = [
        (version((u32::from(CONTRACT_MAJOR) + 1) << 16), "update the software"),
        (version(0x0000_0009), "update the bitstream"),
        (
            described(&format!("ni: {{ checksum_override: {} }}", CONTRACT_CHECKSUM ^ 1)),
            "for the same contract version",
        ),
    ];
    for (file, advice) in cases {
        let network = network(file);
        let error = try_open(&network, OpenOptions::default()).unwrap_err();
        assert!(error.kind.lower::<IdentityReadError<MmioError>>().is_some(), "{error}");
        assert_message(&error, &[advice]);
        // A refused card is not changed: no bus mastering, no memory mapped.
        assert_closed(&network, 0);
        let card = open_with(&network, ignored());
        assert!(card.info().identity.is_none() && card.info().ni.is_none());
        assert_works(&network, &card, &mut card.h2c(0).unwrap(), 1);
    }
    // Another owner's user logic under this project's subsystem id.
    let network = network(CardDescription::default());
    for (value, all_ones) in [(IDENTITY_MAGIC ^ 0x100, false), (0, false), (u32::MAX, true)] {
        let words = if all_ones { 0..64 } else { 0..1 };
        let replaced: Vec<_> = words.map(|word| ReplacedRegister { bar: 0, at: word * 4, value }).collect();
        let injector = FaultInjectingBackend::new(network.backend(0), replaced);
        let error = Card::from_backend(injector.clone()).unwrap_err();
        if all_ones {
            assert!(matches!(error.kind, OpenError::UserLogic(_)), "{error}");
        } else {
            let Some(IdentityReadError::<MmioError>::Refused(source)) = error.kind.lower() else {
                panic!("{error}")
            };
            assert_eq!(*source, IdentityError::WrongMagic { found: value });
            assert_message(&error, &["no network interface of this project"]);
        }
        drop(error);
        let card = Card::from_backend_with(injector, ignored()).unwrap();
        assert_works(&network, &card, &mut card.h2c(0).unwrap(), 1);
    }
}

#[test]
fn open_foreign_card_never_reads_user_bar() {
    let network = network(described("pci: { subsystem_device: 0x0007 }"));
    network.with_card(0, |card| card.set_access_log(fpga_card::AccessLog::bounded(10_000)));
    let card = open(&network);
    assert!(card.info().identity.is_none());
    assert_works(&network, &card, &mut card.h2c(0).unwrap(), 1);
    drop(card);
    let touched = network.with_card(0, |card| match card.access_log() {
        fpga_card::AccessLog::Bounded { entries, .. } => {
            entries.iter().filter(|access| access.target == fpga_card::AccessTarget::Bar(0)).count()
        }
        _ => usize::MAX,
    });
    assert_eq!(touched, Some(0));
    // The option states that the network interface is there.
    let card = open_with(&network, OpenOptions::default().network_interface(NetworkInterface::Expected));
    assert!(card.info().ni.is_some());
}

#[test]
fn endpoint_impossible_table_size_is_refused() {
    let network = network(CardDescription::default());
    let base = open(&network).info().ni.as_ref().unwrap().ni_base;
    for register in [ni::REGISTRY_ENTRIES, ni::ESCAPE_SLOTS] {
        let at = base.offset_by(register).get();
        let injector = FaultInjectingBackend::new(
            network.backend(0),
            vec![ReplacedRegister { bar: 0, at, value: 0x1_0000 }],
        );
        let error = Endpoint::open(&Card::from_backend(injector).unwrap()).unwrap_err();
        assert!(matches!(error.kind, EndpointError::Tables { found: 0x1_0000, .. }), "{error}");
    }
}
