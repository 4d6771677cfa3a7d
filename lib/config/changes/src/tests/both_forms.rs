//! Changes of settings with two forms: both have the same effects.

use corten_config::cri::PART_FILE;
use corten_config::kinds::KubeNodeConfig;
use corten_config::testing::{control_plane, doc, document, good, with};

use crate::{Patch, patch, plan};

const PEM: &str = "-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----\\n";
const NODE_ID: &str = "{provider: luks2, keys: [{slot: 0, nodeID: {}}]}";

/// A config with the part `name` of containerd's configuration.
fn part(name: &str, content: &str) -> String {
    let fields = format!("name: {name}\ncontent: |\n    {content}");
    doc("CRICustomizationConfig", &fields)
}

/// The same in the old form.
fn file(content: &str) -> String {
    let files = format!("files: [{{path: {PART_FILE}, content: '{content}'}}]");
    good().replace("registries: {}", &files)
}

fn old(registries: &str) -> String {
    good().replace("registries: {}", &format!("registries: {registries}"))
}

#[test]
fn plan_names_the_containerd_restart_and_the_need_for_a_reboot() {
    let old = document(&good());
    let more = |document: &str| good() + document;
    let both = file("[debug]").replace("files: [", "files: [{path: /var/x}, ");
    for (new, restarts, reboots) in [
        (more(&part("a", "[debug]")), true, false),
        (file("[debug]"), true, false),
        (both, true, true),
        (
            good().replace("registries: {}", "files: [{path: /var/x}]"),
            false,
            true,
        ),
        (
            more(&doc("CRIBaseRuntimeSpecConfig", "overrides: {hostname: a}")),
            true,
            false,
        ),
        (
            good().replace("registries: {}", "baseRuntimeSpecOverrides: {hostname: a}"),
            true,
            false,
        ),
        (
            more(&doc("ImageCacheConfig", "local: {enabled: true}")),
            false,
            false,
        ),
        (
            more(&doc(
                "PCIDriverRebindConfig",
                "name: 0000:00:01.0\ntargetDriver: a",
            )),
            false,
            false,
        ),
    ] {
        let plan = plan(Some(&old), &document(&new), &["containerd", "apid"]);
        let names: Vec<&str> = plan.restarts.iter().map(String::as_str).collect();
        assert_eq!(names == ["containerd"], restarts, "{new}\n{plan}");
        assert_eq!(plan.reboot.is_empty(), !reboots, "{new}\n{plan}");
        assert!(plan.changes.iter().all(|change| change.acted), "{plan}");
    }
}

#[test]
fn patch_replaces_overrides_of_a_document_and_merges_those_of_the_field() {
    let text = with(
        "CRIBaseRuntimeSpecConfig",
        "overrides: {process: {oomScoreAdj: 1, cwd: /a}}",
    );
    let change = doc(
        "CRIBaseRuntimeSpecConfig",
        "overrides: {process: {oomScoreAdj: 2}}",
    );
    let change = Patch::parse(change.as_bytes()).unwrap();
    let patched = patch(text.as_bytes(), &[change]).unwrap();
    let overrides = document(&patched).base_spec_overrides().unwrap();
    assert_eq!(overrides.to_string(), r#"{"process":{"oomScoreAdj":2}}"#);
    let text = good().replace(
        "registries: {}",
        "baseRuntimeSpecOverrides: {process: {cwd: /a}}",
    );
    let change = b"machine: {baseRuntimeSpecOverrides: {process: {oomScoreAdj: 2}}}";
    let patched = patch(text.as_bytes(), &[Patch::parse(change).unwrap()]).unwrap();
    let process = &document(&patched).base_spec_overrides().unwrap()["process"];
    assert_eq!(
        (&process["cwd"], &process["oomScoreAdj"]),
        (&"/a".into(), &2.into())
    );
}

#[test]
fn containerd_restarts_for_credentials_and_cas_only() {
    let restarts = |before: &str, after: &str| {
        let (before, after) = (document(before), document(after));
        let plan = plan(Some(&before), &after, &["apid", "containerd", "ext-a"]);
        plan.restarts.into_iter().collect::<Vec<_>>()
    };
    let auth = |token: &str| {
        old(&format!(
            "{{config: {{a.auth.b: {{auth: {{identityToken: {token}}}}}}}}}"
        ))
    };
    assert_eq!(restarts(&auth("x"), &auth("y")), ["containerd"]);
    let tls = old(
        "{mirrors: {a: {endpoints: ['https://x']}}, config: {a.auth.b: {tls: {insecureSkipVerify: true}}}}",
    );
    assert_eq!(restarts(&good(), &tls), [""; 0]);
    for (kind, fields, restarted) in [
        ("RegistryAuthConfig", "name: a\nidentityToken: t", true),
        (
            "RegistryTLSConfig",
            "name: a\ninsecureSkipVerify: true",
            false,
        ),
    ] {
        let after = good() + &doc(kind, fields);
        assert_eq!(
            restarts(&good(), &after).len(),
            usize::from(restarted),
            "{kind}"
        );
        assert_eq!(
            restarts(&after, &good()).len(),
            usize::from(restarted),
            "{kind}"
        );
    }
    let roots = format!("name: a\ncertificates: \"{PEM}\"");
    let after = good() + &doc("TrustedRootsConfig", &roots);
    assert_eq!(restarts(&good(), &after), ["containerd"]);
}

#[test]
fn patches_merge_documents_like_the_v1alpha1_fields() {
    let change = "apiVersion: v1alpha1\nkind: KubeNodeConfig\nlabels: {example.org/rack: a}\n\
                  ---\napiVersion: v1alpha1\nkind: KubeNetworkConfig\npodSubnets: [10.1.0.0/16]\n\
                  ---\napiVersion: v1alpha1\nkind: KubeAuditPolicyConfig\nconfiguration: {rules: [{level: None}]}\n\
                  ---\napiVersion: v1alpha1\nkind: KubeAdmissionControlConfig\nname: PodSecurity\n\
                  configuration: {exemptions: {namespaces: [more]}}\n\
                  ---\napiVersion: v1alpha1\nkind: KubeCoreDNSConfig\n$patch: delete\n";
    let change = Patch::parse(change.as_bytes()).unwrap();
    let text = patch(control_plane().as_bytes(), &[change]).unwrap();
    let document = document(&text);
    let node = document.all::<KubeNodeConfig>().next().unwrap();
    assert_eq!(node.labels.len(), 3);
    assert_eq!(document.pod_subnets().len(), 1);
    assert_eq!(document.pod_subnets()[0].to_string(), "10.1.0.0/16");
    assert!(!text.contains("KubeCoreDNSConfig") && !text.contains("level: Metadata"));
    let exempt = "namespaces:\n            - kube-system\n            - more\n";
    assert!(text.contains(exempt), "{text}");
}

#[test]
fn change_of_encryption_keys_needs_a_reboot() {
    let old = document(&with(
        "VolumeConfig",
        &format!("name: STATE\nencryption: {NODE_ID}"),
    ));
    let other = NODE_ID.replace("slot: 0", "slot: 1");
    let new = document(&with(
        "VolumeConfig",
        &format!("name: STATE\nencryption: {other}"),
    ));
    let plan = plan(Some(&old), &new, &[]);
    let reasons: Vec<&String> = plan.reboot.iter().collect();
    assert!(
        reasons[0].contains("volumes are opened at boot"),
        "{reasons:?}"
    );
}

#[test]
fn removable_volumes_need_no_reboot() {
    let disk = "provisioning: {diskSelector: {match: '!system_disk'}";
    let volumes = with(
        "UserVolumeConfig",
        &format!(
            "name: data\n{disk}, minSize: 1GiB}}\n\
             ---\napiVersion: v1alpha1\nkind: UserVolumeConfig\nname: scratch\nvolumeType: directory\n\
             ---\napiVersion: v1alpha1\nkind: UserVolumeConfig\nname: whole\nvolumeType: disk\n{disk}}}\n\
             ---\napiVersion: v1alpha1\nkind: RawVolumeConfig\nname: osd\n{disk}}}\n\
             ---\napiVersion: v1alpha1\nkind: ExistingVolumeConfig\nname: old\n\
             discovery: {{volumeSelector: {{match: volume.label == 'old'}}}}"
        ),
    );
    let plan = plan(
        Some(&document(&good())),
        &document(&volumes),
        &["containerd"],
    );
    assert!(plan.reboot.is_empty() && plan.restarts.is_empty(), "{plan}");
}
