//! Executes the steps of an upgrade one by one. Each step waits until its component runs; a component that does not
//! come up is rolled back.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::component::Component;
use super::plan::{Place, Plan, Step};

/// Interval of the checks.
const LOOK: Duration = Duration::from_secs(2);

/// Timeouts of an upgrade.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Timeout of a component.
    pub(super) component: Duration,
    /// Timeout of the workloads in the manifests; zero: do not wait for them.
    pub(super) manifests: Duration,
    /// Whether nodes pull their images first.
    pub(super) pulls: bool,
    /// Whether objects that no manifest has are deleted last.
    pub(super) prunes: bool,
}

/// Result of applied manifests.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// Lines about the changes.
    pub(super) lines: Vec<String>,
    /// The sentence about the refused objects, if there are any.
    pub(super) refused: Option<String>,
}

/// A failure of the manifests.
enum Unapplied {
    /// The new kube-proxy does not run.
    Proxy(String),
    /// kube-proxy runs, or was not reached.
    Other(String),
}

/// The operations of an upgrade on a cluster. Every error is a sentence.
pub(super) trait Fleet {
    /// Has a node pull an image.
    async fn pull(
        &mut self,
        place: &Place,
        component: Component,
        image: &str,
    ) -> Result<(), String>;
    /// Sets a component's image in a node's config.
    async fn set_image(
        &mut self,
        place: &Place,
        component: Component,
        image: &str,
    ) -> Result<(), String>;
    /// Checks that a node runs this image of a component, and that the component is ready.
    async fn look(
        &mut self,
        place: &Place,
        component: Component,
        image: &str,
    ) -> Result<(), String>;
    /// The image of kube-proxy that the cluster runs now.
    async fn proxy_image(&mut self) -> Result<Option<String>, String>;
    /// Applies a node's manifests to the cluster, once they have this image of kube-proxy.
    async fn apply_manifests(
        &mut self,
        place: &Place,
        proxy: Option<&str>,
    ) -> Result<Applied, String>;
    /// Checks that kube-proxy runs as its manifest specifies.
    async fn proxy(&mut self) -> Result<(), String>;
    /// Checks that the workloads run as their manifests specify.
    async fn workloads(&mut self) -> Result<(), String>;
    /// Deletes the objects that no manifest of a control plane node has, and prints a line about each.
    async fn prune(&mut self) -> Result<(), String>;
    /// Prints a line for the operator.
    fn say(&mut self, line: &str);
}

/// Executes the plan; stops at the first failure.
///
/// # Errors
/// The failed step, the result of its rollback, and the remaining steps.
pub(super) async fn execute(
    fleet: &mut impl Fleet,
    plan: &Plan,
    limits: Limits,
) -> Result<(), String> {
    if limits.pulls {
        for (place, component, image) in &plan.pulls {
            let name = &place.name;
            fleet.say(&format!("{name}: pulls {image}"));
            let pulled = fleet.pull(place, *component, image).await;
            pulled.map_err(|why| {
                format!("node {name} cannot pull {image}: {why}; nothing was changed")
            })?;
        }
    }
    for (number, step) in plan.steps.iter().enumerate() {
        if let Err(why) = change(fleet, step, limits.component).await {
            return Err(format!("{why}{}", left(plan, number + 1)));
        }
    }
    finish(fleet, plan, limits).await
}

/// Applies the manifests, and deletes obsolete objects.
async fn finish(fleet: &mut impl Fleet, plan: &Plan, limits: Limits) -> Result<(), String> {
    let failed = |why: String| format!("bootstrap manifests: {why}");
    // An earlier run may have changed the configs already; the cluster knows what it runs.
    let former = match plan.proxy {
        Some(_) => fleet.proxy_image().await.map_err(failed)?,
        None => None,
    };
    let wanted = plan.proxy.as_deref();
    match manifests(fleet, plan, wanted, limits.manifests).await {
        Ok(()) if limits.prunes => fleet.prune().await.map_err(|why| {
            format!("the upgrade is complete, but obsolete objects were not deleted: {why}")
        }),
        Ok(()) => Ok(()),
        Err(Unapplied::Other(why)) => Err(failed(why)),
        Err(Unapplied::Proxy(why)) => match former.filter(|former| Some(&**former) != wanted) {
            None => Err(failed(why)),
            Some(former) => {
                let back = former_proxy(fleet, plan, &former, limits.manifests).await;
                Err(failed(format!("{why}; {back}")))
            }
        },
    }
}

/// The remaining steps, as text.
fn left(plan: &Plan, done: usize) -> String {
    let left = plan.steps.iter().skip(done);
    let names = left.map(|step| format!("{} of {}", step.component.name(), step.place.name));
    let names: Vec<String> = names
        .chain(["the bootstrap manifests".to_owned()])
        .collect();
    format!("; not changed: {}", names.join(", "))
}

/// Changes one component of one node.
async fn change(fleet: &mut impl Fleet, step: &Step, limit: Duration) -> Result<(), String> {
    let Step {
        place,
        component,
        from,
        to,
    } = step;
    let what = format!("{} of node {}", component.name(), place.name);
    fleet.say(&format!("{}: {} gets {to}", place.name, component.name()));
    let mut done = fleet.set_image(place, *component, to).await;
    // The cluster runs kube-proxy from its manifest, so the manifests are applied, too.
    if *component == Component::Proxy {
        return done.map_err(|why| format!("{what}: {why}"));
    }
    if done.is_ok() {
        done = until_up(fleet, step, to, limit).await;
    }
    let Err(why) = done else {
        fleet.say(&format!("{}: {} runs {to}", place.name, component.name()));
        return Ok(());
    };
    fleet.say(&format!(
        "{}: {} is rolled back to {from}",
        place.name,
        component.name()
    ));
    // If the node refused the new config, it still has the former one; the rollback is then idempotent.
    let mut back = fleet.set_image(place, *component, from).await;
    if back.is_ok() {
        back = until_up(fleet, step, from, limit).await;
    }
    Err(match back {
        Ok(()) => format!("{what} did not come up with {to}: {why}; it runs {from} again"),
        Err(now) => format!(
            "{what} did not come up with {to}: {why}; the rollback to {from} failed: {now}; see its log (`logs -k`)"
        ),
    })
}

async fn until_up(
    fleet: &mut impl Fleet,
    step: &Step,
    image: &str,
    limit: Duration,
) -> Result<(), String> {
    let end = Instant::now() + limit;
    let mut last = String::new();
    loop {
        let Err(why) = fleet.look(&step.place, step.component, image).await else {
            return Ok(());
        };
        if Instant::now() >= end {
            return Err(late(limit, &why));
        }
        if why != last {
            fleet.say(&format!(
                "{}: {}: {why}",
                step.place.name,
                step.component.name()
            ));
            last = why;
        }
        sleep(LOOK).await;
    }
}

async fn manifests(
    fleet: &mut impl Fleet,
    plan: &Plan,
    proxy: Option<&str>,
    limit: Duration,
) -> Result<(), Unapplied> {
    fleet.say("applying the bootstrap manifests");
    let applied = fleet.apply_manifests(&plan.manifests, proxy).await;
    let applied = applied.map_err(Unapplied::Proxy)?;
    for line in applied.lines {
        fleet.say(&line);
    }
    if !limit.is_zero() {
        if proxy.is_some() {
            let up = until_proxy(fleet, limit).await;
            up.map_err(|why| Unapplied::Proxy(format!("kube-proxy: {why}")))?;
        }
        let end = Instant::now() + limit;
        while let Err(why) = fleet.workloads().await {
            if Instant::now() >= end {
                return Err(Unapplied::Other(late(limit, &why)));
            }
            sleep(LOOK).await;
        }
    }
    applied
        .refused
        .map_or(Ok(()), |why| Err(Unapplied::Other(why)))
}

/// Waits for kube-proxy. It changes one node after the other, so each node that comes up starts the limit anew.
async fn until_proxy(fleet: &mut impl Fleet, limit: Duration) -> Result<(), String> {
    let mut end = Instant::now() + limit;
    let mut seen = BTreeSet::new();
    while let Err(why) = fleet.proxy().await {
        if seen.insert(why.clone()) {
            end = Instant::now() + limit;
        }
        if Instant::now() >= end {
            return Err(late(limit, &why));
        }
        sleep(LOOK).await;
    }
    Ok(())
}

fn late(limit: Duration, why: &str) -> String {
    format!("timeout after {} s: {why}", limit.as_secs())
}

/// Rolls kube-proxy back in the cluster and in all configs; returns the result as text.
async fn former_proxy(
    fleet: &mut impl Fleet,
    plan: &Plan,
    former: &str,
    limit: Duration,
) -> String {
    for place in &plan.proxies {
        fleet.say(&format!(
            "{}: kube-proxy is rolled back to {former}",
            place.name
        ));
        let back = fleet.set_image(place, Component::Proxy, former);
        if let Err(why) = back.await {
            return format!(
                "the rollback of kube-proxy on node {} failed: {why}",
                place.name
            );
        }
    }
    match manifests(fleet, plan, Some(former), limit).await {
        Ok(()) | Err(Unapplied::Other(_)) => format!("kube-proxy is {former} again"),
        Err(Unapplied::Proxy(why)) => format!("the rollback of kube-proxy failed, too: {why}"),
    }
}
