//! The machine config document.

/// A machine config.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {}
