use super::*;
use crate::Backend;
use crate::testing::StubBackend;
use proptest::prelude::*;

/// Configuration space as an XDMA card shows it: power management at 0x40, MSI at 0x48, MSI-X at 0x60, PCIe at 0x70.
fn card() -> Vec<u8> {
    let mut space = vec![0; 256];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x00, &[0xEE, 0x10, 0x38, 0x90]);
    put(0x06, &[0x10, 0x00]);
    put(0x10, &0xF000_0000_u32.to_le_bytes());
    put(0x14, &0xE000_000C_u32.to_le_bytes());
    put(0x18, &0x0000_0002_u32.to_le_bytes());
    put(0x1C, &0x0000_C001_u32.to_le_bytes());
    put(0x34, &[0x40]);
    put(0x40, &[0x01, 0x48]);
    put(0x48, &[0x05, 0x60]);
    put(0x60, &[0x11, 0x70, 0x1F, 0x00, 0x01, 0x80, 0x00, 0x00, 0xE1, 0x8F, 0x00, 0x00]);
    put(0x70, &[0x10, 0x00]);
    space
}

#[test]
fn config_capabilities_are_listed_in_order() {
    let found = capabilities(card().as_slice()).unwrap();
    let found: Vec<_> = found.iter().map(|capability| (capability.id, capability.at)).collect();
    assert_eq!(found, [(0x01, 0x40), (0x05, 0x48), (0x11, 0x60), (0x10, 0x70)]);
}

#[test]
fn config_msix_capability_locates_table() {
    let msix = find_msix(card().as_slice()).unwrap().unwrap();
    let expected = MsixCapability {
        at: 0x60,
        vectors: 32,
        table_bar: 1,
        table_offset: 0x8000,
        pba_bar: 1,
        pba_offset: 0x8FE0,
    };
    assert_eq!(msix, expected);
    assert_eq!(msix.table_length(), 512);
    let mut without = card();
    without[0x49] = 0x70;
    assert_eq!(find_msix(without.as_slice()), Ok(None));
}

#[test]
fn config_without_capabilities_lists_none() {
    let mut space = card();
    space[0x06] = 0;
    assert_eq!(capabilities(space.as_slice()), Ok(Vec::new()));
    space[0x06] = 0x10;
    space[0x34] = 3;
    assert_eq!(capabilities(space.as_slice()), Ok(Vec::new()), "the two low bits are reserved");
}

#[test]
fn config_damaged_capability_list_ends() {
    let mut looping = card();
    looping[0x71] = 0x40;
    assert_eq!(
        capabilities(looping.as_slice()),
        Err(ConfigSpaceError::BadCapabilityList { at: 0x40, seen: 48 })
    );
    let mut inside_header = card();
    inside_header[0x41] = 0x10;
    assert_eq!(
        capabilities(inside_header.as_slice()),
        Err(ConfigSpaceError::BadCapabilityList { at: 0x10, seen: 1 })
    );
    let mut dead = card();
    dead[0x48] = 0xFF;
    assert_eq!(capabilities(dead.as_slice()), Err(ConfigSpaceError::BadCapabilityList { at: 0x48, seen: 1 }));
}

#[test]
fn config_all_ones_is_absent_device() {
    let space = vec![0xFF; 256];
    assert_eq!(identity(space.as_slice()), Err(ConfigSpaceError::Gone));
    assert_eq!(capabilities(space.as_slice()), Err(ConfigSpaceError::Gone));
    assert_eq!(find_msix(space.as_slice()), Err(ConfigSpaceError::Gone));
    assert_eq!(bar_registers(space.as_slice()), Err(ConfigSpaceError::Gone));
    assert_eq!(memory_enabled(space.as_slice()), Err(ConfigSpaceError::Gone));
}

#[test]
fn config_bar_registers_decode_by_kind() {
    let bar = |index, kind, prefetchable, address| Some(BarRegister { index, kind, prefetchable, address });
    let expected = [
        bar(0, BarKind::Memory32, false, 0xF000_0000),
        bar(1, BarKind::Memory64, true, 0x2_E000_0000),
        None,
        bar(3, BarKind::Io, false, 0xC000),
        None,
        None,
    ];
    assert_eq!(bar_registers(card().as_slice()), Ok(expected));
    let mut bridge = card();
    bridge[0x0E] = 1;
    assert_eq!(bar_registers(bridge.as_slice()), Ok([None; 6]));
    let mut at_the_end = card();
    at_the_end[0x24] = 0x04;
    assert_eq!(bar_registers(at_the_end.as_slice()).unwrap()[5], None, "a 64-bit BAR needs two registers");
}

#[test]
fn config_bus_master_changes_one_bit() {
    let function = StubBackend::new(Vec::new());
    function.config_write(0x04, &[0x03, 0x01]).unwrap();
    function.set_bus_master(true).unwrap();
    assert_eq!(read_u16(&function, 0x04), Ok(0x0107));
    assert_eq!(memory_enabled(&function), Ok(true));
    function.set_bus_master(false).unwrap();
    assert_eq!(read_u16(&function, 0x04), Ok(0x0103));
    function.config_write(0, &[0xFF; 4]).unwrap();
    assert_eq!(function.set_bus_master(true), Err(ConfigSpaceError::Gone));
}

proptest! {
    #[test]
    fn config_any_bytes_do_not_panic_or_loop(mut space in proptest::collection::vec(any::<u8>(), 0..256), capable: bool) {
        if let (true, Some(byte)) = (capable, space.get_mut(6)) {
            *byte |= 0x10;
        }
        let space = space.as_slice();
        if let Ok(found) = capabilities(space) {
            prop_assert!(found.len() <= usize::from(MAX_CAPABILITIES));
        }
        let _ = find_msix(space);
        let _ = bar_registers(space);
        let _ = memory_enabled(space);
    }
}
