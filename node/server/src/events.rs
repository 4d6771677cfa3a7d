//! Streams the node's events.

use std::time::Duration;

use corten_api::machine as api;
use corten_base::events::{Event, Events, From, Id, Reader};
use corten_observe::stream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::BoxStream;
use tonic::{Code, Status};

/// Events buffered for a slow client.
const BUFFER: usize = 16;
/// Age below which a stream without a tail starts with the first event. The reference's client opens a new stream to
/// follow a reboot, and its connection can take 20 s. The event it waits for, "the node is ready", may then be over.
const RECONNECT: Duration = Duration::from_secs(60);

/// Streams the requested history, then new events until the client disconnects.
pub(super) fn stream(
    events: &Events,
    request: &api::EventsRequest,
) -> Result<BoxStream<api::Event>, Status> {
    let reader = events.read(start(request, events.age())?);
    let (sender, receiver) = mpsc::channel(BUFFER);
    let forward = forward(reader, request.with_actor_id.clone(), sender.clone());
    stream::task(sender, forward);
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

fn start(request: &api::EventsRequest, age: Duration) -> Result<From, Status> {
    let asked = [
        request.tail_events != 0,
        !request.tail_id.is_empty(),
        request.tail_seconds != 0,
    ];
    if asked.into_iter().filter(|asked| *asked).count() > 1 {
        return Err(Status::invalid_argument(
            "tail_events, tail_id and tail_seconds exclude each other",
        ));
    }
    if !request.tail_id.is_empty() {
        return Id::parse(&request.tail_id).map(From::After).ok_or_else(|| {
            Status::invalid_argument("tail_id must be the ID of an event: 20 letters and digits")
        });
    }
    if request.tail_seconds != 0 {
        let seconds = u64::try_from(request.tail_seconds)
            .map_err(|_| Status::invalid_argument("tail_seconds must not be negative"))?;
        return Ok(From::Since(Duration::from_secs(seconds)));
    }
    Ok(match usize::try_from(request.tail_events) {
        Ok(0) if age < RECONNECT => From::Last(usize::MAX),
        Ok(0) => From::Now,
        Ok(count) => From::Last(count),
        // Negative: all events.
        Err(_) => From::Last(usize::MAX),
    })
}

async fn forward(
    mut reader: Reader,
    actor: String,
    client: mpsc::Sender<Result<api::Event, Status>>,
) {
    // An empty event tells the client that the stream has begun.
    let mut next = Ok(api::Event::default());
    loop {
        let ended = next.is_err();
        if client.send(next).await.is_err() || ended {
            return;
        }
        next = tokio::select! {
            next = wanted(&mut reader, &actor) => next,
            () = client.closed() => return,
        };
    }
}

async fn wanted(reader: &mut Reader, actor: &str) -> Result<api::Event, Status> {
    loop {
        let event = reader
            .next()
            .await
            .map_err(|behind| Status::new(Code::DataLoss, behind.to_string()))?;
        if actor.is_empty() || event.actor == actor {
            return Ok(message(&event));
        }
    }
}

fn message(event: &Event) -> api::Event {
    api::Event {
        metadata: None,
        data: Some(event.data.clone()),
        id: event.id.to_string(),
        actor_id: event.actor.clone(),
    }
}

#[cfg(test)]
mod tests {
    use corten_api::machine::machine_service_client::MachineServiceClient;
    use tonic::Streaming;

    use super::*;
    use crate::node::Node as _;
    use crate::tests::{World, world};

    fn publish(world: &World, actor: &str, phase: &str) {
        let event = api::PhaseEvent {
            phase: phase.to_owned(),
            action: 0,
        };
        world.node.events().publish(actor, &event);
    }

    async fn asked(world: &World, request: api::EventsRequest) -> Streaming<api::Event> {
        let mut client = MachineServiceClient::new(world.channel.clone());
        let mut stream = client.events(request).await.unwrap().into_inner();
        let first = stream.message().await.unwrap().unwrap();
        assert_eq!(first, api::Event::default());
        stream
    }

    async fn next(stream: &mut Streaming<api::Event>) -> (String, String) {
        let event = stream.message().await.unwrap().unwrap();
        let data = event.data.unwrap();
        assert_eq!(data.type_url, "talos/runtime/machine.PhaseEvent");
        let phase: api::PhaseEvent = prost::Message::decode(data.value.as_slice()).unwrap();
        (phase.phase, event.id)
    }

    #[tokio::test]
    async fn event_history_is_replayed_and_then_followed() {
        let world = world();
        for phase in ["one", "two", "three"] {
            publish(&world, "", phase);
        }
        let all = api::EventsRequest {
            tail_events: -1,
            ..Default::default()
        };
        let mut stream = asked(&world, all).await;
        let (phase, id) = next(&mut stream).await;
        assert_eq!(phase, "one");
        let after = api::EventsRequest {
            tail_id: id,
            ..Default::default()
        };
        let mut stream = asked(&world, after).await;
        for expected in ["two", "three"] {
            assert_eq!(next(&mut stream).await.0, expected);
        }
        publish(&world, "", "four");
        assert_eq!(next(&mut stream).await.0, "four");
    }

    #[tokio::test]
    async fn events_are_filtered_by_actor() {
        let world = world();
        for (actor, phase) in [("a", "one"), ("b", "two"), ("a", "three")] {
            publish(&world, actor, phase);
        }
        let of_b = api::EventsRequest {
            tail_seconds: 60,
            with_actor_id: "b".to_owned(),
            ..Default::default()
        };
        let mut stream = asked(&world, of_b).await;
        assert_eq!(next(&mut stream).await.0, "two");
        publish(&world, "b", "four");
        assert_eq!(next(&mut stream).await.0, "four");
    }

    #[tokio::test]
    async fn contradictory_event_requests_are_refused() {
        let events = Events::default();
        let both = api::EventsRequest {
            tail_events: 1,
            tail_seconds: 1,
            ..Default::default()
        };
        let no_id = api::EventsRequest {
            tail_id: "nonsense".to_owned(),
            ..Default::default()
        };
        let negative = api::EventsRequest {
            tail_seconds: -1,
            ..Default::default()
        };
        for request in [both, no_id, negative] {
            let refused = stream(&events, &request).err().unwrap();
            assert_eq!(refused.code(), Code::InvalidArgument, "{request:?}");
        }
    }

    #[test]
    fn client_after_a_reboot_gets_the_events_it_missed() {
        let from = |age| start(&api::EventsRequest::default(), Duration::from_secs(age));
        assert!(matches!(from(20), Ok(From::Last(usize::MAX))));
        assert!(matches!(from(600), Ok(From::Now)));
    }
}
