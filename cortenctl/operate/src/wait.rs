//! Waits until nodes have rebooted or are gone. A node's boot is identified by the kernel's boot
//! id.

use std::time::Duration;

use corten_api::cosi::resource::Resource;
use corten_client::connect::{Route, Unreached, routes};
use corten_client::endpoint::Endpoint;
use corten_client::failure::Failure;
use corten_client::flags::Global;
use corten_client::resources;
use corten_client::stream::{Failed, Node, Trouble, each};
use corten_client::table::printable;
use serde_json::Value;
use tokio::time::{sleep, timeout};

/// Interval between two checks of a node.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);
/// Number of consecutive checks without an answer after which a node is gone.
const GONE: u32 = 3;

/// Nodes with their boot ids.
pub(crate) type Boots = Vec<(String, String)>;

/// The awaited state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Another boot, and the node is ready.
    Back,
    /// No answer, or another boot.
    Gone,
}

/// The boot ids of nodes before a call that restarts them.
///
/// # Errors
/// A node does not report its boot id, without which there is nothing to wait for.
pub(crate) async fn boots(routes: Vec<Route>) -> Result<Boots, Failure> {
    let mut boots = Boots::new();
    let failed = each(routes, async |node| {
        let boot = boot(node).await?;
        boots.push((node.name.clone(), boot));
        Ok(())
    })
    .await?;
    match failed.first() {
        None => Ok(boots),
        Some((node, why)) => Err(Failure::call(format!(
            "{node}: nothing was done: --wait needs the boot ID of the node, which cannot be read: {why}; --wait=false \
             acts without it"
        ))),
    }
}

/// The boot id of the node.
pub(crate) async fn boot(node: &Node) -> Result<String, Trouble> {
    let kind = "BootIDs.runtime.talos.dev";
    let resource = resources::one(node, "runtime", kind, "boot-id").await?;
    let spec = resources::spec(&resource)?;
    let id = spec.get("bootID").and_then(Value::as_str);
    id.map(str::to_owned)
        .ok_or_else(|| Trouble::Said("it has no boot ID".to_owned()))
}

/// Waits for these nodes. Connections are opened anew for each check, because a reboot breaks them.
/// Nodes that have not reached the state in time are reported with their last state.
pub(crate) async fn wait(
    global: &Global,
    boots: Boots,
    until: Until,
    limit: Duration,
) -> Result<Failed, Failure> {
    let look = async |left: &mut [Waiting]| look(global, until, left).await;
    watch(boots, PAUSE, limit, look).await
}

/// Checks repeatedly until every node is done or the time is over, which also interrupts a check.
async fn watch(
    boots: Boots,
    pause: Duration,
    limit: Duration,
    mut look: impl AsyncFnMut(&mut [Waiting]) -> Result<(), Failure>,
) -> Result<Failed, Failure> {
    let mut all: Vec<Waiting> = boots.into_iter().map(Waiting::new).collect();
    let looking = async {
        while all.iter().any(|one| one.end.is_none()) {
            sleep(pause).await;
            look(&mut all).await?;
        }
        Ok::<_, Failure>(())
    };
    if let Ok(ended) = timeout(limit, looking).await {
        ended?;
    }
    let failed = all.into_iter().filter_map(|one| {
        let why = match one.end {
            Some(End::Good) => return None,
            Some(End::Unknown) => one.last,
            None => format!("timeout after {} s: {}", limit.as_secs(), one.last),
        };
        Some((one.node, why))
    });
    Ok(failed.collect())
}

/// A node that is waited for.
struct Waiting {
    node: String,
    boot: String,
    /// Number of consecutive checks without an answer, or without a reachable endpoint.
    silent: u32,
    /// State at the last check.
    last: String,
    end: Option<End>,
}

/// The reason why a node is not waited for any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It has reached the state.
    Good,
    /// No endpoint is left that could check it.
    Unknown,
}

/// The result of a check.
enum Seen {
    /// The node's boot id; and the reason why it is not ready, if it is not.
    Up(String, Option<String>),
    /// It does not answer.
    Silent(String),
    /// No endpoint answers that could reach it.
    NoWay(String),
}

impl Waiting {
    fn new((node, boot): (String, String)) -> Waiting {
        Waiting {
            node,
            boot,
            silent: 0,
            last: "no answer yet".to_owned(),
            end: None,
        }
    }

    /// Records a check, and reports a change.
    fn saw(&mut self, until: Until, seen: Seen) {
        if self.end.is_some() {
            return;
        }
        self.silent = match seen {
            Seen::Up(..) => 0,
            Seen::Silent(_) | Seen::NoWay(_) => self.silent + 1,
        };
        let gone = until == Until::Gone && self.silent >= GONE;
        let (state, end) = match (seen, until) {
            (Seen::NoWay(why), _) => (
                format!("no endpoint can be reached: {why}"),
                gone.then_some(End::Unknown),
            ),
            (Seen::Silent(why), Until::Back) => (format!("it does not answer: {why}"), None),
            (Seen::Silent(_), Until::Gone) => {
                ("it does not answer".to_owned(), gone.then_some(End::Good))
            }
            (Seen::Up(boot, _), _) if boot == self.boot => ("it is still running".to_owned(), None),
            (Seen::Up(..), Until::Gone) => ("it has rebooted".to_owned(), Some(End::Good)),
            (Seen::Up(_, None), Until::Back) => {
                ("it is back, and ready".to_owned(), Some(End::Good))
            }
            (Seen::Up(_, Some(why)), Until::Back) => (format!("it is back, but {why}"), None),
        };
        if state != self.last {
            eprintln!("{}: {}", printable(&self.node), printable(&state));
        }
        self.last = state;
        self.end = end;
    }
}

async fn look(global: &Global, until: Until, all: &mut [Waiting]) -> Result<(), Failure> {
    let opened = match routes(global).await {
        Ok(opened) => opened,
        Err(Failure::Call(error)) => {
            let unreached: Unreached = error.downcast()?;
            for one in all {
                let seen = without_way(&unreached, &one.node);
                one.saw(until, seen);
            }
            return Ok(());
        }
        Err(other) => return Err(other),
    };
    let mut found = Vec::new();
    let failed = each(opened, async |node| {
        let boot = boot(node).await?;
        found.push((node.name.clone(), boot, unready(node).await));
        Ok(())
    })
    .await?;
    for one in all {
        let up = found.iter().find(|(node, _, _)| *node == one.node);
        let why = failed.iter().find(|(node, _)| *node == one.node);
        let seen = match (up, why) {
            (Some((_, boot, why)), _) => Seen::Up(boot.clone(), why.clone()),
            (None, Some((_, why))) => Seen::Silent(why.clone()),
            (None, None) => Seen::Silent("no answer".to_owned()),
        };
        one.saw(until, seen);
    }
    Ok(())
}

/// The result when no endpoint answers: it says nothing about other nodes, which may be up.
fn without_way(unreached: &Unreached, node: &str) -> Seen {
    let Unreached(endpoints) = unreached;
    match endpoints
        .iter()
        .find(|(endpoint, _)| endpoint.host() == node)
    {
        Some((_, why)) => Seen::Silent(why.clone()),
        None => {
            let each = |(endpoint, why): &(Endpoint, String)| format!("{endpoint}: {why}");
            let all: Vec<String> = endpoints.iter().map(each).collect();
            Seen::NoWay(all.join("; "))
        }
    }
}

/// The reason why the node is not ready; `None` if it is.
pub(crate) async fn unready(node: &Node) -> Option<String> {
    let kind = "MachineStatuses.runtime.talos.dev";
    match resources::one(node, "runtime", kind, "machine").await {
        Ok(resource) => status(&resource),
        Err(_) => Some("its status cannot be read".to_owned()),
    }
}

fn status(resource: &Resource) -> Option<String> {
    let Ok(spec) = resources::spec(resource) else {
        return Some("its status cannot be read".to_owned());
    };
    let stage = spec.get("stage").and_then(Value::as_str).unwrap_or("?");
    // A wiped node has no config and becomes ready in maintenance.
    if stage == "maintenance" {
        return None;
    }
    let ready = spec.pointer("/status/ready").and_then(Value::as_bool);
    if stage == "running" && ready == Some(true) {
        return None;
    }
    let unmet = spec.pointer("/status/unmetConditions");
    let unmet = unmet.and_then(Value::as_array).map(Vec::as_slice);
    let reasons: Vec<String> = unmet
        .unwrap_or_default()
        .iter()
        .filter_map(|one| Some(format!("{}: {}", one.get("name")?, one.get("reason")?)))
        .collect();
    Some(
        format!("{stage}, not ready {}", reasons.join("; "))
            .trim()
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Waiting {
        Waiting::new(("n".to_owned(), "old".to_owned()))
    }

    fn up(boot: &str, why: Option<&str>) -> Seen {
        Seen::Up(boot.to_owned(), why.map(str::to_owned))
    }

    fn silent() -> Seen {
        Seen::Silent("refused".to_owned())
    }

    #[test]
    fn wait_ends_when_the_node_is_ready_after_another_boot() {
        let mut one = node();
        for seen in [up("old", None), silent(), up("new", Some("booting"))] {
            one.saw(Until::Back, seen);
            assert_eq!(one.end, None, "{}", one.last);
        }
        assert_eq!(one.last, "it is back, but booting");
        one.saw(Until::Back, up("new", None));
        assert_eq!(one.end, Some(End::Good));
    }

    #[test]
    fn one_lost_answer_does_not_make_a_node_gone() {
        let mut one = node();
        for seen in [silent(), silent(), up("old", None), silent(), silent()] {
            one.saw(Until::Gone, seen);
            assert_eq!(one.end, None);
        }
        one.saw(Until::Gone, silent());
        assert_eq!(one.end, Some(End::Good));
        let mut other = node();
        other.saw(Until::Gone, up("new", None));
        assert_eq!(other.end, Some(End::Good));
    }

    #[test]
    fn lost_endpoint_is_not_taken_for_the_end_of_its_nodes() {
        let endpoint = "10.0.0.1:50000".parse().unwrap();
        let unreached = Unreached(vec![(endpoint, "refused".to_owned())]);
        for (name, until, end) in [
            ("10.0.0.1", Until::Gone, Some(End::Good)),
            ("10.0.0.2", Until::Gone, Some(End::Unknown)),
            ("10.0.0.2", Until::Back, None),
        ] {
            let mut one = Waiting::new((name.to_owned(), "old".to_owned()));
            for _ in 0..GONE {
                assert_eq!(one.end, None);
                one.saw(until, without_way(&unreached, name));
            }
            assert_eq!(one.end, end, "{name}: {}", one.last);
            let shown = one.last.contains("no endpoint can be reached: 10.0.0.1");
            assert_eq!(shown, name == "10.0.0.2", "{}", one.last);
        }
    }

    fn boots() -> Boots {
        let boot = |node: &str| (node.to_owned(), "old".to_owned());
        vec![boot("a"), boot("b")]
    }

    #[tokio::test]
    async fn timeout_ends_a_status_call_that_hangs() {
        let limit = Duration::from_millis(10);
        let look = async |all: &mut [Waiting]| {
            all[0].saw(Until::Back, up("new", None));
            std::future::pending().await
        };
        let failed = watch(boots(), Duration::ZERO, limit, look).await.unwrap();
        let expected = [(
            "b".to_owned(),
            "timeout after 0 s: no answer yet".to_owned(),
        )];
        assert_eq!(failed, expected);
    }

    #[tokio::test]
    async fn node_without_a_reachable_endpoint_has_failed() {
        let look = async |all: &mut [Waiting]| {
            all[0].saw(Until::Gone, silent());
            all[1].saw(Until::Gone, Seen::NoWay("a: refused".to_owned()));
            Ok(())
        };
        let limit = Duration::from_secs(3600);
        let failed = watch(boots(), Duration::ZERO, limit, look).await.unwrap();
        let why = "no endpoint can be reached: a: refused".to_owned();
        assert_eq!(failed, [("b".to_owned(), why)]);
    }

    #[test]
    fn unmet_conditions_of_a_node_are_shown() {
        let resource = |yaml: &str| Resource {
            metadata: None,
            spec: Some(corten_api::cosi::resource::Spec {
                yaml_spec: yaml.into(),
                ..Default::default()
            }),
        };
        assert_eq!(
            status(&resource("stage: running\nstatus: {ready: true}")),
            None
        );
        assert_eq!(status(&resource("stage: maintenance")), None);
        let waits = "stage: booting\nstatus: {ready: false, unmetConditions: [{name: time, reason: no server}]}";
        let text = status(&resource(waits)).unwrap();
        assert_eq!(text, r#"booting, not ready "time": "no server""#);
        assert!(status(&resource("[")).unwrap().contains("cannot be read"));
    }
}
