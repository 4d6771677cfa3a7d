//! Decides from the configs of all nodes what a rotation of the Kubernetes CA does: it begins one, or ends one that was
//! interrupted.

use std::collections::BTreeMap;
use std::time::SystemTime;

use anyhow::Context as _;
use corten_client::failure::Failure;
use corten_pki::{Algorithm, Ca, common_name, organizations, validity};

use super::trust::{Change, Der, Issuing, Trusted};

/// A node that runs Kubernetes.
pub(super) struct Member {
    /// Name or address of its API.
    pub(super) name: String,
    /// Name in Kubernetes.
    pub(super) nodename: String,
    pub(super) is_control_plane: bool,
    pub(super) trusted: Trusted,
}

/// What the rotation does.
pub(super) struct Plan {
    /// The CA that signs at the end.
    pub(super) new: Ca,
    pub(super) new_issuing: Issuing,
    pub(super) new_der: Der,
    /// The CAs that sign now, or were left by an interrupted rotation.
    pub(super) forgotten: Vec<Der>,
    /// Accepted CAs that no rotation made.
    pub(super) kept: Vec<Der>,
    /// Whether it ends an interrupted rotation.
    pub(super) resumes: bool,
}

impl Plan {
    /// # Errors
    /// The nodes are of different clusters, or none signs.
    pub(super) fn new(members: &[Member], now: SystemTime) -> Result<Plan, Failure> {
        let mut signing: BTreeMap<Der, &Issuing> = BTreeMap::new();
        for member in members.iter().filter(|member| member.is_control_plane) {
            let issuing = member.trusted.issuing.as_ref();
            let issuing = issuing.filter(|issuing| !issuing.key.is_empty());
            let issuing = issuing.ok_or_else(|| {
                Failure::call(format!(
                    "{}: its config has no Kubernetes CA with a key",
                    member.name
                ))
            })?;
            signing.insert(issuing.der()?, issuing);
        }
        check_same_cluster(members, &signing)?;
        let ages = |der: &Der| validity(der).map(|(begin, _)| begin);
        let mut by_age = Vec::new();
        for (der, issuing) in &signing {
            by_age.push((ages(der).context("a Kubernetes CA")?, der, *issuing));
        }
        by_age.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        let Some((begin, newest, issuing)) = by_age.pop() else {
            return Err(Failure::usage(
                "none of the nodes is a control plane node; name all nodes with --control-plane-nodes and --worker-nodes",
            ));
        };
        let (mut forgotten, mut kept) = (Vec::new(), Vec::new());
        for member in members {
            for der in member.trusted.all()? {
                let met = |list: &[Der]| list.contains(&der);
                if der == *newest || met(&forgotten) || met(&kept) {
                    continue;
                }
                match signing.contains_key(&der) || is_of_a_rotation(&der, newest)? {
                    true => forgotten.push(der),
                    false => kept.push(der),
                }
            }
        }
        // An older CA that is still accepted: the interrupted rotation had its new CA sign everywhere.
        let mut resumes = !by_age.is_empty();
        for der in &forgotten {
            resumes |= ages(der).context("an accepted CA")? < begin;
        }
        let new = match resumes {
            true => Ca::from_pem(&issuing.crt, issuing.key.as_str())
                .context("the CA of the interrupted rotation")?,
            false => {
                forgotten.push(newest.clone());
                Ca::generate(Algorithm::EcdsaP256, ORGANIZATION, "", now)
                    .context("making the CA")?
            }
        };
        let new_issuing = Issuing::of(&new);
        Ok(Plan {
            new_der: new_issuing.der()?,
            new_issuing,
            new,
            forgotten,
            kept,
            resumes,
        })
    }

    pub(super) fn change(&self) -> Change<'_> {
        Change {
            new: &self.new_issuing,
            new_der: &self.new_der,
            forgotten: &self.forgotten,
        }
    }
}

/// Subject of every CA that a rotation makes; the same as that of `gen secrets`.
const ORGANIZATION: &str = "kubernetes";

/// Whether a rotation made or replaced this CA: it has the subject of such a CA, or that of the one that signs.
fn is_of_a_rotation(der: &Der, signing: &Der) -> anyhow::Result<bool> {
    let subject = |der: &Der| -> anyhow::Result<(Vec<String>, String)> {
        let context = "a Kubernetes CA";
        Ok((
            organizations(der).context(context)?,
            common_name(der).context(context)?,
        ))
    };
    let found = subject(der)?;
    Ok(found == (vec![ORGANIZATION.to_owned()], String::new()) || found == subject(signing)?)
}

/// Every node trusts all CAs that sign, unless the nodes are of different clusters.
fn check_same_cluster(
    members: &[Member],
    signing: &BTreeMap<Der, &Issuing>,
) -> Result<(), Failure> {
    for member in members {
        let trusted = member.trusted.all()?;
        if !signing.keys().all(|der| trusted.contains(der)) {
            return Err(Failure::call(format!(
                "{}: it does not accept the Kubernetes CA of another node: the nodes belong to different \
                 clusters, or a config was changed by hand; add that CA to its accepted CAs (`patch mc`)",
                member.name
            )));
        }
    }
    Ok(())
}
