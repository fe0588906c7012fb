//! Everything that continuous integration does, runnable by hand.

fn main() {}
