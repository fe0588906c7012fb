//! The simulated card as an in-process PCI transport.
