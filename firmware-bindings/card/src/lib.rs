//! The simulated card: XDMA, CDMA, network interface and memory.
