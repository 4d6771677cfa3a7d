//! The file of `gen secrets`: the secrets of a cluster, in the layout of other tools for such
//! clusters.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_client::configfile;
use corten_client::failure::Failure;
use corten_pki::Ca;
use serde::Deserialize;
use serde_json::{Value, json};

use super::documents::pair;
use super::secrets::Secrets;

#[derive(Deserialize)]
struct Bundle {
    cluster: Cluster,
    secrets: Keys,
    trustdinfo: Trustd,
    certs: Cas,
}

#[derive(Deserialize)]
struct Cluster {
    id: String,
    secret: String,
}

#[derive(Deserialize)]
struct Keys {
    bootstraptoken: String,
    #[serde(default)]
    secretboxencryptionsecret: String,
    #[serde(default)]
    aescbcencryptionsecret: String,
}

#[derive(Deserialize)]
struct Trustd {
    token: String,
}

#[derive(Deserialize)]
struct Cas {
    etcd: Pair,
    k8s: Pair,
    k8saggregator: Pair,
    k8sserviceaccount: Key,
    os: Pair,
}

/// Base64 of PEM.
#[derive(Deserialize)]
struct Pair {
    crt: String,
    key: String,
}

#[derive(Deserialize)]
struct Key {
    key: String,
}

/// The file's content.
pub(super) fn value(secrets: &Secrets) -> Value {
    let mut keys = json!({ "bootstraptoken": secrets.bootstrap_token });
    for (name, secret) in [
        ("secretboxencryptionsecret", &secrets.secretbox),
        ("aescbcencryptionsecret", &secrets.aescbc),
    ] {
        if let Value::Object(keys) = &mut keys
            && !secret.is_empty()
        {
            keys.insert(name.to_owned(), Value::from(secret.as_str()));
        }
    }
    json!({
        "cluster": { "id": secrets.cluster_id, "secret": secrets.cluster_secret },
        "secrets": keys,
        "trustdinfo": { "token": secrets.machine_token },
        "certs": {
            "etcd": pair(secrets.etcd.pem()),
            "k8s": pair(secrets.kubernetes.pem()),
            "k8saggregator": pair(secrets.aggregator.pem()),
            "k8sserviceaccount": { "key": STANDARD.encode(&secrets.service_account_key) },
            "os": pair(secrets.os.pem()),
        },
    })
}

/// Reads such a file. No error quotes it.
pub(super) fn read(path: &Path) -> Result<Secrets, Failure> {
    let bytes = configfile::read(path)?;
    parse(&bytes)
        .with_context(|| format!("secrets {}", path.display()))
        .map_err(Failure::Call)
}

fn parse(bytes: &[u8]) -> anyhow::Result<Secrets> {
    let bundle: Bundle = serde_saphyr::from_slice(bytes).map_err(|error| {
        // The first line has the place and the field's name; the rest quotes secrets.
        let text = error.to_string();
        anyhow!("{}", text.lines().next().unwrap_or("not a secrets file"))
    })?;
    let certs = bundle.certs;
    Ok(Secrets {
        cluster_id: bundle.cluster.id,
        cluster_secret: bundle.cluster.secret,
        bootstrap_token: bundle.secrets.bootstraptoken,
        machine_token: bundle.trustdinfo.token,
        secretbox: bundle.secrets.secretboxencryptionsecret,
        aescbc: bundle.secrets.aescbcencryptionsecret,
        os: read_ca("certs.os", &certs.os)?,
        etcd: read_ca("certs.etcd", &certs.etcd)?,
        kubernetes: read_ca("certs.k8s", &certs.k8s)?,
        aggregator: read_ca("certs.k8saggregator", &certs.k8saggregator)?,
        service_account_key: pem("certs.k8sserviceaccount.key", &certs.k8sserviceaccount.key)?,
    })
}

fn read_ca(name: &str, pair: &Pair) -> anyhow::Result<Ca> {
    let crt = pem(&format!("{name}.crt"), &pair.crt)?;
    let key = pem(&format!("{name}.key"), &pair.key)?;
    Ca::from_pem(&crt, &key).with_context(|| name.to_owned())
}

fn pem(name: &str, text: &str) -> anyhow::Result<String> {
    let text: String = text.split_whitespace().collect();
    let bytes = STANDARD.decode(text).ok();
    let pem = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    pem.filter(|pem| pem.contains("-----BEGIN "))
        .with_context(|| format!("{name} must be base64 of PEM"))
}
