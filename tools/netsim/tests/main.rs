//! Integration tests of the package: one module each subject, in one binary, which links once.

mod baselines;
mod clos;
mod clos_table;
mod feedback;
mod files;
mod impaired;
mod incast;
mod networks;
mod one_path;
mod oracles;
mod soak;
mod spraying;
