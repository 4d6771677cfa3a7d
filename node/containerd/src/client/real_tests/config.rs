//! Tests that the image's containerd has exactly the settings that configs are validated against, and accepts them.

use std::process::{Command, Output};

use corten_base::sample;
use toml::{Table, Value};

use super::step;
use crate::settings::read_at_start;

/// containerd's own output of its configuration.
fn config(arguments: &[&str]) -> Table {
    let containerd = Command::new(step().join("containerd"))
        .args(arguments)
        .output();
    let Output { stdout, stderr, .. } = containerd.unwrap();
    let said = String::from_utf8(stdout).unwrap();
    let said = said.parse::<Table>();
    said.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&stderr)))
}

#[test]
#[ignore = "needs CORTEN_GO, the output of the step that builds containerd"]
fn validated_settings_exist_in_containerd() {
    let known = include_str!("../../../../../lib/config/src/cri/settings.toml");
    let known = known.parse::<Table>().unwrap();
    let said = config(&["config", "default"]);
    let mut unsaid = Vec::new();
    compare("", &said, &known, &mut unsaid);
    // These tables are empty by default.
    let empty = [
        "plugins.io.containerd.cri.v1.images.runtime_platforms",
        "metrics",
        "proxy_plugins",
    ];
    assert_eq!(unsaid, empty);
}

/// Asserts that each of containerd's settings is known with the same type; collects known settings that it lacks.
fn compare(path: &str, said: &Table, known: &Table, unsaid: &mut Vec<String>) {
    let at = |name: &str| format!("{path}{name}");
    for (name, value) in said {
        let example = known.get(name).or_else(|| known.get("any"));
        let example = example.unwrap_or_else(|| panic!("{} is not known", at(name)));
        assert!(value.same_type(example), "{}: {value} {example}", at(name));
        if let (Value::Table(said), Value::Table(known)) = (value, example) {
            compare(&format!("{}.", at(name)), said, known, unsaid);
        }
    }
    let missing = known
        .keys()
        .filter(|name| *name != "any" && !said.contains_key(*name));
    unsaid.extend(missing.map(|name| at(name)));
}

#[test]
#[ignore = "needs CORTEN_GO, the output of the step that builds containerd"]
fn parts_of_extensions_and_configs_override_the_image_config() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for name in ["extensions", "config"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    let image = include_str!("../../../../../rootfs/etc/containerd/config.toml");
    let image = image
        .replace("/etc/cri/conf.d", at("extensions").to_str().unwrap())
        .replace("/run/containerd/conf.d", at("config").to_str().unwrap());
    std::fs::write(at("config.toml"), image).unwrap();
    let extension = "[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = 'extension'\nother = 'kept'\n";
    std::fs::write(at("extensions/10-x.part"), extension).unwrap();
    let more = "---\napiVersion: v1alpha1\nkind: CRICustomizationConfig\nname: a\ncontent: |\n  \
                [plugins.'io.containerd.grpc.v1.cri']\n  sandbox_image = \"a\\e\"\n  [metrics]\n  address = ':1'\n\
                ---\napiVersion: v1alpha1\nkind: CRICustomizationConfig\nname: b\ncontent: |\n  version = 4\n  \
                plugins.'io.containerd.cri.v1.runtime'.enable_cdi = false\n\
                ---\napiVersion: v1alpha1\nkind: CRIBaseRuntimeSpecConfig\noverrides: {hostname: x}\n\
                ---\napiVersion: v1alpha1\nkind: RegistryAuthConfig\nname: h\nusername: u\npassword: 'a\"b'\n";
    for (name, text) in read_at_start(&sample::config("", more)) {
        std::fs::write(at("config").join(name), text).unwrap();
    }
    let path = at("config.toml");
    let said = config(&["--config", path.to_str().unwrap(), "config", "dump"]);
    let plugin = |name: &str| &said["plugins"][name];
    let images = plugin("io.containerd.cri.v1.images");
    let pinned = &images["pinned_images"];
    assert_eq!(pinned["sandbox"].as_str(), Some("a\u{1b}"));
    assert_eq!(pinned["other"].as_str(), Some("kept"));
    let hosts = images["registry"]["config_path"].as_str();
    assert_eq!(hosts, Some("/run/containerd/certs.d"));
    let password = images["registry"]["configs"]["h"]["auth"]["password"].as_str();
    assert_eq!(password, Some("a\"b"));
    let runtime = plugin("io.containerd.cri.v1.runtime");
    assert_eq!(runtime["enable_cdi"].as_bool(), Some(false));
    let runc = &runtime["containerd"]["runtimes"]["runc"];
    assert_eq!(
        runc["options"]["BinaryName"].as_str(),
        Some("/usr/bin/runc")
    );
    let spec = runc["base_runtime_spec"].as_str();
    assert_eq!(spec, Some("/etc/cri/conf.d/base-spec.json"));
    let metrics = plugin("io.containerd.server.v1.metrics");
    assert_eq!(metrics["address"].as_str(), Some(":1"));
}
