//! Waiting until nodes have rebooted, or are gone: a node is known by the
//! kernel's number of its boot.

use std::time::Duration;

use corten_api::cosi::resource::Resource;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::cli::Global;
use crate::connect::{Route, routes};
use crate::failure::Failure;
use crate::resources;
use crate::stream::{Failed, Node, Trouble, each};
use crate::table::printable;

/// Between two looks at a node.
const PAUSE: Duration = Duration::from_secs(1);
/// A node that does not answer so many times in a row is gone.
const GONE: u32 = 3;

/// Nodes and the numbers of their boots.
pub(crate) type Boots = Vec<(String, String)>;

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Another boot, and the node up and ready.
    Back,
    /// No answer any more, or another boot.
    Gone,
}

/// The boots of nodes before something is done to them.
///
/// # Errors
/// When a node does not tell: then nothing could be waited for.
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
            "{node}: nothing was done, as --wait could not tell one boot from another: {why}"
        ))),
    }
}

async fn boot(node: &Node) -> Result<String, Trouble> {
    let kind = "BootIDs.runtime.talos.dev";
    let resource = resources::one(node, "runtime", kind, "boot-id").await?;
    let spec = resources::spec(&resource)?;
    let id = spec.get("bootID").and_then(Value::as_str);
    id.map(str::to_owned)
        .ok_or_else(|| Trouble::Said("it has no boot id".to_owned()))
}

/// Waits for these nodes. Connections are opened anew each time, as theirs end.
pub(crate) async fn wait(
    global: &Global,
    boots: Boots,
    until: Until,
    limit: Duration,
) -> Result<Failed, Failure> {
    let end = Instant::now() + limit;
    let mut left: Vec<Waiting> = boots.into_iter().map(Waiting::new).collect();
    while !left.is_empty() {
        if Instant::now() >= end {
            let late = |one: Waiting| {
                let why = format!("not within {} s: {}", limit.as_secs(), one.last);
                (one.node, why)
            };
            return Ok(left.into_iter().map(late).collect());
        }
        sleep(PAUSE).await;
        look(global, until, &mut left).await?;
        left.retain(|one| !one.done);
    }
    Ok(Failed::new())
}

/// A node that is waited for.
struct Waiting {
    node: String,
    boot: String,
    /// Looks in a row without an answer.
    silent: u32,
    /// How it was at the last look.
    last: String,
    done: bool,
}

impl Waiting {
    fn new((node, boot): (String, String)) -> Waiting {
        Waiting {
            node,
            boot,
            silent: 0,
            last: "it has not been asked".to_owned(),
            done: false,
        }
    }

    /// Takes note of a look; what is new is told.
    fn saw(&mut self, until: Until, found: Result<(String, Option<String>), String>) {
        let (state, done) = match (found, until) {
            (Err(why), Until::Back) => {
                self.silent += 1;
                (format!("it does not answer: {why}"), false)
            }
            (Err(_), Until::Gone) => {
                self.silent += 1;
                ("it does not answer".to_owned(), self.silent >= GONE)
            }
            (Ok((boot, _)), _) if boot == self.boot => {
                self.silent = 0;
                ("it has not gone down yet".to_owned(), false)
            }
            (Ok(_), Until::Gone) => ("it has rebooted".to_owned(), true),
            (Ok((_, None)), Until::Back) => ("it is back, and ready".to_owned(), true),
            (Ok((_, Some(why))), Until::Back) => (format!("it is back, but {why}"), false),
        };
        if state != self.last {
            eprintln!("{}: {}", printable(&self.node), printable(&state));
        }
        self.last = state;
        self.done = done;
    }
}

async fn look(global: &Global, until: Until, left: &mut [Waiting]) -> Result<(), Failure> {
    let opened = match routes(global).await {
        Ok(opened) => opened,
        Err(Failure::Call(error)) => {
            for one in left.iter_mut() {
                one.saw(until, Err(format!("{error:#}")));
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
    for one in left.iter_mut() {
        let seen = found.iter().find(|(node, _, _)| *node == one.node);
        let why = failed.iter().find(|(node, _)| *node == one.node);
        match (seen, why) {
            (Some((_, boot, why)), _) => one.saw(until, Ok((boot.clone(), why.clone()))),
            (None, Some((_, why))) => one.saw(until, Err(why.clone())),
            (None, None) => one.saw(until, Err("no answer".to_owned())),
        }
    }
    Ok(())
}

/// Why the node is not up yet; nothing when it is.
async fn unready(node: &Node) -> Option<String> {
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
    // A node that was wiped has no config to become ready with.
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

    fn up(boot: &str, why: Option<&str>) -> Result<(String, Option<String>), String> {
        Ok((boot.to_owned(), why.map(str::to_owned)))
    }

    #[test]
    fn another_boot_that_is_ready_is_the_end() {
        let mut one = node();
        for seen in [
            up("old", None),
            Err("refused".to_owned()),
            up("new", Some("booting")),
        ] {
            one.saw(Until::Back, seen);
            assert!(!one.done, "{}", one.last);
        }
        assert_eq!(one.last, "it is back, but booting");
        one.saw(Until::Back, up("new", None));
        assert!(one.done);
    }

    #[test]
    fn one_lost_answer_does_not_make_a_node_gone() {
        let mut one = node();
        let lost = || Err("refused".to_owned());
        for seen in [lost(), lost(), up("old", None), lost(), lost()] {
            one.saw(Until::Gone, seen);
            assert!(!one.done);
        }
        one.saw(Until::Gone, lost());
        assert!(one.done);
        let mut other = node();
        other.saw(Until::Gone, up("new", None));
        assert!(other.done);
    }

    #[test]
    fn what_a_node_waits_for_is_told() {
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
