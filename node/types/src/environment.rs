//! Environment variables of services.

use std::collections::BTreeMap;

use corten_api::talos::resource::definitions::runtime as wire;
use corten_resources::{Definition, Sensitivity, Spec};
use serde::Serialize;

use super::{column, open};

/// Environment variables: values by name.
pub type Variables = BTreeMap<String, String>;

/// The complete environment every service starts with.
pub const ENVIRONMENT: [(&str, &str); 1] = [("PATH", "/usr/bin:/opt/cni/bin")];

const NAMESPACE: &str = "runtime";

/// Environment of containerd and of extension services; id [`Environment::ID`]. It may contain a proxy's password, so
/// only administrators may read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Environment {
    /// Variables as `NAME=value`, sorted.
    pub variables: Vec<String>,
}

impl Environment {
    /// Id of the only resource of this type.
    pub const ID: &str = "machined";

    /// The given variables, plus those of every service.
    #[must_use]
    pub fn of(variables: &Variables) -> Environment {
        let given = variables.iter();
        let given = given.map(|(name, value)| (name.as_str(), value.as_str()));
        let all = given.chain(ENVIRONMENT);
        let mut variables: Vec<String> =
            all.map(|(name, value)| format!("{name}={value}")).collect();
        variables.sort();
        Environment { variables }
    }
}

impl Spec for Environment {
    const DEFINITION: Definition = Definition {
        sensitivity: Sensitivity::Sensitive,
        ..open(
            "Environments.runtime.talos.dev",
            NAMESPACE,
            &["env"],
            &[column("Variables", ".variables")],
        )
    };

    type Message = wire::EnvironmentSpec;

    fn message(&self) -> wire::EnvironmentSpec {
        wire::EnvironmentSpec {
            variables: self.variables.clone(),
        }
    }
}
