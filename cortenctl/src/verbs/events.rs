//! `events`: prints a line for each event as it arrives.

use corten_api::machine as api;
use corten_api::machine::machine_status_event::MachineStage;
use corten_api::machine::{phase_event, sequence_event, service_state_event, task_event};
use corten_client::clients::Machine;
use corten_client::connect::Route;
use corten_client::failure::Failure;
use corten_client::format::Format;
use corten_client::output::with_node;
use corten_client::stream::follow;
use corten_client::table::{print, printable};
use prost::Message;
use prost_types::Any;
use serde_json::{Value, json};

use crate::cli::Events;

const HEADER: [&str; 6] = ["NODE", "ID", "EVENT", "ACTOR", "SOURCE", "MESSAGE"];
/// Prefix of event types on the wire.
const PREFIX: &str = "talos/runtime/";

pub(crate) async fn run(routes: Vec<Route>, args: &Events) -> Result<(), Failure> {
    let seconds = args.duration.unwrap_or_default().as_secs();
    let body = api::EventsRequest {
        tail_events: args.tail,
        tail_id: args.since.clone().unwrap_or_default(),
        tail_seconds: i32::try_from(seconds).unwrap_or(i32::MAX),
        with_actor_id: args.actor_id.clone().unwrap_or_default(),
    };
    let format = &args.output.output;
    if *format == Format::Table {
        print(&line(HEADER))?;
    }
    let call = |mut client: Machine, request| async move { client.events(request).await };
    follow(routes, body, call, |node, event: api::Event| {
        let Some(told) = Told::new(&event) else {
            return Ok(());
        };
        let text = match format {
            Format::Table => told.line(node),
            Format::Document(form) => form.part(with_node(node, told.fields()))?,
        };
        Ok(print(&text)?)
    })
    .await
}

/// An event's line; see [`Told::new`].
pub(super) fn text(node: &str, event: &api::Event) -> Option<String> {
    Some(Told::new(event)?.line(node))
}

/// The printed parts of an event.
struct Told<'a> {
    event: &'a api::Event,
    kind: &'a str,
    source: String,
    message: String,
}

impl<'a> Told<'a> {
    /// `None` for the first frame, which only reports the begin of the stream.
    fn new(event: &'a api::Event) -> Option<Told<'a>> {
        let data = event.data.as_ref()?;
        let kind = data.type_url.strip_prefix(PREFIX).unwrap_or(&data.type_url);
        let (source, message) = told(kind, data);
        Some(Told {
            event,
            kind,
            source,
            message,
        })
    }

    fn line(&self, node: &str) -> String {
        line([
            node,
            &self.event.id,
            self.kind,
            &self.event.actor_id,
            &self.source,
            &self.message,
        ])
    }

    fn fields(&self) -> Value {
        json!({
            "id": self.event.id,
            "event": self.kind,
            "actor": self.event.actor_id,
            "source": self.source,
            "message": self.message,
        })
    }
}

/// Events arrive one by one, so that the columns have fixed widths.
fn line(cells: [&str; 6]) -> String {
    let [node, id, kind, actor, source, message] = cells.map(printable);
    let text = format!("{node:<18} {id:<20} {kind:<28} {actor:<36} {source:<20} {message}");
    format!("{}\n", text.trim_end())
}

/// The subject of the event, and its message.
fn told(kind: &str, data: &Any) -> (String, String) {
    worded(kind, &data.value).unwrap_or_else(|| {
        // An event of a node that is newer than this client.
        (String::new(), format!("{} bytes", data.value.len()))
    })
}

fn worded(kind: &str, bytes: &[u8]) -> Option<(String, String)> {
    Some(match kind {
        "machine.SequenceEvent" => {
            let event = read::<api::SequenceEvent>(bytes)?;
            let action = action(event.action, sequence_event::Action::as_str_name);
            let error = event.error.map(|error| format!(": {}", error.message));
            (event.sequence, action + &error.unwrap_or_default())
        }
        "machine.PhaseEvent" => {
            let event = read::<api::PhaseEvent>(bytes)?;
            (
                event.phase,
                action(event.action, phase_event::Action::as_str_name),
            )
        }
        "machine.TaskEvent" => {
            let event = read::<api::TaskEvent>(bytes)?;
            (
                event.task,
                action(event.action, task_event::Action::as_str_name),
            )
        }
        "machine.ServiceStateEvent" => {
            let event = read::<api::ServiceStateEvent>(bytes)?;
            let action = action(event.action, service_state_event::Action::as_str_name);
            (event.service, format!("{action}: {}", event.message))
        }
        "machine.ConfigLoadErrorEvent" => {
            let event = read::<api::ConfigLoadErrorEvent>(bytes)?;
            ("config".to_owned(), event.error)
        }
        "machine.ConfigValidationErrorEvent" => {
            let event = read::<api::ConfigValidationErrorEvent>(bytes)?;
            ("config".to_owned(), event.error)
        }
        "machine.AddressEvent" => {
            let event = read::<api::AddressEvent>(bytes)?;
            (event.hostname, event.addresses.join(", "))
        }
        "machine.MachineStatusEvent" => {
            let event = read::<api::MachineStatusEvent>(bytes)?;
            let status = event.status.unwrap_or_default();
            let unmet = status.unmet_conditions.iter();
            let reasons: Vec<String> = unmet
                .map(|unmet| format!("{}: {}", unmet.name, unmet.reason))
                .collect();
            let ready = if status.ready { "ready" } else { "not ready" };
            let stage = action(event.stage, MachineStage::as_str_name);
            let message = [&[ready.to_owned()], reasons.as_slice()].concat();
            (stage, message.join("; "))
        }
        _ => return None,
    })
}

fn read<M: Message + Default>(bytes: &[u8]) -> Option<M> {
    M::decode(bytes).ok()
}

/// The name of a number, or the number itself from a newer node.
fn action<A: TryFrom<i32>>(number: i32, name: fn(&A) -> &'static str) -> String {
    A::try_from(number).map_or_else(|_| number.to_string(), |action| name(&action).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown<M: Message>(kind: &str, message: &M) -> (String, String) {
        let data = Any {
            type_url: String::new(),
            value: message.encode_to_vec(),
        };
        told(kind, &data)
    }

    #[test]
    fn every_event_kind_shows_a_source_and_a_message() {
        let phase = api::PhaseEvent {
            phase: "core".to_owned(),
            action: 1,
        };
        let (source, message) = shown("machine.PhaseEvent", &phase);
        assert_eq!((&*source, &*message), ("core", "STOP"));
        let service = api::ServiceStateEvent {
            service: "udevd".to_owned(),
            action: 3,
            message: "Service is ready".to_owned(),
            health: None,
        };
        let (source, message) = shown("machine.ServiceStateEvent", &service);
        assert_eq!(
            (&*source, &*message),
            ("udevd", "RUNNING: Service is ready")
        );
        let status = api::MachineStatusEvent {
            stage: 4,
            status: None,
        };
        let (source, message) = shown("machine.MachineStatusEvent", &status);
        assert_eq!((&*source, &*message), ("RUNNING", "not ready"));
    }

    #[test]
    fn unknown_events_of_a_newer_node_are_shown_by_number_or_size() {
        let phase = api::PhaseEvent {
            phase: "core".to_owned(),
            action: 9,
        };
        assert_eq!(shown("machine.PhaseEvent", &phase).1, "9");
        assert_eq!(shown("machine.NewEvent", &phase).1, "8 bytes");
        let broken = Any {
            type_url: String::new(),
            value: vec![0xff],
        };
        assert_eq!(told("machine.PhaseEvent", &broken).1, "1 bytes");
    }
}
