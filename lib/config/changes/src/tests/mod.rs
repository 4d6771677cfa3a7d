//! Tests of the whole crate.

mod both_forms;
mod hostile;
mod patch;
mod plan;
mod reach;
