//! containerd in the node's life: started last, and declared again when the machine config gives it other variables.

use super::{Machine, lock};
use crate::node::Node as _;
use crate::services::containerd;
use crate::services::environment::{Variables, variables, with_variables};

impl Machine {
    /// Wants containerd to run, with the variables of each moment's config.
    pub(super) fn want_containerd(&self) {
        *lock(&self.wants_containerd) = true;
        self.declare_containerd();
    }

    /// Declares it by the config of now, once it is wanted.
    pub(super) fn declare_containerd(&self) {
        // Who declares last has read the config last.
        let is_wanted = lock(&self.wants_containerd);
        if *is_wanted {
            let spec = with_variables(containerd(), &self.variables());
            self.supervisor.declare(spec);
        }
    }

    /// What the config of now gives to services.
    pub(super) fn variables(&self) -> Variables {
        variables(self.node.config().as_ref(), &self.cmdline)
    }
}
