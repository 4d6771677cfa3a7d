//! Arguments of components, subnets of etcd, and seccomp profiles.

use super::{bare, doc, good, problems};

#[test]
fn arguments_that_the_reference_accepts_are_accepted() {
    let kubelet = "machine:\n    kubelet: {extraArgs: {hostname-override: a}}";
    let text = good().replacen("machine:", kubelet, 1);
    assert_eq!(problems(&text), Vec::<String>::new());
    for accepted in [
        "apiServer: {extraArgs: {secure-port: '6443', service-cluster-ip-range: 10.0.0.0/16, authentication-config: /a}}",
        "controllerManager: {extraArgs: {cluster-cidr: 10.0.0.0/16, kubeconfig: /a, service-cluster-ip-range: 10.0.0.0/16}}",
        "proxy: {extraArgs: {hostname-override: a}}",
        "etcd: {extraArgs: {advertise-client-urls: a, initial-advertise-peer-urls: a, initial-cluster: a=b, initial-cluster-state: existing}}",
    ] {
        let cluster = format!("\ncluster:\n    {accepted}\n");
        let found = problems(&good().replacen("\ncluster:\n", &cluster, 1));
        assert_eq!(found, Vec::<String>::new(), "{accepted}");
    }
    // Beside its document, the file of authentication is the node's.
    let server = doc(
        "KubeAPIServerConfig",
        "image: a\nextraArgs: {authentication-config: /a}",
    );
    let found = problems(&format!("{}{server}", bare("controlplane")));
    let why = "extraArgs.authentication-config is set by the node";
    assert!(found.iter().any(|found| found.contains(why)), "{found:?}");
}

#[test]
fn seccomp_profiles_have_the_names_of_files_and_fields() {
    let base = good();
    for (profiles, wrong) in [
        (
            "[{name: audit.json, value: {defaultAction: SCMP_ACT_LOG}}]",
            "",
        ),
        (
            "[{name: a/b, value: {a: b}}]",
            "[0].name must be the name of a file",
        ),
        (
            "[{name: .., value: {a: b}}]",
            "[0].name must be the name of a file",
        ),
        ("[{name: '', value: {a: b}}]", "[0].name is required"),
        ("[{name: a, value: text}]", "[0].value must be a map"),
        ("[{name: a}]", "[0].value is required"),
        (
            "[{name: a, value: {a: b}}, {name: a, value: {a: b}}]",
            " must have one profile of each name",
        ),
    ] {
        let profiles = format!("seccompProfiles: {profiles}");
        let found = problems(&base.replace("registries: {}", &profiles));
        let wrong = format!("machine.seccompProfiles{wrong}");
        match wrong.ends_with("Profiles") {
            true => assert!(found.is_empty(), "{profiles}: {found:?}"),
            false => assert!(
                found.len() == 1 && found[0].contains(&wrong),
                "{profiles}: {found:?}"
            ),
        }
    }
}

#[test]
fn subnets_of_etcd_are_validated() {
    let etcd = "{subnet: 10.0.0.0/8, advertisedSubnets: [10.0.0.0/8], listenSubnets: [here]}";
    let cluster = format!("\ncluster:\n    etcd: {etcd}\n");
    let found = problems(&good().replacen("\ncluster:\n", &cluster, 1));
    for why in [
        "cluster.etcd.subnet must not be given together with advertisedSubnets",
        "cluster.etcd.listenSubnets[0] must be a network such as",
    ] {
        assert!(found.iter().any(|p| p.contains(why)), "{why}: {found:?}");
    }
}
