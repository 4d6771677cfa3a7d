//! Which accounts of pods get which credentials.

use std::time::{Duration, SystemTime};

use corten_base::console;
use corten_cluster::{Account, Grants, Refusal};
use corten_credentials::client_config::{Grant, file};
use corten_manifests::service_host;
use corten_pki::{Ca, PkiError};
use corten_resources::controller::with_causes as describe;
use corten_types::pod_access::PodAccessConfig;

/// Lifetime of credentials (the reference's value).
const LIFETIME: Duration = Duration::from_secs(6 * 60 * 60);
/// Remaining lifetime at which they are renewed (the reference's value).
const RENEWAL: Duration = Duration::from_secs(60 * 60);
/// Name of the context in the client's config.
const CONTEXT: &str = "default";
/// Maximum number of roles in a certificate.
const MOST: usize = 2;

/// Issues credentials by the rules of the config.
#[derive(Debug)]
pub(super) struct Signer {
    pub(super) ca: Ca,
    pub(super) rules: PodAccessConfig,
}

impl Grants for Signer {
    fn roles(&self, account: &Account) -> Result<Vec<String>, Refusal> {
        self.allowed(
            &account.namespace,
            account.roles.as_deref().unwrap_or_default(),
        )
    }

    fn left(&self, credentials: &str, roles: &[String]) -> Option<Duration> {
        self.left_at(credentials, roles, SystemTime::now())
    }

    fn issue(&self, roles: &[String]) -> Result<String, String> {
        let issued = self.issue_at(roles, SystemTime::now());
        issued.map_err(|error| describe(&error))
    }

    fn hear(&self, account: &str, what: &str) {
        console::say(&format!("account {account} of pods: {what}"));
    }
}

impl Signer {
    /// Roles, sorted, of an account that asks for these.
    fn allowed(&self, namespace: &str, asked: &[String]) -> Result<Vec<String>, Refusal> {
        let refused = |reason, message| Err(Refusal { reason, message });
        if asked.is_empty() {
            let message = "Roles not found; name at least one in spec.roles".to_owned();
            return refused("ErrRolesNotFound", message);
        }
        if !self
            .rules
            .allowed_kubernetes_namespaces
            .iter()
            .any(|one| one == namespace)
        {
            let message = format!(
                "Namespace is not allowed: {namespace}; add it to allowedKubernetesNamespaces in the config of the \
                 control plane nodes"
            );
            return refused("ErrNamespaceNotAllowed", message);
        }
        let is_allowed = |role: &&String| self.rules.allowed_api_roles.contains(role);
        let bad: Vec<&str> = asked
            .iter()
            .filter(|role| !is_allowed(role))
            .map(|role| &**role)
            .collect();
        if !bad.is_empty() {
            let message = format!(
                "Roles not allowed: [{}]; add them to allowedRoles in the config of the control plane nodes",
                bad.join(" ")
            );
            return refused("ErrRolesNotAllowed", message);
        }
        let mut roles = asked.to_vec();
        roles.sort();
        roles.dedup();
        if roles.len() > MOST {
            let message = format!(
                "Roles not allowed: [{}]; a certificate has at most {MOST} roles, so divide them among accounts",
                roles.join(" ")
            );
            return refused("ErrRolesNotAllowed", message);
        }
        Ok(roles)
    }

    fn issue_at(&self, roles: &[String], now: SystemTime) -> Result<String, PkiError> {
        let roles: Vec<&str> = roles.iter().map(String::as_str).collect();
        let client = self.ca.client(&roles, now, LIFETIME)?;
        Ok(file(
            CONTEXT,
            &[&service_host()],
            &self.ca.pem().crt,
            &client,
        ))
    }

    /// Time until the renewal of credentials; `None` if they are not what [`Signer::issue_at`] writes, or due. A user
    /// that changes them affects only its own pods.
    fn left_at(&self, credentials: &str, roles: &[String], now: SystemTime) -> Option<Duration> {
        let grant = Grant::read(credentials)?;
        let is_ours = grant.ca == self.ca.pem().crt
            && grant.endpoints == [service_host()]
            && grant.roles == roles;
        let left = grant
            .left(now)
            .filter(|left| is_ours && *left <= LIFETIME)?;
        left.checked_sub(RENEWAL).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use corten_pki::Algorithm;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    fn signer() -> Signer {
        Signer {
            ca: Ca::generate(Algorithm::Ed25519, "talos", "", now()).unwrap(),
            rules: PodAccessConfig {
                enabled: true,
                allowed_api_roles: texts(&["os:reader", "os:etcd:backup", "os:operator"]),
                allowed_kubernetes_namespaces: texts(&["kube-system"]),
            },
        }
    }

    #[test]
    fn accounts_of_allowed_namespaces_get_allowed_roles() {
        let signer = signer();
        let asked = texts(&["os:reader", "os:etcd:backup", "os:reader"]);
        let expected = texts(&["os:etcd:backup", "os:reader"]);
        assert_eq!(signer.allowed("kube-system", &asked), Ok(expected));
    }

    #[test]
    fn refusal_of_an_account_names_its_reason() {
        let signer = signer();
        let (space, roles) = ("ErrNamespaceNotAllowed", "ErrRolesNotAllowed");
        for (namespace, asked, reason, why) in [
            ("kube-system", "", "ErrRolesNotFound", "Roles not found"),
            ("default", "os:reader", space, "not allowed: default;"),
            // A refusal does not reveal the roles of another namespace.
            ("default", "os:admin", space, "not allowed: default;"),
            (
                "kube-system",
                "os:admin os:reader os:x",
                roles,
                "not allowed: [os:admin os:x];",
            ),
            (
                "kube-system",
                "os:reader os:etcd:backup os:operator",
                roles,
                "at most 2 roles",
            ),
        ] {
            let asked: Vec<&str> = asked.split_whitespace().collect();
            let refusal = signer.allowed(namespace, &texts(&asked)).unwrap_err();
            assert_eq!(refusal.reason, reason);
            assert!(refusal.message.contains(why), "{}", refusal.message);
        }
    }

    #[test]
    fn credentials_are_renewed_an_hour_before_they_expire() {
        let signer = signer();
        let roles = texts(&["os:etcd:backup", "os:reader"]);
        let issued = signer.issue_at(&roles, now()).unwrap();
        let left = |now| signer.left_at(&issued, &roles, now);
        assert_eq!(left(now()), Some(5 * HOUR));
        assert_eq!(left(now() + 4 * HOUR), Some(HOUR));
        assert_eq!(left(now() + 5 * HOUR), None);
        assert_eq!(left(now() + 9 * HOUR), None);
        // The clock was ahead when they were issued.
        assert_eq!(left(now() - 24 * HOUR), None);
    }

    #[test]
    fn credentials_of_another_ca_or_with_other_roles_are_replaced() {
        let signer = signer();
        let roles = texts(&["os:reader"]);
        let issued = signer.issue_at(&roles, now()).unwrap();
        let left = |text: &str, roles: &[String]| signer.left_at(text, roles, now());
        assert!(left(&issued, &roles).is_some());
        assert_eq!(left(&issued, &texts(&["os:operator"])), None);
        assert_eq!(
            left(&issued.replace("talos.default", "talos"), &roles),
            None
        );
        assert_eq!(left("", &roles), None);
        let other = self::signer();
        assert_eq!(other.left_at(&issued, &roles, now()), None);
    }

    /// The roles of the API and those of the config are written in two crates.
    #[test]
    fn config_knows_every_role_of_the_api_but_the_impersonator() {
        use corten_api::roles::Role;
        let known = Role::ALL
            .into_iter()
            .filter(|role| *role != Role::Impersonator);
        let known: Vec<&str> = known.map(Role::name).collect();
        assert_eq!(known, corten_config::POD_ROLES);
    }
}
