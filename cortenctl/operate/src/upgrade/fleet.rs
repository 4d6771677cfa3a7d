//! `upgrade` of several nodes: the order, the number of nodes at once, and the condition to go on.
//!
//! Workers come first: a broken version then shows where it costs etcd no quorum. Control plane nodes go one at a time,
//! whatever the flags say.

use std::num::NonZeroUsize;
use std::time::Duration;

use corten_client::clients::Machine;
use corten_client::connect::{Route, routes};
use corten_client::failure::Failure;
use corten_client::flags::Global;
use corten_client::resources::{has_member, machine_type};
use corten_client::stream::{Node, Trouble, each};
use corten_client::table::{Table, printable};
use corten_cluster::Cluster;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::wait;
use crate::{cordon, kubernetes};

/// Interval of the checks of an upgraded node.
const LOOK: Duration = Duration::from_secs(2);

/// State of a node before its upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planned {
    /// The operator's name of the node.
    pub(super) name: String,
    pub(super) is_control_plane: bool,
    /// The running version.
    pub(super) from: String,
    /// Whether its etcd member runs.
    pub(super) has_member: bool,
    /// Its name in Kubernetes, if it runs pods of a cluster.
    pub(super) nodename: Option<String>,
}

/// Queries every node; all of them must answer.
///
/// # Errors
/// The nodes that do not answer. The caller must then change no node.
pub(super) async fn look(routes: Vec<Route>) -> Result<Vec<Planned>, Failure> {
    let mut nodes = Vec::new();
    let failed = each(routes, async |node| {
        nodes.push(planned(node).await?);
        Ok(())
    })
    .await?;
    if failed.is_empty() {
        return Ok(nodes);
    }
    let lines = failed.iter().map(|(node, why)| format!("{node}: {why}"));
    let lines: Vec<String> = lines.collect();
    Err(Failure::call(format!(
        "nothing was changed, because not every node answers:\n  {}",
        lines.join("\n  ")
    )))
}

async fn planned(node: &Node) -> Result<Planned, Trouble> {
    let answer = node.client::<Machine>().version(node.brief(())).await?;
    let version = answer.into_inner().messages.into_iter().next();
    let version = version.and_then(|message| message.version);
    let kind = machine_type(node).await?;
    Ok(Planned {
        name: node.name.clone(),
        is_control_plane: matches!(kind.as_deref(), Some("controlplane" | "init")),
        from: version.unwrap_or_default().tag,
        has_member: has_member(node).await?,
        nodename: cordon::name_in_kubernetes(node).await?,
    })
}

/// Groups the nodes into waves. The nodes of a wave are upgraded at once.
pub(super) fn waves(nodes: Vec<Planned>, most: NonZeroUsize) -> Vec<Vec<Planned>> {
    let (control_plane, workers): (Vec<Planned>, Vec<Planned>) =
        nodes.into_iter().partition(|node| node.is_control_plane);
    let workers = workers.chunks(most.get()).map(<[Planned]>::to_vec);
    let alone = control_plane.into_iter().map(|node| vec![node]);
    workers.chain(alone).collect()
}

/// The plan as a table for the operator.
pub(super) fn table(waves: &[Vec<Planned>], to: &str) -> String {
    let mut table = Table::new(&["STEP", "NODE", "ROLE", "FROM", "TO"]);
    for (number, wave) in waves.iter().enumerate() {
        for node in wave {
            let role = match node.is_control_plane {
                true => "control plane",
                false => "worker",
            };
            let number = (number + 1).to_string();
            table.row([number.as_str(), &node.name, role, &node.from, to]);
        }
    }
    table.render()
}

/// Upgrades wave after wave. After a failure, no other wave begins, and the remaining nodes are named.
///
/// # Errors
/// The errors of the nodes.
pub(super) async fn roll(
    waves: &[Vec<Planned>],
    upgrade: impl AsyncFn(&Planned) -> Result<(), Failure>,
    tell: impl Fn(&str),
) -> Result<(), Failure> {
    for (number, wave) in waves.iter().enumerate() {
        let done = join_all(wave.iter().map(|node| upgrade(node))).await;
        let failed = wave.iter().zip(done);
        let mut failed: Vec<(&Planned, Failure)> = failed
            .filter_map(|(node, done)| Some((node, done.err()?)))
            .collect();
        let Some((last, failure)) = failed.pop() else {
            continue;
        };
        let left = waves.iter().skip(number + 1).flatten();
        let left: Vec<&str> = left.map(|node| node.name.as_str()).collect();
        if !left.is_empty() {
            tell(&format!("not upgraded: {}", left.join(", ")));
        }
        if failed.is_empty() {
            return Err(failure);
        }
        failed.push((last, failure));
        for (node, failure) in failed {
            match failure {
                Failure::Usage(why) => tell(&format!("error: {}: {why}", node.name)),
                Failure::Call(error) => tell(&format!("error: {}: {error:#}", node.name)),
                Failure::Told => {}
            }
        }
        return Err(Failure::Told);
    }
    Ok(())
}

/// Waits until an upgraded node is as healthy as before: the node itself, its etcd member, and Kubernetes must report
/// so. Each check opens new connections to the node.
///
/// # Errors
/// The node is not healthy in time.
pub(super) async fn settled(
    global: &Global,
    before: &Planned,
    limit: Duration,
) -> Result<(), Failure> {
    let end = Instant::now() + limit;
    let mut last = String::new();
    // The node makes a certificate for each kubeconfig, so one serves all checks.
    let mut cluster = None;
    loop {
        let why = match missing(global, before, &mut cluster).await {
            Ok(None) => return Ok(()),
            Ok(Some(why)) => why,
            Err(Failure::Call(error)) => format!("{error:#}"),
            Err(other) => return Err(other),
        };
        if Instant::now() >= end {
            let limit = limit.as_secs();
            return Err(Failure::call(format!(
                "{} keeps the new version, but is not as healthy as before the upgrade within {limit} s: {why}",
                before.name
            )));
        }
        if why != last {
            eprintln!("{}: {}", printable(&before.name), printable(&why));
            last = why;
        }
        sleep(LOOK).await;
    }
}

/// The first condition that the node does not meet yet.
async fn missing(
    global: &Global,
    before: &Planned,
    cluster: &mut Option<Cluster>,
) -> Result<Option<String>, Failure> {
    let mut unmet = None;
    let failed = each(routes(global).await?, async |node| {
        unmet = wait::unready(node).await;
        if unmet.is_none() && before.has_member {
            let why = || "its member of etcd has no leader yet".to_owned();
            unmet = (!has_member(node).await?).then(why);
        }
        Ok(())
    })
    .await?;
    if let Some((_, why)) = failed.into_iter().next() {
        return Ok(Some(format!("it does not answer: {why}")));
    }
    if unmet.is_some() {
        return Ok(unmet);
    }
    let Some(nodename) = &before.nodename else {
        return Ok(None);
    };
    let connected = match cluster {
        Some(connected) => connected,
        None => match kubernetes::connect(global, None).await? {
            Ok(connected) => cluster.insert(connected),
            Err(why) => return Ok(Some(why)),
        },
    };
    Ok(not_ready(connected, nodename).await)
}

async fn not_ready(cluster: &Cluster, nodename: &str) -> Option<String> {
    let why = match cluster.node_ready(nodename).await {
        Ok(ready) => ready.err()?,
        Err(error) => error.to_string(),
    };
    Some(format!("Kubernetes does not report it as Ready: {why}"))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn node(name: &str, is_control_plane: bool) -> Planned {
        Planned {
            name: name.to_owned(),
            is_control_plane,
            from: "v1.0.0".to_owned(),
            has_member: is_control_plane,
            nodename: None,
        }
    }

    fn nodes() -> Vec<Planned> {
        [
            ("c1", true),
            ("w1", false),
            ("w2", false),
            ("c2", true),
            ("w3", false),
        ]
        .map(|(name, is_control_plane)| node(name, is_control_plane))
        .to_vec()
    }

    fn of(most: usize) -> Vec<Vec<Planned>> {
        waves(nodes(), NonZeroUsize::new(most).unwrap())
    }

    fn names(waves: &[Vec<Planned>]) -> Vec<Vec<&str>> {
        let mut all = Vec::new();
        for wave in waves {
            all.push(wave.iter().map(|node| node.name.as_str()).collect());
        }
        all
    }

    #[test]
    fn workers_are_upgraded_first_and_control_plane_nodes_one_at_a_time() {
        let alone = of(1);
        let expected = [vec!["w1"], vec!["w2"], vec!["w3"], vec!["c1"], vec!["c2"]];
        assert_eq!(names(&alone), expected);
        let two = of(2);
        let expected = [vec!["w1", "w2"], vec!["w3"], vec!["c1"], vec!["c2"]];
        assert_eq!(names(&two), expected);
        assert_eq!(
            names(&of(9)),
            [vec!["w1", "w2", "w3"], vec!["c1"], vec!["c2"]]
        );
        let expected = "STEP   NODE   ROLE            FROM     TO\n\
                        1      w1     worker          v1.0.0   installer:2\n\
                        1      w2     worker          v1.0.0   installer:2\n\
                        2      w3     worker          v1.0.0   installer:2\n\
                        3      c1     control plane   v1.0.0   installer:2\n\
                        4      c2     control plane   v1.0.0   installer:2\n";
        assert_eq!(table(&two, "installer:2"), expected);
    }

    /// Upgrades with failing nodes; returns the log of operations, and the result.
    async fn rolled(most: usize, bad: &[&str]) -> (Vec<String>, Result<(), Failure>) {
        let done = RefCell::new(Vec::new());
        let upgrade = async |node: &Planned| {
            done.borrow_mut().push(format!("begin {}", node.name));
            sleep(Duration::from_secs(1)).await;
            done.borrow_mut().push(format!("end {}", node.name));
            match bad.contains(&node.name.as_str()) {
                true => Err(Failure::call(format!("{} was left", node.name))),
                false => Ok(()),
            }
        };
        let tell = |line: &str| done.borrow_mut().push(line.to_owned());
        let ended = roll(&of(most), upgrade, tell).await;
        (done.into_inner(), ended)
    }

    #[tokio::test(start_paused = true)]
    async fn next_wave_waits_for_every_node_of_the_previous_wave() {
        let (done, ended) = rolled(2, &[]).await;
        ended.unwrap();
        let expected = [
            "begin w1", "begin w2", "end w1", "end w2", "begin w3", "end w3", "begin c1",
        ];
        assert_eq!(done[..7], expected);
    }

    #[tokio::test(start_paused = true)]
    async fn first_failure_ends_a_fleet_upgrade_and_the_remaining_nodes_are_named() {
        let (done, ended) = rolled(1, &["w2"]).await;
        let Err(Failure::Call(error)) = ended else {
            panic!("{ended:?}");
        };
        assert_eq!(error.to_string(), "w2 was left");
        let expected = [
            "begin w1",
            "end w1",
            "begin w2",
            "end w2",
            "not upgraded: w3, c1, c2",
        ];
        assert_eq!(done, expected);
        let (done, ended) = rolled(3, &["w1", "w3"]).await;
        assert!(matches!(ended, Err(Failure::Told)));
        assert!(
            done.contains(&"error: w1: w1 was left".to_owned()),
            "{done:?}"
        );
        assert!(
            done.contains(&"error: w3: w3 was left".to_owned()),
            "{done:?}"
        );
        assert!(!done.contains(&"begin c1".to_owned()));
        // After the last node, no node is left to name.
        let (done, _) = rolled(1, &["c2"]).await;
        assert_eq!(done.last().unwrap(), "end c2");
    }
}
