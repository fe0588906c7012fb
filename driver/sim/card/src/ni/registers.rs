//! The NI's part of the user BAR, register by register.

use super::Ni;
use super::link_settings::LinkSettings;
use super::parameters::Parameters;
use crate::fault_log::{FaultKind, FaultLog, Unit};
use crate::space::{COMMIT_OFFSET, CardSpace, PAYLOAD_OFFSET};
use fpga_firmware::generated::{
    Capabilities, NODE_ANY, PATHS_MAX, Scheme, counters, escape, fault_log, identity, memory, ni, rates,
    registry, sending,
};
use fpga_firmware::wire::MESSAGE_PACKETS_MAX;
use fpga_protocol::time::Nanos;
use fpga_registers::cast::{high32, low32};

/// Bits of CONTROL that keep their value; RESET reads 0.
const CONTROL_STORED: u32 = ni::control::ENABLE | ni::control::EVENT_ENABLE | ni::control::PACKET_EVENTS;

fn within(at: u32, offset: u32, size: u32) -> Option<u32> {
    at.checked_sub(offset).filter(|register| *register < size)
}

impl Ni {
    /// Reads the dword at `at` of the user BAR (CDMA excluded). Reads have no side effects.
    pub(crate) fn read(&self, at: u32) -> u32 {
        if let Some(register) = within(at, identity::BLOCK_OFFSET, identity::BLOCK_SIZE) {
            let word = usize::try_from(register / 4).unwrap_or(usize::MAX);
            return self.build.identity.get(word).copied().unwrap_or(0);
        }
        if let Some(register) = within(at, ni::BLOCK_OFFSET, ni::BLOCK_SIZE) {
            return self.read_ni(register);
        }
        if let Some(register) = within(at, counters::BLOCK_OFFSET, counters::BLOCK_SIZE) {
            return self.read_counter(register);
        }
        if let Some(register) = within(at, registry::BLOCK_OFFSET, registry::BLOCK_SIZE) {
            return match register {
                registry::OCCUPANCY => self.exchange.occupancy().0,
                registry::HIGH_WATER => self.exchange.occupancy().1,
                _ => self.registry_shadow.read(register),
            };
        }
        if let Some(register) = within(at, escape::BLOCK_OFFSET, escape::BLOCK_SIZE) {
            return match register {
                escape::OCCUPANCY => self.exchange.escape_occupancy().0,
                escape::HIGH_WATER => self.exchange.escape_occupancy().1,
                _ => self.escape_shadow.read(register),
            };
        }
        if let Some(register) = within(at, memory::BLOCK_OFFSET, memory::BLOCK_SIZE) {
            return self.memory_shadow.read(register, self.exchange.access());
        }
        if let Some(register) = within(at, fault_log::BLOCK_OFFSET, fault_log::BLOCK_SIZE) {
            return self.faults.read(register);
        }
        if let Some(register) = within(at, sending::BLOCK_OFFSET, sending::BLOCK_SIZE) {
            return match (register, self.exchange.messages()) {
                (sending::OCCUPANCY, Some(node)) => node.sender.live(),
                (sending::QUEUED, Some(node)) => node.sender.queued(),
                _ => self.sending_shadow.read(register),
            };
        }
        if let Some(register) = within(at, rates::BLOCK_OFFSET, rates::BLOCK_SIZE) {
            return match (register, self.exchange.messages()) {
                (rates::OCCUPANCY, Some(node)) => node.rate_occupancy().0,
                (rates::CONTROLLED, Some(node)) => node.rate_occupancy().1,
                _ => self.rate_shadow.read(register),
            };
        }
        0
    }

    fn read_ni(&self, register: u32) -> u32 {
        let build = &self.build;
        let settings = &self.settings;
        match register {
            ni::NODE_ID => settings.node_id,
            ni::INCARNATION => settings.incarnation,
            ni::CONTROL => settings.control,
            ni::STATUS => self.status(),
            ni::PACKET_SIZE_LOG2 => build.packet_size_log2.into(),
            ni::MASK_BITS => build.mask_bits.into(),
            ni::REGISTRY_ENTRIES => build.registry_entries.into(),
            ni::ESCAPE_SLOTS => build.escape_slots.into(),
            // The op table is in the driver.
            ni::OP_TABLE_ENTRIES => 0,
            ni::MEMORY_WINDOW_COUNT => build.memory_windows.into(),
            ni::SCHEMES => build.schemes(),
            ni::FAULT_LOG_ENTRIES => u32::try_from(super::faults::ENTRIES).unwrap_or(0),
            ni::WINDOW_COUNT => build.windows.into(),
            ni::WINDOW_STRIDE => low32(build.window_stride),
            ni::WINDOW_BASE_LOW => low32(build.window_base),
            ni::WINDOW_BASE_HIGH => high32(build.window_base),
            ni::WINDOW_PAYLOAD_OFFSET => low32(PAYLOAD_OFFSET),
            ni::WINDOW_PAYLOAD_SIZE => low32(build.payload_size),
            ni::WINDOW_COMMIT_OFFSET => low32(COMMIT_OFFSET),
            ni::WINDOW_FREE => self.transmit.free_windows(),
            ni::MEMORY_BASE_LOW => low32(build.memory_base),
            ni::MEMORY_BASE_HIGH => high32(build.memory_base),
            ni::MEMORY_SIZE_LOW => low32(build.memory_size),
            ni::MEMORY_SIZE_HIGH => high32(build.memory_size),
            ni::THRESHOLD => settings.threshold,
            ni::ESCAPE_TIMEOUT_US => settings.escape_timeout_us,
            ni::REGISTRY_TIMEOUT_US => settings.registry_timeout_us,
            ni::PACKET_LIFETIME_US => settings.packet_lifetime_us,
            ni::SCHEME => settings.scheme,
            ni::SCHEMES_ON => settings.schemes_on,
            ni::COMMAND_ENTRIES => build.commands.into(),
            ni::SENDING_CONTEXTS if build.commands > 0 => build.sending_contexts.into(),
            ni::SENDING_CONTEXTS | ni::COMMAND_CANCEL | ni::HELLO => 0,
            ni::GIVE_UP_US => settings.give_up_us,
            ni::ROUND_TRIP_NS => settings.round_trip_ns,
            ni::MESSAGE_PACKETS => settings.message_packets,
            ni::PATHS => settings.paths,
            ni::CONGESTION => settings.congestion,
            ni::RATE_ENTRIES if build.commands > 0 => super::link_settings::MAX_RECEIVERS,
            ni::RATE_ENTRIES => 0,
            _ => settings
                .parameters
                .read(register)
                .or_else(|| settings.link.read(register))
                .unwrap_or_else(|| self.events.read(register)),
        }
    }

    fn status(&self) -> u32 {
        let flag = |set, bit| if set { bit } else { 0 };
        flag(self.enabled(), ni::status::ENABLED)
            | flag(self.transmit.transmitting(), ni::status::TRANSMITTING)
            | flag(self.events.events_lost(), ni::status::EVENTS_LOST)
            | flag(!self.faults.is_empty(), ni::status::FAULTED)
    }

    fn read_counter(&self, register: u32) -> u32 {
        let counted = self.exchange.counter(register);
        match register {
            counters::RX_PACKETS => self.received,
            counters::TX_PACKETS => self.frames.sent,
            counters::BAD_CRC => self.bad_crc,
            counters::BAD_PACKET => counted.wrapping_add(self.bad_packet),
            counters::TRIMMED => counted.wrapping_add(self.trimmed),
            _ => self.link.counts.read(register).unwrap_or(counted),
        }
    }

    /// Writes a dword at `at` of the user BAR (CDMA excluded).
    pub(crate) fn write(
        &mut self,
        at: u32,
        value: u32,
        now: Nanos,
        space: &mut CardSpace,
        log: &mut FaultLog,
    ) {
        self.now = self.now.max(now);
        let accepted = if let Some(register) = within(at, ni::BLOCK_OFFSET, ni::BLOCK_SIZE) {
            self.write_ni(register, value, space)
        } else if at == registry::BLOCK_OFFSET + registry::INDEX {
            let entry = u16::try_from(value).ok().and_then(|index| self.exchange.entry(index, self.now));
            self.registry_shadow.latch(value, entry);
            true
        } else if at == escape::BLOCK_OFFSET + escape::INDEX {
            let slot = u16::try_from(value).ok().and_then(|index| self.exchange.escaped(index, self.now));
            self.escape_shadow.latch(value, slot);
            true
        } else if at == sending::BLOCK_OFFSET + sending::INDEX {
            let shadow = self.exchange.messages().and_then(|node| node.context(value, self.now));
            self.sending_shadow.latch(value, shadow);
            true
        } else if at == rates::BLOCK_OFFSET + rates::INDEX {
            let rate = self.exchange.messages().and_then(|node| node.rate(value));
            self.rate_shadow.latch(value, rate);
            true
        } else if at == fault_log::BLOCK_OFFSET + fault_log::INDEX {
            self.faults.latch(value);
            true
        } else if let Some(register) = within(at, memory::BLOCK_OFFSET, memory::BLOCK_SIZE) {
            self.memory_shadow.write(register, value, self.exchange.access_mut())
        } else {
            false
        };
        if !accepted {
            log.push(FaultKind::Network, Unit::Ni, at.into(), value);
            self.bad_setting(at);
        }
    }

    /// Returns whether the dword at `at` of the user BAR only holds what is written, so that single bytes of it may be written.
    pub(crate) const fn is_plain(at: u32) -> bool {
        matches!(
            at.wrapping_sub(ni::BLOCK_OFFSET),
            ni::NODE_ID
                | ni::INCARNATION
                | ni::THRESHOLD
                | ni::ESCAPE_TIMEOUT_US
                | ni::REGISTRY_TIMEOUT_US
                | ni::PACKET_LIFETIME_US
                | ni::GIVE_UP_US
        )
    }

    /// Writes an NI register. Returns `false` if the value is invalid or the register is not writable.
    fn write_ni(&mut self, register: u32, value: u32, space: &mut CardSpace) -> bool {
        let settings = &mut self.settings;
        match register {
            ni::NODE_ID if value != NODE_ANY => settings.node_id = value,
            ni::INCARNATION => settings.incarnation = value,
            ni::CONTROL => return self.write_control(value, space),
            ni::THRESHOLD => {
                settings.threshold = value;
                return true;
            }
            ni::ESCAPE_TIMEOUT_US => settings.escape_timeout_us = value,
            ni::REGISTRY_TIMEOUT_US => settings.registry_timeout_us = value,
            ni::PACKET_LIFETIME_US => settings.packet_lifetime_us = value,
            ni::GIVE_UP_US if value > 0 => settings.give_up_us = value,
            ni::SCHEME
            | ni::SCHEMES_ON
            | ni::ROUND_TRIP_NS
            | ni::MESSAGE_PACKETS
            | ni::PATHS
            | ni::CONGESTION => {
                return self.choose(register, value);
            }
            ni::COMMAND_CANCEL => {
                if let Some(node) = self.exchange.messages_mut() {
                    node.cancel(self.now, value);
                    self.drain();
                }
                return true;
            }
            ni::HELLO => return self.ask(value),
            ni::EVENT_CONSUMED => {
                let taken = self.events.write(register, value);
                // There may be space now for delayed progress events.
                if self.exchange.messages().is_some_and(|node| node.sender.has_progress()) {
                    self.drain();
                }
                return taken;
            }
            _ if Parameters::has(register) || LinkSettings::has(register) => {
                return self.choose(register, value);
            }
            _ => return self.events.write(register, value),
        }
        self.apply_settings();
        true
    }

    /// Sets a register that selects or configures schemes. Allowed only while the NI is disabled.
    fn choose(&mut self, register: u32, value: u32) -> bool {
        let known = value < 32 && self.build.schemes() >> value & 1 != 0;
        let mixed = self.build.capabilities.contains(Capabilities::MIXED);
        let alone = |others: u32, scheme: u32| others & !1_u32.checked_shl(scheme).unwrap_or(0) == 0;
        let several = value & !self.build.schemes() == 0 && (mixed || alone(value, self.settings.scheme));
        let old = self.settings;
        let settings = &mut self.settings;
        let (place, fits) = match register {
            ni::SCHEME => {
                let fits = known && (mixed || alone(settings.schemes_on, value));
                (&mut settings.scheme, fits)
            }
            ni::SCHEMES_ON => (&mut settings.schemes_on, several),
            ni::ROUND_TRIP_NS => (&mut settings.round_trip_ns, value > 0),
            ni::MESSAGE_PACKETS => {
                (&mut settings.message_packets, (1..=MESSAGE_PACKETS_MAX).contains(&value))
            }
            ni::PATHS => (&mut settings.paths, (1..=u32::from(PATHS_MAX)).contains(&value)),
            ni::CONGESTION => (&mut settings.congestion, value & !ni::congestion::WINDOW == 0),
            _ => match (settings.parameters.place(register), settings.link.word_mut(register)) {
                (Some(place), _) => (place, Parameters::allows(register, value)),
                (None, Some(place)) => (place, LinkSettings::allows(register, value)),
                (None, None) => return false,
            },
        };
        if !fits || old.control & ni::control::ENABLE != 0 {
            return false;
        }
        *place = value;
        // The registry scheme depends only on SCHEME and SCHEMES_ON.
        let timed = !matches!(register, ni::SCHEME | ni::SCHEMES_ON);
        if timed && settings.active_schemes() == 1 << Scheme::Registry.value() || self.rebuild(true) {
            self.link.rebuild(&self.settings);
            return true;
        }
        self.settings = old;
        false
    }

    fn write_control(&mut self, value: u32, space: &mut CardSpace) -> bool {
        if value & ni::control::RESET != 0 {
            self.clear(space);
        }
        let mut stored = value & CONTROL_STORED;
        let wanted = stored & ni::control::EVENT_ENABLE != 0;
        let taken = self.events.enable(wanted);
        if !taken {
            stored &= !ni::control::EVENT_ENABLE;
        }
        self.settings.control = stored;
        self.apply_settings();
        taken
    }
}
