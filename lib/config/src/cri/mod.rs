//! What a config says of containerd beside registries: parts of its configuration, changes of the specification that
//! containers of pods begin with, and the image cache. Each has two forms, read as one.

mod base_spec;
mod part;

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::Document;
use crate::Secret;
use crate::kinds::{CRIBaseRuntimeSpecConfig, CRICustomizationConfig, ImageCacheConfig};
use crate::read::Reader;
use crate::tree::Node;
use crate::v1alpha1::MachineFile;

pub use base_spec::{base_spec, with_overrides};
pub use part::normal;

/// The file of `machine.files` that is a part of containerd's configuration.
pub const PART_FILE: &str = "/etc/cri/conf.d/20-customization.part";
/// The name of that part; no document has it.
pub const PART_NAME: &str = "customization";
/// The specification that containers of pods begin with, where parts name it.
pub const BASE_SPEC_FILE: &str = "/etc/cri/conf.d/base-spec.json";

impl Document {
    /// Parts of containerd's configuration (TOML), by name; what two of them say is as the later one says it.
    #[must_use]
    pub fn containerd_parts(&self) -> BTreeMap<&str, &Secret> {
        let old = self.machine.files.iter();
        let old = old.filter(|file| is_part(file));
        let old = old.map(|file| (PART_NAME, &file.content));
        let by_kind = self.all::<CRICustomizationConfig>();
        let by_kind = by_kind.map(|config| (config.name.as_str(), &config.content));
        let all = old.chain(by_kind);
        // What asks for nothing is as if it were not said.
        all.filter(|(_, content)| !content.is_empty()).collect()
    }

    /// Changes of the specification that containers of pods begin with; `None`: there are none.
    #[must_use]
    pub fn base_spec_overrides(&self) -> Option<Json> {
        let mut by_kind = self.all::<CRIBaseRuntimeSpecConfig>();
        let by_kind = by_kind.find_map(|config| config.overrides.as_ref());
        let old = self.machine.base_runtime_spec_overrides.as_ref();
        by_kind.or(old).map(crate::values::Object::json)
    }

    /// Whether the images that are kept on the node are served.
    #[must_use]
    pub fn serves_image_cache(&self) -> bool {
        let mut by_kind = self.all::<ImageCacheConfig>();
        self.machine.features.image_cache.local_enabled
            || by_kind.any(|config| config.local.enabled == Some(true))
    }
}

/// Whether a file is a part of containerd's configuration, and none on a volume.
#[must_use]
pub fn is_part(file: &MachineFile) -> bool {
    &*file.path == PART_FILE
}

/// Notes what is wrong with a part in the field `content`.
pub(crate) fn check_part(node: &Node, reader: &mut Reader<'_>) {
    let text = node.get("content").and_then(Node::text);
    for what in text.map(part::problems).unwrap_or_default() {
        reader.wrong_in(node, "content", &what);
    }
}

/// Notes what is wrong with changes of the specification in a field.
pub(crate) fn check_overrides(node: &Node, field: &str, reader: &mut Reader<'_>) {
    let Some(value) = node.get(field).filter(|value| !value.is_empty()) else {
        return;
    };
    reader.within(field, |reader| {
        for (step, what) in base_spec::problems(&crate::json::of(value)) {
            match &*step {
                "" => reader.wrong(value.mark, &what),
                step => reader.within(step, |reader| reader.wrong(value.mark, &what)),
            }
        }
    });
}
