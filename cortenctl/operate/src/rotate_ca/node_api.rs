//! Rotates the CA of the node API. The new client config is written when every node accepts it, and before the step that
//! needs it, so that an interruption locks no operator out.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_api::roles::Role;
use corten_client::clientconfig::{self, ClientConfig, Context, Identity};
use corten_client::configfile;
use corten_client::connect::Target;
use corten_client::failure::{Failure, finish};
use corten_client::files;
use corten_client::resources;
use corten_client::stream::{Failed, Node, Trouble, each, in_turn};
use corten_client::table::printable;
use corten_pki::{Algorithm, Ca, CertificateAndKey, OPERATOR_LIFETIME};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::Step;
use crate::args::{ApplyMode, How, RotateCa};
use crate::patch;

/// The resource of a node's CAs, and that of its serving certificate.
const ROOT: (&str, &str, &str) = ("secrets", "OSRootSecrets.secrets.talos.dev", "os");
const SERVED: (&str, &str, &str) = ("secrets", "ApiCertificates.secrets.talos.dev", "api");
/// Timeout of a new certificate: a worker fetches its certificate from a control plane node.
const PATIENCE: Duration = Duration::from_secs(120);
/// Interval between two checks.
const PAUSE: Duration = Duration::from_secs(1);

/// A node of the cluster.
pub(super) struct Member {
    name: String,
    /// Whether the node has the CA's key.
    signs: bool,
}

/// The CAs: base64 of PEM, as in a machine config.
struct Rotation {
    old: String,
    new: String,
    key: String,
}

impl Rotation {
    /// The step as patches of a machine config.
    fn patches(&self, step: Step, signs: bool) -> Vec<String> {
        let accepted = |entry: Value| json!({ "machine": { "acceptedCAs": [entry] } });
        let accept = |crt: &str| accepted(json!({ "crt": crt }));
        let forget = |crt: &str| accepted(json!({ "$patch": "delete", "crt": crt }));
        let patches = match step {
            Step::Accept => vec![accept(&self.new)],
            Step::Issue => {
                let ca = match signs {
                    true => json!({ "crt": self.new, "key": self.key }),
                    false => json!({ "crt": self.new }),
                };
                let issue = json!({ "machine": { "ca": ca } });
                vec![issue, accept(&self.old), forget(&self.new)]
            }
            Step::Forget => vec![forget(&self.old)],
        };
        patches.iter().map(Value::to_string).collect()
    }
}

/// Prints the nodes.
pub(super) fn show(members: &[Member]) {
    for member in members {
        let kind = if member.signs {
            "control plane"
        } else {
            "worker"
        };
        eprintln!("{}: {kind}", printable(&member.name));
    }
}

/// Rotates the CA of the members. Returns the operator's new credentials.
pub(super) async fn rotate(
    mut target: Target,
    members: &[Member],
    old: &str,
    args: &RotateCa,
) -> Result<Identity, Failure> {
    if !target.nodes.is_empty() {
        // Nodes with the CA's key come first: workers fetch their certificates from them.
        let (first, others): (Vec<_>, Vec<_>) = members.iter().partition(|one| one.signs);
        let order = first.into_iter().chain(others);
        target.nodes = order.map(|member| member.name.clone()).collect();
    }
    let now = SystemTime::now();
    let ca = Ca::generate(Algorithm::Ed25519, "corten", "", now).context("making the CA")?;
    let own = ca
        .client(&[Role::Admin.name()], now, OPERATOR_LIFETIME)
        .context("making the client certificate")?;
    let rotation = Rotation {
        old: old.to_owned(),
        new: STANDARD.encode(&ca.pem().crt),
        key: STANDARD.encode(&ca.pem().key),
    };
    let after = Identity {
        ca: ca.pem().crt.clone(),
        crt: own.crt,
        key: own.key,
    };
    let both = Identity {
        ca: format!("{}{}", pem(old)?, after.ca),
        ..after.clone()
    };
    may_write(&args.output, args.force)?;

    step(&target, members, &rotation, Step::Accept).await?;
    target.identity = both;
    verify(&target, None).await?;
    // Now every node accepts both client configs. An earlier one could replace the only one that works.
    save(&args.output, &target, args.force)?;
    step(&target, members, &rotation, Step::Issue).await?;
    verify(&target, Some(&after.ca)).await?;
    target.identity = after.clone();
    step(&target, members, &rotation, Step::Forget).await?;
    verify(&target, Some(&after.ca)).await?;
    save(&args.output, &target, true)?;
    eprintln!("created {}", args.output.display());
    Ok(after)
}

/// The common CA of all nodes, and whether each node signs with it.
pub(super) async fn members(target: &Target) -> Result<(String, Vec<Member>), Failure> {
    let mut members = Vec::new();
    let mut cas: Vec<String> = Vec::new();
    let failed = each(target.open().await?, async |node| {
        let root = spec(node, ROOT).await?;
        let text = |path| root.pointer(path).and_then(Value::as_str);
        let missing = || Trouble::Said("it does not show its CA".to_owned());
        cas.push(text("/issuingCA/crt").ok_or_else(missing)?.to_owned());
        members.push(Member {
            name: node.name.clone(),
            signs: text("/issuingCA/key").is_some_and(|key| !key.is_empty()),
        });
        Ok(())
    })
    .await?;
    finish(&failed)?;
    cas.dedup();
    match cas.as_slice() {
        [_] if !members.iter().any(|member| member.signs) => Err(Failure::usage(
            "none of the nodes is a control plane node; name all nodes with --control-plane-nodes and --worker-nodes",
        )),
        [one] => Ok((one.clone(), members)),
        _ => Err(Failure::call(
            "the nodes have different CAs: they belong to different clusters, or a rotation was interrupted; \
             after an interruption, copy machine.ca from a node with the new CA to the others (`patch mc`), \
             with the client config of that rotation, and rotate again",
        )),
    }
}

async fn spec(node: &Node, resource: (&str, &str, &str)) -> Result<Value, Trouble> {
    let (namespace, kind, id) = resource;
    resources::spec(&resources::one(node, namespace, kind, id).await?)
}

/// Changes every node's config; stops at the first failure.
async fn step(
    target: &Target,
    members: &[Member],
    rotation: &Rotation,
    step: Step,
) -> Result<(), Failure> {
    eprintln!("{}", step.line());
    let untouched = "not changed, because another node failed";
    let failed = in_turn(target.open().await?, untouched, async |node| {
        let signs = members
            .iter()
            .any(|member| member.signs && member.name == node.name);
        change(node, &rotation.patches(step, signs)).await
    })
    .await?;
    finish(&failed)
}

async fn change(node: &Node, patches: &[String]) -> Result<(), Trouble> {
    let how = How {
        mode: ApplyMode::NoReboot,
        dry_run: false,
        timeout: PATIENCE,
    };
    let config = patch::config(node).await?.into_bytes();
    let changed = configfile::patched(config, patches)?;
    patch::give(node, changed, &how, true).await
}

/// Waits until every node answers over a new connection and has a certificate of the CA `issuer`
/// (PEM).
async fn verify(target: &Target, issuer: Option<&str>) -> Result<(), Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        let checked = check(target, issuer).await;
        let over = Instant::now() >= end;
        match checked {
            Ok(failed) if failed.is_empty() || over => return finish(&failed),
            Err(failure) if over => return Err(failure),
            Ok(_) | Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn check(target: &Target, issuer: Option<&str>) -> Result<Failed, Failure> {
    each(target.open().await?, async |node| {
        let served = spec(node, SERVED).await?;
        let Some(issuer) = issuer else { return Ok(()) };
        if is_of(&served, issuer) {
            return Ok(());
        }
        Err(Trouble::Said(
            "it has no certificate of the new CA yet; `get certificatestatus` says why".to_owned(),
        ))
    })
    .await
}

/// Whether a node's API certificate was issued by this CA (PEM).
fn is_of(served: &Value, issuer: &str) -> bool {
    let part = |path| served.pointer(path).and_then(Value::as_str);
    let decoded = |path| part(path).and_then(|text| pem(text).ok());
    let (Some(crt), Some(key)) = (decoded("/server/crt"), decoded("/server/key")) else {
        return false;
    };
    let cas = corten_pki::certificates_from_pem(issuer.as_bytes()).unwrap_or_default();
    let issued = CertificateAndKey { crt, key };
    corten_pki::verify_issued(&issued, &cas, SystemTime::now()).is_ok()
}

fn pem(base64: &str) -> anyhow::Result<String> {
    let bytes = STANDARD.decode(base64).ok();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| anyhow!("the CA of a node is not base64 of a PEM text"))
}

/// Refuses a path that [`save`] would refuse, before the first change of a node.
fn may_write(path: &Path, force: bool) -> Result<(), Failure> {
    if path.exists() && !force {
        return Err(Failure::usage(format!(
            "{} exists: name another file with --output, or replace its context with --force",
            path.display()
        )));
    }
    existing(path)?;
    files::beside(path)?;
    Ok(())
}

/// The client config at a path; an empty one if there is no file.
fn existing(path: &Path) -> anyhow::Result<ClientConfig> {
    if !path.exists() {
        return Ok(ClientConfig::default());
    }
    clientconfig::read(path).with_context(|| format!("client config {}", path.display()))
}

/// Writes the client config of the target. An existing file keeps its other contexts.
fn save(path: &Path, target: &Target, force: bool) -> Result<(), Failure> {
    let endpoints = target.endpoints.iter().map(ToString::to_string).collect();
    let mut context = Context::new(endpoints, &target.identity);
    context.nodes.clone_from(&target.usual_nodes);
    let mut config = existing(path)?;
    if !config.contexts.contains_key(&config.context) {
        config.context.clone_from(&target.context);
    }
    config.contexts.insert(target.context.clone(), context);
    Ok(files::write(path, &config.render()?, force)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use corten_config::Document;

    fn new_ca() -> Ca {
        Ca::generate(Algorithm::Ed25519, "x", "", SystemTime::now()).unwrap()
    }

    fn after(config: &str, rotation: &Rotation, step: Step, signs: bool) -> String {
        let patches = rotation.patches(step, signs);
        let changed = configfile::patched(config.as_bytes().to_vec(), &patches).unwrap();
        String::from_utf8(changed).unwrap()
    }

    #[test]
    fn both_cas_are_trusted_until_the_old_ca_is_removed() {
        let (old, new) = (new_ca(), new_ca());
        let rotation = Rotation {
            old: STANDARD.encode(&old.pem().crt),
            new: STANDARD.encode(&new.pem().crt),
            key: STANDARD.encode(&new.pem().key),
        };
        let config = format!(
            "version: v1alpha1\nmachine:\n  type: worker\n  token: abcdef.0123456789abcdef\n  ca: {{crt: {}}}\n\
             cluster: {{controlPlane: {{endpoint: 'https://10.0.0.1:6443'}}}}\n---\n\
             apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: a\n",
            rotation.old
        );
        // The number of occurrences of a text is the number of places that use it.
        let count = |config: &str, text: &str| config.matches(text).count();
        let accepted = after(&config, &rotation, Step::Accept, false);
        assert_eq!(count(&accepted, &rotation.old), 1);
        assert_eq!(count(&accepted, &rotation.new), 1);
        for signs in [false, true] {
            let issued = after(&accepted, &rotation, Step::Issue, signs);
            assert_eq!(count(&issued, &rotation.old), 1, "{issued}");
            assert_eq!(count(&issued, &rotation.new), 1, "{issued}");
            assert_eq!(count(&issued, &rotation.key), usize::from(signs));
            let forgotten = after(&issued, &rotation, Step::Forget, signs);
            assert_eq!(count(&forgotten, &rotation.old), 0);
            assert_eq!(count(&forgotten, &rotation.new), 1);
            assert!(forgotten.contains("HostnameConfig"));
            // The config is a worker's, which has no key.
            assert_eq!(Document::parse(forgotten.as_bytes()).is_ok(), !signs);
        }
    }

    #[test]
    fn client_config_keeps_its_other_contexts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cortenconfig");
        let block = |text: &str| format!("-----BEGIN {text}-----\nAAAA\n-----END {text}-----\n");
        let identity = |ca: &str| Identity {
            ca: block(ca),
            crt: block("CERTIFICATE"),
            key: block("ED25519 PRIVATE KEY"),
        };
        let target = |context: &str, ca: &str| Target {
            context: context.to_owned(),
            usual_nodes: Vec::new(),
            endpoints: vec!["10.0.0.1".parse().unwrap()],
            nodes: Vec::new(),
            identity: identity(ca),
            forward_through: Default::default(),
        };
        save(&path, &target("prod", "old"), false).unwrap();
        let error = may_write(&path, false).unwrap_err();
        assert!(matches!(error, Failure::Usage(_)));
        save(&path, &target("staging", "other"), true).unwrap();
        save(&path, &target("prod", "new"), true).unwrap();
        let config = clientconfig::read(&path).unwrap();
        assert_eq!(config.context, "prod");
        let ca = |context| config.select(Some(context)).unwrap().identity().unwrap().ca;
        assert_eq!(ca("prod"), block("new"));
        assert_eq!(ca("staging"), block("other"));
        may_write(&path, true).unwrap();
        may_write(&directory.path().join("none/cortenconfig"), true).unwrap_err();
        std::fs::write(&path, "contexts: [").unwrap();
        may_write(&path, true).unwrap_err();
        save(&path, &target("prod", "new"), true).unwrap_err();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "contexts: [");
    }

    #[test]
    fn certificate_belongs_to_the_ca_that_signed_it() {
        let (one, other) = (new_ca(), new_ca());
        let names = ["10.0.0.1".to_owned()];
        let hour = Duration::from_secs(3600);
        let made = one.server("a", &names, SystemTime::now(), hour).unwrap();
        let encode = |text: &str| STANDARD.encode(text);
        let served = json!({"server": {"crt": encode(&made.crt), "key": encode(&made.key)}});
        assert!(is_of(&served, &one.pem().crt));
        assert!(!is_of(&served, &other.pem().crt));
        assert!(!is_of(&Value::Null, &one.pem().crt));
    }
}
