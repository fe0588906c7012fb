//! Registers by name, decoded; and a register changed by name and by type.
//!
//!     cargo run -p fpga-examples --example registers

use std::error::Error;

use fpga_driver::{Card, CardAddr};
use fpga_registers::catalog::{CardLayout, RegisterInfo};
use fpga_registers::xdma::{IRQ_BASE, IrqBlock, UserMask};

/// Reads a register of the DMA BAR and prints it with its fields.
fn show(card: &Card, register: &RegisterInfo) -> Result<(), Box<dyn Error>> {
    let value = card.dma_bar().read32(register.address())?;
    println!("{:#06x} {:<18} {}", register.address(), register.name().to_string(), register.decode(value));
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let card = Card::open("mock")?;
    let xdma = card.info().xdma;
    let layout = CardLayout::new(xdma.h2c_channels, xdma.c2h_channels);
    let find = |name: &str| layout.find(name).ok_or_else(|| format!("this card has no register {name}"));

    // Run a transfer, so that the channel's registers have content.
    card.h2c(0)?.write(card.buffer(4096)?, CardAddr::new(0))?;
    for name in ["h2c0.identifier", "h2c0.status", "h2c0.completed", "config.identifier", "irq.user_enable"] {
        show(&card, &find(name)?)?;
    }

    // Reading this register clears events that the driver needs; the register map marks it.
    let clearing = find("h2c0.status_rc")?;
    println!(
        "{} is {}: reading it has a side effect: {}",
        clearing.name(),
        clearing.access(),
        clearing.read_has_side_effect()
    );

    // By name, as a tool does it: enable interrupt 3 of the user logic.
    let set = find("irq.user_enable_set")?;
    card.dma_bar().write32(set.address(), 1 << 3)?;
    show(&card, &find("irq.user_enable")?)?;

    // By type, as a driver does it: the field has a name, and a write to a read-only register does not compile.
    let before = IrqBlock::USER_ENABLE.read(card.dma_bar(), IRQ_BASE)?;
    let mask = UserMask::new().with_user(before.user() | 1 << 5);
    IrqBlock::USER_ENABLE.write(card.dma_bar(), IRQ_BASE, mask)?;
    show(&card, &find("irq.user_enable")?)?;
    Ok(())
}
