//! Directions of channels as types.

/// From host to card.
#[derive(Debug)]
pub enum H2c {}

/// From card to host.
#[derive(Debug)]
pub enum C2h {}

/// Either direction: [`Channel::name`](super::Channel::name) has it.
#[derive(Debug)]
pub enum AnyDirection {}

/// Types of channels that may write card memory.
pub trait ToCard {}
impl ToCard for H2c {}
impl ToCard for AnyDirection {}

/// Types of channels that may read card memory.
pub trait FromCard {}
impl FromCard for C2h {}
impl FromCard for AnyDirection {}
