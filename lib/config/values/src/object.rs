//! Values for other programs.

use std::fmt;

use corten_yaml::read::{Reader, Value};
use corten_yaml::table::Shape;
use corten_yaml::tree::Node;

/// A value of any form, passed unchanged to the program that understands it.
#[derive(Clone, PartialEq)]
pub struct Object(Node);

impl Object {
    /// The value as a YAML document.
    #[must_use]
    pub fn yaml(&self) -> String {
        corten_yaml::emit::document(&self.0)
    }

    /// The value as JSON.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        corten_yaml::json::of(&self.0)
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<object>")
    }
}

impl Value for Object {
    const SHAPE: Shape = Shape::Object;
    fn read(node: &Node, _: &mut Reader<'_>) -> Option<Self> {
        Some(Object(node.clone()))
    }
}
