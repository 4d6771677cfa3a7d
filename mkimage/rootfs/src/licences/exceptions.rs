//! `rootfs/licences.toml`: licences that people read, of components whose files do not name them for programs.

use std::fs;
use std::path::Path;

use corten_steps::error::{Remedy as _, Result};
use serde::Deserialize;

use super::notice::canonical;

/// The file, relative to the source tree.
pub const FILE: &str = "rootfs/licences.toml";

/// Every licence in the file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exceptions {
    /// The licences in file order.
    #[serde(rename = "licence")]
    pub licences: Vec<Exception>,
}

/// A licence of some components.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    /// The names of the components, as in the bill of materials.
    pub components: Vec<String>,
    /// The SPDX expression.
    pub expression: String,
    /// Where it is said.
    pub reason: String,
}

impl Exceptions {
    /// Reads and checks the file of a source tree.
    ///
    /// # Errors
    /// The file is missing or invalid.
    pub fn read(source: &Path) -> Result<Self> {
        let remedy = "restore it from version control";
        let text = fs::read_to_string(source.join(FILE))
            .or_fail(format!("cannot read the licences {FILE}"), remedy)?;
        let mut found: Self =
            toml::from_str(&text).or_fail(format!("the licences {FILE} are not valid"), remedy)?;
        for one in &mut found.licences {
            one.expression = canonical(&one.expression)?;
        }
        Ok(found)
    }

    /// The licence of a component; `None` if its own files declare it.
    pub fn of(&self, component: &str) -> Option<&str> {
        let mut all = self.licences.iter();
        let found = all.find(|one| one.components.iter().any(|name| name == component));
        found.map(|one| one.expression.as_str())
    }
}
