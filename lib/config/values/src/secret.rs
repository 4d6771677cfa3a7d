//! Text that must not be printed.

use std::fmt;

use corten_yaml::read::{Reader, Value, scalar};
use corten_yaml::table::Shape;
use corten_yaml::tree::Node;

/// A secret. `Debug` shows only that there is one.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The secret itself, for its one user.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether the secret is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() {
            "<none>"
        } else {
            "<secret>"
        })
    }
}

impl Value for Secret {
    const SHAPE: Shape = Shape::Secret;
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, "a single value", |text| {
            Some(Secret::new(text))
        })
    }
}
