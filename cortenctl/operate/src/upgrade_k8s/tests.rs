//! Compares the operations of an upgrade with the transcript of a simulated cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Parser as _;
use corten_client::failure::Failure;
use corten_cluster::Requested;
use tokio::time::sleep;

use super::component::Component;
use super::execute::{Applied, Fleet, Limits, execute};
use super::plan::{Member, Place, Plan, Wanted, problems};
use super::version::Version;
use crate::args::UpgradeK8s;

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    args: UpgradeK8s,
}

const LIMITS: Limits = Limits {
    component: Duration::from_secs(300),
    manifests: Duration::from_secs(300),
    pulls: true,
    prunes: true,
};

fn version(text: &str) -> Version {
    Version::parse(text).unwrap()
}

fn wanted(to: &str) -> Wanted {
    Wanted {
        from: None,
        to: version(to),
        downgrade: false,
        kubelets: true,
        names: BTreeMap::new(),
    }
}

fn member(name: &str, is_control_plane: bool, version: &str) -> Member {
    let components = Component::ALL.into_iter();
    let components = components.filter(|one| is_control_plane || *one == Component::Kubelet);
    Member {
        place: Place {
            name: name.to_owned(),
            address: format!("10.0.0.{name}"),
        },
        is_control_plane,
        kubelet: Version::parse(version),
        images: components
            .map(|one| (one, format!("r/{}:v{version}", one.name())))
            .collect(),
        gates: BTreeMap::new(),
        troubles: Vec::new(),
    }
}

/// A worker, which is first by name, and a control plane node.
fn cluster(version: &str) -> Vec<Member> {
    vec![member("a", false, version), member("b", true, version)]
}

fn plan(to: &str) -> Plan {
    Plan::new(&cluster("1.36.4"), &wanted(to)).unwrap()
}

/// A simulated cluster: the log of operations, and its faults.
#[derive(Default)]
struct Made {
    asked: Vec<String>,
    /// Images that do not start, cannot be pulled, or are refused by every config.
    broken: BTreeSet<&'static str>,
    unknown: BTreeSet<&'static str>,
    refused: BTreeSet<&'static str>,
    /// Number of checks until a component is ready.
    slow: u32,
    looks: u32,
    /// The image of kube-proxy in the manifests.
    proxy: String,
    /// The image that the cluster runs before the manifests are applied, if it is not that of the first release.
    running: Option<&'static str>,
    /// Number of nodes on which kube-proxy starts, one at each check.
    slow_proxies: u32,
    /// A workload other than kube-proxy does not run.
    other_is_broken: bool,
    /// Another object than kube-proxy is refused.
    refuses_other: bool,
    /// With this image in the manifests, the cluster refuses the objects.
    refused_manifests: Option<&'static str>,
    /// The cluster refuses to delete objects.
    keeps_objects: bool,
}

impl Made {
    fn broken(image: &'static str) -> Made {
        Made {
            broken: BTreeSet::from([image]),
            ..Made::default()
        }
    }

    async fn run(&mut self, limits: Limits) -> Result<(), String> {
        execute(self, &plan("1.37.2"), limits).await
    }
}

impl Fleet for Made {
    async fn pull(&mut self, place: &Place, _: Component, image: &str) -> Result<(), String> {
        self.asked.push(format!("pull {} {image}", place.name));
        match self.unknown.contains(image) {
            true => Err("not found".to_owned()),
            false => Ok(()),
        }
    }

    async fn set_image(
        &mut self,
        place: &Place,
        component: Component,
        image: &str,
    ) -> Result<(), String> {
        self.asked.push(format!("set {} {image}", place.name));
        self.looks = 0;
        if self.refused.contains(image) {
            return Err("the config is wrong".to_owned());
        }
        if component == Component::Proxy {
            image.clone_into(&mut self.proxy);
        }
        Ok(())
    }

    async fn look(&mut self, _: &Place, _: Component, image: &str) -> Result<(), String> {
        self.looks += 1;
        match self.broken.contains(image) || self.looks <= self.slow {
            true => Err("its pod is not ready".to_owned()),
            false => Ok(()),
        }
    }

    async fn proxy_image(&mut self) -> Result<Option<String>, String> {
        let image = self.running.unwrap_or("r/kube-proxy:v1.36.4");
        Ok(Some(image.to_owned()))
    }

    async fn apply_manifests(
        &mut self,
        place: &Place,
        proxy: Option<&str>,
    ) -> Result<Applied, String> {
        self.asked.push(format!("apply of {}", place.name));
        assert!(proxy.is_none_or(|proxy| proxy == self.proxy));
        match self
            .refused_manifests
            .is_some_and(|image| image == self.proxy)
        {
            true => Err("1 objects were not applied".to_owned()),
            false => Ok(Applied {
                lines: vec!["updated DaemonSet".to_owned()],
                refused: self
                    .refuses_other
                    .then(|| "1 objects were not applied".to_owned()),
            }),
        }
    }

    async fn proxy(&mut self) -> Result<(), String> {
        self.asked.push(format!("rollout {}", self.proxy));
        if self.looks < self.slow_proxies {
            self.looks += 1;
            sleep(Duration::from_secs(299)).await;
            return Err(format!(
                "{} of {} pods are new",
                self.looks, self.slow_proxies
            ));
        }
        match self.broken.contains(&*self.proxy) {
            true => Err("0 of 2 pods are new".to_owned()),
            false => Ok(()),
        }
    }

    async fn workloads(&mut self) -> Result<(), String> {
        match self.other_is_broken {
            true => Err("default/other: 0 of 1 pods are new".to_owned()),
            false => Ok(()),
        }
    }

    async fn prune(&mut self) -> Result<(), String> {
        self.asked.push("prune".to_owned());
        match self.keeps_objects {
            true => Err("1 objects were not deleted".to_owned()),
            false => Ok(()),
        }
    }

    fn say(&mut self, line: &str) {
        self.asked.push(format!("# {line}"));
    }
}

/// The operations without the lines for the operator.
fn acts(made: &Made) -> Vec<&str> {
    let asked = made.asked.iter().map(String::as_str);
    asked.filter(|line| !line.starts_with('#')).collect()
}

#[tokio::test(start_paused = true)]
async fn components_change_in_skew_policy_order_and_manifests_come_last() {
    let mut made = Made::default();
    made.run(LIMITS).await.unwrap();
    let expected = [
        "pull b r/kube-apiserver:v1.37.2",
        "pull b r/kube-controller-manager:v1.37.2",
        "pull b r/kube-scheduler:v1.37.2",
        "pull b r/kube-proxy:v1.37.2",
        "pull a r/kube-proxy:v1.37.2",
        "pull b r/kubelet:v1.37.2",
        "pull a r/kubelet:v1.37.2",
        "set b r/kube-apiserver:v1.37.2",
        "set b r/kube-controller-manager:v1.37.2",
        "set b r/kube-scheduler:v1.37.2",
        "set b r/kube-proxy:v1.37.2",
        "set b r/kubelet:v1.37.2",
        "set a r/kubelet:v1.37.2",
        "apply of b",
        "rollout r/kube-proxy:v1.37.2",
        "prune",
    ];
    assert_eq!(acts(&made), expected);
    assert!(made.asked.contains(&"# updated DaemonSet".to_owned()));
    let mut made = Made {
        keeps_objects: true,
        ..Made::default()
    };
    let why = made.run(LIMITS).await.unwrap_err();
    assert!(why.contains("the upgrade is complete, but"), "{why}");
    let mut made = Made::default();
    let keeps = Limits {
        prunes: false,
        ..LIMITS
    };
    made.run(keeps).await.unwrap();
    assert!(!acts(&made).contains(&"prune"));
}

#[test]
fn second_run_waits_for_the_kube_proxy_that_the_first_run_set() {
    let mut members = cluster("1.37.2");
    let old = "r/kubelet:v1.36.4".to_owned();
    members[0].images.insert(Component::Kubelet, old);
    let plan = Plan::new(&members, &wanted("1.37.2")).unwrap();
    let steps: Vec<Component> = plan.steps.iter().map(|step| step.component).collect();
    assert_eq!(steps, [Component::Kubelet]);
    assert_eq!(plan.proxy.as_deref(), Some("r/kube-proxy:v1.37.2"));
}

#[tokio::test(start_paused = true)]
async fn next_step_waits_for_the_component_of_the_previous_step() {
    let mut made = Made {
        slow: 5,
        ..Made::default()
    };
    made.run(LIMITS).await.unwrap();
    // A wait is reported once.
    let told = "# b: kube-apiserver: its pod is not ready";
    assert_eq!(made.asked.iter().filter(|line| *line == told).count(), 1);
    let place = |text: &str| made.asked.iter().position(|line| line == text).unwrap();
    let runs = place("# b: kube-apiserver runs r/kube-apiserver:v1.37.2");
    assert!(runs < place("set b r/kube-controller-manager:v1.37.2"));
}

#[tokio::test(start_paused = true)]
async fn failed_image_pull_ends_the_upgrade_before_the_first_change() {
    let mut made = Made {
        unknown: BTreeSet::from(["r/kubelet:v1.37.2"]),
        ..Made::default()
    };
    let why = made.run(LIMITS).await.unwrap_err();
    assert_eq!(
        why,
        "node b cannot pull r/kubelet:v1.37.2: not found; nothing was changed"
    );
    assert!(acts(&made).iter().all(|line| line.starts_with("pull")));
    let without = Limits {
        pulls: false,
        ..LIMITS
    };
    let mut made = Made::default();
    made.run(without).await.unwrap();
    assert!(acts(&made).iter().all(|line| !line.starts_with("pull")));
}

#[tokio::test(start_paused = true)]
async fn component_that_does_not_start_is_rolled_back_and_ends_the_upgrade() {
    let mut made = Made::broken("r/kube-scheduler:v1.37.2");
    let why = made.run(LIMITS).await.unwrap_err();
    assert_eq!(
        why,
        "kube-scheduler of node b did not come up with r/kube-scheduler:v1.37.2: timeout after 300 s: its pod is not ready; \
         it runs r/kube-scheduler:v1.36.4 again; not changed: kube-proxy of b, kubelet of b, kubelet of a, the bootstrap \
         manifests"
    );
    let acts = acts(&made);
    assert_eq!(acts.last(), Some(&"set b r/kube-scheduler:v1.36.4"));
}

#[tokio::test(start_paused = true)]
async fn failed_rollback_of_a_component_is_reported() {
    let mut made = Made::broken("r/kubelet:v1.37.2");
    made.broken.insert("r/kubelet:v1.36.4");
    let why = made.run(LIMITS).await.unwrap_err();
    assert!(
        why.contains("the rollback to r/kubelet:v1.36.4 failed"),
        "{why}"
    );
    let mut made = Made::default();
    made.refused.insert("r/kubelet:v1.37.2");
    let why = made.run(LIMITS).await.unwrap_err();
    assert!(
        why.contains("the config is wrong; it runs r/kubelet:v1.36.4 again"),
        "{why}"
    );
}

#[tokio::test(start_paused = true)]
async fn failed_kube_proxy_rollout_is_rolled_back_in_config_and_cluster() {
    let mut made = Made::broken("r/kube-proxy:v1.37.2");
    let why = made.run(LIMITS).await.unwrap_err();
    assert_eq!(
        why,
        "bootstrap manifests: kube-proxy: timeout after 300 s: 0 of 2 pods are new; kube-proxy is r/kube-proxy:v1.36.4 again"
    );
    let acts = acts(&made);
    let end = [
        "set b r/kube-proxy:v1.36.4",
        "apply of b",
        "rollout r/kube-proxy:v1.36.4",
    ];
    assert_eq!(acts[acts.len() - 3..], end);
    // Without the wait for workloads, the failure goes unnoticed.
    let mut made = Made::broken("r/kube-proxy:v1.37.2");
    let without = Limits {
        manifests: Duration::ZERO,
        ..LIMITS
    };
    made.run(without).await.unwrap();
    let mut made = Made {
        refused_manifests: Some("r/kube-proxy:v1.37.2"),
        ..Made::default()
    };
    let why = made.run(LIMITS).await.unwrap_err();
    assert!(
        why.ends_with("kube-proxy is r/kube-proxy:v1.36.4 again"),
        "{why}"
    );
}

#[tokio::test(start_paused = true)]
async fn kube_proxy_that_reaches_one_node_after_the_other_is_not_rolled_back() {
    let mut made = Made {
        slow_proxies: 60,
        ..Made::default()
    };
    made.run(LIMITS).await.unwrap();
    assert_eq!(made.proxy, "r/kube-proxy:v1.37.2");
}

#[tokio::test(start_paused = true)]
async fn broken_workload_or_refused_object_does_not_roll_kube_proxy_back() {
    for (other_is_broken, refuses_other, word) in [
        (true, false, "default/other: 0 of 1 pods"),
        (false, true, "1 objects were not applied"),
    ] {
        let mut made = Made {
            other_is_broken,
            refuses_other,
            ..Made::default()
        };
        let why = made.run(LIMITS).await.unwrap_err();
        assert!(why.contains(word) && !why.contains("again"), "{why}");
        assert_eq!(made.proxy, "r/kube-proxy:v1.37.2");
        assert!(!acts(&made).contains(&"prune"));
    }
}

#[tokio::test(start_paused = true)]
async fn second_run_rolls_kube_proxy_back_to_the_image_that_the_cluster_runs() {
    let mut members = cluster("1.37.2");
    let old = "r/kubelet:v1.36.4".to_owned();
    members[0].images.insert(Component::Kubelet, old);
    let plan = Plan::new(&members, &wanted("1.37.2")).unwrap();
    let mut made = Made::broken("r/kube-proxy:v1.37.2");
    made.proxy = "r/kube-proxy:v1.37.2".to_owned();
    let why = execute(&mut made, &plan, LIMITS).await.unwrap_err();
    assert!(
        why.ends_with("kube-proxy is r/kube-proxy:v1.36.4 again"),
        "{why}"
    );
    assert!(acts(&made).contains(&"set b r/kube-proxy:v1.36.4"));
    // The cluster runs the broken one already: there is nothing to return to.
    let mut made = Made {
        running: Some("r/kube-proxy:v1.37.2"),
        ..Made::broken("r/kube-proxy:v1.37.2")
    };
    made.proxy = "r/kube-proxy:v1.37.2".to_owned();
    let why = execute(&mut made, &plan, LIMITS).await.unwrap_err();
    assert!(why.ends_with("0 of 2 pods are new"), "{why}");
}

#[test]
fn downgrade_changes_kube_apiserver_last() {
    let wanted = Wanted {
        downgrade: true,
        ..wanted("1.35.4")
    };
    let plan = Plan::new(&cluster("1.36.4"), &wanted).unwrap();
    let last = plan.steps.last().unwrap();
    assert_eq!(last.component, Component::ApiServer);
    assert_eq!(plan.steps[0].component, Component::Kubelet);
}

#[test]
fn kubelets_that_stayed_behind_do_not_hold_the_control_plane_back() {
    let mut members = [member("a", true, "1.36.4"), member("b", false, "1.35.4")];
    members[0].kubelet = Version::parse("1.35.4");
    let old = "r/kubelet:v1.35.4".to_owned();
    members[0].images.insert(Component::Kubelet, old);
    for kubelets in [true, false] {
        let wanted = Wanted {
            kubelets,
            ..wanted("1.37.2")
        };
        let plan = Plan::new(&members, &wanted).unwrap();
        let from = if kubelets { "1.35.4" } else { "1.36.4" };
        assert_eq!(plan.from.to_string(), from);
        assert!(problems(&members, &[], &wanted).is_empty());
    }
    members[1].kubelet = Version::parse("1.33.9");
    let found = problems(&members, &[], &wanted("1.37.2"));
    assert!(found[0].contains("3 minor versions older"), "{found:?}");
}

#[test]
fn feature_gate_that_the_new_release_does_not_know_is_a_problem() {
    let mut members = cluster("1.36.4");
    for member in &mut members {
        let gates = vec!["SidecarContainers".to_owned(), "Other".to_owned()];
        member.gates.insert(Component::Kubelet, gates);
    }
    let found = problems(&members, &[], &wanted("1.37.2"));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0]
            .contains("kubelet of 1.37.2 does not start with the feature gate SidecarContainers")
    );
    let stays = Wanted {
        kubelets: false,
        ..wanted("1.37.2")
    };
    assert!(problems(&members, &[], &stays).is_empty());
    assert!(problems(&members, &[], &wanted("1.36.5")).is_empty());
}

#[test]
fn release_that_no_node_runs_is_a_problem() {
    for (to, count) in [("1.37.9", 0), ("1.38.0", 1), ("1.34.9", 1)] {
        let found = problems(&cluster("1.37.2"), &[], &wanted(to));
        assert_eq!(found.len(), count, "{found:?}");
    }
}

#[test]
fn skipped_minor_versions_and_unrequested_downgrades_are_refused() {
    let of = |versions: [&str; 2], to: &str, downgrade| {
        let members = [
            member("a", true, versions[0]),
            member("b", false, versions[1]),
        ];
        let wanted = Wanted {
            downgrade,
            ..wanted(to)
        };
        Plan::new(&members, &wanted).map(|plan| plan.from.to_string())
    };
    let both = |version| [version, version];
    assert_eq!(of(both("1.36.4"), "1.37.2", false), Ok("1.36.4".to_owned()));
    assert_eq!(of(both("1.37.2"), "1.37.2", false), Ok("1.37.2".to_owned()));
    assert_eq!(
        of(["1.37.2", "1.36.4"], "1.37.2", false),
        Ok("1.36.4".to_owned())
    );
    for (versions, to, downgrade, word) in [
        (both("1.35.0"), "1.37.2", false, "upgrade to 1.36 first"),
        (both("1.37.2"), "1.37.1", false, "--downgrade"),
        (["1.37.2", "1.36.4"], "1.36.4", false, "--downgrade"),
        (both("1.37.2"), "1.35.0", true, "restore a snapshot"),
        (both("1.37.2"), "2.0.0", false, "does not support"),
    ] {
        let why = of(versions, to, downgrade).unwrap_err();
        assert!(why.contains(word), "{versions:?} {to}: {why}");
    }
    of(both("1.37.2"), "1.36.4", true).unwrap();
    let nothing = Plan::new(&[member("a", false, "1.36.4")], &wanted("1.37.2"));
    assert!(nothing.unwrap_err().contains("no control plane node"));
}

#[test]
fn plan_contains_only_components_that_change() {
    let mut members = cluster("1.36.4");
    let done = "r/kube-apiserver:v1.37.2".to_owned();
    members[1].images.insert(Component::ApiServer, done);
    let again = Plan::new(&members, &wanted("1.37.2")).unwrap();
    let components: Vec<_> = again
        .steps
        .iter()
        .map(|step| step.component.name())
        .collect();
    let expected = [
        "kube-controller-manager",
        "kube-scheduler",
        "kube-proxy",
        "kubelet",
        "kubelet",
    ];
    assert_eq!(components, expected);
    let no_kubelets = Wanted {
        kubelets: false,
        ..wanted("1.37.2")
    };
    let plan = Plan::new(&members, &no_kubelets).unwrap();
    let expected = "STEP   NODE   COMPONENT                 FROM                                TO\n\
                    1      b      kube-controller-manager   r/kube-controller-manager:v1.36.4   r/kube-controller-manager:v1.37.2\n\
                    2      b      kube-scheduler            r/kube-scheduler:v1.36.4            r/kube-scheduler:v1.37.2\n\
                    3      b      kube-proxy                r/kube-proxy:v1.36.4                r/kube-proxy:v1.37.2\n\
                    4      b      bootstrap manifests                                           \n";
    assert_eq!(plan.table(), expected);
    let pinned = "r/kubelet@sha256:00".to_owned();
    members[0].images.insert(Component::Kubelet, pinned);
    let why = Plan::new(&members, &wanted("1.37.2")).unwrap_err();
    assert!(
        why.starts_with("kubelet of node a: ") && why.contains("--kubelet-image"),
        "{why}"
    );
}

#[test]
fn every_problem_of_a_cluster_that_is_not_ready_is_reported() {
    let mut members = cluster("1.36.4");
    members[0]
        .troubles
        .push("its kubelet is not ready: no network".to_owned());
    let requested = |minor| Requested {
        api: "policy/v1beta1".to_owned(),
        resource: "budgets".to_owned(),
        removed: (1, minor),
    };
    let found = problems(&members, &[requested(37), requested(38)], &wanted("1.37.2"));
    let [node, api] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(node, "node a: its kubelet is not ready: no network");
    assert!(
        api.starts_with("clients have requested budgets of policy/v1beta1"),
        "{api}"
    );
    assert!(api.contains("version 1.37 removes them"), "{api}");
    let stay = |kubelet: &str| {
        let wanted = Wanted {
            kubelets: false,
            ..wanted("1.37.2")
        };
        problems(&[member("a", false, kubelet)], &[], &wanted)
    };
    assert!(stay("1.34.0").is_empty());
    assert!(stay("1.33.9")[0].contains("3 minor versions older"));
    assert!(stay("1.38.0")[0].contains("newer"));
}

#[test]
fn flags_without_a_valid_version_or_image_are_refused() {
    let asked = |line: &str| {
        let words = line.split_whitespace().skip(1);
        super::wanted(&Line::try_parse_from(words).unwrap().args)
    };
    let usual = asked("cortenctl upgrade-k8s").unwrap();
    assert!(usual.to.minor >= 37 && usual.kubelets && !usual.downgrade);
    let named = asked("cortenctl upgrade-k8s --to v1.37.2 --proxy-image m:5000/p").unwrap();
    assert_eq!(named.names[&Component::Proxy], "m:5000/p");
    for (line, word) in [
        ("cortenctl upgrade-k8s --to latest", "--to"),
        ("cortenctl upgrade-k8s --from 1.36", "--from"),
        (
            "cortenctl upgrade-k8s --kubelet-image r/k:v1",
            "without tag",
        ),
    ] {
        let Err(Failure::Usage(text)) = asked(line) else {
            panic!("{line}");
        };
        assert!(text.contains(word), "{text}");
    }
}
