//! The CAs of Kubernetes in a node's config, and their changes during a rotation.

use anyhow::{Context as _, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_config::Document;
use corten_config::kinds::KubeAPIServerCAConfig;
use corten_pki::{Ca, certificates_from_pem, to_pem};
use serde_json::{Value, json};

use super::Step;

const KIND: &str = "KubeAPIServerCAConfig";

/// The certificate of a CA, DER.
pub(super) type Der = Vec<u8>;

/// The CA that signs, with its key on control plane nodes, PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Issuing {
    pub(super) crt: String,
    pub(super) key: String,
}

impl Issuing {
    pub(super) fn of(ca: &Ca) -> Issuing {
        Issuing {
            crt: ca.pem().crt.clone(),
            key: ca.pem().key.clone(),
        }
    }

    /// Its certificate.
    ///
    /// # Errors
    /// The text is no certificate.
    pub(super) fn der(&self) -> anyhow::Result<Der> {
        let first = split(&self.crt)?.into_iter().next();
        first.ok_or_else(|| anyhow!("it has no certificate"))
    }
}

/// The CAs of Kubernetes that a config names.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Trusted {
    /// Whether the config has them in a document of their own.
    by_kind: bool,
    /// On a control plane node, and on a worker with the old form of the config.
    pub(super) issuing: Option<Issuing>,
    /// The others, in the order of the config.
    pub(super) accepted: Vec<Der>,
}

/// What a rotation changes.
pub(super) struct Change<'a> {
    pub(super) new: &'a Issuing,
    pub(super) new_der: &'a Der,
    /// The CAs that are no longer accepted at the end.
    pub(super) forgotten: &'a [Der],
}

impl Trusted {
    /// # Errors
    /// A text of the config is no certificate.
    pub(super) fn of(document: &Document) -> anyhow::Result<Trusted> {
        let by_kind = document.all::<KubeAPIServerCAConfig>();
        let mut texts: Vec<&str> = Vec::new();
        let old_form = document.cluster.accepted_cas.iter();
        texts.extend(old_form.map(|ca| &*ca.crt));
        texts.extend(by_kind.flat_map(|config| config.accepted_cas.iter().map(|ca| &**ca)));
        let mut accepted = Vec::new();
        for text in texts {
            accepted.extend(split(text).context("the accepted Kubernetes CAs")?);
        }
        let ca = document.kubernetes_ca().filter(|ca| !ca.crt.is_empty());
        Ok(Trusted {
            by_kind: document.all::<KubeAPIServerCAConfig>().next().is_some(),
            issuing: ca.map(|ca| Issuing {
                crt: ca.crt.to_owned(),
                key: ca.key.expose().to_owned(),
            }),
            accepted,
        })
    }

    /// All CAs, the issuing one first.
    pub(super) fn all(&self) -> anyhow::Result<Vec<Der>> {
        let issuing = self.issuing.as_ref().map(Issuing::der).transpose()?;
        Ok(issuing.into_iter().chain(self.accepted.clone()).collect())
    }

    /// The CAs after a step; the same CAs if the step was done before. A worker gets no key.
    pub(super) fn after(
        &self,
        step: Step,
        change: &Change<'_>,
        signs: bool,
    ) -> anyhow::Result<Trusted> {
        let mut next = self.clone();
        let new = change.new_der;
        let issues = self.issuing.as_ref().map(Issuing::der).transpose()?;
        let has_new = issues.as_ref() == Some(new);
        match step {
            Step::Accept if has_new || self.accepted.contains(new) => {}
            Step::Accept => next.accepted.push(new.clone()),
            Step::Issue if has_new => next.accepted.retain(|one| one != new),
            Step::Issue => {
                next.accepted.retain(|one| one != new);
                match issues {
                    Some(old) => {
                        next.accepted.retain(|one| *one != old);
                        next.accepted.insert(0, old);
                        next.issuing = Some(Issuing {
                            crt: change.new.crt.clone(),
                            key: match signs {
                                true => change.new.key.clone(),
                                false => String::new(),
                            },
                        });
                    }
                    // A worker has no CA that signs.
                    None => next.accepted.insert(0, new.clone()),
                }
            }
            Step::Forget => next.accepted.retain(|one| !change.forgotten.contains(one)),
        }
        Ok(next)
    }

    /// Patches of a machine config that make its CAs these, applied in order.
    pub(super) fn patches(&self) -> Vec<String> {
        let pem = |der: &Der| to_pem("CERTIFICATE", der);
        let patches: Vec<Value> = if self.by_kind {
            let mut document = json!({ "apiVersion": "v1alpha1", "kind": KIND });
            let delete = json!({ "apiVersion": "v1alpha1", "kind": KIND, "$patch": "delete" });
            let accepted: Vec<String> = self.accepted.iter().map(pem).collect();
            if let Some(fields) = document.as_object_mut() {
                if let Some(issuing) = &self.issuing {
                    let pair = json!({ "cert": issuing.crt, "key": issuing.key });
                    fields.insert("issuingCA".to_owned(), pair);
                }
                if !accepted.is_empty() {
                    fields.insert("acceptedCAs".to_owned(), accepted.into());
                }
            }
            vec![delete, document]
        } else {
            let item = |der: &Der| json!({ "crt": STANDARD.encode(pem(der)) });
            let accepted: Vec<Value> = self.accepted.iter().map(item).collect();
            let cluster = |fields: Value| json!({ "cluster": fields });
            let mut patches = vec![cluster(json!({ "acceptedCAs": { "$patch": "delete" } }))];
            if !accepted.is_empty() {
                patches.push(cluster(json!({ "acceptedCAs": accepted })));
            }
            if let Some(issuing) = &self.issuing {
                let mut ca = json!({ "crt": STANDARD.encode(&issuing.crt) });
                if let (Some(ca), false) = (ca.as_object_mut(), issuing.key.is_empty()) {
                    ca.insert("key".to_owned(), STANDARD.encode(&issuing.key).into());
                }
                patches.push(cluster(json!({ "ca": ca })));
            }
            patches
        };
        patches.iter().map(Value::to_string).collect()
    }
}

/// The certificates of a PEM text.
fn split(text: &str) -> anyhow::Result<Vec<Der>> {
    let found = certificates_from_pem(text.as_bytes());
    let found = found.context("a Kubernetes CA in the machine config")?;
    Ok(found.into_iter().map(|one| one.to_vec()).collect())
}
