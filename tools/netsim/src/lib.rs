//! Discrete-event network simulator for the RDMA schemes.
