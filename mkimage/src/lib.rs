//! The image builder: turns a kernel config, a file manifest, locks and our daemons into bit-identical images.
//!
//! Owns: profiles, platforms, overlays, the recipe ([`build`]), the bill of materials, notices, and key sets ([`keys`]).
//! Never: needs root or a mount, reads the clock, runs code of the target architecture, or links a daemon.

pub mod build;
pub mod components;
pub mod keys;
pub mod notices;
pub mod output;
pub mod overlay;
pub mod platform;
pub mod profile;
