//! The base specification of pods' containers (OCI runtime specification 1.3, `config.md`), and overrides of it.
//! Settings of the pod override both.

use corten_yaml::problem::printable;
use oci_spec::runtime::Spec;
use serde_json::{Value as Json, json};

/// containerd 2.3's default (`pkg/oci/spec.go`, `populateDefaultUnixSpec`) with two differences. It has no limit of
/// open files, which containerd removes for pods anyway (`internal/cri/opts/spec_opts.go`,
/// `WithoutDefaultSecuritySettings`). It has no masked paths per processor: the kubelet has its own list.
const DEFAULT: &str = include_str!("base-spec.json");

/// Fields that containerd fills in for each container; an override would break every pod.
const OWN: &[&[&str]] = &[
    &["ociVersion"],
    &["root"],
    &["linux", "cgroupsPath"],
    &["linux", "namespaces"],
];

/// The specification without overrides.
#[must_use]
pub fn base_spec() -> Json {
    // A test parses it.
    serde_json::from_str(DEFAULT).unwrap_or_default()
}

/// The specification with overrides: maps are merged, lists appended to, and other values replaced.
#[must_use]
pub fn with_overrides(overrides: &Json) -> Json {
    let mut spec = base_spec();
    merge(&mut spec, overrides);
    spec
}

fn merge(base: &mut Json, change: &Json) {
    match (base, change) {
        // Null changes nothing.
        (_, Json::Null) => {}
        (Json::Object(base), Json::Object(change)) => {
            for (name, value) in change {
                match base.get_mut(name) {
                    Some(old) => merge(old, value),
                    None if value.is_null() => {}
                    None => drop(base.insert(name.clone(), value.clone())),
                }
            }
        }
        (Json::Array(base), Json::Array(change)) => {
            for item in change {
                if !base.contains(item) {
                    base.push(item.clone());
                }
            }
        }
        (base, change) => base.clone_from(change),
    }
}

/// The problems of overrides, each with its path.
pub(super) fn problems(overrides: &Json) -> Vec<(String, String)> {
    let Some(overrides) = overrides.as_object() else {
        return vec![(String::new(), "must be a map of fields".to_owned())];
    };
    let mut found = Vec::new();
    for (part, value) in overrides {
        match value.as_object() {
            Some(fields) if !fields.is_empty() => {
                for (field, value) in fields {
                    let one = json!({ part: { field: value } });
                    check(&[part, field], &one, &mut found);
                }
            }
            _ => check(&[part], &json!({ part: value }), &mut found),
        }
    }
    found
}

/// Checks a single override, so that the problem has a path.
fn check(path: &[&str], change: &Json, found: &mut Vec<(String, String)>) {
    let shown = printable(&path.join("."));
    if OWN.iter().any(|own| path.starts_with(own)) {
        let what = "is containerd's own for each container; leave it out";
        found.push((shown, what.to_owned()));
    } else if let Err(error) = serde_json::from_value::<Spec>(with_overrides(change)) {
        let error = printable(&error.to_string());
        found.push((
            shown,
            format!("does not fit the OCI runtime specification: {error}"),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_base_spec_is_valid_and_has_every_path_containerd_sets() {
        let spec: Spec = serde_json::from_value(base_spec()).unwrap();
        assert_eq!(spec.mounts().as_ref().unwrap().len(), 7);
        assert_eq!(base_spec()["process"].get("rlimits"), None);
        for path in OWN {
            let place = path
                .iter()
                .try_fold(&base_spec(), |at, step| at.get(step))
                .cloned();
            assert!(place.is_some(), "{path:?}");
        }
    }

    #[test]
    fn overrides_merge_maps_append_lists_and_replace_scalars() {
        let limit = json!({"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024});
        let found = with_overrides(&json!({
            "process": {
                "noNewPrivileges": false,
                "rlimits": [limit],
                "capabilities": {"bounding": ["CAP_KILL", "CAP_SYS_TIME"], "ambient": null},
            },
            "annotations": {"a": "b"},
        }));
        let process = &found["process"];
        assert_eq!(process["noNewPrivileges"], false);
        assert_eq!(process["rlimits"], json!([limit]));
        let bounding = process["capabilities"]["bounding"].as_array().unwrap();
        assert_eq!(
            (bounding.len(), &bounding[14]),
            (15, &json!("CAP_SYS_TIME"))
        );
        assert_eq!(process["capabilities"].get("ambient"), None);
        assert_eq!(process["cwd"], "/");
        assert_eq!(found["annotations"]["a"], "b");
        assert_eq!(found["linux"], base_spec()["linux"]);
    }

    #[test]
    fn every_problem_is_reported_with_its_path() {
        let found = problems(&json!({
            "ociVersion": "9.9.9",
            "root": {"path": "/"},
            "hostname": 5,
            "process": {"cwd": "/x", "rlimits": [{"type": "NOFILE"}], "oomScoreAdj": "high"},
            "linux": {"namespaces": [], "sysctl": {"a": "b"}, "maskedPaths": {}},
            "mounts": [],
        }));
        let paths: Vec<&str> = found.iter().map(|(path, _)| &**path).collect();
        let expected = [
            "ociVersion",
            "root.path",
            "hostname",
            "process.rlimits",
            "process.oomScoreAdj",
            "linux.namespaces",
            "linux.maskedPaths",
        ];
        let mut sorted = expected;
        sorted.sort_unstable();
        let mut paths_sorted = paths.clone();
        paths_sorted.sort_unstable();
        assert_eq!(paths_sorted, sorted, "{found:?}");
        for (path, what) in &found {
            let own = path == "ociVersion" || path == "root.path" || path == "linux.namespaces";
            assert_eq!(what.contains("containerd's own"), own, "{path} {what}");
            assert_eq!(what.contains("does not fit"), !own, "{path} {what}");
        }
        assert_eq!(problems(&json!([]))[0].1, "must be a map of fields");
        assert!(problems(&json!({"process": {}, "linux": null})).is_empty());
    }
}
