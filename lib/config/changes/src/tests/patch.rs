use corten_config::testing::{document, future, good};

use crate::{Patch, patch};

fn patched(config: &str, patches: &[&str]) -> Result<String, String> {
    let parsed: Result<Vec<Patch>, _> = patches
        .iter()
        .map(|text| Patch::parse(text.as_bytes()))
        .collect();
    let parsed = parsed.map_err(|problems| problems.to_string())?;
    patch(config.as_bytes(), &parsed).map_err(|problems| problems.to_string())
}

#[test]
fn scalars_are_replaced_maps_merged_lists_appended() {
    let text = patched(
        &good(),
        &["machine: {network: {hostname: cp-2}, certSANs: [x.example], sysctls: {kernel.pid_max: '1'}}"],
    )
    .unwrap();
    let document = document(&text);
    assert_eq!(document.hostname(), Some("cp-2"));
    assert_eq!(
        document.machine.cert_sans,
        ["node.example", "10.0.2.15", "x.example"]
    );
    assert_eq!(document.sysctls().len(), 3);
    assert_eq!(document.cluster.name, "demo");
    // Empty values change nothing; false and 0 do.
    let same = patched(
        &good(),
        &["machine: {network: {hostname: ''}, token: null}\ndebug: true"],
    )
    .unwrap();
    assert!(
        same.contains("hostname: cp-1") && same.contains("debug: true"),
        "{same}"
    );
}

#[test]
fn argument_of_a_patch_replaces_all_its_values() {
    let base = "cluster:
    apiServer:
        extraArgs: {tls-cipher-suites: [old-1, old-2], v: '2'}
";
    let patch = "cluster: {apiServer: {extraArgs: {tls-cipher-suites: [new]}}}";
    let text = patched(base, &[patch]).unwrap();
    assert!(text.contains("new") && text.contains("v: "), "{text}");
    assert!(!text.contains("old"), "{text}");
}

#[test]
fn some_lists_are_replaced_or_merged_by_a_key() {
    let base = "version: v1alpha1
machine:
    network:
        interfaces:
            - interface: eth0
              mtu: 1500
              vlans:
                - {vlanId: 5, mtu: 1400}
            - deviceSelector: {driver: virtio}
              dhcp: true
cluster:
    network: {podSubnets: [10.244.0.0/16]}
    apiServer:
        auditPolicy: {rules: [{level: Metadata}]}
        admissionControl:
            - name: PodSecurity
              configuration: {exemptions: {namespaces: [a]}}
";
    let text = patched(
        base,
        &["machine:
    network:
        interfaces:
            - interface: eth0
              addresses: [10.0.0.1/24]
              vlans: [{vlanId: 5, dhcp: true}, {vlanId: 6}]
            - deviceSelector: {driver: virtio}
              mtu: 9000
            - interface: eth1
cluster:
    network: {podSubnets: [10.1.0.0/16]}
    apiServer:
        auditPolicy: {rules: [{level: None}]}
        admissionControl:
            - name: PodSecurity
              configuration: {exemptions: {namespaces: [b]}}
"],
    )
    .unwrap();
    let expected = "version: v1alpha1
machine:
    network:
        interfaces:
            - interface: eth0
              mtu: 1500
              vlans:
                  - vlanId: 5
                    mtu: 1400
                    dhcp: true
                  - vlanId: 6
              addresses:
                  - 10.0.0.1/24
            - deviceSelector:
                  driver: virtio
              dhcp: true
              mtu: 9000
            - interface: eth1
cluster:
    network:
        podSubnets:
            - 10.1.0.0/16
    apiServer:
        auditPolicy:
            rules:
                - level: None
        admissionControl:
            - name: PodSecurity
              configuration:
                  exemptions:
                      namespaces:
                          - a
                          - b
";
    assert_eq!(text, expected);
}

#[test]
fn delete_removes_maps_items_and_documents() {
    let base = format!(
        "{}---\napiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\nmtu: 9000\naddresses: [{{address: 10.0.0.1/8}}, {{address: 10.0.0.2/8}}]\n---\napiVersion: v1alpha1\nkind: LinkConfig\nname: eth1\n",
        good()
    );
    let text = patched(
        &base,
        &[
            "machine: {network: {$patch: delete}, install: {nothing: {$patch: delete}}}",
            "apiVersion: v1alpha1\nkind: LinkConfig\nname: eth1\n$patch: delete\n---\napiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\naddresses: [{address: 10.0.0.1/8, $patch: delete}]\n",
            "apiVersion: v1alpha1\nkind: BondConfig\nname: never-there\n$patch: delete\n",
        ],
    )
    .unwrap();
    assert!(
        !text.contains("hostname") && !text.contains("eth1") && !text.contains("nothing"),
        "{text}"
    );
    assert!(
        !text.contains("10.0.0.1/8") && text.contains("10.0.0.2/8") && text.contains("mtu: 9000"),
        "{text}"
    );
    let document = future(&text);
    assert_eq!(
        document.all::<corten_config::kinds::LinkConfig>().count(),
        1
    );
}

#[test]
fn unknown_documents_are_added_and_patches_apply_in_order() {
    let text = patched(
        &good(),
        &[
            "apiVersion: v1alpha1\nkind: SysctlConfig\nparams: {a: 1}",
            "apiVersion: v1alpha1\nkind: SysctlConfig\nparams: {a: 2, b: 3}",
        ],
    )
    .unwrap();
    let document = document(&text);
    assert_eq!(
        (document.sysctls()["a"], document.sysctls()["b"]),
        ("2", "3")
    );
}

/// A patch of the document below, and a part of the result or of the error.
const JSON_PATCHES: &[(&str, Result<&str, &str>)] = &[
    (
        r#"[{"op":"add","path":"/machine/list/1","value":9}]"#,
        Ok("list:\n        - 1\n        - 9\n        - 2"),
    ),
    (
        r#"[{"op":"add","path":"/machine/list/-","value":{"k":null}}]"#,
        Ok("- 2\n        - k: null"),
    ),
    (
        r#"[{"op":"replace","path":"/machine/a~1b","value":"true"}]"#,
        Ok("a/b: \"true\""),
    ),
    (
        r#"[{"op":"move","from":"/machine/map","path":"/machine/new"}]"#,
        Ok("new:\n        x: z"),
    ),
    (
        r#"[{"op":"copy","from":"/machine/a~1b","path":"/machine/c"}]"#,
        Ok("c: 0123"),
    ),
    (
        r#"[{"op":"test","path":"/machine/map","value":{"x":"z"}},{"op":"remove","path":"/machine/map"}]"#,
        Ok("- 2\n"),
    ),
    (
        "- op: add\n  path: /machine/z\n  value: [q]\n",
        Ok("z:\n        - q"),
    ),
    (
        r#"[{"op":"test","path":"/version","value":"v2"}]"#,
        Err("the test of /version failed"),
    ),
    (
        r#"[{"op":"remove","path":"/machine/none"}]"#,
        Err("/machine/none does not exist"),
    ),
    (
        r#"[{"op":"replace","path":"/machine/none","value":1}]"#,
        Err("/machine/none does not exist"),
    ),
    (
        r#"[{"op":"add","path":"/machine/none/x","value":1}]"#,
        Err("/machine/none does not exist"),
    ),
    (
        r#"[{"op":"add","path":"/machine/list/3","value":1}]"#,
        Err("/machine/list/3 does not exist"),
    ),
    (
        r#"[{"op":"add","path":"/machine/list/01","value":1}]"#,
        Err("does not exist"),
    ),
    (
        r#"[{"op":"move","from":"/machine","path":"/machine/x"}]"#,
        Err("moved into itself"),
    ),
    (
        r#"[{"op":"increase","path":"/x"}]"#,
        Err("op must be one of"),
    ),
    (
        r#"[{"op":"add","path":"x","value":1}]"#,
        Err("path must be a pointer"),
    ),
    (r#"[{"op":"add","path":"/x"}]"#, Err("needs a value")),
    ("[1]", Err("op must be one of")),
    ("just text", Err("a patch is a document")),
];

#[test]
fn json_patches_follow_rfc_6902() {
    let base = "version: v1alpha1\nmachine:\n    a/b: 0123\n    list: [1, 2]\n    map: {x: z}\n";
    for (change, expected) in JSON_PATCHES {
        match (patched(base, &[change]), expected) {
            (Ok(text), Ok(part)) => assert!(text.contains(part), "{change}\n{text}"),
            (Err(text), Err(part)) => assert!(text.contains(part), "{change}: {text}"),
            (found, _) => panic!("{change}: {found:?}"),
        }
    }
    let two = format!("{base}---\napiVersion: v1alpha1\nkind: SysctlConfig\n");
    let refusal = patched(&two, &[r#"[{"op":"remove","path":"/version"}]"#]).unwrap_err();
    assert!(
        refusal.contains("needs a config of one document"),
        "{refusal}"
    );
}

#[test]
fn invalid_strategic_patches_are_refused() {
    for (change, why) in [
        ("$patch: delete", "the v1alpha1 document cannot be deleted"),
        (
            "kind: LinkConfig\nname: x\n$patch: delete",
            "named by apiVersion: v1alpha1",
        ),
        (
            "machine: {network: {$patch: replace}}",
            "$patch must be delete",
        ),
        (
            "machine: {certSANs: [{a: 1, b: 2, $patch: delete}]}",
            "exactly one key beside $patch",
        ),
        ("", "the config is empty"),
    ] {
        let refusal = patched(&good(), &[change]).unwrap_err();
        assert!(refusal.contains(why), "{change}: {refusal}");
    }
}
