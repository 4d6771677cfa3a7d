//! Accounts of pods, with a server that stores objects.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::fake::{Answer, Log, Seen, fake, lines, ok, refused};
use crate::{Account, Cluster, ClusterError, Grants, Refusal};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

const ACCOUNTS: &str = "/apis/talos.dev/v1alpha1/serviceaccounts";
const ACCOUNT: &str = "/apis/talos.dev/v1alpha1/namespaces/good/serviceaccounts/a";
const SECRET: &str = "/api/v1/namespaces/good/secrets/a";
const EVENTS: &str = "/api/v1/namespaces/good/events";
/// Lifetime of credentials; they are renewed when this much is left.
const LIFETIME: Duration = Duration::from_secs(600);
const RENEWAL: Duration = Duration::from_secs(100);

/// Objects by path, and what watches tell next.
#[derive(Default)]
struct Store {
    objects: BTreeMap<String, Value>,
    version: u64,
    events: Vec<Value>,
    /// Lines for the next watch of accounts, and of Secrets.
    accounts: VecDeque<String>,
    secrets: VecDeque<String>,
}

impl Store {
    fn put(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object["metadata"]["namespace"] = json!("good");
        self.objects.insert(path.to_owned(), object.clone());
        object
    }

    fn create_account(&mut self, roles: &Value) {
        let account = json!({
            "apiVersion": "talos.dev/v1alpha1",
            "kind": "ServiceAccount",
            "metadata": { "name": "a", "namespace": "good", "uid": "u1" },
            "spec": { "roles": roles },
        });
        let account = self.put(ACCOUNT, account);
        self.accounts.push_back(event("ADDED", &account));
    }

    fn content(&self) -> Option<&str> {
        self.objects.get(SECRET)?["data"]["config"].as_str()
    }

    fn reasons(&self) -> Vec<&str> {
        let reasons = self.events.iter();
        reasons
            .map(|event| event["reason"].as_str().unwrap())
            .collect()
    }

    fn failure(&self) -> Option<&str> {
        self.objects[ACCOUNT]
            .pointer("/status/failureReason")?
            .as_str()
    }

    fn answer(&mut self, seen: &Seen) -> Answer {
        let is_watch = seen.query.contains("watch=true");
        match (seen.method.as_str(), seen.path.as_str()) {
            ("GET", ACCOUNTS) if is_watch => told(&mut self.accounts),
            ("GET", "/api/v1/secrets") if is_watch => {
                assert!(
                    seen.query.contains("labelSelector=app.kubernetes.io"),
                    "{}",
                    seen.query
                );
                told(&mut self.secrets)
            }
            ("GET", path) => match self.objects.get(path) {
                Some(object) => ok(object),
                None => refused(404, "not found"),
            },
            ("POST", EVENTS) => {
                self.events.push(seen.body.clone());
                ok(&seen.body)
            }
            ("POST", "/api/v1/namespaces/good/secrets") => ok(&self.put(SECRET, seen.body.clone())),
            ("PATCH", path) => {
                let Some(mut object) = self.objects.get(path).cloned() else {
                    return refused(404, "not found");
                };
                let version = &seen.body["metadata"]["resourceVersion"];
                if *version != object["metadata"]["resourceVersion"] {
                    return refused(409, "the object has been modified");
                }
                merge(&mut object, &seen.body);
                let object = self.put(path, object);
                if path == ACCOUNT {
                    self.accounts.push_back(event("MODIFIED", &object));
                }
                ok(&object)
            }
            _ => refused(405, "no such method"),
        }
    }
}

fn event(kind: &str, object: &Value) -> String {
    json!({ "type": kind, "object": object }).to_string()
}

fn told(lines: &mut VecDeque<String>) -> Answer {
    let lines: Vec<String> = lines.drain(..).map(|line| format!("{line}\n")).collect();
    (200, lines.concat())
}

/// RFC 7396.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut object[name], value);
        }
    }
}

/// Allows `os:reader` in any namespace. Credentials are numbered.
#[derive(Default)]
struct Rules {
    issued: Mutex<Vec<Instant>>,
    heard: Mutex<Vec<String>>,
}

impl Grants for Rules {
    fn roles(&self, account: &Account) -> Result<Vec<String>, Refusal> {
        let roles = account.roles.clone().ok_or_else(|| Refusal {
            reason: "ErrRolesNotFound",
            message: "Roles not found".to_owned(),
        })?;
        match roles.iter().all(|role| role == "os:reader") {
            true => Ok(roles),
            false => Err(Refusal {
                reason: "ErrRolesNotAllowed",
                message: format!("Roles not allowed: {roles:?}"),
            }),
        }
    }

    fn left(&self, credentials: &str, _: &[String]) -> Option<Duration> {
        let number: usize = credentials.parse().ok()?;
        let end = *self.issued.lock().unwrap().get(number)? + LIFETIME - RENEWAL;
        let left = end.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    fn issue(&self, _: &[String]) -> Result<String, String> {
        let mut issued = self.issued.lock().unwrap();
        issued.push(Instant::now());
        Ok((issued.len() - 1).to_string())
    }

    fn hear(&self, account: &str, what: &str) {
        self.heard
            .lock()
            .unwrap()
            .push(format!("{account}: {what}"));
    }
}

struct World {
    cluster: Cluster,
    log: Log,
    store: Arc<Mutex<Store>>,
    rules: Rules,
}

impl World {
    fn new() -> World {
        World::with(|_| None)
    }

    fn with(mut before: impl FnMut(&Seen) -> Option<Answer> + Send + 'static) -> World {
        let store = Arc::<Mutex<Store>>::default();
        let shared = store.clone();
        let (cluster, log) = fake(move |seen| match before(seen) {
            Some(answer) => answer,
            None => shared.lock().unwrap().answer(seen),
        });
        let rules = Rules::default();
        World {
            cluster,
            log,
            store,
            rules,
        }
    }

    async fn run(&self, seconds: u64) -> Result<(), ClusterError> {
        let serving = self.cluster.serve_accounts(&self.rules);
        match timeout(Duration::from_secs(seconds), serving).await {
            Ok(Ok(never)) => match never {},
            Ok(Err(error)) => Err(error),
            Err(_) => Ok(()),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Store)) {
        change(&mut self.store.lock().unwrap());
    }
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[tokio::test(start_paused = true)]
async fn account_gets_a_secret_that_it_owns_and_an_event() {
    let world = World::new();
    world.change(|store| store.create_account(&json!(["os:reader"])));
    world.run(60).await.unwrap();
    let store = world.store.lock().unwrap();
    let secret = &store.objects[SECRET];
    assert_eq!(secret["data"], json!({ "config": base64("0") }));
    let owner = &secret["metadata"]["ownerReferences"][0];
    let expected = json!({
        "apiVersion": "talos.dev/v1alpha1", "kind": "ServiceAccount", "name": "a", "uid": "u1",
        "controller": true, "blockOwnerDeletion": true,
    });
    assert_eq!(*owner, expected);
    let [event] = &store.events[..] else {
        panic!("{:?}", store.events);
    };
    let field = |name: &str| event[name].as_str().unwrap();
    assert_eq!([field("type"), field("reason")], ["Normal", "Synced"]);
    assert_eq!(event["involvedObject"]["uid"], "u1");
    assert_eq!(store.failure(), None);
    assert_eq!(world.rules.issued.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn refused_account_gets_a_reason_and_no_secret() {
    let world = World::new();
    world.change(|store| store.create_account(&json!(["os:admin"])));
    world.run(60).await.unwrap();
    {
        let store = world.store.lock().unwrap();
        assert_eq!(store.failure(), Some("Roles not allowed: [\"os:admin\"]"));
        // The status is a change of the account, too, and no second reason for an event.
        assert_eq!(store.reasons(), ["ErrRolesNotAllowed"]);
        assert_eq!(store.events[0]["type"], "Warning");
        assert!(!store.objects.contains_key(SECRET));
    }
    world.change(|store| {
        let mut account = store.objects[ACCOUNT].clone();
        account["spec"]["roles"] = json!(["os:reader"]);
        let account = store.put(ACCOUNT, account);
        store.accounts.push_back(event("MODIFIED", &account));
    });
    world.run(60).await.unwrap();
    let store = world.store.lock().unwrap();
    assert_eq!(store.failure(), None);
    assert_eq!(store.reasons(), ["ErrRolesNotAllowed", "Synced"]);
}

#[tokio::test(start_paused = true)]
async fn credentials_are_renewed_before_they_expire() {
    let world = World::new();
    world.change(|store| store.create_account(&json!(["os:reader"])));
    world.run(490).await.unwrap();
    assert_eq!(world.store.lock().unwrap().content(), Some(&*base64("0")));
    world.run(5).await.unwrap();
    // After a restart of machined the account is known from the first watch.
    world.change(|store| {
        let line = event("ADDED", &store.objects[ACCOUNT]);
        store.accounts.push_back(line);
    });
    world.run(10).await.unwrap();
    assert_eq!(world.store.lock().unwrap().content(), Some(&*base64("1")));
    world.run(60).await.unwrap();
    assert_eq!(world.rules.issued.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn deleted_secret_is_issued_again() {
    let world = World::new();
    world.change(|store| store.create_account(&json!(["os:reader"])));
    world.run(10).await.unwrap();
    world.change(|store| {
        let secret = store.objects.remove(SECRET).unwrap();
        let metadata = json!({ "metadata": {
            "name": "a", "namespace": "good",
            "resourceVersion": secret["metadata"]["resourceVersion"],
        } });
        store.secrets.push_back(event("DELETED", &metadata));
    });
    world.run(10).await.unwrap();
    assert_eq!(world.store.lock().unwrap().content(), Some(&*base64("1")));
}

#[tokio::test(start_paused = true)]
async fn secret_of_somebody_else_is_left_alone() {
    for owners in [
        json!([]),
        json!([{ "apiVersion": "v1", "kind": "X", "name": "a", "uid": "u2", "controller": true }]),
        json!([{ "apiVersion": "v1", "kind": "X", "name": "a", "uid": "u1" }]),
    ] {
        let world = World::new();
        world.change(|store| {
            let secret = json!({
                "metadata": { "name": "a", "ownerReferences": owners },
                "data": { "config": "AA==" },
            });
            store.put(SECRET, secret);
            store.create_account(&json!(["os:reader"]));
        });
        world.run(120).await.unwrap();
        let store = world.store.lock().unwrap();
        assert_eq!(store.content(), Some("AA=="), "{owners}");
        assert_eq!(store.reasons(), ["ErrResourceExists"], "{owners}");
        let failure = store.failure().unwrap();
        assert!(failure.starts_with("Secret already exists"), "{failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn program_that_undoes_credentials_is_answered_slowly() {
    let world = World::new();
    world.change(|store| store.create_account(&json!(["os:reader"])));
    let secrets = world.store.clone();
    let undo = async {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let mut store = secrets.lock().unwrap();
            if let Some(mut secret) = store.objects.get(SECRET).cloned() {
                secret["data"]["config"] = json!("AA==");
                let secret = store.put(SECRET, secret);
                store.secrets.push_back(event("MODIFIED", &secret));
            }
        }
    };
    let never: Result<(), ClusterError> = tokio::select! {
        done = world.run(60) => done,
        () = undo => Ok(()),
    };
    never.unwrap();
    let issued = world.rules.issued.lock().unwrap().len();
    assert!((10..=31).contains(&issued), "{issued}");
}

#[tokio::test(start_paused = true)]
async fn failure_of_one_account_is_told_once_and_retried() {
    let mut failures = 3;
    let world = World::with(move |seen| {
        let is_creation = seen.line() == "POST /api/v1/namespaces/good/secrets";
        if !is_creation || failures == 0 {
            return None;
        }
        failures -= 1;
        Some(refused(403, "exceeded quota"))
    });
    world.change(|store| store.create_account(&json!(["os:reader"])));
    world.run(200).await.unwrap();
    let heard = world.rules.heard.lock().unwrap();
    let [trouble, done] = &heard[..] else {
        panic!("{heard:?}");
    };
    assert!(
        trouble.starts_with("good/a: cannot create Secret good/a: exceeded quota"),
        "{trouble}"
    );
    assert_eq!(done, "good/a: has new credentials with os:reader");
}

#[tokio::test(start_paused = true)]
async fn watch_continues_from_its_bookmark_and_restarts_when_the_bookmark_has_expired() {
    let mut asked = 0;
    let world = World::with(move |seen| {
        if seen.path != ACCOUNTS {
            return None;
        }
        asked += 1;
        match asked {
            1 => {
                let mark = json!({
                    "apiVersion": "talos.dev/v1alpha1", "kind": "ServiceAccount",
                    "metadata": { "resourceVersion": "7" },
                });
                Some((200, format!("{}\n", event("BOOKMARK", &mark))))
            }
            2 => {
                assert!(seen.query.ends_with("resourceVersion=7"), "{}", seen.query);
                let gone = json!({ "kind": "Status", "code": 410, "message": "too old" });
                Some((200, format!("{}\n", event("ERROR", &gone))))
            }
            3 => {
                assert!(seen.query.ends_with("resourceVersion="), "{}", seen.query);
                Some(refused(403, "not you"))
            }
            _ => panic!("{seen:?}"),
        }
    });
    let error = world.run(60).await.unwrap_err().to_string();
    assert!(
        error.starts_with("cannot watch the accounts of pods: not you"),
        "{error}"
    );
    let whole: Vec<String> = lines(&world.log);
    assert!(!whole.contains(&"GET /api/v1/namespaces/good/secrets".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn hostile_accounts_do_not_end_the_service() {
    let world = World::new();
    world.change(|store| {
        for object in [
            json!({ "metadata": {} }),
            json!({ "metadata": { "name": "../../x", "namespace": "good", "uid": "u", "resourceVersion": "1" },
                "spec": { "roles": ["os:reader"] } }),
            json!({ "metadata": { "name": "b", "namespace": "good", "uid": "u", "resourceVersion": "1" },
                "spec": 7, "status": [] }),
        ] {
            store.accounts.push_back(event("ADDED", &object));
        }
        store.create_account(&json!(["os:reader"]));
    });
    world.run(10).await.unwrap();
    assert_eq!(world.store.lock().unwrap().content(), Some(&*base64("0")));
    let paths = lines(&world.log);
    assert!(!paths.iter().any(|line| line.contains("..")), "{paths:?}");
}
