//! The daemon as a whole, on loopback ports, before machineds that do as they are told.

mod callers;
pub(crate) mod client;
mod hostile;
mod limits;
mod mtls;
mod patience;
mod roles;
mod routing;
pub(crate) mod support;
