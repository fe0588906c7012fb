//! PCI transports, DMA memory and interrupts: the only package with unsafe code.
