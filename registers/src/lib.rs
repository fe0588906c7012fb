//! Registers, descriptors and write-backs of XDMA (PG195) and AXI CDMA (PG034).
