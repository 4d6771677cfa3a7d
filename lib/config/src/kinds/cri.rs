//! Containers of pods: containerd's configuration and the image cache.

use corten_values::{Object, Secret, is_qualified_name};
use corten_yaml::read::Reader;
use corten_yaml::section;
use corten_yaml::tree::Node;

use crate::cri::rules::{PART_FILE, PART_NAME, check_overrides, check_part};

section! {
    /// A part of containerd's configuration.
    pub struct CRICustomizationConfig [check_customization] {
        Acted "name" name: String = "Name of the part; of two parts with the same setting, the one with the alphabetically later name wins", required;
        Acted "content" content: Secret = "TOML in the form of containerd's `config.toml`";
    }
}

fn check_customization(config: &CRICustomizationConfig, node: &Node, reader: &mut Reader<'_>) {
    if config.name == PART_NAME {
        let what = format!(
            "must not be {PART_NAME}: that is {} of machine.files",
            PART_FILE
        );
        reader.wrong_in(node, "name", &what);
    } else if !config.name.is_empty() && !is_qualified_name(&config.name) {
        let what = "must be at most 63 letters, digits, `-`, `_` and `.`, and may have a domain and `/` before it";
        reader.wrong_in(node, "name", what);
    }
    check_part(node, reader);
}

section! {
    /// Overrides of the base specification of pods' containers.
    pub struct CRIBaseRuntimeSpecConfig [check_base_spec] {
        Acted "overrides" overrides: Option<Object> = "Fields of the OCI runtime specification: maps are merged, and lists are appended", replace;
    }
}

fn check_base_spec(_: &CRIBaseRuntimeSpecConfig, node: &Node, reader: &mut Reader<'_>) {
    check_overrides(node, "overrides", reader);
}

section! {
    /// The image cache of the node.
    pub struct ImageCacheConfig {
        Acted "local" local: LocalImageCache = "Images on a partition of the node's disk";
    }
}

section! {
    /// `local` of an `ImageCacheConfig`.
    pub struct LocalImageCache {
        Acted "enabled" enabled: Option<bool> = "Whether the cached images are served on 127.0.0.1:3172, where containerd looks first";
    }
}
