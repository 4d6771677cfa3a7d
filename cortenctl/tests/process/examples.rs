//! A node accepts the machine configs of `docs/examples`.

use std::path::Path;

use super::support::cortenctl;

fn must(arguments: &[&str]) {
    let output = cortenctl(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
}

#[test]
fn every_example_is_a_valid_patch_without_warnings() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples");
    let mut count = 0;
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        count += 1;
        let name = path.file_name().unwrap().to_str().unwrap();
        let (flag, kinds) = match name.starts_with("control-plane-") {
            true => ("--config-patch-control-plane", &["controlplane"][..]),
            false => ("--config-patch", &["controlplane", "worker"][..]),
        };
        let directory = tempfile::tempdir().unwrap();
        let patch = format!("@{}", path.display());
        let out = directory.path().to_str().unwrap();
        let generate = ["gen", "config", "demo", "https://10.0.0.10:6443"];
        must(&[&generate[..], &["--output-dir", out, flag, &patch]].concat());
        for kind in kinds {
            let config = format!("{out}/{kind}.yaml");
            must(&["validate", "--strict", "--config", &config]);
        }
    }
    assert!(count >= 10, "only {count} examples");
}
