//! The C interface as programs get it: installed into a prefix, found by pkg-config and CMake, called by C and C++ programs.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod abi;
mod cards;
mod cmake;
mod documents;
mod examples;
mod library;
mod prefix;
mod programs;
mod views;
