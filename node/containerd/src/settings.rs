//! Files that containerd reads at its start in addition to the image's: registry credentials, configuration parts, and
//! the base runtime spec of pod containers. All are below `/run/containerd`.
//!
//! containerd merges its files in the order of their names; a later file overrides an earlier one.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use corten_base::durable::{Access, replace_all, replace_now};
use corten_base::mode::{Ability, Mode};
use corten_config::Document;
use corten_config::cri::{BASE_SPEC_FILE, base_spec, normal, with_overrides};

use crate::registries;

/// Directory that the image's `config.toml` imports.
const DIRECTORY: &str = "/run/containerd/conf.d";
/// File that [`BASE_SPEC_FILE`] in the image links to.
const BASE_SPEC: &str = "/run/containerd/base-spec.json";
/// Configuration of a node in a container: pods get no lower OOM score than the processes of the host.
const OF_A_CONTAINER: &str = "version = 4\n\n[plugins.\"io.containerd.cri.v1.runtime\"]\n\
                              restrict_oom_score_adj = true\n";
/// Access to the files, any of which may contain passwords.
const ACCESS: Access = Access::PRIVATE;

/// File names and contents.
pub type Files = BTreeMap<String, String>;

/// The settings of a config that take effect only when containerd starts; empty if there are none.
#[must_use]
pub fn read_at_start(document: &Document) -> Files {
    let overrides = document.base_spec_overrides();
    let mut all = parts(Some(document), overrides.is_some());
    let spec = overrides.map(|overrides| with_overrides(&overrides).to_string());
    all.extend(spec.map(|spec| ("base-spec.json".to_owned(), spec)));
    all
}

/// Writes the files of a config, or those of a node without one, for containerd's next start. Removes outdated files.
///
/// # Errors
/// A file cannot be written or removed; the others are written nevertheless.
pub fn write(document: Option<&Document>) -> Result<(), String> {
    let overrides = document.and_then(Document::base_spec_overrides);
    let spec = overrides.as_ref().map_or_else(base_spec, with_overrides);
    let files = write_parts(Path::new(DIRECTORY), &parts(document, overrides.is_some()));
    let spec = replace_now(Path::new(BASE_SPEC), &format!("{spec:#}\n"), ACCESS);
    files
        .map_err(|error| format!("cannot write containerd's settings: {error}"))
        .and(spec.map_err(|error| format!("cannot write {BASE_SPEC}: {error}")))
}

/// Contents of [`DIRECTORY`].
fn parts(document: Option<&Document>, has_base_spec: bool) -> Files {
    let mut files = Files::new();
    if !Mode::now().can(Ability::OomScores) {
        files.insert("00-container.toml".to_owned(), OF_A_CONTAINER.to_owned());
    }
    if has_base_spec {
        files.insert("10-base-spec.toml".to_owned(), names_base_spec());
    }
    let Some(document) = document else {
        return files;
    };
    for (number, content) in document.containerd_parts().into_values().enumerate() {
        // Numbered in the order of the parts' names. A name itself may be too long for a file, and `a-b.toml` sorts
        // before `a.toml`.
        let file = format!("20-{number:04}.toml");
        files.extend(normal(content.expose()).map(|text| (file, text)));
    }
    let credentials = registries::credentials(&document.registries());
    files.extend(credentials.map(|text| ("30-registries.toml".to_owned(), text)));
    files
}

/// The configuration that replaces containerd's own base spec for runc.
fn names_base_spec() -> String {
    format!(
        "version = 4\n\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc]\n\
         base_runtime_spec = \"{BASE_SPEC_FILE}\"\n"
    )
}

fn write_parts(directory: &Path, files: &Files) -> io::Result<()> {
    let files = files.iter().map(|(name, text)| (&**name, &**text));
    replace_all(directory, files, ACCESS)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use corten_base::sample;
    use toml::Table;

    use super::*;

    fn config(documents: &[&str]) -> Document {
        let files = "files: [{path: /etc/cri/conf.d/20-customization.part, content: '[debug]'}]";
        let more: String = documents
            .iter()
            .map(|fields| format!("---\napiVersion: v1alpha1\nkind: {fields}\n"))
            .collect();
        sample::config(files, &more)
    }

    const PAUSE: &str = "CRICustomizationConfig\nname: example.org/pause\ncontent: |\n  \
        [plugins.'io.containerd.cri.v1.images'.pinned_images]\n  sandbox = \"r/pause:1\"";
    const LEVEL: &str =
        "CRICustomizationConfig\nname: a\ncontent: |\n  version = 3\n  debug.level = 'warn'";
    const LATER: &str = "CRICustomizationConfig\nname: a-b\ncontent: debug.format = 'json'";
    const SPEC: &str = "CRIBaseRuntimeSpecConfig\noverrides: {process: {noNewPrivileges: false}}";
    const LOGIN: &str = "RegistryAuthConfig\nname: h\nidentityToken: t";

    #[test]
    fn configuration_parts_become_files_in_the_order_of_their_names() {
        let found = parts(Some(&config(&[PAUSE, LATER, LEVEL, SPEC, LOGIN])), true);
        let names: Vec<&str> = found.keys().map(|name| &**name).collect();
        let expected = [
            "10-base-spec.toml",
            "20-0000.toml",
            "20-0001.toml",
            "20-0002.toml",
            "20-0003.toml",
            "30-registries.toml",
        ];
        assert_eq!(names, expected);
        let table = |name: &str| found[name].parse::<Table>().unwrap();
        assert_eq!(table(expected[1])["version"].as_integer(), Some(3));
        assert_eq!(table(expected[1])["debug"]["level"].as_str(), Some("warn"));
        assert_eq!(table(expected[2])["debug"]["format"].as_str(), Some("json"));
        assert_eq!(table(expected[3])["version"].as_integer(), Some(2));
        let images = &table(expected[4])["plugins"]["io.containerd.cri.v1.images"];
        assert_eq!(
            images["pinned_images"]["sandbox"].as_str(),
            Some("r/pause:1")
        );
        let runtimes = &table(expected[0])["plugins"]["io.containerd.cri.v1.runtime"]["containerd"];
        let spec = runtimes["runtimes"]["runc"]["base_runtime_spec"].as_str();
        assert_eq!(spec, Some("/etc/cri/conf.d/base-spec.json"));
    }

    #[test]
    fn only_files_read_at_start_restart_containerd() {
        assert!(read_at_start(&sample::config("", "")).is_empty());
        let all = read_at_start(&config(&[SPEC]));
        let names: Vec<&str> = all.keys().map(|name| &**name).collect();
        let expected = ["10-base-spec.toml", "20-0000.toml", "base-spec.json"];
        assert_eq!(names, expected);
        let spec = &all["base-spec.json"];
        assert!(spec.contains("\"noNewPrivileges\":false"), "{spec}");
    }

    #[test]
    fn configuration_files_are_private_and_removed_with_the_config() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("conf.d");
        let listed = || -> Vec<String> {
            let entries = fs::read_dir(&place).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        // The longest possible name: a domain, and a name within it.
        let label = "b".repeat(63);
        let domain = format!("{label}.{label}.{label}.{}", "b".repeat(61));
        let longest = PAUSE.replace("example.org/pause", &format!("{domain}/{label}"));
        let all = parts(Some(&config(&[PAUSE, &longest, LOGIN])), false);
        assert_eq!(all.len(), 4);
        for _ in 0..2 {
            write_parts(&place, &all).unwrap();
            assert_eq!(listed(), all.keys().cloned().collect::<Vec<_>>());
            let mode = fs::metadata(place.join("30-registries.toml"))
                .unwrap()
                .mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        write_parts(&place, &parts(None, false)).unwrap();
        assert_eq!(listed(), [""; 0]);
    }
}
