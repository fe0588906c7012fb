//! Commands, one module each.

pub mod bench;
pub mod bind;
pub(crate) mod capture;
pub mod card;
pub mod cdma;
pub mod control;
pub mod dma;
pub mod doctor;
pub mod dump;
pub mod events;
pub mod frames;
pub mod info;
pub mod inspect;
pub mod irq;
pub mod list;
mod packets;
pub mod raw;
pub mod recover;
pub mod regs;
pub mod replay;
pub mod serve;
pub mod shell;
pub mod sim;
pub mod sim_check;
pub mod top;
pub mod transfer;
pub mod validate;
