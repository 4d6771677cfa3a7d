//! The failures of reboots, shutdowns and resets after a node has accepted them: the node says them in an event.

use std::future::pending;

use corten_api::machine as api;
use corten_client::clients::Machine;
use corten_client::connect::Route;
use corten_client::stream::{Failed, stream};
use prost::Message as _;

/// Age in seconds of the oldest event to read: the sequence may fail before the events are followed.
const SINCE: i32 = 60;

/// Waits, and collects meanwhile the failures of the sequences with these actor IDs.
pub(crate) async fn watched<T>(
    routes: Vec<Route>,
    actors: &[String],
    wait: impl Future<Output = T>,
) -> (T, Failed) {
    let mut failed = Failed::new();
    let follow = async {
        let body = api::EventsRequest {
            tail_seconds: SINCE,
            ..Default::default()
        };
        let call = |mut client: Machine, request| async move { client.events(request).await };
        // A node that restarts ends its events, which says nothing about the sequence.
        let _ended = stream(routes, body, call, |node, event: api::Event| {
            let why = failure(&event).filter(|_| actors.contains(&event.actor_id));
            failed.extend(why.map(|why| (node.to_owned(), why)));
            Ok(())
        })
        .await;
        pending().await
    };
    let waited = tokio::select! {
        // A wait that is over at once, as without --wait, reads no events.
        biased;
        waited = wait => waited,
        never = follow => never,
    };
    (waited, failed)
}

/// The error of the event of a sequence that has failed.
fn failure(event: &api::Event) -> Option<String> {
    let data = event.data.as_ref()?;
    if !data.type_url.ends_with("/machine.SequenceEvent") {
        return None;
    }
    let event = api::SequenceEvent::decode(data.value.as_slice()).ok()?;
    event.error.map(|error| error.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, event: &impl prost::Message) -> api::Event {
        api::Event {
            data: Some(prost_types::Any {
                type_url: format!("talos/runtime/machine.{kind}"),
                value: event.encode_to_vec(),
            }),
            ..Default::default()
        }
    }

    #[test]
    fn only_a_sequence_that_has_failed_is_a_failure() {
        let mut sequence = api::SequenceEvent::default();
        assert_eq!(failure(&event("SequenceEvent", &sequence)), None);
        sequence.error = Some(corten_api::common::Error {
            message: "nothing is wiped".to_owned(),
            ..Default::default()
        });
        let failed = failure(&event("SequenceEvent", &sequence));
        assert_eq!(failed.as_deref(), Some("nothing is wiped"));
        assert_eq!(failure(&event("PhaseEvent", &sequence)), None);
        assert_eq!(failure(&api::Event::default()), None);
    }
}
