//! Integration tests of the package: one module each subject, in one binary, which links once.

mod arbitrary_answers;
mod arbitrary_fields;
mod back_to_back;
mod bad_input;
mod common;
mod errata;
mod events;
mod exhaustive;
mod fairness;
mod in_place;
mod literal;
mod loss_detection;
mod messages;
mod not_ready;
mod notice_slots;
mod notices;
mod op_table;
mod orders;
mod pauses;
mod scheme;
mod sender;
mod sender_flow;
mod state;
mod timeouts;
mod trimmed;
mod withdraw;
