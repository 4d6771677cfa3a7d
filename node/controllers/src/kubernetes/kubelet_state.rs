//! The kubelet's records of the processors and the memory that it gave to containers.
//!
//! A record names its policy. A kubelet with another policy ends with an error as long as the record exists
//! (Kubernetes, `pkg/kubelet/cm/cpumanager/state` and `memorymanager/state`). So does a kubelet that cannot read it.

use std::fs;
use std::io;
use std::path::Path;

use corten_base::durable::remove_if_there;
use corten_values::Arguments;
use serde::Deserialize;
use serde_json::Value;

/// A record and the setting of its policy.
struct Record {
    file: &'static str,
    /// Field of KubeletConfiguration.
    field: &'static str,
    /// Argument, which overrides the field.
    argument: &'static str,
    /// Policy of a kubelet without the setting.
    default: &'static str,
}

const RECORDS: [Record; 2] = [
    Record {
        file: "cpu_manager_state",
        field: "cpuManagerPolicy",
        argument: "cpu-manager-policy",
        default: "none",
    },
    Record {
        file: "memory_manager_state",
        field: "memoryManagerPolicy",
        argument: "memory-manager-policy",
        default: "None",
    },
];

#[derive(Deserialize)]
struct Content {
    #[serde(rename = "policyName")]
    policy: String,
}

impl Record {
    /// The policy that the kubelet is to have.
    fn policy<'a>(&self, config: &'a Value, args: &'a Arguments) -> &'a str {
        let argument = args.0.get(self.argument).and_then(|values| values.last());
        let field = || config.get(self.field).and_then(Value::as_str);
        let policy = argument.map(String::as_str).or_else(field);
        policy
            .filter(|policy| !policy.is_empty())
            .unwrap_or(self.default)
    }
}

/// Removes the records in `directory` that a kubelet with this configuration and these arguments refuses. Returns the
/// names of the removed files.
pub(super) fn forget_other_policies(
    directory: &Path,
    config: &Value,
    args: &Arguments,
) -> io::Result<Vec<&'static str>> {
    let mut removed = Vec::new();
    for record in RECORDS {
        let path = directory.join(record.file);
        let content = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read?,
        };
        let found: Option<Content> = serde_json::from_slice(&content).ok();
        if found.is_some_and(|found| found.policy == record.policy(config, args)) {
            continue;
        }
        remove_if_there(&path)?;
        removed.push(record.file);
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CPU: &str = "cpu_manager_state";
    const MEMORY: &str = "memory_manager_state";

    fn with(argument: &str, value: &str) -> Arguments {
        Arguments([(argument.to_owned(), vec![value.to_owned()])].into())
    }

    #[test]
    fn only_records_of_another_policy_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let none = Arguments::default();
        let forget = |config: Value, args: &Arguments| {
            forget_other_policies(directory, &config, args).unwrap()
        };
        let record = |file: &str, policy: &str| {
            let content = json!({ "policyName": policy, "defaultCpuSet": "0-1", "checksum": 7 });
            fs::write(directory.join(file), content.to_string()).unwrap();
        };
        assert!(forget(json!({}), &none).is_empty());
        record(CPU, "none");
        record(MEMORY, "None");
        assert!(forget(json!({}), &none).is_empty());
        let same = json!({ "cpuManagerPolicy": "none", "memoryManagerPolicy": "None" });
        assert!(forget(same, &none).is_empty());

        let cpus = json!({ "cpuManagerPolicy": "static" });
        assert_eq!(forget(cpus.clone(), &none), [CPU]);
        assert!(!directory.join(CPU).exists() && directory.join(MEMORY).exists());
        record(CPU, "static");
        assert!(forget(cpus.clone(), &none).is_empty());
        let memory = json!({ "cpuManagerPolicy": "static", "memoryManagerPolicy": "Static" });
        assert_eq!(forget(memory, &none), [MEMORY]);
        assert_eq!(forget(json!({}), &none), [CPU]);

        // An argument counts more than a field.
        record(CPU, "static");
        assert_eq!(forget(cpus, &with("cpu-manager-policy", "none")), [CPU]);
        record(CPU, "static");
        let by_argument = with("cpu-manager-policy", "static");
        assert!(forget(json!({}), &by_argument).is_empty());
    }

    #[test]
    fn hostile_records_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let config = json!({ "cpuManagerPolicy": "static" });
        for content in ["", "{", "[]", "{\"policyName\":7}", "{\"checksum\":7}"] {
            fs::write(directory.path().join(CPU), content).unwrap();
            let removed =
                forget_other_policies(directory.path(), &config, &Arguments::default()).unwrap();
            assert_eq!(removed, [CPU], "{content}");
        }
    }
}
