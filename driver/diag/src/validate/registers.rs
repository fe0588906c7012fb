//! Tests of registers and configuration space, without DMA.

use fpga_pci::{MmioError, config};
use fpga_registers::pci::{command, header};
use fpga_registers::xdma::{
    CONFIG_BASE, ChannelBlock, ChannelInterrupts, ChannelMask, ConfigBlock, IRQ_BASE, Identifier, IrqBlock,
    PcieControl, SGDMA_COMMON_BASE, SystemId, Target, UserMask, channel_base, irq::channel_bit, sgdma_base,
};
use fpga_registers::{BarOffset, RegisterIo};

use super::context::{ResultRecorder, TestContext, list, skipped_channels};
use super::problem::{TestError, Verdict};
use super::test_channel::Availability;

pub(super) fn run(context: &mut TestContext<'_>, recorder: &mut ResultRecorder<'_>) {
    recorder.test(context, "config.space", |context| config_space(context));
    recorder.test(context, "config.bars", |context| Ok(bars(context)));
    recorder.test(context, "registers.identifiers", |context| identifiers(context));
    recorder.test(context, "registers.scratch", |context| scratch(context));
    recorder.test(context, "registers.masks", |context| masks(context));
    recorder.test(context, "registers.alignments", |context| alignments(context));
}

fn config_space(context: &TestContext<'_>) -> Result<Verdict, TestError> {
    let backend = &**context.card.backend();
    let read = || -> Result<_, fpga_pci::ConfigSpaceError> {
        let ids = config::identity(backend)?;
        let enabled = config::read_u16(backend, header::COMMAND)?;
        let capabilities = config::capabilities(backend)?.len();
        Ok((ids, enabled, capabilities, config::find_msix(backend)?))
    };
    let ((vendor, device), enabled, capabilities, msix) = match read() {
        Ok(found) => found,
        Err(fpga_pci::ConfigSpaceError::Gone) => return Err(TestError::Gone),
        Err(error) => return Ok(Verdict::fail(error.to_string())),
    };
    let known = context.card.info().ids;
    if (vendor, device) != (known.vendor, known.device) {
        return Ok(Verdict::fail(format!(
            "the ids are {vendor:04x}:{device:04x}, but were {:04x}:{:04x} when the card was opened: another bitstream was \
             loaded; open the card again",
            known.vendor, known.device
        )));
    }
    let missing: Vec<&str> =
        [(command::MEMORY_SPACE, "memory decoding"), (command::BUS_MASTER, "bus mastering")]
            .into_iter()
            .filter(|(bit, _)| enabled & bit == 0)
            .map(|(_, name)| name)
            .collect();
    if !missing.is_empty() {
        return Ok(Verdict::fail(format!(
            "{} is off in the command register ({enabled:#06x}); it was on when the card was opened: open the card again",
            missing.join(" and ")
        )));
    }
    let found = format!("{vendor:04x}:{device:04x}, {capabilities} capabilities");
    Ok(match msix {
        Some(msix) => Verdict::pass(format!("{found}, MSI-X table in BAR {}", msix.table_bar)),
        None => Verdict::warn(format!("{found}, no MSI-X: wait by polling")),
    })
}

fn bars(context: &TestContext<'_>) -> Verdict {
    let roles = context.card.info().roles;
    let name = |role, bar: fpga_pci::BarInfo| format!("{role} BAR {} ({:#x} bytes)", bar.index, bar.size);
    let mut found = vec![name("DMA", roles.dma)];
    found.extend(roles.user.map(|bar| name("user", bar)));
    found.extend(roles.bypass.map(|bar| name("bypass", bar)));
    let now = context.card.backend().bars().into_iter().flatten();
    let there = now.filter(|bar| [Some(roles.dma), roles.user, roles.bypass].contains(&Some(*bar))).count();
    if there == found.len() {
        Verdict::pass(list(&found))
    } else {
        Verdict::fail(format!(
            "{} were found when the card was opened, {there} of them still exist; remove the function and rescan the bus",
            list(&found)
        ))
    }
}

/// Checks one identifier.
fn identifier(
    io: &impl RegisterIo<Error = MmioError>,
    at: BarOffset,
    name: &str,
    target: Target,
    channel: Option<(u8, bool)>,
    wrong: &mut Vec<String>,
) -> Result<Identifier, TestError> {
    let word = io.read32(at)?;
    let id = Identifier::from_bits(word);
    let right = id.is(target)
        && channel.is_none_or(|(number, stream)| id.channel() == number && id.stream() == stream);
    if !right {
        wrong.push(format!("{name} at {at} reads {word:#010x}"));
    }
    Ok(id)
}

fn identifiers(context: &TestContext<'_>) -> Result<Verdict, TestError> {
    let bar = context.card.dma_bar();
    let xdma = context.card.info().xdma;
    let mut wrong = Vec::new();
    let mut ids = Vec::new();
    for (base, name, target) in [
        (IRQ_BASE, "irq", Target::Irq),
        (CONFIG_BASE, "config", Target::Config),
        (SGDMA_COMMON_BASE, "sgdma", Target::SgdmaCommon),
    ] {
        ids.push(identifier(bar, base, name, target, None, &mut wrong)?);
    }
    if ids.iter().all(|id| id.into_bits() == u32::MAX) {
        return Err(TestError::Gone);
    }
    for name in xdma.channels() {
        let (direction, number) = (name.direction, name.number);
        let kind = Some((number, xdma.stream));
        let at = channel_base(direction, number);
        ids.push(identifier(bar, at, &name.to_string(), Target::channel(direction), kind, &mut wrong)?);
        let at = sgdma_base(direction, number);
        ids.push(identifier(bar, at, &format!("{name}_sgdma"), Target::sgdma(direction), kind, &mut wrong)?);
    }
    if !wrong.is_empty() {
        return Ok(Verdict::fail(format!(
            "{}; expected 0x1fcTsnVV (target, stream and channel, version). If only some reads are wrong, the IP may be from a \
             release that answers every second read with ones (2018.x): build with a newer one",
            wrong.join("; ")
        )));
    }
    let system = ConfigBlock::SYSTEM_ID.read(bar, CONFIG_BASE)?;
    let versions: std::collections::BTreeSet<u8> = ids.iter().map(|id| id.version()).collect();
    let found = format!(
        "{} H2C and {} C2H channels ({}), IP version {}",
        xdma.h2c_channels,
        xdma.c2h_channels,
        if xdma.stream { "AXI4-Stream" } else { "memory-mapped" },
        list(&versions.iter().map(|version| format!("{version:#04x}")).collect::<Vec<_>>())
    );
    if system.id() != SystemId::VALUE {
        return Ok(Verdict::warn(format!(
            "{found}; the system id is {:#06x} instead of 0xff01",
            system.id()
        )));
    }
    let known = versions.len() == 1
        && versions.iter().all(|version| (1..=Identifier::VERSION_LATEST).contains(version));
    Ok(if known {
        Verdict::pass(found)
    } else {
        Verdict::warn(format!(
            "{found}: this driver does not know the version; check the results of the transfer tests below"
        ))
    })
}

/// Tests the bit that the vendor's own test toggles: relaxed ordering, at 0x301C.
fn scratch(context: &TestContext<'_>) -> Result<Verdict, TestError> {
    let bar = context.card.dma_bar();
    let register = ConfigBlock::PCIE_CONTROL;
    let before = register.read(bar, CONFIG_BASE)?;
    let flipped = PcieControl::from_bits(before.into_bits() ^ 1);
    register.write(bar, CONFIG_BASE, flipped)?;
    let toggled = register.read(bar, CONFIG_BASE)?;
    register.write(bar, CONFIG_BASE, before)?;
    let after = register.read(bar, CONFIG_BASE)?;
    if [toggled, after].map(PcieControl::into_bits) == [u32::MAX; 2] {
        return Err(TestError::Gone);
    }
    if toggled.relaxed_ordering() == before.relaxed_ordering() {
        return Ok(Verdict::fail(
            "bit 0 at 0x301c does not keep the written value: register writes do not reach the card; check that memory decoding is \
             on and that no other program drives the card"
                .to_owned(),
        ));
    }
    if after != before {
        return Ok(Verdict::fail(format!("0x301c was {before} and could not be restored: it is {after}")));
    }
    Ok(Verdict::pass("bit 0 at 0x301c toggles and is restored"))
}

/// Sets and clears single bits by the aliases. The mask of `bits` is restored.
fn alias(
    bits: &[u32],
    read: &dyn Fn() -> Result<u32, MmioError>,
    set: &dyn Fn(u32) -> Result<(), MmioError>,
    clear: &dyn Fn(u32) -> Result<(), MmioError>,
) -> Result<Option<String>, MmioError> {
    let all: u32 = bits.iter().fold(0, |all, bit| all | bit);
    let before = read()?;
    let mut wrong = None;
    clear(all)?;
    for bit in bits {
        set(*bit)?;
        let held = read()?;
        if held != before & !all | bit {
            wrong = Some(format!("setting {bit:#x} makes it {held:#x}"));
            break;
        }
        clear(*bit)?;
        let held = read()?;
        if held != before & !all {
            wrong = Some(format!("clearing {bit:#x} makes it {held:#x}"));
            break;
        }
    }
    clear(all)?;
    set(before & all)?;
    let after = read()?;
    if wrong.is_none() && after != before {
        wrong = Some(format!("it was {before:#x} and could not be restored: it is {after:#x}"));
    }
    Ok(wrong)
}

fn masks(context: &TestContext<'_>) -> Result<Verdict, TestError> {
    let bar = context.card.dma_bar();
    let h2c = context.card.info().xdma.h2c_channels;
    let (mut wrong, mut busy, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    let mut tested = 0;
    // Events that both directions have in every card description.
    let events = [
        ChannelInterrupts::new().with_descriptor_stopped(true),
        ChannelInterrupts::new().with_descriptor_completed(true),
        ChannelInterrupts::new().with_magic_stopped(true),
        ChannelInterrupts::new().with_idle_stopped(true),
    ]
    .map(ChannelInterrupts::into_bits);
    for name in context.card.info().xdma.channels() {
        let Availability::Free(channel) = context.take(name)? else {
            busy.push(name);
            continue;
        };
        let base = channel_base(name.direction, name.number);
        let found = alias(
            &events,
            &|| Ok(ChannelBlock::INTERRUPT_ENABLE.read(bar, base)?.into_bits()),
            &|bits| ChannelBlock::INTERRUPT_ENABLE_SET.write(bar, base, ChannelInterrupts::from_bits(bits)),
            &|bits| ChannelBlock::INTERRUPT_ENABLE_CLEAR.write(bar, base, ChannelInterrupts::from_bits(bits)),
        )?;
        wrong.extend(found.map(|found| format!("{name} mask (0x90, 0x94, 0x98): {found}")));
        lines.push(1_u32 << channel_bit(name.direction, name.number, h2c));
        tested += 1;
        drop(channel);
    }
    let found = alias(
        &lines,
        &|| Ok(IrqBlock::CHANNEL_ENABLE.read(bar, IRQ_BASE)?.into_bits()),
        &|bits| IrqBlock::CHANNEL_ENABLE_SET.write(bar, IRQ_BASE, ChannelMask::from_bits(bits)),
        &|bits| IrqBlock::CHANNEL_ENABLE_CLEAR.write(bar, IRQ_BASE, ChannelMask::from_bits(bits)),
    )?;
    wrong.extend(found.map(|found| format!("channel mask (0x2010, 0x2014, 0x2018): {found}")));
    // An asserted line would send its interrupt as soon as it is enabled. The number of lines in the build shows only here.
    let asserted = IrqBlock::USER_PENDING.read(bar, IRQ_BASE)?.into_bits();
    let before = IrqBlock::USER_ENABLE.read(bar, IRQ_BASE)?.into_bits();
    IrqBlock::USER_ENABLE_SET.write(bar, IRQ_BASE, UserMask::from_bits(0xFFFF & !asserted))?;
    let built = IrqBlock::USER_ENABLE.read(bar, IRQ_BASE)?.into_bits() & !before;
    IrqBlock::USER_ENABLE_CLEAR.write(bar, IRQ_BASE, UserMask::from_bits(built))?;
    let after = IrqBlock::USER_ENABLE.read(bar, IRQ_BASE)?.into_bits();
    if after != before {
        wrong.push(format!("user mask (0x2004, 0x2008, 0x200c): it was {before:#x} and is {after:#x}"));
    }
    Ok(if wrong.is_empty() {
        Verdict::pass(format!(
            "set and clear aliases of {tested} channel masks and of the interrupt block work{}",
            skipped_channels(&busy)
        ))
    } else {
        Verdict::fail(format!(
            "{}; interrupts of this card are unreliable, wait by polling",
            wrong.join("; ")
        ))
    })
}

fn alignments(context: &TestContext<'_>) -> Result<Verdict, TestError> {
    let bar = context.card.dma_bar();
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut silent = Vec::new();
    for name in context.card.info().xdma.channels() {
        let word = ChannelBlock::ALIGNMENTS.read(bar, channel_base(name.direction, name.number))?;
        if word.into_bits() == u32::MAX {
            return Err(TestError::Gone);
        }
        if word.into_bits() == 0 {
            silent.push(name);
        }
        let text = format!(
            "address {} B, length {} B, {} address bits",
            word.address_alignment(),
            word.length_granularity(),
            word.address_bits()
        );
        match found.iter_mut().find(|(known, _)| *known == text) {
            Some((_, names)) => names.push(name.to_string()),
            None => found.push((text, vec![name.to_string()])),
        }
    }
    let all: Vec<String> = found.iter().map(|(text, names)| format!("{}: {text}", names.join(" "))).collect();
    Ok(if silent.is_empty() {
        Verdict::pass(all.join("; "))
    } else {
        Verdict::warn(format!(
            "{} report no alignment (0); 1 B, 1 B and 64 bits are assumed, as in the vendor's driver",
            list(&silent)
        ))
    })
}

/// Returns the alignment of addresses and of lengths in bytes that every transfer of the tests keeps.
pub(super) fn granularity(context: &TestContext<'_>) -> (usize, usize) {
    let word = context.card.info().xdma.alignments;
    (usize::from(word.address_alignment()).max(1), usize::from(word.length_granularity()).max(1))
}
