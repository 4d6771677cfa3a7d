use std::future::pending;
use std::ops::Range;

use corten_api::events::EventResponse;
use corten_api::events::event_sink_service_server::{EventSinkService, EventSinkServiceServer};
use corten_api::machine as api;
use corten_base::sample;
use corten_resources::Store;
use corten_resources::controller::Runtime;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response};

use super::*;

const DEADLINE: Duration = Duration::from_secs(60);

enum Answer {
    Accept,
    Refuse,
    Never,
}

#[derive(Clone)]
struct Sink {
    got: watch::Sender<Vec<EventRequest>>,
    asked: watch::Sender<usize>,
    /// Answer by the number of the call.
    answer: fn(usize) -> Answer,
}

#[tonic::async_trait]
impl EventSinkService for Sink {
    async fn publish(
        &self,
        request: Request<EventRequest>,
    ) -> Result<Response<EventResponse>, Status> {
        let number = *self.asked.borrow();
        self.asked.send_modify(|asked| *asked += 1);
        match (self.answer)(number) {
            Answer::Accept => self.got.send_modify(|got| got.push(request.into_inner())),
            Answer::Refuse => return Err(Status::unavailable("full\n[corten] all is well")),
            Answer::Never => pending().await,
        }
        Ok(Response::new(EventResponse {}))
    }
}

impl Sink {
    fn serve(listener: TcpListener, answer: fn(usize) -> Answer) -> Sink {
        let sink = Sink {
            got: watch::Sender::default(),
            asked: watch::Sender::default(),
            answer,
        };
        let server = Server::builder()
            .add_service(EventSinkServiceServer::new(sink.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        sink
    }

    /// Waits for this many events and compares them all.
    async fn has(&self, expected: Range<usize>) {
        let mut got = self.got.subscribe();
        let enough = got.wait_for(|got| got.len() >= expected.len());
        let got = timeout(DEADLINE, enough).await.unwrap().unwrap().clone();
        let phases: Vec<usize> = got.iter().map(phase).collect();
        assert_eq!(phases, expected.collect::<Vec<_>>());
    }
}

/// The number in the event, after checking that the event is complete.
fn phase(event: &EventRequest) -> usize {
    assert!(events::Id::parse(&event.id).is_some(), "{event:?}");
    assert_eq!(event.actor_id, "somebody");
    let data = event.data.as_ref().unwrap();
    assert_eq!(data.type_url, "talos/runtime/machine.PhaseEvent");
    let phase = api::PhaseEvent::decode(data.value.as_slice()).unwrap();
    phase.phase.parse().unwrap()
}

struct World {
    store: Store,
    events: Events,
    config: watch::Sender<Option<Document>>,
}

impl World {
    fn new() -> World {
        let world = World {
            store: Store::new(),
            events: Events::default(),
            config: watch::Sender::new(None),
        };
        let network = NetworkStatus {
            address_ready: true,
            ..NetworkStatus::default()
        };
        let mut runtime = Runtime::new(world.store.clone());
        let sinks = EventSinks {
            config: world.config.subscribe(),
        };
        runtime.add(sinks).unwrap();
        runtime.add(EventSender::new(&world.events)).unwrap();
        let network = Draft::new(NetworkStatus::ID, network);
        world.store.put(network, "").unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        world
    }

    fn publish(&self, numbers: Range<usize>) {
        for number in numbers {
            let event = api::PhaseEvent {
                phase: number.to_string(),
                action: 0,
            };
            self.events.publish("somebody", &event);
        }
    }

    fn send_to(&self, listener: &TcpListener) -> String {
        let endpoint = listener.local_addr().unwrap().to_string();
        self.config.send_replace(Some(config(&endpoint)));
        endpoint
    }

    async fn shows(&self, endpoint: Option<&str>) {
        sample::until::<EventSinkConfig>(&self.store, EventSinkConfig::ID, |shown| {
            shown.map(|shown| shown.endpoint.as_str()) == endpoint
        })
        .await;
    }
}

fn config(endpoint: &str) -> Document {
    sample::kind(&format!("EventSinkConfig\nendpoint: '{endpoint}'"))
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

#[tokio::test]
async fn late_event_sink_gets_every_event_of_this_boot() {
    let (world, listener) = (World::new(), listener().await);
    world.publish(0..3);
    let endpoint = world.send_to(&listener);
    world.shows(Some(&endpoint)).await;
    // The connection succeeds, but no server answers.
    for _ in 0..2 {
        let connection = timeout(DEADLINE, listener.accept()).await.unwrap();
        drop(connection.unwrap());
    }
    world.publish(3..5);
    let sink = Sink::serve(listener, |_| Answer::Accept);
    sink.has(0..5).await;
    world.publish(5..7);
    sink.has(0..7).await;
}

#[tokio::test]
async fn refused_event_is_sent_again() {
    let (world, listener) = (World::new(), listener().await);
    world.send_to(&listener);
    let sink = Sink::serve(listener, |call| match call {
        0 | 2 => Answer::Refuse,
        _ => Answer::Accept,
    });
    world.publish(0..3);
    sink.has(0..3).await;
    assert_eq!(*sink.asked.borrow(), 5);
}

#[tokio::test]
async fn new_event_sink_continues_after_the_old_one() {
    let (world, first, second) = (World::new(), listener().await, listener().await);
    world.send_to(&first);
    let first = Sink::serve(first, |call| match call {
        0 | 1 => Answer::Accept,
        _ => Answer::Never,
    });
    world.publish(0..3);
    let mut asked = first.asked.subscribe();
    let stalled = asked.wait_for(|asked| *asked == 3);
    timeout(DEADLINE, stalled).await.unwrap().unwrap();
    // A sink that does not answer must not delay a change of the sink.
    world.publish(3..5);
    let endpoint = world.send_to(&second);
    let second = Sink::serve(second, |_| Answer::Accept);
    second.has(2..5).await;
    first.has(0..2).await;
    world.shows(Some(&endpoint)).await;
    world.config.send_replace(None);
    world.shows(None).await;
}

#[test]
fn event_sink_of_the_config_wins_over_the_kernel_parameter() {
    let line = Cmdline::parse("quiet talos.events.sink=10.0.0.8:1");
    let configured = config("[fd00::9]:4000");
    for (config, line, endpoint) in [
        (Some(&configured), &line, Some("[fd00::9]:4000")),
        (None, &line, Some("10.0.0.8:1")),
        (None, &Cmdline::parse("corten.events.sink="), None),
        (None, &Cmdline::default(), None),
    ] {
        assert_eq!(wanted(config, line).as_deref(), endpoint);
    }
}

#[test]
fn sink_error_is_one_short_line() {
    let words = format!("full\n[corten] all is well{}", "x".repeat(9000));
    let told = SinkError::from(Status::unavailable(words)).to_string();
    assert!(told.starts_with("it answers Unavailable: full[corten] all is well"));
    assert!(told.len() < 300, "{told}");
    assert!(!told.contains('\n'), "{told}");
}
