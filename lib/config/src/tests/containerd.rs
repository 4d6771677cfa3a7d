//! Parts of containerd's configuration: accepted ones, and refused ones that would break containerd.

use proptest::prelude::*;

use super::cri::{file, part};
use super::{good, problems};
use crate::cri::normal;

/// The problems of a part.
fn wrong(content: &str) -> Vec<String> {
    problems(&(good() + &part("a", content)))
}

#[test]
fn documented_and_extension_parts_are_accepted() {
    for content in [
        "[metrics]\n  address = \"0.0.0.0:11234\"",
        "[plugins.\"io.containerd.server.v1.metrics\"]\naddress = \"0.0.0.0:11234\"",
        "[plugins]\n  [plugins.\"io.containerd.cri.v1.images\".pinned_images]\n    sandbox = \"r.example/pause:3.8\"",
        "[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"r.example/pause:3.8\"",
        "[plugins.\"io.containerd.cri.v1.runtime\"]\n  cdi_spec_dirs = [\"/var/cdi/static\", \"/var/cdi/dynamic\"]\n\
         [plugins.\"io.containerd.cri.v1.runtime\".containerd]\n  default_runtime_name = \"nvidia\"\n\
         [plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.nvidia]\n\
         base_runtime_spec = \"/etc/cri/conf.d/base-spec.json\"\nruntime_type = \"io.containerd.runc.v2\"\n\
         [plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.nvidia.options]\n\
         BinaryName = \"/usr/local/bin/nvidia-container-runtime\"\nSystemdCgroup = false",
        "[plugins.\"io.containerd.nri.v1.nri\"]\ndisable = true",
        "[proxy_plugins.stargz]\ntype = \"snapshot\"\naddress = \"/run/containerd-stargz-grpc/stargz.sock\"\n\
         [proxy_plugins.stargz.exports]\nroot = \"/var/lib/stargz\"\n\
         [plugins.\"io.containerd.cri.v1.images\"]\nsnapshotter = \"stargz\"\ndisable_snapshot_annotations = false",
        "version = 3\n[timeouts]\n\"io.containerd.timeout.shim.load\" = \"10s\"\n[debug]\nlevel = \"debug\"",
        "[plugins.\"io.containerd.gc.v1.scheduler\"]\npause_threshold = 1\nschedule_delay = \"0s\"",
        "[plugins.\"io.example.of.an.extension\"]\nx = [1, {y = 1979-05-27}]",
    ] {
        assert_eq!(wrong(content), [""; 0], "{content}");
        assert_eq!(problems(&file(&content.replace('\n', "\n\n"))), [""; 0]);
    }
}

/// A part, the path of its problem, and the reason; the names of plugins are [`NAMES`].
const REFUSED: &[(&str, &str, &str)] = &[
    ("root = '/x'", "root", "must not be set"),
    ("state = '/x'", "state", "must not be set"),
    ("imports = ['/var/x']", "imports", "must not be set"),
    (
        "disabled_plugins = ['io.containerd.grpc.v1.cri']",
        "disabled_plugins",
        "the image sets",
    ),
    (
        "required_plugins = ['a.b']",
        "required_plugins",
        "the image sets",
    ),
    ("oom_score = 1000", "oom_score", "must not be set"),
    ("[grpc]\naddress = '/x'", "grpc", "only the node"),
    ("debug.address = '/x'", "debug.address", "only the node"),
    (
        "[SERVER.grpc\"]\naddress = '/x'",
        "SERVER.grpc\".address",
        "only the node",
    ),
    (
        "[SERVER.grpc-tcp\"]\naddress = '0.0.0.0:1'",
        "SERVER.grpc-tcp\"",
        "only the node",
    ),
    (
        "[OVERLAYFS]\nroot_path = '/x'",
        "OVERLAYFS.root_path",
        "sets containerd's directories",
    ),
    (
        "[IMAGES.registry]\nconfig_path = '/x'",
        "IMAGES.registry",
        "RegistryMirrorConfig",
    ),
    (
        "[OLD.registry.mirrors.a]\nendpoint = ['http://x']",
        "OLD.registry",
        "RegistryMirrorConfig",
    ),
    (
        "[RUNTIME.cni]\nconf_dir = '/x'",
        "RUNTIME.cni.conf_dir",
        "network plugins",
    ),
    (
        "[RUNTIMES.runc.options]\nBinaryName = '/x'",
        "RUNTIMES.runc.options.BinaryName",
        "the image sets runc",
    ),
    (
        "[RUNTIMES.x.options]\nSystemdCgroup = true",
        "RUNTIMES.x.options.SystemdCgroup",
        "no systemd",
    ),
    (
        "[RUNTIMES.x]\nbase_runtime_spec = '/var/x'",
        "RUNTIMES.x.base_runtime_spec",
        "CRIBaseRuntimeSpecConfig",
    ),
    (
        "[RUNTIME.containerd]\ndefault_runtime_name = ''",
        "RUNTIME.containerd.default_runtime_name",
        "must be the name of a runtime",
    ),
    ("[NRI]\ndisable = false", "NRI", "is disabled in the image"),
    (
        "[plugins.cri]\nsandbox_image = 'x'",
        "plugins.cri",
        "whole name",
    ),
    ("version = 1", "version", "2, 3 or 4"),
    ("version = '2'", "version", "2, 3 or 4"),
    ("[plugin.x]\ny = 1", "plugin", "unknown to containerd"),
    (
        "[proxy_plugins.overlayfs]\ntype = 'snapshot'",
        "proxy_plugins.overlayfs",
        "given another name",
    ),
    (
        "[proxy_plugins.x]\ntype = 'y'",
        "proxy_plugins.x",
        "of the type",
    ),
    (
        "[proxy_plugins.'']\ntype = 'snapshot'",
        "proxy_plugins.\"\"",
        "given another name",
    ),
    (
        "[TRANSFER]\nunpack_config = []",
        "TRANSFER.unpack_config",
        "the image sets",
    ),
    // Wrong types, with which containerd would not start.
    (
        "[IMAGES.pinned_images]\nany = 5",
        "IMAGES.pinned_images.any",
        "must be text",
    ),
    (
        "[IMAGES.runtime_platforms.x]\nplatform = 5",
        "IMAGES.runtime_platforms.x.platform",
        "must be text",
    ),
    (
        "[proxy_plugins.x]\ntype = 'diff'\nexports.a = 5",
        "proxy_plugins.x.exports.a",
        "must be text",
    ),
    ("debug = 1", "debug", "must be a table"),
    ("debug.level = 5", "debug.level", "must be text"),
    ("timeouts.x = 'soon'", "timeouts.x", "must be a duration"),
    (
        "[IMAGES]\nmax_concurrent_downloads = 1.5",
        "IMAGES.max_concurrent_downloads",
        "must be a whole number",
    ),
    (
        "[IMAGES]\nimage_pull_progress_timeout = '5'",
        "IMAGES.image_pull_progress_timeout",
        "must be a duration",
    ),
    (
        "[RUNTIME]\nenable_cdi = 'yes'",
        "RUNTIME.enable_cdi",
        "must be true or false",
    ),
    (
        "[RUNTIME]\ncdi_spec_dirs = [1]",
        "RUNTIME.cdi_spec_dirs",
        "must be a list of text",
    ),
    (
        "[RUNTIMES.x]\nruntime_type = false",
        "RUNTIMES.x.runtime_type",
        "must be text",
    ),
];

const NAMES: [(&str, &str); 8] = [
    ("RUNTIMES", "RUNTIME.containerd.runtimes"),
    ("RUNTIME", "plugins.\"io.containerd.cri.v1.runtime\""),
    ("IMAGES", "plugins.\"io.containerd.cri.v1.images\""),
    ("OLD", "plugins.\"io.containerd.grpc.v1.cri\""),
    ("NRI", "plugins.\"io.containerd.nri.v1.nri\""),
    (
        "OVERLAYFS",
        "plugins.\"io.containerd.snapshotter.v1.overlayfs\"",
    ),
    ("SERVER", "plugins.\"io.containerd.server.v1"),
    ("TRANSFER", "plugins.\"io.containerd.transfer.v1.local\""),
];

#[test]
fn settings_that_would_break_containerd_are_refused_by_name() {
    let whole = |text: &str| {
        let names = NAMES.iter();
        names.fold(text.to_owned(), |text, (name, whole)| {
            text.replace(name, whole)
        })
    };
    for (content, path, why) in REFUSED {
        let found = wrong(&whole(content));
        assert_eq!(found.len(), 1, "{content}: {found:?}");
        let start = format!("content has {}, which ", whole(path));
        assert!(
            found[0].contains(&start) && found[0].contains(why),
            "{found:?}"
        );
    }
}

#[test]
fn every_problem_of_a_part_is_reported_at_once_without_its_values() {
    let content = "root = 'hunter2'\n[plugins.'io.containerd.cri.v1.images']\nsnapshotter = 5\nregistry = 'hunter2'";
    let found = wrong(content);
    assert_eq!(found.len(), 3, "{found:?}");
    let old = problems(&file("root = \"hunter2\""));
    assert!(
        old[0].contains("machine.files[0].content has root"),
        "{old:?}"
    );
    let line = wrong("[debug]\nlevel = 'info'\nlevel = hunter2");
    assert!(
        line[0].contains("content is not TOML, in its line 3"),
        "{line:?}"
    );
    let all = [found, old, line].concat().join("\n");
    assert!(!all.contains("hunter2"), "{all}");
}

#[test]
fn parts_are_written_in_a_form_that_containerd_reads() {
    // TOML newer than containerd's parser: a line break and a trailing comma, and an escape.
    let text = "a = {b = 1,\n c = 2,\n}\nd = \"\\e\\x41\"";
    let found = normal(text).unwrap();
    assert!(found.starts_with("version = 2\n"), "{found}");
    let table: toml::Table = found.parse().unwrap();
    assert_eq!(table["d"].as_str(), Some("\u{1b}A"));
    assert!(!found.contains("\\e") && !found.contains("\\x"), "{found}");
    assert!(found.contains("[a]\nb = 1\nc = 2"), "{found}");
    assert!(normal("version = 4").unwrap().contains("version = 4"));
    assert_eq!(normal("a = "), None);
}

#[test]
fn corpus_samples_are_valid_parts() {
    for sample in corten_corpus::samples("containerd") {
        let text = String::from_utf8(sample.bytes).unwrap();
        assert_eq!(wrong(&text), [""; 0], "{}", sample.name);
    }
}

proptest! {
    #[test]
    fn hostile_parts_of_containerds_configuration_never_panic(bytes in corten_corpus::hostile("containerd")) {
        let text = String::from_utf8_lossy(&bytes).replace(['\0', '\r'], "?");
        let found = problems(&(good() + &part("a", &text)));
        prop_assert!(found.len() <= 101);
        // Valid TOML keeps its meaning.
        if let (Some(once), Ok(said)) = (normal(&text), text.parse::<toml::Table>()) {
            let again: toml::Table = once.parse().unwrap();
            let mut again = again;
            let version = again.remove("version");
            prop_assert!(said.get("version").is_none_or(|said| Some(said) == version.as_ref()));
            let mut said = said;
            said.remove("version");
            prop_assert_eq!(again.to_string(), said.to_string());
        }
    }
}

#[test]
fn parts_that_are_large_or_deep_end_in_a_clear_error() {
    for (content, what) in [
        ("[".repeat(100_000), "is not TOML"),
        (format!("a = {}", "[".repeat(100_000)), "is not TOML"),
        (format!("{}b = 1", "a.".repeat(100_000)), "is not TOML"),
        (format!("[{}b]", "a.".repeat(100_000)), "is not TOML"),
        (format!("a = {}", "{a=".repeat(100_000)), "is not TOML"),
        ("x".repeat(100_000), "is not TOML"),
        (
            (0..10_000).map(|i| format!("a{i} = 1\n")).collect(),
            "unknown to containerd",
        ),
    ] {
        let found = wrong(&content);
        assert!(found[0].contains(what), "{:?}", &found[0]);
        assert!(found.len() <= 101 && found.iter().all(|it| it.len() < 600));
    }
}

#[test]
fn settings_of_plugins_disabled_in_the_image_are_refused() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../rootfs/etc/containerd/config.toml"
    );
    let image: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
    for name in image["disabled_plugins"].as_array().unwrap() {
        let name = name.as_str().unwrap();
        let found = wrong(&format!("[plugins.'{name}']\nx = 1"));
        assert!(
            found[0].contains("is disabled in the image"),
            "{name}: {found:?}"
        );
    }
}
