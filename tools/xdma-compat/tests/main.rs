//! Programs on simulated cards.
