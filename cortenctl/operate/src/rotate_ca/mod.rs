//! `rotate-ca`: replaces the CA of the node API (`node_api`) or of Kubernetes without an interruption of access.
//!
//! `live` reads the configs of the nodes, which are the only state. `plan` makes the steps, and `execute` does them:
//! every node accepts the new CA, the new CA signs, the old one is removed. A repeated call continues a rotation.

mod execute;
mod live;
mod node_api;
mod plan;
#[cfg(test)]
mod tests;
mod trust;

use std::time::{Duration, SystemTime};

use corten_client::connect::Target;
use corten_client::failure::Failure;
use corten_client::flags::Global;
use corten_client::table::printable;

use self::execute::execute;
use self::live::Live;
use self::plan::{Member, Plan};
use crate::args::RotateCa;

/// Timeout of one wait for a node or the cluster. A static pod may need ten minutes to start without hardware
/// virtualization.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// A change that is applied to every node, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Accept,
    Issue,
    Forget,
}

impl Step {
    /// The step, for the operator.
    fn line(self) -> &'static str {
        match self {
            Step::Accept => "every node accepts the new CA",
            Step::Issue => "the new CA signs certificates",
            Step::Forget => "the old CA is removed",
        }
    }
}

/// Runs `rotate-ca`.
///
/// # Errors
/// A node cannot be reached, or a step is not verified in time.
pub async fn run(global: &Global, args: &RotateCa) -> Result<(), Failure> {
    if !args.talos && args.kubernetes == Some(false) {
        return Err(Failure::usage(
            "--talos=false and --kubernetes=false leave no CA to rotate",
        ));
    }
    let mut target = Target::of(global)?;
    let named = [&*args.control_plane_nodes, &*args.worker_nodes].concat();
    if !named.is_empty() {
        target.nodes = named;
    }
    let node_api = match args.talos {
        true => Some(node_api::members(&target).await?),
        false => None,
    };
    let kubernetes = match args.kubernetes {
        Some(false) => None,
        wanted => of_kubernetes(&target, wanted.is_some()).await?,
    };
    if let Some((_, members)) = &node_api {
        node_api::show(members);
    }
    if let Some((members, plan)) = &kubernetes {
        show(members, plan);
    }
    if args.dry_run {
        eprintln!(
            "nothing was changed; a node outside this list would lose its access; --dry-run=false rotates"
        );
        return Ok(());
    }
    // Both checks of Kubernetes come before the first change of a node.
    if let Some((members, plan)) = &kubernetes {
        let server = args.k8s_endpoint.as_deref();
        Live::connect(target.clone(), server, members, plan).await?;
    }
    if let Some((old, members)) = node_api {
        eprintln!("the machine CA is rotated");
        target.identity = node_api::rotate(target.clone(), &members, &old, args).await?;
    }
    let Some((members, plan)) = kubernetes else {
        return Ok(());
    };
    eprintln!("the Kubernetes CA is rotated");
    let server = args.k8s_endpoint.as_deref();
    let mut live = Live::connect(target, server, &members, &plan).await?;
    let done = execute(&mut live, &members, PATIENCE).await;
    done.map_err(Failure::call)?;
    eprintln!(
        "kubeconfigs of the old CA no longer work: `cortenctl kubeconfig` writes a new one; \
         restart pods of your own that call the Kubernetes API (`kubectl rollout restart`)"
    );
    Ok(())
}

/// The nodes that run Kubernetes, and what the rotation does. `None` if no node runs it and it need not.
async fn of_kubernetes(
    target: &Target,
    is_required: bool,
) -> Result<Option<(Vec<Member>, Plan)>, Failure> {
    let members = live::members(target).await?;
    if members.is_empty() && !is_required {
        eprintln!("no node runs Kubernetes: only the machine CA is rotated");
        return Ok(None);
    }
    let plan = Plan::new(&members, SystemTime::now())?;
    Ok(Some((members, plan)))
}

fn show(members: &[Member], plan: &Plan) {
    for member in members {
        let kind = match member.is_control_plane {
            true => "control plane",
            false => "worker",
        };
        let (name, nodename) = (printable(&member.name), printable(&member.nodename));
        eprintln!("{name}: {kind} {nodename} of Kubernetes");
    }
    if plan.resumes {
        eprintln!("an interrupted rotation of the Kubernetes CA is brought to its end");
    }
    for der in &plan.kept {
        let print = corten_pki::fingerprint(der);
        let print = print.unwrap_or_else(|error| error.to_string());
        eprintln!("an accepted Kubernetes CA that no rotation made stays accepted: {print}");
    }
}
