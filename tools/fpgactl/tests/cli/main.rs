//! Tests of the built program: every command, and the inputs it refuses.

mod bad_input;
mod bench;
mod card;
mod commands;
mod examples;
mod frames;
mod health;
mod host;
mod hostile;
mod irq;
mod maps;
mod memory;
mod outputs;
mod packets;
mod pipes;
mod raw;
mod samples;
mod schema;
mod serve;
mod signals;
mod sim;
mod support;
mod terminal;
mod top;
mod transfer;
mod transport;
