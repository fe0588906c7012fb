//! Windows onto registry, escape buffer and memory windows: writing INDEX latches an entry into shadow words.

use fpga_firmware::generated::{
    MEMORY_COMMIT_INSTALL, MEMORY_COMMIT_REMOVE, Permissions, escape, memory, rates, registry, sending,
};
use fpga_firmware::ids::NodeId;
use fpga_protocol::feedback::flow::RateView;
use fpga_protocol::receiver::{AccessTable, EntryView, EscapedView, MemoryWindow};
use fpga_protocol::scheme::messages::ContextView;
use fpga_protocol::time::Nanos;
use fpga_registers::CardAddr;
use fpga_registers::cast::{high32, low32};

/// Age in microseconds, saturating.
fn age_us(age: Nanos) -> u32 {
    u32::try_from(age.as_micros()).unwrap_or(u32::MAX)
}

/// Shadow of one registry entry.
#[derive(Debug, Default)]
pub(super) struct RegistryShadow {
    index: u32,
    entry: Option<EntryView>,
}

impl RegistryShadow {
    pub(super) fn latch(&mut self, index: u32, entry: Option<EntryView>) {
        self.index = index;
        self.entry = entry.filter(|entry| entry.valid);
    }

    pub(super) fn read(&self, register: u32) -> u32 {
        if register == registry::INDEX {
            return self.index;
        }
        let Some(entry) = &self.entry else { return 0 };
        match register {
            registry::FLAGS => {
                let complete = entry.mask.iter().all(|word| *word == u32::MAX);
                let flag = |set, bit| if set { bit } else { 0 };
                registry::flags::VALID
                    | flag(complete, registry::flags::COMPLETE)
                    | flag(entry.silent, registry::flags::SILENT)
                    | flag(entry.notify, registry::flags::NOTIFY)
                    | entry.scheme.value() << registry::flags::SCHEME_SHIFT
            }
            registry::GENERATION => entry.generation,
            registry::SOURCE_NODE => entry.source.get(),
            registry::INCARNATION => entry.incarnation.get(),
            registry::TRANSFER => entry.transfer.get(),
            registry::SEGMENT => entry.segment,
            registry::SEGMENT_COUNT => entry.segment_count,
            registry::BASE_LOW => low32(entry.base.get()),
            registry::BASE_HIGH => high32(entry.base.get()),
            registry::LENGTH => entry.length,
            registry::EXPECTED => entry.expected.into(),
            registry::AGE_US => age_us(entry.age),
            registry::FIRST => entry.first,
            registry::TRANSFER_LENGTH_LOW => low32(entry.transfer_length),
            registry::TRANSFER_LENGTH_HIGH => high32(entry.transfer_length),
            _ => register
                .checked_sub(registry::MASK)
                .and_then(|offset| usize::try_from(offset / 4).ok())
                .and_then(|word| entry.mask.get(word))
                .copied()
                .unwrap_or(0),
        }
    }
}

/// Shadow of one escape slot.
#[derive(Debug, Default)]
pub(super) struct EscapeShadow {
    index: u32,
    slot: Option<EscapedView>,
}

impl EscapeShadow {
    pub(super) const fn latch(&mut self, index: u32, slot: Option<EscapedView>) {
        self.index = index;
        self.slot = slot;
    }

    pub(super) fn read(&self, register: u32) -> u32 {
        if register == escape::INDEX {
            return self.index;
        }
        let Some(slot) = &self.slot else { return 0 };
        let header = &slot.header;
        match register {
            escape::VALID => 1,
            escape::SOURCE_NODE => header.common.source.get(),
            escape::INCARNATION => header.common.incarnation.get(),
            escape::TRANSFER => header.transfer.get(),
            escape::SEGMENT => header.segment,
            escape::ADDRESS_LOW => low32(header.address.get()),
            escape::ADDRESS_HIGH => high32(header.address.get()),
            escape::LENGTH => u32::try_from(slot.length).unwrap_or(u32::MAX),
            escape::AGE_US => age_us(slot.age),
            escape::OP => header.op.get(),
            _ => 0,
        }
    }
}

/// Shadow of one sending context, with its command's number.
#[derive(Debug, Default)]
pub(super) struct SendingShadow {
    index: u32,
    context: Option<(u32, ContextView)>,
}

impl SendingShadow {
    pub(super) const fn latch(&mut self, index: u32, context: Option<(u32, ContextView)>) {
        self.index = index;
        self.context = context;
    }

    pub(super) fn read(&self, register: u32) -> u32 {
        if register == sending::INDEX {
            return self.index;
        }
        let Some((command, context)) = &self.context else { return 0 };
        match register {
            sending::FLAGS => {
                let flag = |set, bit| if set { bit } else { 0 };
                sending::flags::VALID
                    | flag(context.asking, sending::flags::ASKING)
                    | flag(context.held, sending::flags::HELD)
                    | context.scheme.value() << sending::flags::SCHEME_SHIFT
            }
            sending::NODE => context.node.get(),
            sending::MESSAGE => context.message.get(),
            sending::CONTEXT => context.peer_limit.unwrap_or(u32::MAX),
            sending::TRANSFER => context.announcement.transfer.get(),
            sending::COMMAND => *command,
            sending::BASE_LOW => low32(context.announcement.base.get()),
            sending::BASE_HIGH => high32(context.announcement.base.get()),
            sending::LENGTH => context.announcement.length,
            sending::PACKETS => context.packets,
            sending::FRESH => context.fresh,
            sending::BASE_PACKET => context.base,
            sending::SENT => low32(context.sent),
            sending::TRIES => context.tries.into(),
            sending::AGE_US => age_us(context.age),
            _ => 0,
        }
    }
}

/// Shadow of one rate.
#[derive(Debug, Default)]
pub(super) struct RateShadow {
    index: u32,
    rate: Option<RateView>,
}

impl RateShadow {
    pub(super) const fn latch(&mut self, index: u32, rate: Option<RateView>) {
        self.index = index;
        self.rate = rate;
    }

    pub(super) fn read(&self, register: u32) -> u32 {
        if register == rates::INDEX {
            return self.index;
        }
        let Some(rate) = &self.rate else { return 0 };
        let nanos = |span: Nanos| u32::try_from(span.get()).unwrap_or(u32::MAX);
        match register {
            rates::FLAGS => {
                let controlled = if rate.is_controlled() { rates::flags::CONTROLLED } else { 0 };
                rates::flags::VALID | controlled
            }
            rates::NODE => rate.node.get(),
            rates::RATE => rate.rate,
            rates::MIN_DELAY_NS => rate.min_delay.map_or(0, |delay| nanos(delay).max(1)),
            rates::MAX_DELAY_NS => nanos(rate.max_delay),
            rates::INQUIRY => rate.inquiry,
            rates::CONGESTED => rate.congested,
            _ => 0,
        }
    }
}

/// Shadow of one memory window: software fills it and commits it.
#[derive(Debug)]
pub(super) struct MemoryShadow {
    index: u32,
    window: MemoryWindow,
    valid: bool,
}

const CLOSED: MemoryWindow = MemoryWindow {
    source: NodeId::new(0),
    base: CardAddr::ZERO,
    length: 0,
    key: 0,
    permissions: Permissions::NONE,
};

impl MemoryShadow {
    pub(super) const fn new() -> Self {
        Self { index: 0, window: CLOSED, valid: false }
    }

    pub(super) fn read(&self, register: u32, table: &AccessTable) -> u32 {
        let window = &self.window;
        match register {
            memory::INDEX => self.index,
            memory::SOURCE_NODE => window.source.get(),
            memory::BASE_LOW => low32(window.base.get()),
            memory::BASE_HIGH => high32(window.base.get()),
            memory::LENGTH_LOW => low32(window.length),
            memory::LENGTH_HIGH => high32(window.length),
            memory::KEY_LOW => low32(window.key),
            memory::KEY_HIGH => high32(window.key),
            memory::PERMISSIONS => window.permissions.bits(),
            memory::VALID => self.valid.into(),
            memory::OCCUPANCY => {
                let open = (0..table.capacity()).filter(|index| table.get(*index).is_some()).count();
                u32::try_from(open).unwrap_or(u32::MAX)
            }
            _ => 0,
        }
    }

    /// Writes a shadow word, or commits. Returns `false` if the value is invalid.
    pub(super) fn write(&mut self, register: u32, value: u32, table: &mut AccessTable) -> bool {
        let window = &mut self.window;
        let with_low = |old: u64| old & !0xFFFF_FFFF | u64::from(value);
        let with_high = |old: u64| old & 0xFFFF_FFFF | u64::from(value) << 32;
        match register {
            memory::INDEX => {
                self.index = value;
                let entry = table.get(value);
                self.valid = entry.is_some();
                *window = entry.copied().unwrap_or(CLOSED);
            }
            memory::SOURCE_NODE => window.source = NodeId::new(value),
            memory::BASE_LOW => window.base = CardAddr::new(with_low(window.base.get())),
            memory::BASE_HIGH => window.base = CardAddr::new(with_high(window.base.get())),
            memory::LENGTH_LOW => window.length = with_low(window.length),
            memory::LENGTH_HIGH => window.length = with_high(window.length),
            memory::KEY_LOW => window.key = with_low(window.key),
            memory::KEY_HIGH => window.key = with_high(window.key),
            memory::PERMISSIONS => {
                let permissions = Permissions::from_bits(value);
                if !permissions.unknown().is_empty() {
                    return false;
                }
                window.permissions = permissions;
            }
            memory::COMMIT => {
                let done = match value {
                    MEMORY_COMMIT_INSTALL => table.install(self.index, *window),
                    MEMORY_COMMIT_REMOVE => table.remove(self.index),
                    _ => return false,
                };
                self.valid = table.get(self.index).is_some();
                return done.is_ok();
            }
            _ => return false,
        }
        true
    }
}
