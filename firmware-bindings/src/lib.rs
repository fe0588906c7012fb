//! The contract of the bitstream: network interface registers, wire formats, identity.
