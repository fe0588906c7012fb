//! Regions: their sizes, and accesses of every width.

use crate::served::client::{BYPASS, DMA, Served, USER};
use fpga_vfio_user::wire::{InfoRequest, IrqInfo, RegionInfo, Reply, Request, SmallWrite, region};
use proptest::prelude::*;

fn region_info(client: &mut crate::served::client::Client, index: u32) -> Result<RegionInfo, u32> {
    let request = Request::DeviceGetRegionInfo(InfoRequest { argsz: 32, index });
    let command = request.command();
    match Reply::decode(command, client.ask(&request, &[])?).unwrap() {
        Some(Reply::DeviceGetRegionInfo(info)) => Ok(info),
        other => panic!("{other:?}"),
    }
}

fn irq_info(client: &mut crate::served::client::Client, index: u32) -> Result<IrqInfo, u32> {
    let request = Request::DeviceGetIrqInfo(InfoRequest { argsz: 16, index });
    let command = request.command();
    match Reply::decode(command, client.ask(&request, &[])?).unwrap() {
        Some(Reply::DeviceGetIrqInfo(info)) => Ok(info),
        other => panic!("{other:?}"),
    }
}

#[test]
fn device_info_matches_vfio() {
    let served = Served::start();
    let mut client = served.connect();
    let request = Request::DeviceGetInfo(InfoRequest { argsz: 16, index: 0 });
    let body = client.ask(&request, &[]).unwrap().to_vec();
    let words: Vec<u32> =
        body.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
    // Reset is supported, it is a PCI device; 9 regions, 5 interrupt kinds.
    assert_eq!(words, [16, 3, 9, 5]);
    let sizes: Vec<u64> = (0..9).map(|index| region_info(&mut client, index).unwrap().size).collect();
    assert_eq!(sizes, [0x1_0000, 0x1_0000, 0x400_0000, 0, 0, 0, 0, 4096, 0]);
    for index in [0, 1, 2, 7] {
        assert_eq!(region_info(&mut client, index).unwrap().flags, 3, "readable and writable, not mappable");
    }
    assert_eq!(region_info(&mut client, 9), Err(22));
    assert_eq!(region_info(&mut client, u32::MAX), Err(22));
    let irqs: Vec<(u32, u32)> = (0..5)
        .map(|index| irq_info(&mut client, index).unwrap())
        .map(|info| (info.flags, info.count))
        .collect();
    let config = client.read(region::CONFIG, 0, 0x100).unwrap();
    assert_eq!(irqs[0], (7, u32::from(config[0x3D] != 0)), "the line is maskable and automasked");
    assert_eq!((irqs[1].0, irqs[2], irqs[3], irqs[4]), (3, (3, 32), (1, 1), (1, 1)));
    assert_eq!(irq_info(&mut client, 5), Err(22));
    assert_eq!(&config[..4], &[0xEE, 0x10, 0x3F, 0x90]);
    // State in which the kernel hands out a device: memory decoding on, bus mastering off.
    assert_eq!(config[4], 2);
    served.stop();
}

#[test]
fn registers_any_width_access_without_side_effects_of_narrow_ones() {
    let served = Served::start();
    let mut client = served.connect();
    for bar in [USER, DMA, BYPASS] {
        for offset in [0, 4, 0x40, 0x2000, 0x3000, 0x8000, 0x8FE0, 0xFFF8] {
            for width in 1..=8 {
                for shift in 0..8 {
                    // The last ones reach beyond the end of the two small BARs.
                    let at = offset + shift;
                    let mut expected = vec![0; width];
                    let got = client.read(bar, at, u32::try_from(width).unwrap());
                    served
                        .network
                        .with_card(0, |card| card.bar_peek(u8::try_from(bar).unwrap(), at, &mut expected))
                        .unwrap();
                    if at + width as u64 > 0x1_0000 && bar != BYPASS {
                        assert_eq!(got, Err(22), "BAR {bar}, {width} bytes at {at:#x}");
                    } else {
                        assert_eq!(got, Ok(expected), "BAR {bar}, {width} bytes at {at:#x}");
                    }
                }
            }
        }
    }
    // The bypass window takes any write; registers take whole words.
    client.write(BYPASS, 0x1001, &[1, 2, 3]).unwrap();
    assert_eq!(client.read(BYPASS, 0x1000, 5).unwrap(), [0, 1, 2, 3, 0]);
    client.write32(DMA, 0x0088, 0x1234_5670);
    client.write(DMA, 0x0089, &[0xFF]).unwrap();
    assert_eq!(client.read32(DMA, 0x0088), 0x1234_5670);
    let long: Vec<u8> = (0..1 << 20).map(|n: u32| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    client.write(BYPASS, 0x10_0000, &long).unwrap();
    assert_eq!(client.read(BYPASS, 0x10_0000, 1 << 20).unwrap(), long);
    assert_eq!(client.read(BYPASS, 0x400_0000, 1), Err(22));
    assert_eq!(client.read(BYPASS, u64::MAX, 8), Err(22));
    assert_eq!(client.read(3, 0, 4), Err(22), "the upper half of a 64-bit BAR is not a region");
    assert_eq!(client.read(DMA, 0x40, 0), Ok(vec![]));
    assert_eq!(client.write(region::ROM, 0, &[0; 4]), Err(22));
    served.stop();
}

#[test]
fn register_write_multi_is_ordered_and_posted_writes_unanswered() {
    let served = Served::start();
    let mut client = served.connect();
    let write = |offset, value: u32| SmallWrite::new(DMA, offset, &value.to_le_bytes()).unwrap();
    let writes = vec![write(0x0088, 0x1000), write(0x008C, 7), write(0x0088, 0x2000)];
    client.send(&Request::RegionWriteMulti(writes), true, &[]);
    assert_eq!((client.read32(DMA, 0x0088), client.read32(DMA, 0x008C)), (0x2000, 7));
    // An error in a message without reply flag has no reply either.
    client.send(&Request::RegionWriteMulti(vec![write(0x1_0000, 1)]), true, &[]);
    let count = SmallWrite::new(DMA, 0x0088, &[0; 4]).unwrap();
    let body = client.ask(&Request::RegionWriteMulti(vec![count, count]), &[]).unwrap();
    assert_eq!(body, 2_u64.to_ne_bytes());
    assert_eq!(client.read32(DMA, 0x0088), 0);
    assert_eq!(served.stop().refused_requests, 1);
}

#[test]
fn reset_restores_registers_and_keeps_dma_mappings() {
    let served = Served::start();
    let mut client = served.connect();
    client.map(0x10_0000, 4096, 3, Some((&crate::served::client::file(1, true), 0))).unwrap();
    client.bus_master(true);
    client.write32(DMA, 0x0088, 0x1000);
    client.ask(&Request::DeviceReset, &[]).unwrap();
    assert_eq!(client.read32(DMA, 0x0088), 0);
    assert_eq!(client.read(region::CONFIG, 4, 2).unwrap(), [2, 0]);
    assert_eq!(served.network.mapped_bytes(0), 4096);
    // Decoding is restored, on or off: a client that had switched it off relies on this.
    client.write(region::CONFIG, 4, &[0, 0]).unwrap();
    client.ask(&Request::DeviceReset, &[]).unwrap();
    assert_eq!(client.read(region::CONFIG, 4, 2).unwrap(), [0, 0]);
    assert_eq!(client.read32(DMA, 0), u32::MAX);
    served.stop();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Client writes of any width to configuration space have the same effect as on the model.
    #[test]
    fn config_space_writes_match_model(
        accesses in prop::collection::vec((0_u16..4200, 1_usize..9, any::<u64>()), 1..40),
    ) {
        let served = Served::start();
        let mut client = served.connect();
        let model = fpga_sim::SimNetwork::builder().cards(1).build().unwrap();
        let _opened = model.backend(0);
        model.with_card(0, |card| card.set_error_reporting(true));
        for (at, width, value) in accesses {
            let bytes = &value.to_le_bytes()[..width];
            let fits = usize::from(at) + width <= 4096;
            prop_assert_eq!(client.write(region::CONFIG, at.into(), bytes), if fits { Ok(()) } else { Err(22) });
            if fits {
                model.with_card(0, |card| card.config_write(at, bytes));
            }
        }
        let mut expected = vec![0; 4096];
        model.with_card(0, |card| card.config_read(0, &mut expected));
        prop_assert_eq!(client.read(region::CONFIG, 0, 4096).unwrap(), expected);
        served.stop();
    }
}
