//! PCI ids and configuration space.

use fpga_registers::pci::{
    self, DeviceId, VENDOR_AMAZON, VENDOR_XILINX, XDMA_DEVICES, bar, capability, command, default_design,
    header, is_known_xdma, msix, power, status,
};

/// Built from the digits of the ids in `xdma_mod.c` of the vendor's driver (2025.2). The ids of its test builds (1D0F:1042) are excluded.
#[test]
fn pci_device_ids_match_vendor_driver() {
    let mut expected = Vec::new();
    // UltraScale+: generation 1 to 4 in the third digit, lanes in the fourth; only the combinations listed there.
    for (generation, lanes) in [(1, "1248"), (2, "1248"), (3, "1248F"), (4, "1248")] {
        expected.extend(lanes.chars().map(|lane| format!("90{generation}{lane}")));
    }
    // UltraScale and 7 series: the same generations and lanes in both.
    for family in ["80", "70"] {
        for generation in 1..=3 {
            expected.extend("1248".chars().map(|lane| format!("{family}{generation}{lane}")));
        }
    }
    expected.extend(["6828", "6830", "6928", "6930", "6A28", "6A30", "6D30"].map(String::from));
    expected.extend(["4808", "4828", "4908", "4A28", "4B28", "2808"].map(String::from));
    let mut expected: Vec<_> = expected.iter().map(|id| u16::from_str_radix(id, 16).unwrap()).collect();
    let mut ours: Vec<_> =
        XDMA_DEVICES.iter().filter(|id| id.vendor == VENDOR_XILINX).map(|id| id.device).collect();
    expected.sort_unstable();
    ours.sort_unstable();
    assert_eq!(ours, expected);

    let mut amazon: Vec<_> =
        XDMA_DEVICES.iter().filter(|id| id.vendor == VENDOR_AMAZON).map(|id| id.device).collect();
    amazon.sort_unstable();
    assert_eq!(amazon, [0xF000, 0xF001]);

    assert!(is_known_xdma(DeviceId { vendor: VENDOR_XILINX, device: 0x903F }));
    assert!(!is_known_xdma(DeviceId { vendor: 0x8086, device: 0x903F }));
    assert_eq!((VENDOR_XILINX, VENDOR_AMAZON), (0x10EE, 0x1D0F));
}

/// The pattern is that of the list above; other ids do not describe a design.
#[test]
fn pci_default_ids_give_family_generation_and_lanes() {
    let design = |device| {
        let design = default_design(DeviceId { vendor: VENDOR_XILINX, device })?;
        Some((design.family, design.generation, design.lanes))
    };
    assert_eq!(design(0x903F), Some(("UltraScale+", 3, 16)));
    assert_eq!(design(0x9048), Some(("UltraScale+", 4, 8)));
    assert_eq!(design(0x8011), Some(("UltraScale", 1, 1)));
    assert_eq!(design(0x7024), Some(("7 series", 2, 4)));
    for device in [0x6828, 0x903E, 0x9138, 0x9050, 0x9003, 0x9030, 0xA038, 0x0000, 0xFFFF] {
        assert_eq!(design(device), None, "{device:#x}");
    }
    assert_eq!(default_design(DeviceId { vendor: VENDOR_AMAZON, device: 0x903F }), None);
    for id in XDMA_DEVICES.iter().filter(|id| id.vendor == VENDOR_XILINX && id.device >> 12 >= 7) {
        assert!(default_design(*id).is_some(), "{id:?}");
    }
}

/// As restated by Linux `include/uapi/linux/pci_regs.h`, whose names are given.
#[test]
fn pci_config_space_matches_specification() {
    let bytes = [
        (header::VENDOR_ID, 0x00, "PCI_VENDOR_ID"),
        (header::DEVICE_ID, 0x02, "PCI_DEVICE_ID"),
        (header::COMMAND, 0x04, "PCI_COMMAND"),
        (header::STATUS, 0x06, "PCI_STATUS"),
        (header::HEADER_TYPE, 0x0E, "PCI_HEADER_TYPE"),
        (header::BAR0, 0x10, "PCI_BASE_ADDRESS_0"),
        (header::SUBSYSTEM_VENDOR_ID, 0x2C, "PCI_SUBSYSTEM_VENDOR_ID"),
        (header::SUBSYSTEM_ID, 0x2E, "PCI_SUBSYSTEM_ID"),
        (header::CAPABILITIES, 0x34, "PCI_CAPABILITY_LIST"),
        (header::INTERRUPT_PIN, 0x3D, "PCI_INTERRUPT_PIN"),
        (command::MEMORY_SPACE, 0x0002, "PCI_COMMAND_MEMORY"),
        (command::BUS_MASTER, 0x0004, "PCI_COMMAND_MASTER"),
        (status::INTERRUPT, 0x0008, "PCI_STATUS_INTERRUPT"),
        (status::CAPABILITIES, 0x0010, "PCI_STATUS_CAP_LIST"),
        (u16::from(capability::POWER_MANAGEMENT), 0x01, "PCI_CAP_ID_PM"),
        (u16::from(capability::MSI), 0x05, "PCI_CAP_ID_MSI"),
        (u16::from(capability::MSIX), 0x11, "PCI_CAP_ID_MSIX"),
        (power::CONTROL, 4, "PCI_PM_CTRL"),
        (power::STATE_MASK, 0x0003, "PCI_PM_CTRL_STATE_MASK"),
        (msix::CONTROL, 2, "PCI_MSIX_FLAGS"),
        (msix::TABLE_SIZE_MASK, 0x07FF, "PCI_MSIX_FLAGS_QSIZE"),
        (msix::FUNCTION_MASK, 0x4000, "PCI_MSIX_FLAGS_MASKALL"),
        (msix::ENABLE, 0x8000, "PCI_MSIX_FLAGS_ENABLE"),
        (msix::TABLE, 4, "PCI_MSIX_TABLE"),
        (msix::PENDING, 8, "PCI_MSIX_PBA"),
        (msix::SIZE, 12, "PCI_CAP_MSIX_SIZEOF"),
        (msix::ENTRY_SIZE, 16, "PCI_MSIX_ENTRY_SIZE"),
        (pci::CONFIG_SIZE, 256, "PCI_CFG_SPACE_SIZE"),
    ];
    for (ours, specification, name) in bytes {
        assert_eq!(ours, specification, "{name}");
    }
    let words = [
        (bar::IO, 0x01, "PCI_BASE_ADDRESS_SPACE_IO"),
        (bar::TYPE_MASK, 0x06, "PCI_BASE_ADDRESS_MEM_TYPE_MASK"),
        (bar::TYPE_64, 0x04, "PCI_BASE_ADDRESS_MEM_TYPE_64"),
        (bar::PREFETCHABLE, 0x08, "PCI_BASE_ADDRESS_MEM_PREFETCH"),
        (bar::MEMORY_MASK, 0xFFFF_FFF0, "PCI_BASE_ADDRESS_MEM_MASK"),
        (msix::BAR_MASK, 0x0000_0007, "PCI_MSIX_TABLE_BIR"),
        (msix::OFFSET_MASK, 0xFFFF_FFF8, "PCI_MSIX_TABLE_OFFSET"),
    ];
    for (ours, specification, name) in words {
        assert_eq!(ours, specification, "{name}");
    }
    assert_eq!(pci::VENDOR_NONE, 0xFFFF);
}
