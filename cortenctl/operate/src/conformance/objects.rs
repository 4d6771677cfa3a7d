//! The runs of each mode, and what the cluster gets for a run.

use std::time::Duration;

use serde_json::{Value, json};

use crate::args::ConformanceMode;

/// Namespace, account and pod of the tests.
pub(super) const NAMESPACE: &str = "conformance";
pub(super) const NAME: &str = "e2e-conformance-test";
/// Container of the tests, and the one that prints their report.
pub(super) const TESTS: &str = "tests";
pub(super) const REPORT: &str = "report";
/// Image of a shell, which the image of the tests has not.
const SHELL: &str = "registry.k8s.io/e2e-test-images/busybox:1.36.1-1";
/// Tests at once, as the reference has them.
const PARALLEL: u32 = 16;

/// A run of tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    /// Expressions that select and leave out tests by their names.
    pub(super) focus: &'static str,
    skip: &'static str,
    processes: u32,
    pub(super) limit: Duration,
    /// Whether log and report are kept.
    pub(super) is_kept: bool,
}

const fn run_of(focus: &'static str, skip: &'static str, processes: u32, minutes: u64) -> Run {
    Run {
        focus,
        skip,
        processes,
        limit: Duration::from_secs(minutes * 60),
        is_kept: false,
    }
}

/// The runs of a mode: serial tests disturb others, so they run alone.
pub(super) fn runs(mode: ConformanceMode) -> Vec<Run> {
    let all = r"\[Conformance\]";
    match mode {
        ConformanceMode::Fast => vec![
            run_of(all, r"\[Serial\]", PARALLEL, 60),
            run_of(r"\[Serial\].*\[Conformance\]", "", 1, 60),
        ],
        ConformanceMode::Certified => vec![Run {
            is_kept: true,
            ..run_of(all, "", 1, 4 * 60)
        }],
        ConformanceMode::NetworkPolicy => vec![run_of(r"\[Feature:NetworkPolicy\]", "", 4, 15)],
    }
}

/// The namespace, the account with its rights, and the pod.
pub(super) fn objects(run: &Run, image: &str) -> Vec<Value> {
    let account = json!({ "name": NAME, "namespace": NAMESPACE });
    let pod = pod(run, image);
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": account }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": NAME },
            // The tests make roles with any right.
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE }],
        }),
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": account, "spec": pod }),
    ]
}

fn pod(run: &Run, image: &str) -> Value {
    let limits = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
        "runAsNonRoot": true,
        "runAsUser": 65534,
        "seccompProfile": { "type": "RuntimeDefault" },
    });
    let results = json!([{ "name": "results", "mountPath": "/tmp/results" }]);
    let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
    // Of the runner in the image (Kubernetes, test/conformance/image/go-runner).
    let mut environment = vec![
        variable("E2E_FOCUS", run.focus),
        variable("E2E_SKIP", run.skip),
        variable("E2E_PROVIDER", "skeleton"),
    ];
    if run.processes > 1 {
        let processes = format!("--procs={}", run.processes);
        environment.push(variable("E2E_EXTRA_GINKGO_ARGS", &processes));
    }
    let mut containers = vec![json!({
        "name": TESTS,
        "image": image,
        "env": environment,
        "volumeMounts": results,
        "securityContext": limits,
    })];
    if run.is_kept {
        let script =
            "until [ -e /tmp/results/done ]; do sleep 2; done; cat /tmp/results/junit_01.xml";
        containers.push(json!({
            "name": REPORT,
            "image": SHELL,
            "command": ["sh", "-c", script],
            "volumeMounts": results,
            "securityContext": limits,
        }));
    }
    json!({
        "serviceAccountName": NAME,
        "restartPolicy": "Never",
        // A cluster of control plane nodes alone runs the tests, too.
        "tolerations": [{ "operator": "Exists" }],
        "containers": containers,
        "volumes": [{ "name": "results", "emptyDir": {} }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_select_the_tests_of_the_reference() {
        let fast = runs(ConformanceMode::Fast);
        let shown: Vec<_> = fast.iter().map(|run| (run.skip, run.processes)).collect();
        assert_eq!(shown, [(r"\[Serial\]", 16), ("", 1)]);
        let certified = runs(ConformanceMode::Certified);
        assert!(certified.len() == 1 && certified[0].is_kept && certified[0].processes == 1);
        let policies = runs(ConformanceMode::NetworkPolicy);
        assert_eq!(policies[0].focus, r"\[Feature:NetworkPolicy\]");
    }

    #[test]
    fn pod_of_the_tests_is_allowed_by_the_baseline_and_has_a_report_only_if_it_is_kept() {
        let fast = &runs(ConformanceMode::Fast)[0];
        let made = objects(fast, "r/conformance:v1");
        let kinds: Vec<&str> = made
            .iter()
            .map(|one| one["kind"].as_str().unwrap())
            .collect();
        assert_eq!(
            kinds,
            ["Namespace", "ServiceAccount", "ClusterRoleBinding", "Pod"]
        );
        let spec = &made[3]["spec"];
        let own = &spec["containers"][0];
        assert_eq!(own["image"], "r/conformance:v1");
        assert_eq!(own["env"][0]["value"], r"\[Conformance\]");
        assert_eq!(own["env"][3]["value"], "--procs=16");
        assert_eq!(own["securityContext"]["runAsNonRoot"], true);
        assert_eq!(spec["containers"].as_array().unwrap().len(), 1);
        let certified = &runs(ConformanceMode::Certified)[0];
        let kept = pod(certified, "i");
        assert_eq!(kept["containers"][1]["name"], REPORT);
        assert_eq!(kept["containers"][0]["env"].as_array().unwrap().len(), 3);
    }
}
