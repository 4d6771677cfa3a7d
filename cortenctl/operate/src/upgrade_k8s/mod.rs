//! `upgrade-k8s`: the version of Kubernetes, one component and one node after the other.
//!
//! `live` looks at the cluster, and `plan` makes the steps. Checks and pulls come before the first change. `execute`
//! goes from kube-apiserver over the other components and the kubelets to the manifests.

mod component;
mod execute;
mod gates;
mod live;
mod manifests;
mod plan;
#[cfg(test)]
mod tests;
mod version;

use corten_client::failure::Failure;
use corten_client::flags::Global;
use corten_client::table::print;
use corten_config::images;

use self::component::Component;
use self::execute::{Limits, execute};
use self::live::Live;
use self::plan::{Plan, Wanted, problems};
use self::version::Version;
use crate::args::UpgradeK8s;

/// Runs `upgrade-k8s`.
///
/// # Errors
/// The cluster is not ready for the upgrade, or a component does not become ready.
pub async fn run(global: &Global, args: &UpgradeK8s) -> Result<(), Failure> {
    let wanted = wanted(args)?;
    let mut live = Live::connect(global, args.endpoint.as_deref()).await?;
    let members = live.members().await?;
    let requested = live.requested_old_apis().await?;
    let plan = Plan::new(&members, &wanted).map_err(Failure::call)?;
    eprintln!("Kubernetes {} is upgraded to {}", plan.from, plan.to);
    let problems = problems(&members, &requested, &wanted);
    if args.dry_run {
        print(&plan.table())?;
    }
    if !problems.is_empty() && !args.force {
        return Err(Failure::call(format!(
            "the cluster is not ready for the upgrade; --force upgrades it anyway:\n  {}",
            problems.join("\n  ")
        )));
    }
    for problem in problems {
        eprintln!("warning: {}", corten_client::table::printable(&problem));
    }
    if args.dry_run {
        eprintln!("nothing was changed");
        return Ok(());
    }
    let limits = Limits {
        component: args.timeout,
        manifests: args.manifests_reconcile_timeout,
        pulls: args.pre_pull_images,
        prunes: !args.manifests_no_prune,
    };
    execute(&mut live, &plan, limits)
        .await
        .map_err(Failure::call)?;
    eprintln!("Kubernetes has version {}", plan.to);
    Ok(())
}

/// The target of the upgrade, from the flags.
fn wanted(args: &UpgradeK8s) -> Result<Wanted, Failure> {
    let version = |flag: &str, text: &str| {
        let wrong = || Failure::usage(format!("{flag} {text:?} is not a version such as 1.37.2"));
        Version::parse(text).ok_or_else(wrong)
    };
    let from = args.from.as_deref().map(|text| version("--from", text));
    // Its tag is the version that this client was tested with.
    let bundled = || images::bundled(Component::ApiServer.name());
    let to = match &args.to {
        Some(text) => version("--to", text)?,
        None => bundled()
            .and_then(|image| version::of_image(&image))
            .ok_or_else(|| Failure::usage("name the version with --to"))?,
    };
    let names = [
        (Component::ApiServer, &args.apiserver_image),
        (Component::ControllerManager, &args.controller_manager_image),
        (Component::Scheduler, &args.scheduler_image),
        (Component::Proxy, &args.proxy_image),
        (Component::Kubelet, &args.kubelet_image),
    ];
    let names = names
        .into_iter()
        .filter_map(|(component, name)| Some((component, name.clone()?)));
    let names: std::collections::BTreeMap<_, _> = names.collect();
    if let Some(name) = names.values().find(|name| !version::is_name(name)) {
        return Err(Failure::usage(format!(
            "{name:?}: name the image without tag and digest; --to gives the tag"
        )));
    }
    Ok(Wanted {
        from: from.transpose()?,
        to,
        downgrade: args.downgrade,
        kubelets: args.upgrade_kubelet,
        names,
    })
}
