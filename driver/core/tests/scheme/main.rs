//! The schemes as pairs of ends: everything that can happen to a few packets, and the documents' readings, which fail.

mod errata;
mod explore;
mod listed;
mod literal;
mod small;
