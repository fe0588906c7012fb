//! User-space driver for XDMA and CDMA cards with reliable RDMA between them.
