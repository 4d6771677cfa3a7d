//! The whole daemon on loopback ports, in front of scripted machineds.

mod callers;
pub(crate) mod client;
mod hostile;
mod limits;
mod mtls;
mod patience;
mod roles;
mod routing;
pub(crate) mod support;
