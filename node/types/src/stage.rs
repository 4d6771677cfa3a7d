//! The stages of a node, from its boot to its end.

/// Stage of the node, as in the API's machine stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Boot phases are running.
    Booting,
    /// No machine config: only the maintenance API is served.
    Maintenance,
    /// The node has an owner, or may have one, but its machine config is unavailable. Only the owner recorded in META
    /// is served.
    Locked,
    /// A machine config is active.
    Running,
    /// An orderly reboot is under way.
    Rebooting,
    /// An orderly shutdown is under way.
    ShuttingDown,
    /// An orderly end is under way that wipes the node's data.
    Resetting,
}
