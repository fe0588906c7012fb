//! Sources of the network interface (`firmware-bindings/rtl/ni`).

macro_rules! sources {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../../firmware-bindings/rtl/ni/", $name)))),*]
    };
}

/// File names and contents; the package is first.
pub(crate) const NI: &[(&str, &str)] = sources! {
    "ni_pkg.sv"
    "fpga_ni.sv"
    "fpga_ni_bd.v"
    "ni_access.sv"
    "ni_arbiter.sv"
    "ni_counters.sv"
    "ni_crc32c.sv"
    "ni_crc32c_end.sv"
    "ni_dispatch.sv"
    "ni_escape.sv"
    "ni_ethernet.sv"
    "ni_events.sv"
    "ni_faults.sv"
    "ni_fifo.sv"
    "ni_identity.sv"
    "ni_inflight.sv"
    "ni_message_contexts.sv"
    "ni_message_peers.sv"
    "ni_message_receive.sv"
    "ni_message_report.sv"
    "ni_message_shadow.sv"
    "ni_message_stream.sv"
    "ni_message_timers.sv"
    "ni_message_window.sv"
    "ni_nodes.sv"
    "ni_notice_slots.sv"
    "ni_ranges.sv"
    "ni_receive.sv"
    "ni_receive_check.sv"
    "ni_receive_command.sv"
    "ni_receive_control.sv"
    "ni_receive_end.sv"
    "ni_receive_report.sv"
    "ni_receive_shadow.sv"
    "ni_receive_start.sv"
    "ni_receive_sweep.sv"
    "ni_receive_timer.sv"
    "ni_receive_write.sv"
    "ni_records.sv"
    "ni_receivers.sv"
    "ni_refusals.sv"
    "ni_registers.sv"
    "ni_registry.sv"
    "ni_registry_cam.sv"
    "ni_registry_hash.sv"
    "ni_rx.sv"
    "ni_rx_length.sv"
    "ni_rx_payload.sv"
    "ni_rx_rules.sv"
    "ni_senders.sv"
    "ni_settings.sv"
    "ni_shadows.sv"
    "ni_tombstones.sv"
    "ni_transfers.sv"
    "ni_transmit.sv"
    "ni_transmit_check.sv"
    "ni_transmit_header.sv"
    "ni_transmit_report.sv"
    "ni_tx.sv"
    "ni_windows.sv"
    "ni_write.sv"
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_those_of_the_folder() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../firmware-bindings/rtl/ni");
        let names =
            std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut found: Vec<String> = names
            .map(|name| name.to_string_lossy().into_owned())
            .filter(|name| name.ends_with("v"))
            .collect();
        found.sort();
        let mut listed: Vec<&str> = NI.iter().map(|(name, _)| *name).collect();
        assert_eq!(listed.first(), Some(&"ni_pkg.sv"));
        listed.sort_unstable();
        assert_eq!(listed, found);
    }
}
