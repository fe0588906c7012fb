//! Link feedback at an interface: settings, windows, events, the controller and the rates of its message sender.

use super::*;
use fpga_firmware::generated::Capabilities;

#[test]
fn ni_link_settings_are_checked_and_kept() {
    let mut testbed = node(1);
    assert!(Capabilities::from_bits(testbed.read(USER, 0x10)).contains(Capabilities::LINK_FEEDBACK));
    assert_eq!(testbed.ni_read(ni::RATE_ENTRIES), 64);
    let settings = [ni::LINK_CONTROL, ni::LINK_CONTROLLER, ni::LINK_RATE_MBPS];
    let read = |testbed: &mut CardTestbed| settings.map(|register| testbed.ni_read(register));
    let reset = [0, u32::MAX, 100_000];
    assert_eq!(read(&mut testbed), reset);
    // Not while the interface is enabled, and not these values.
    testbed.ni_write(ni::LINK_CONTROL, 1);
    testbed.ni_write(ni::CONTROL, 0);
    testbed.ni_write(ni::LINK_CONTROL, 2);
    testbed.ni_write(ni::LINK_RATE_MBPS, 0);
    testbed.ni_write(ni::RATE_ENTRIES, 1);
    assert_eq!(read(&mut testbed), reset);
    for (register, value) in settings.into_iter().zip([1, 9, 40_000]) {
        testbed.ni_write(register, value);
    }
    testbed.ni_write(ni::CONTROL, ni::control::RESET);
    assert_eq!(read(&mut testbed), [1, 9, 40_000], "a reset of the interface keeps settings");
    let mut alone = small();
    alone.ni.commands = 0;
    assert_eq!(prepare(CardTestbed::with(alone)).ni_read(ni::RATE_ENTRIES), 0);
}
