use super::{document, good, problems, with};
use crate::kinds::{Encryption, SystemVolume};

const NODE_ID: &str = "{provider: luks2, keys: [{slot: 0, nodeID: {}}]}";

fn encryption(fields: &str) -> Encryption {
    let text = with(
        "VolumeConfig",
        &format!("name: STATE\nencryption: {fields}"),
    );
    let document = document(&text);
    document.encryption(SystemVolume::State).unwrap().clone()
}

#[test]
fn encryption_is_read_from_field_or_document_and_the_document_wins() {
    let old = good().replace(
        "    registries: {}\n",
        &format!("    systemDiskEncryption: {{state: {NODE_ID}, ephemeral: {NODE_ID}}}\n"),
    );
    let plain = document(&good());
    let by_old = document(&old);
    for volume in [SystemVolume::State, SystemVolume::Ephemeral] {
        assert!(plain.encryption(volume).is_none());
        let found = by_old.encryption(volume).unwrap();
        assert_eq!(
            (found.keys[0].slot, found.keys[0].node_id.is_some()),
            (0, true)
        );
    }
    assert!(by_old.encryption(SystemVolume::Etcd).is_none());
    let both = format!(
        "{old}---\napiVersion: v1alpha1\nkind: VolumeConfig\nname: STATE\n\
         encryption: {{provider: luks2, keys: [{{slot: 4, static: {{passphrase: x}}}}]}}\n"
    );
    let both = document(&both);
    assert_eq!(
        both.encryption(SystemVolume::State).unwrap().keys[0].slot,
        4
    );
    assert_eq!(
        both.encryption(SystemVolume::Ephemeral).unwrap().keys[0].slot,
        0
    );
    // A document without encryption does not remove it.
    let silent = format!("{old}---\napiVersion: v1alpha1\nkind: VolumeConfig\nname: STATE\n");
    assert!(document(&silent).encryption(SystemVolume::State).is_some());
}

#[test]
fn invalid_encryption_settings_are_refused() {
    for (fields, why) in [
        (
            "name: STATE\nencryption: {provider: luks2}",
            "keys is required",
        ),
        (
            "name: STATE\nencryption: {provider: luks1, keys: [{nodeID: {}}]}",
            "provider must be one of luks2",
        ),
        (
            "name: STATE\nencryption: {provider: luks2, keySize: 384, keys: [{nodeID: {}}]}",
            "keySize must be 256 or 512",
        ),
        (
            "name: STATE\nencryption: {provider: luks2, blockSize: 513, keys: [{nodeID: {}}]}",
            "blockSize must be 512",
        ),
        (
            "name: STATE\nencryption: {provider: luks2, options: ['x y'], keys: [{nodeID: {}}]}",
            "options must be some of no_read_workqueue",
        ),
        (
            "name: STATE\nencryption: {provider: luks2, cipher: 'xchacha12,aes-adiantum-plain64', keys: [{nodeID: {}}]}",
            "cipher is not supported yet",
        ),
        (
            "name: STATE\nencryption: {provider: luks2, keys: [{tpm: {checkSecurebootStatusOnEnroll: true}}]}",
            "not supported yet: encryption.keys[0].tpm",
        ),
        // None of these selects the machine's key.
        (
            "name: STATE\nencryption: {provider: luks2, keys: [{tpm: {}}]}",
            "not supported yet: encryption.keys[0].tpm",
        ),
        (
            "name: STATE\nencryption: {provider: luks2, keys: [{kms: {}}]}",
            "not supported yet: encryption.keys[0].kms",
        ),
        (
            "name: STATE\nencryption: {provider: luks2, keys: [{static: {}}]}",
            "passphrase is required",
        ),
        (
            "name: STATE\nencryption: {provider: luks2, keys: [{nodeID: null}]}",
            "exactly one of",
        ),
        (
            "name: EPHEMERAL\nencryption: {provider: luks2, keys: [{nodeID: {}, lockToState: true}]}",
            "not supported yet: encryption.keys[0].lockToState",
        ),
        (
            "name: ETCD\nencryption: {provider: luks2, keys: [{nodeID: {}}]}",
            "encryption is for STATE and EPHEMERAL only",
        ),
        (
            "name: EPHEMERAL\nprovisioning: {grow: true}",
            "not supported yet: provisioning",
        ),
    ] {
        let found = problems(&with("VolumeConfig", fields));
        assert!(found.iter().any(|p| p.contains(why)), "{fields}: {found:?}");
    }
}

#[test]
fn encryption_settings_round_trip_through_meta() {
    for fields in [
        NODE_ID,
        "{provider: luks2, keys: [{slot: 3, static: {passphrase: \"a \\\" \\\\ ä: {}\"}}, {nodeID: {}}]}",
        "{provider: luks2, keys: [{nodeID: {}}], keySize: 256, blockSize: 4096, \
         options: [same_cpu_crypt], allowDiscards: true}",
    ] {
        let said = encryption(fields);
        let kept = said.to_meta();
        assert!(kept.starts_with('{') && !kept.contains('\n'), "{kept}");
        assert_eq!(
            Encryption::from_meta(kept.as_bytes()).unwrap(),
            said,
            "{kept}"
        );
    }
    for (wrong, why) in [
        ("", "empty"),
        ("7", "must be a map"),
        ("{}", "provider is required"),
        (
            r#"{"provider":"luks2","keys":[{"slot":0}]}"#,
            "exactly one of",
        ),
        (
            r#"{"provider":"luks2","keys":[{"kms":{"endpoint":"https://a"}}]}"#,
            "not supported yet: keys[0].kms",
        ),
    ] {
        let found = Encryption::from_meta(wrong.as_bytes()).unwrap_err();
        assert!(found.to_string().contains(why), "{wrong}: {found}");
    }
    Encryption::from_meta(b"\xff").unwrap_err();
}

#[test]
fn one_unchanged_key_slot_keeps_the_volume_accessible() {
    let keys = |keys: &str| encryption(&format!("{{provider: luks2, keys: [{keys}]}}"));
    let before = keys("{static: {passphrase: a}}, {slot: 1, nodeID: {}}");
    assert!(keys("{static: {passphrase: b}}, {slot: 1, nodeID: {}}").keeps_a_key_of(&before));
    for lost in [
        "{static: {passphrase: b}}",
        "{slot: 1, static: {passphrase: a}}",
        "{slot: 2, nodeID: {}}",
    ] {
        assert!(!keys(lost).keeps_a_key_of(&before), "{lost}");
    }
}
