//! Reads a cluster's secrets from a control plane node's config, in either form.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use corten_client::configfile;
use corten_client::failure::Failure;
use corten_config::kinds::KubeEtcdEncryptionConfig;
use corten_config::{Document, IssuingCa};
use corten_pki::Ca;
use corten_values::KeyPair;
use serde_json::Value;

use super::secrets::Secrets;

/// Reads a config. No error quotes it.
pub(super) fn read(path: &Path) -> Result<Secrets, Failure> {
    let name = path.display().to_string();
    let document = configfile::parse(&name, &configfile::read(path)?)?;
    let secrets = secrets(&document).context(name);
    secrets.map_err(Failure::Call)
}

fn secrets(document: &Document) -> anyhow::Result<Secrets> {
    let (machine, cluster) = (&document.machine, &document.cluster);
    ensure!(
        machine.kind.is_control_plane(),
        "machine.type: only the config of a control plane node has every secret"
    );
    let etcd = cluster.etcd.as_ref().and_then(|etcd| etcd.ca.as_ref());
    let secretbox = match document.all::<KubeEtcdEncryptionConfig>().next() {
        Some(config) => secretbox(config)?,
        None => cluster.secretbox_encryption_secret.expose().to_owned(),
    };
    Ok(Secrets {
        cluster_id: given("cluster.id", document.cluster_id().unwrap_or_default())?,
        cluster_secret: given("cluster.secret", document.cluster_secret().expose())?,
        bootstrap_token: given("cluster.token", cluster.token.expose())?,
        machine_token: given("machine.token", machine.token.expose())?,
        secretbox,
        aescbc: cluster.aescbc_encryption_secret.expose().to_owned(),
        os: of_pair("machine.ca", machine.ca.as_ref())?,
        etcd: of_pair("cluster.etcd.ca", etcd)?,
        kubernetes: issuing("cluster.ca", document.kubernetes_ca())?,
        aggregator: issuing("cluster.aggregatorCA", document.aggregator_ca())?,
        service_account_key: given(
            "cluster.serviceAccount.key",
            document.service_account_key().expose(),
        )?,
    })
}

fn given(field: &str, text: &str) -> anyhow::Result<String> {
    ensure!(!text.is_empty(), "{field} is missing");
    Ok(text.to_owned())
}

fn of_pair(field: &str, pair: Option<&KeyPair>) -> anyhow::Result<Ca> {
    let pair = pair.with_context(|| format!("{field} is missing"))?;
    read_ca(field, &pair.crt, pair.key.expose())
}

/// The CA with its key; `field` is the name for the error if neither form has it.
fn issuing(field: &str, ca: Option<IssuingCa<'_>>) -> anyhow::Result<Ca> {
    let ca = ca.with_context(|| format!("{field} is missing"))?;
    read_ca(ca.field, ca.crt, ca.key.expose())
}

fn read_ca(field: &str, crt: &str, key: &str) -> anyhow::Result<Ca> {
    ensure!(!key.is_empty(), "{field}.key is missing");
    Ca::from_pem(crt, key).with_context(|| field.to_owned())
}

/// The key for Kubernetes' secrets in an `EncryptionConfiguration`. It must be the first provider;
/// other configurations are refused.
fn secretbox(config: &KubeEtcdEncryptionConfig) -> anyhow::Result<String> {
    let text = config.config.as_ref().map(corten_values::Object::yaml);
    let tree: Value = corten_client::yaml::parse(&text.unwrap_or_default())?;
    let rules = tree.get("resources").and_then(Value::as_array);
    let of_secrets = |rule: &&Value| {
        let kinds = rule.get("resources").and_then(Value::as_array);
        kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == "secrets"))
    };
    let rule = rules.into_iter().flatten().find(of_secrets);
    let first = rule.and_then(|rule| rule.pointer("/providers/0/secretbox/keys/0/secret"));
    match first.and_then(Value::as_str) {
        Some(secret) => Ok(secret.to_owned()),
        None => bail!(
            "KubeEtcdEncryptionConfig: the first provider of secrets is not secretbox; only a secretbox key can be reused"
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{bundle, tests};
    use super::*;
    use crate::args::GenConfig;

    /// The secrets read from a changed config.
    fn reread(change: impl Fn(String) -> String) -> anyhow::Result<Secrets> {
        let directory = tempfile::tempdir()?;
        let args: GenConfig = tests::args(directory.path());
        super::super::config(&args).unwrap();
        let text = std::fs::read_to_string(directory.path().join("controlplane.yaml"))?;
        let document = Document::parse(change(text).as_bytes()).unwrap();
        secrets(&document)
    }

    fn refusal(change: impl Fn(String) -> String) -> String {
        match reread(change) {
            Ok(_) => panic!("it was taken"),
            Err(error) => format!("{error:#}"),
        }
    }

    fn without(text: &str, line: &str) -> String {
        let kept = text.lines().filter(|one| !one.trim().starts_with(line));
        kept.map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn secrets_read_from_a_config_equal_the_ones_it_was_generated_from() {
        let directory = tempfile::tempdir().unwrap();
        let now = std::time::SystemTime::now();
        let made = Secrets::generate(now).unwrap();
        let file = directory.path().join("secrets.yaml");
        let expected = bundle::value(&made);
        std::fs::write(&file, corten_client::yaml::render(&expected).unwrap()).unwrap();
        let args = GenConfig {
            with_secrets: Some(file),
            ..tests::args(directory.path())
        };
        super::super::config(&args).unwrap();
        let found = read(&directory.path().join("controlplane.yaml")).unwrap();
        assert_eq!(bundle::value(&found), expected);
    }

    /// The documents with a kind that replace the secrets in `cluster`.
    fn by_kind(secrets: &Secrets) -> [Value; 5] {
        let pair = |ca: &Ca| json!({ "cert": ca.pem().crt, "key": ca.pem().key });
        let fields = [
            (
                "KubeAPIServerCAConfig",
                json!({ "issuingCA": pair(&secrets.kubernetes) }),
            ),
            (
                "KubeAggregatorCAConfig",
                json!({ "issuingCA": pair(&secrets.aggregator) }),
            ),
            (
                "KubeServiceAccountConfig",
                json!({ "issuer": {
                    "privateKey": secrets.service_account_key,
                    "issuerURL": "https://10.0.0.1:6443",
                } }),
            ),
            (
                "DiscoveryIdentityConfig",
                json!({ "clusterID": secrets.cluster_id, "clusterSecret": secrets.cluster_secret }),
            ),
            (
                "KubeEtcdEncryptionConfig",
                json!({ "config": { "resources": [{
                    "resources": ["secrets"],
                    "providers": [
                        { "secretbox": { "keys": [{ "name": "key1", "secret": secrets.secretbox }] } },
                    ],
                }] } }),
            ),
        ];
        fields.map(|(kind, fields)| {
            let mut document = json!({ "apiVersion": "v1alpha1", "kind": kind });
            let (all, more) = (
                document.as_object_mut().unwrap(),
                fields.as_object().unwrap(),
            );
            all.extend(more.clone());
            document
        })
    }

    #[test]
    fn secrets_are_read_from_documents_as_well() {
        let made = Secrets::generate(std::time::SystemTime::now()).unwrap();
        let found = reread(|text| {
            let mut root: Value = corten_client::yaml::parse(&text).unwrap();
            let cluster = root["cluster"].as_object_mut().unwrap();
            for field in [
                "ca",
                "aggregatorCA",
                "serviceAccount",
                "id",
                "secret",
                "secretboxEncryptionSecret",
            ] {
                assert!(cluster.remove(field).is_some(), "{field}");
            }
            let mut text = corten_client::yaml::render(&root).unwrap();
            for document in by_kind(&made) {
                text.push_str("---\n");
                text.push_str(&corten_client::yaml::render(&document).unwrap());
            }
            text
        });
        let (found, expected) = (bundle::value(&found.unwrap()), bundle::value(&made));
        for field in [
            "/cluster",
            "/secrets/secretboxencryptionsecret",
            "/certs/k8s",
            "/certs/k8saggregator",
            "/certs/k8sserviceaccount",
        ] {
            let expected = expected.pointer(field).unwrap();
            assert_eq!(found.pointer(field), Some(expected), "{field}");
        }
    }

    #[test]
    fn missing_secret_is_named_without_quoting_the_config() {
        for field in ["secret:", "token:"] {
            let text = refusal(|text| {
                let at = text.find("\ncluster:").unwrap();
                let (machine, cluster) = text.split_at(at);
                format!("{machine}{}", without(cluster, field))
            });
            let name = field.trim_end_matches(':');
            assert_eq!(text, format!("cluster.{name} is missing"));
        }
    }

    #[test]
    fn config_of_a_worker_is_refused_as_a_source_of_secrets() {
        let directory = tempfile::tempdir().unwrap();
        super::super::example(directory.path());
        let error = match read(&directory.path().join("worker.yaml")) {
            Err(Failure::Call(error)) => format!("{error:#}"),
            _ => panic!("it was taken"),
        };
        assert!(error.contains("machine.type"), "{error}");
    }
}
