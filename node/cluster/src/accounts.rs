//! Accounts of pods at the node's API: objects of the kind `ServiceAccount` of the group `talos.dev`. Each account gets
//! a Secret of its name with a client's config. Names and texts are those of the reference.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::time::Duration;

use corten_manifests::{ACCOUNT_GROUP, ACCOUNT_KIND, ACCOUNT_PLURAL, ACCOUNT_VERSION};
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use crate::changes::{Change, Changes};
use crate::error::short;
use crate::kinds::{check_part, core};
use crate::{Cluster, ClusterError, within};

mod credentials;

/// Shortest time between two looks at an account. A program that undoes each change is not answered in a tight loop.
const CALM: Duration = Duration::from_secs(2);
/// Pause after a failure, and between looks at a Secret that belongs to somebody else.
const RETRY: Duration = Duration::from_secs(30);

/// An account, as a user has created it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Namespace.
    pub namespace: String,
    /// Name, also of the Secret.
    pub name: String,
    /// Requested roles; `None` if the account names none.
    pub roles: Option<Vec<String>>,
    uid: String,
    version: String,
    /// The refusal in its status.
    failure: Option<String>,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Why an account gets no credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Reason of the event, one word.
    pub reason: &'static str,
    /// The same for people; the account's status shows it.
    pub message: String,
}

/// Decides about accounts and issues their credentials.
pub trait Grants: Sync {
    /// Roles of an account.
    ///
    /// # Errors
    /// The account may not have them.
    fn roles(&self, account: &Account) -> Result<Vec<String>, Refusal>;
    /// Time until credentials have to be renewed; `None` if they are not for these roles or are due.
    fn left(&self, credentials: &str, roles: &[String]) -> Option<Duration>;
    /// New credentials for these roles.
    ///
    /// # Errors
    /// The reason why there are none.
    fn issue(&self, roles: &[String]) -> Result<String, String>;
    /// Hears of credentials and failures.
    fn hear(&self, account: &str, what: &str);
}

/// Namespace and name.
type Key = (String, String);

/// Earlier looks at an account.
#[derive(Debug, Default)]
struct Memory {
    /// Time of the last look.
    seen: Option<Instant>,
    /// Time of the next look, even if nothing changes.
    due: Option<Instant>,
    /// The last failure, which is told once.
    trouble: String,
}

impl Cluster {
    /// Serves all accounts: credentials are issued, renewed, and issued again when a Secret is deleted. Returns when the
    /// cluster can no longer be watched; another call starts from the beginning.
    ///
    /// The caller must hold the cluster's lock: two nodes with different rules would undo each other's work.
    ///
    /// # Errors
    /// [`ClusterError::Request`].
    pub async fn serve_accounts(&self, grants: &impl Grants) -> Result<Infallible, ClusterError> {
        let accounts = Api::all_with(self.client.clone(), &kind());
        let mut accounts = Changes::of(accounts, "the accounts of pods");
        let secrets = Api::all_with(self.client.clone(), &core("Secret", "secrets"));
        let label = credentials::label();
        let mut secrets = Changes::of_metadata(secrets, &label, "the credentials of pods");
        let mut known: BTreeMap<Key, Memory> = BTreeMap::new();
        loop {
            let due = known
                .iter()
                .filter_map(|(key, memory)| Some((memory.due?, key)));
            let due = due.min().map(|(due, key)| (due, key.clone()));
            let (key, account) = tokio::select! {
                change = accounts.next() => match change? {
                    Change::Is(object) => (key(&object), Account::of(object)),
                    Change::Gone(object) => {
                        known.remove(&key(&object));
                        continue;
                    }
                },
                change = secrets.next() => {
                    let (Change::Is(object) | Change::Gone(object)) = change?;
                    (key(&object), None)
                }
                key = when(due) => (key, None),
            };
            let memory = known.entry(key.clone()).or_default();
            let calm = memory.seen.map(|seen| seen + CALM);
            if let Some(calm) = calm.filter(|calm| *calm > Instant::now()) {
                memory.due = Some(calm);
                continue;
            }
            memory.seen = Some(Instant::now());
            let found = match account {
                Some(account) => Ok(Some(account)),
                None => self.account(&key).await,
            };
            let settled = match found {
                Ok(Some(account)) => self.settle(&account, grants).await,
                Ok(None) => {
                    known.remove(&key);
                    continue;
                }
                Err(error) => Err(error.to_string()),
            };
            memory.due = match settled {
                Ok(next) => {
                    memory.trouble.clear();
                    next.map(|next| Instant::now() + next)
                }
                Err(why) => {
                    if memory.trouble != why {
                        grants.hear(&named(&key), &why);
                        memory.trouble = why;
                    }
                    Some(Instant::now() + RETRY)
                }
            };
        }
    }

    /// The account of this name; `None` if it does not exist.
    async fn account(&self, key: &Key) -> Result<Option<Account>, ClusterError> {
        check_names(key)?;
        let (namespace, name) = key;
        let object = format!("account {}", named(key));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &kind());
        let found = within("read", &object, api.get_opt(name)).await?;
        Ok(found.and_then(Account::of))
    }

    /// Makes Secret and status of an account right. Returns the time until the next look.
    async fn settle(
        &self,
        account: &Account,
        grants: &impl Grants,
    ) -> Result<Option<Duration>, String> {
        let said = |error: ClusterError| error.to_string();
        let roles = match grants.roles(account) {
            Ok(roles) => roles,
            Err(refusal) => {
                self.refuse(account, &refusal).await.map_err(said)?;
                return Ok(None);
            }
        };
        let secret = self.credentials(account).await.map_err(said)?;
        if secret.as_ref().is_some_and(|secret| !secret.is_of(account)) {
            let Account {
                namespace, name, ..
            } = account;
            let refusal = Refusal {
                reason: "ErrResourceExists",
                message: format!(
                    "Secret already exists and is not managed by controller: {namespace}/{name}; delete it, or give the \
                     account another name"
                ),
            };
            self.refuse(account, &refusal).await.map_err(said)?;
            return Ok(Some(RETRY));
        }
        let held = secret.as_ref().and_then(|secret| secret.content.as_deref());
        let left = match held.and_then(|held| grants.left(held, &roles)) {
            Some(left) => left,
            None => {
                let issued = grants.issue(&roles)?;
                let left = grants.left(&issued, &roles);
                let written = self
                    .write_credentials(account, secret.as_ref(), &issued)
                    .await;
                written.map_err(said)?;
                let news = format!("has new credentials with {}", roles.join(", "));
                grants.hear(&account.to_string(), &news);
                self.tell(account, "Normal", "Synced", "Synced successfully")
                    .await
                    .map_err(said)?;
                left.unwrap_or(RETRY)
            }
        };
        self.set_failure(account, None).await.map_err(said)?;
        Ok(Some(left))
    }

    /// Shows a refusal in the status of the account, with an event if it is new.
    async fn refuse(&self, account: &Account, refusal: &Refusal) -> Result<(), ClusterError> {
        if self.set_failure(account, Some(&refusal.message)).await? {
            self.tell(account, "Warning", refusal.reason, &refusal.message)
                .await?;
        }
        Ok(())
    }
}

/// Waits until the first of the times.
async fn when(due: Option<(Instant, Key)>) -> Key {
    match due {
        Some((due, key)) => {
            sleep_until(due).await;
            key
        }
        None => pending().await,
    }
}

fn check_names(key: &Key) -> Result<(), ClusterError> {
    let object = format!("account {}", named(key));
    check_part(&object, "its namespace", &key.0)?;
    check_part(&object, "its name", &key.1)
}

fn named((namespace, name): &Key) -> String {
    format!("{namespace}/{name}")
}

fn key(object: &DynamicObject) -> Key {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let metadata = &object.metadata;
    (text(&metadata.namespace), text(&metadata.name))
}

/// The kind of the accounts. It needs no discovery: the server that does not know it refuses the watch.
fn kind() -> ApiResource {
    ApiResource {
        group: ACCOUNT_GROUP.to_owned(),
        version: ACCOUNT_VERSION.to_owned(),
        api_version: format!("{ACCOUNT_GROUP}/{ACCOUNT_VERSION}"),
        kind: ACCOUNT_KIND.to_owned(),
        plural: ACCOUNT_PLURAL.to_owned(),
    }
}

impl Account {
    /// `None` for an object without the metadata of a namespaced object, or with a name that escapes its place in a path.
    fn of(object: DynamicObject) -> Option<Account> {
        check_names(&key(&object)).ok()?;
        let roles = object.data.pointer("/spec/roles").and_then(Value::as_array);
        let roles = roles.map(|roles| {
            let names = roles.iter().filter_map(Value::as_str);
            names.map(str::to_owned).collect()
        });
        let failure = object.data.pointer("/status/failureReason");
        Some(Account {
            failure: failure.and_then(Value::as_str).map(short),
            roles,
            namespace: object.metadata.namespace?,
            name: object.metadata.name?,
            uid: object.metadata.uid?,
            version: object.metadata.resource_version?,
        })
    }
}
