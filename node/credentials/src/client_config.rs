//! The client's config file: credentials with which a program calls the API (the reference's `talosconfig`).

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_pki::{CertificateAndKey, certificates_from_pem};
use serde_json::Value;

/// The file with one context, in the format of existing clients. A JSON text is valid YAML.
#[must_use]
pub fn file(context: &str, endpoints: &[&str], ca: &str, client: &CertificateAndKey) -> String {
    let context = Value::from(context);
    let endpoints = Value::from(endpoints);
    let [ca, crt, key] = [ca, &client.crt, &client.key].map(|pem| STANDARD.encode(pem));
    format!(
        "context: {context}\ncontexts:\n    {context}:\n        endpoints: {endpoints}\n        ca: {ca}\n        crt: {crt}\n        key: {key}\n"
    )
}

/// Access by the current context of a file. Nothing proves that a CA has signed the certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Endpoints of the API.
    pub endpoints: Vec<String>,
    /// Certificate of the API's CA, PEM.
    pub ca: String,
    /// Roles in the client's certificate, sorted.
    pub roles: Vec<String>,
    from: SystemTime,
    until: SystemTime,
}

impl Grant {
    /// Reads a file; `None` if it lacks something or cannot be parsed.
    #[must_use]
    pub fn read(text: &str) -> Option<Grant> {
        let file: Value = serde_saphyr::from_str(text).ok()?;
        let current = file.get("context")?.as_str()?;
        let context = file.get("contexts")?.get(current)?;
        let pem = |field: &str| STANDARD.decode(context.get(field)?.as_str()?).ok();
        let endpoints = context.get("endpoints")?.as_array()?.iter();
        let endpoints = endpoints.map(|one| one.as_str().map(str::to_owned));
        let chain = certificates_from_pem(&pem("crt")?).ok()?;
        let leaf = chain.first()?;
        let (from, until) = corten_pki::validity(leaf).ok()?;
        let mut roles = corten_pki::organizations(leaf).ok()?;
        roles.sort();
        Some(Grant {
            endpoints: endpoints.collect::<Option<_>>()?,
            ca: String::from_utf8(pem("ca")?).ok()?,
            roles,
            from,
            until,
        })
    }

    /// Remaining validity at `now`; `None` before its begin and after its end.
    #[must_use]
    pub fn left(&self, now: SystemTime) -> Option<Duration> {
        let has_begun = self.from <= now;
        self.until.duration_since(now).ok().filter(|_| has_begun)
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use corten_pki::{Algorithm, Ca};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    #[test]
    fn written_client_config_reads_back_with_its_roles_and_validity() {
        let ca = Ca::generate(Algorithm::Ed25519, "talos", "", now()).unwrap();
        let roles = ["os:reader", "os:etcd:backup"];
        let client = ca.client(&roles, now(), 6 * HOUR).unwrap();
        let text = file("a: #b", &["talos.default"], &ca.pem().crt, &client);
        let grant = Grant::read(&text).unwrap();
        assert_eq!(grant.endpoints, ["talos.default"]);
        assert_eq!(grant.ca, ca.pem().crt);
        assert_eq!(grant.roles, ["os:etcd:backup", "os:reader"]);
        assert_eq!(grant.left(now() + HOUR), Some(5 * HOUR));
        assert_eq!(grant.left(now() + 7 * HOUR), None);
        assert_eq!(grant.left(now() - 24 * HOUR), None);
    }

    #[test]
    fn hostile_client_configs_grant_nothing() {
        let ca = Ca::generate(Algorithm::Ed25519, "talos", "", now()).unwrap();
        let client = ca.client(&["os:reader"], now(), HOUR).unwrap();
        let good = file("a", &["e"], &ca.pem().crt, &client);
        assert!(Grant::read(&good).is_some());
        for bad in [
            String::new(),
            "[".to_owned(),
            "context: a\n".to_owned(),
            good.replace("context: \"a\"", "context: \"b\""),
            good.replace("[\"e\"]", "[1]"),
            good.replace("crt: ", "crt: %"),
            good.replace("        ca: ", "        ca: /w=="),
        ] {
            assert_eq!(Grant::read(&bad), None, "{bad}");
        }
    }
}
