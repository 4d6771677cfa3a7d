//! Reports to Azure that the machine runs; without the report, Azure considers the start failed.
//!
//! Microsoft's documentation: "Create a generalized image without a provisioning agent" (goal state and health of the
//! wire server).

use std::time::Duration;

use roxmltree::Document;
use tokio::time::sleep;

use crate::client::{Client, Question};
use crate::follow::{Pace, jitter};
use crate::request::Method;

const BASE: &str = "http://168.63.129.16/machine/?comp=";
/// Poll interval of the goal state; a changed goal state needs a new report.
const AGAIN: Duration = Duration::from_secs(60);

/// Reports once, and again for each new goal state. `tell` receives the failures.
pub async fn report_ready(client: Client, pace: Pace, mut tell: impl FnMut(String)) {
    let mut reported = None;
    let mut pause = pace.first;
    loop {
        match report(&client, reported.as_ref()).await {
            Ok(goal) => {
                reported = Some(goal);
                pause = pace.first;
                sleep(jitter(AGAIN.max(pace.again))).await;
            }
            Err(why) => {
                let wait = jitter(pause);
                tell(format!(
                    "{why}; reporting again in {} s",
                    wait.as_secs_f32().ceil()
                ));
                sleep(wait).await;
                pause = pause.saturating_mul(2).min(pace.longest);
            }
        }
    }
}

/// Goal state, which identifies the machine in a report.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Goal {
    incarnation: String,
    container: String,
    instance: String,
}

async fn report(client: &Client, reported: Option<&Goal>) -> Result<Goal, String> {
    let url = format!("{BASE}goalstate");
    let bytes = ask(client, &url, Method::Get, "").await?;
    let goal = read(&bytes.unwrap_or_default()).map_err(|what| format!("{url}: {what}"))?;
    if reported != Some(&goal) {
        let body = health(&goal);
        ask(client, &format!("{BASE}health"), Method::Post, &body).await?;
    }
    Ok(goal)
}

async fn ask(
    client: &Client,
    url: &str,
    method: Method,
    body: &str,
) -> Result<Option<Vec<u8>>, String> {
    let headers = [
        ("x-ms-agent-name", "WALinuxAgent"),
        ("x-ms-version", "2012-11-30"),
        ("content-type", "text/xml;charset=utf-8"),
    ];
    let headers = headers.map(|(name, value)| (name, value.to_owned()));
    let question = Question {
        url,
        method,
        headers: headers.to_vec(),
        body,
        from_low_port: false,
    };
    let answer = client.ask(&question).await;
    answer.map_err(|why| format!("{url}: {why}"))
}

fn read(bytes: &[u8]) -> Result<Goal, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "must be text".to_owned())?;
    let text = text.trim_start_matches('\u{feff}').trim();
    let document = Document::parse(text).map_err(|_| "is not XML".to_owned())?;
    let field = |name: &str| {
        let mut nodes = document.descendants();
        let found = nodes.find(|node| node.has_tag_name(name));
        let text = found.and_then(|node| node.text()).map(str::trim);
        // The text is copied into the report without escaping.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let text =
            text.filter(|text| (1..=256).contains(&text.len()) && text.bytes().all(is_plain));
        text.map(str::to_owned)
            .ok_or_else(|| format!("needs {name}, of letters and digits"))
    };
    Ok(Goal {
        incarnation: field("Incarnation")?,
        container: field("ContainerId")?,
        instance: field("InstanceId")?,
    })
}

fn health(goal: &Goal) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
         <Health><GoalStateIncarnation>{}</GoalStateIncarnation><Container><ContainerId>{}</ContainerId>\
         <RoleInstanceList><Role><InstanceId>{}</InstanceId><Health><State>Ready</State></Health></Role>\
         </RoleInstanceList></Container></Health>\n",
        goal.incarnation, goal.container, goal.instance
    )
}

#[cfg(test)]
mod tests {
    //! A goal state in the form of Microsoft's documentation, written by hand.

    use std::time::Duration;

    use super::*;
    use crate::testing::{Reply, Script};

    const GOAL: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<GoalState xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
  <Version>2012-11-30</Version><Incarnation>3</Incarnation>
  <Machine><ExpectedState>Started</ExpectedState></Machine>
  <Container><ContainerId>c-1</ContainerId><RoleInstanceList><RoleInstance><InstanceId>i-1</InstanceId>
  <State>Started</State></RoleInstance></RoleInstanceList></Container>
</GoalState>"#;

    #[tokio::test]
    async fn azure_goal_state_is_reported_once() {
        let script = Script::new()
            .get("/machine/?comp=goalstate", GOAL)
            .reply("POST /machine/?comp=health", Reply::Body(Vec::new()));
        let (server, shared) = script.serve().await;
        let client = Client::of_test(server, Duration::from_secs(5));
        let goal = report(&client, None).await.unwrap();
        assert_eq!(goal, read(GOAL.as_bytes()).unwrap());
        let asked = |shared: &std::sync::Mutex<Script>| {
            shared.lock().unwrap().asked("POST /machine/?comp=health")
        };
        assert_eq!(asked(&shared), 1);
        report(&client, Some(&goal)).await.unwrap();
        assert_eq!(asked(&shared), 1);
        let document = health(&goal);
        let parsed = Document::parse(document.trim()).unwrap();
        let role = parsed
            .descendants()
            .find(|node| node.has_tag_name("Role"))
            .unwrap();
        let state = role
            .descendants()
            .find(|node| node.has_tag_name("State"))
            .unwrap();
        assert_eq!(state.text(), Some("Ready"));
    }

    #[tokio::test]
    async fn refused_ready_report_is_an_error() {
        let script = Script::new()
            .get("/machine/?comp=goalstate", GOAL)
            .reply("POST /machine/?comp=health", Reply::Status(503));
        let (server, _) = script.serve().await;
        let client = Client::of_test(server, Duration::from_secs(5));
        let why = report(&client, None).await.unwrap_err();
        assert_eq!(
            why,
            "http://168.63.129.16/machine/?comp=health: the answer is 503"
        );
    }

    #[test]
    fn goal_state_with_markup_is_refused() {
        let hostile = GOAL.replace("c-1", "&lt;/x&gt;");
        assert_eq!(
            read(hostile.as_bytes()),
            Err("needs ContainerId, of letters and digits".to_owned())
        );
        assert_eq!(read(b"<a"), Err("is not XML".to_owned()));
        read("<!DOCTYPE a [<!ENTITY x 'y'>]><a/>".as_bytes()).unwrap_err();
    }
}
