//! `service`: the services of a node and their states.

use std::time::SystemTime;

use corten_api::machine::{
    ServiceInfo, ServiceList, ServiceRestartRequest, ServiceStartRequest, ServiceStopRequest,
};
use corten_client::answers::{Answers, ask};
use corten_client::clients::Machine;
use corten_client::connect::Route;
use corten_client::failure::Failure;
use corten_client::format::Format;
use corten_client::output::show;
use corten_client::table::Table;
use corten_client::units;
use serde_json::{Value, json};

use crate::cli::{Service, ServiceAction};

const HEADER: &[&str] = &[
    "NODE",
    "SERVICE",
    "STATE",
    "HEALTH",
    "LAST CHANGE",
    "LAST EVENT",
];
const ACTION_HEADER: &[&str] = &["NODE", "RESPONSE"];

pub(crate) async fn run(routes: Vec<Route>, args: &Service) -> Result<(), Failure> {
    let format = &args.output.output;
    let Some(id) = &args.id else {
        return list(routes, format).await;
    };
    match args.action {
        ServiceAction::Status => one(routes, id, format).await,
        ServiceAction::Start => start(routes, id.clone(), format).await,
        ServiceAction::Stop => stop(routes, id.clone(), format).await,
        ServiceAction::Restart => restart(routes, id.clone(), format).await,
    }
}

async fn services(routes: Vec<Route>) -> Result<Answers<ServiceList>, Failure> {
    ask(routes, (), |mut client: Machine, request| async move {
        client.service_list(request).await
    })
    .await
}

async fn list(routes: Vec<Route>, format: &Format) -> Result<(), Failure> {
    let now = SystemTime::now();
    let answers = services(routes).await?;
    show(
        answers,
        format,
        |messages| table(messages, now).render(),
        |message| json!({ "services": message.services.iter().map(fields).collect::<Vec<_>>() }),
    )
}

fn table(messages: &[(String, ServiceList)], now: SystemTime) -> Table {
    let mut table = Table::new(HEADER);
    for (node, message) in messages {
        for service in &message.services {
            let last = service
                .events
                .as_ref()
                .and_then(|events| events.events.last());
            let changed = last
                .and_then(|event| event.ts)
                .map(|at| format!("{} ago", units::age(at, now)));
            table.row([
                node.as_str(),
                &service.id,
                &service.state,
                health(service),
                &changed.unwrap_or_default(),
                last.map_or("<none>", |event| &event.msg),
            ]);
        }
    }
    table
}

fn health(service: &ServiceInfo) -> &'static str {
    match &service.health {
        Some(health) if health.unknown => "?",
        Some(health) if health.healthy => "OK",
        Some(_) => "Fail",
        None => "?",
    }
}

async fn one(routes: Vec<Route>, id: &str, format: &Format) -> Result<(), Failure> {
    let now = SystemTime::now();
    let mut answers = services(routes).await?;
    let mut found = Vec::new();
    for (node, message) in std::mem::take(&mut answers.good) {
        match message
            .services
            .into_iter()
            .find(|service| service.id == id)
        {
            Some(service) => found.push((node, service)),
            None => answers.failed.push((
                node,
                format!("there is no service {id:?}; `service` lists them"),
            )),
        }
    }
    let answers = Answers {
        good: found,
        failed: answers.failed,
    };
    let details = |found: &[(String, ServiceInfo)]| -> String {
        let each = found.iter();
        each.map(|(node, service)| detail(node, service, now).render())
            .collect()
    };
    show(answers, format, details, fields)
}

/// A line per fact; the newest event first.
fn detail(node: &str, service: &ServiceInfo, now: SystemTime) -> Table {
    let mut table = Table::default();
    table.row(["NODE", node]);
    table.row(["ID", &service.id]);
    table.row(["STATE", &service.state]);
    table.row(["HEALTH", health(service)]);
    if let Some(health) = service
        .health
        .as_ref()
        .filter(|health| !health.last_message.is_empty())
    {
        table.row(["LAST HEALTH MESSAGE", &health.last_message]);
    }
    let events = service
        .events
        .iter()
        .flat_map(|events| events.events.iter().rev());
    for (index, event) in events.enumerate() {
        let when = event
            .ts
            .map(|at| format!(" ({} ago)", units::age(at, now)))
            .unwrap_or_default();
        let label = if index == 0 { "EVENTS" } else { "" };
        table.row([label, &format!("[{}]: {}{when}", event.state, event.msg)]);
    }
    table
}

fn fields(service: &ServiceInfo) -> Value {
    let events = service.events.iter().flat_map(|events| &events.events);
    let events = events.map(|event| {
        let at = event.ts.map(units::moment);
        json!({ "time": at, "state": event.state, "message": event.msg })
    });
    json!({
        "id": service.id,
        "state": service.state,
        "health": health(service),
        "lastHealthMessage": service.health.as_ref().map(|health| &health.last_message),
        "events": events.collect::<Vec<_>>(),
    })
}

async fn start(routes: Vec<Route>, id: String, format: &Format) -> Result<(), Failure> {
    let body = ServiceStartRequest { id };
    let answers = ask(routes, body, |mut client: Machine, request| async move {
        client.service_start(request).await
    })
    .await?;
    responses(answers, format, |message| &message.resp)
}

async fn stop(routes: Vec<Route>, id: String, format: &Format) -> Result<(), Failure> {
    let body = ServiceStopRequest { id };
    let answers = ask(routes, body, |mut client: Machine, request| async move {
        client.service_stop(request).await
    })
    .await?;
    responses(answers, format, |message| &message.resp)
}

async fn restart(routes: Vec<Route>, id: String, format: &Format) -> Result<(), Failure> {
    let body = ServiceRestartRequest { id };
    let answers = ask(routes, body, |mut client: Machine, request| async move {
        client.service_restart(request).await
    })
    .await?;
    responses(answers, format, |message| &message.resp)
}

fn responses<M>(
    answers: Answers<M>,
    format: &Format,
    text: fn(&M) -> &String,
) -> Result<(), Failure> {
    let table = |messages: &[(String, M)]| {
        let mut table = Table::new(ACTION_HEADER);
        for (node, message) in messages {
            table.row([node, text(message)]);
        }
        table.render()
    };
    show(
        answers,
        format,
        table,
        |message| json!({ "response": text(message) }),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use corten_api::machine::{ServiceEvent, ServiceEvents, ServiceHealth};
    use prost_types::Timestamp;

    use super::*;

    fn service(id: &str, health: Option<ServiceHealth>) -> ServiceInfo {
        let event = |seconds, state: &str, msg: &str| ServiceEvent {
            msg: msg.into(),
            state: state.into(),
            ts: Some(Timestamp { seconds, nanos: 0 }),
        };
        let events = vec![
            event(100, "Preparing", "Starting"),
            event(847, "Running", "Started as pid 7"),
        ];
        ServiceInfo {
            id: id.into(),
            state: "Running".into(),
            events: Some(ServiceEvents { events }),
            health,
        }
    }

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1000)
    }

    #[test]
    fn service_table_shows_state_health_and_last_event() {
        let healthy = ServiceHealth {
            healthy: true,
            ..Default::default()
        };
        let unknown = ServiceHealth {
            unknown: true,
            ..Default::default()
        };
        let services = vec![
            service("apid", Some(healthy)),
            service("udevd", Some(unknown)),
            ServiceInfo {
                id: "x".into(),
                health: Some(ServiceHealth::default()),
                ..Default::default()
            },
        ];
        let messages = [(
            "n".to_owned(),
            ServiceList {
                metadata: None,
                services,
            },
        )];
        let expected = "\
NODE   SERVICE   STATE     HEALTH   LAST CHANGE   LAST EVENT
n      apid      Running   OK       2m33s ago     Started as pid 7
n      udevd     Running   ?        2m33s ago     Started as pid 7
n      x                   Fail                   <none>
";
        assert_eq!(table(&messages, now()).render(), expected);
    }

    #[test]
    fn service_detail_shows_the_event_history() {
        let sick = ServiceHealth {
            last_message: "refused".into(),
            ..Default::default()
        };
        let expected = "\
NODE                  n
ID                    apid
STATE                 Running
HEALTH                Fail
LAST HEALTH MESSAGE   refused
EVENTS                [Running]: Started as pid 7 (2m33s ago)
                      [Preparing]: Starting (15m0s ago)
";
        assert_eq!(
            detail("n", &service("apid", Some(sick)), now()).render(),
            expected
        );
    }

    #[test]
    fn a_document_keeps_the_events_in_order() {
        let value = fields(&service("apid", None));
        assert_eq!(value["events"][0]["state"], "Preparing");
        assert_eq!(value["events"][1]["time"], "1970-01-01T00:14:07Z");
        assert_eq!(value["health"], "?");
    }
}
