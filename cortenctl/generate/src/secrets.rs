//! The secrets of a cluster. No type here has `Debug`.

use std::time::SystemTime;

use anyhow::{Context as _, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use corten_pki::{Algorithm, Ca};
use ring::rand::{SecureRandom as _, SystemRandom};

/// Size in bytes of an id or a symmetric key.
const KEY_BYTES: usize = 32;

/// The secrets that a cluster's nodes share.
pub(super) struct Secrets {
    /// Id of the cluster; not secret.
    pub(super) cluster_id: String,
    pub(super) cluster_secret: String,
    /// Kubernetes' token for joining nodes: `6.16` characters.
    pub(super) bootstrap_token: String,
    /// Token that a joining node sends to trustd: `6.16` characters.
    pub(super) machine_token: String,
    /// Key that encrypts Kubernetes' secrets in etcd; empty in old clusters.
    pub(super) secretbox: String,
    /// Key of old clusters for the same purpose; else empty.
    pub(super) aescbc: String,
    /// CA of the node API.
    pub(super) os: Ca,
    pub(super) etcd: Ca,
    pub(super) kubernetes: Ca,
    pub(super) aggregator: Ca,
    /// Key that signs Kubernetes' service account tokens; PEM.
    pub(super) service_account_key: String,
}

impl Secrets {
    pub(super) fn generate(now: SystemTime) -> anyhow::Result<Secrets> {
        let random = SystemRandom::new();
        let new_ca = |algorithm, organization, common_name| {
            Ca::generate(algorithm, organization, common_name, now).context("making a CA")
        };
        // Only the key is used; the CA around it is dropped.
        let service_account = new_ca(Algorithm::EcdsaP256, "kubernetes", "service-account")?;
        Ok(Secrets {
            cluster_id: URL_SAFE.encode(bytes(&random)?),
            cluster_secret: STANDARD.encode(bytes(&random)?),
            bootstrap_token: token(&random)?,
            machine_token: token(&random)?,
            secretbox: STANDARD.encode(bytes(&random)?),
            aescbc: String::new(),
            os: new_ca(Algorithm::Ed25519, "corten", "")?,
            etcd: new_ca(Algorithm::EcdsaP256, "etcd", "")?,
            kubernetes: new_ca(Algorithm::EcdsaP256, "kubernetes", "")?,
            aggregator: new_ca(Algorithm::EcdsaP256, "", "front-proxy")?,
            service_account_key: service_account.pem().key.clone(),
        })
    }
}

fn bytes(random: &SystemRandom) -> anyhow::Result<[u8; KEY_BYTES]> {
    let mut bytes = [0; KEY_BYTES];
    random
        .fill(&mut bytes)
        .map_err(|_| anyhow!("the system has no random numbers"))?;
    Ok(bytes)
}

/// A token in Kubernetes' form: `[a-z0-9]{6}.[a-z0-9]{16}`, the first part public. It begins with a
/// letter, so that YAML does not read it as a number.
fn token(random: &SystemRandom) -> anyhow::Result<String> {
    let mut text = letter(random, b"abcdefghijklmnopqrstuvwxyz")?.to_string();
    while text.len() < 23 {
        let c = match text.len() {
            6 => '.',
            _ => letter(random, b"abcdefghijklmnopqrstuvwxyz0123456789")?,
        };
        text.push(c);
    }
    Ok(text)
}

/// A uniformly random letter of an alphabet of at most 256.
fn letter(random: &SystemRandom, alphabet: &[u8]) -> anyhow::Result<char> {
    // Bytes beyond the last whole multiple would favour the first letters.
    let limit = 256 / alphabet.len() * alphabet.len();
    loop {
        for byte in bytes(random)? {
            let byte = usize::from(byte);
            if byte < limit
                && let Some(found) = alphabet.get(byte % alphabet.len())
            {
                return Ok(char::from(*found));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_the_form_of_join_tokens() {
        let random = SystemRandom::new();
        let tokens: Vec<String> = (0..50).map(|_| token(&random).unwrap()).collect();
        for token in &tokens {
            let (id, secret) = token.split_once('.').unwrap();
            assert_eq!((id.len(), secret.len()), (6, 16), "{token}");
            let usual = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            assert!(
                id.chars().all(usual) && secret.chars().all(usual),
                "{token}"
            );
        }
        let distinct: std::collections::BTreeSet<_> = tokens.iter().collect();
        assert_eq!(distinct.len(), tokens.len());
        let letters: std::collections::BTreeSet<char> = tokens.concat().chars().collect();
        assert!(letters.len() > 30, "{letters:?}");
    }

    #[test]
    fn keys_are_32_bytes_and_kubernetes_cas_are_p256() {
        let secrets = Secrets::generate(SystemTime::now()).unwrap();
        assert_eq!(URL_SAFE.decode(&secrets.cluster_id).unwrap().len(), 32);
        assert_eq!(STANDARD.decode(&secrets.secretbox).unwrap().len(), 32);
        assert_ne!(secrets.cluster_secret, secrets.secretbox);
        assert!(secrets.os.pem().key.contains("BEGIN ED25519 PRIVATE KEY"));
        for key in [
            &secrets.etcd.pem().key,
            &secrets.kubernetes.pem().key,
            &secrets.service_account_key,
        ] {
            assert!(key.contains("BEGIN EC PRIVATE KEY"));
        }
    }
}
