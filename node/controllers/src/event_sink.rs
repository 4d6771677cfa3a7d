//! Shows the event sink from the config and the kernel command line, and sends events to it.
//!
//! It buffers a single event besides the node's history, so an unreachable sink costs nothing.

use std::sync::Arc;
use std::time::Duration;

use corten_api::events::EventRequest;
use corten_api::events::event_sink_service_client::EventSinkServiceClient;
use corten_base::cmdline::Cmdline;
use corten_base::console;
use corten_base::events::{self, Event, Events, Reader};
use corten_config::{Document, kinds};
use corten_dial::authority;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::logging::EventSinkConfig;
use corten_types::network_names::NetworkStatus;
use corten_types::runtime::KernelCmdline;
use tokio::sync::{Mutex, watch};
use tokio::time::{sleep, timeout};
use tonic::Status;
use tonic::transport::{self, Channel, Endpoint};

use super::next_wishes;

/// Timeout for connecting to the sink and sending an event.
const PATIENCE: Duration = Duration::from_secs(30);
/// Delay before the first retry of an event; it doubles with each retry.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Maximum size of an answer in bytes; answers are empty.
const LONGEST_ANSWER: usize = 4096;
/// Maximum number of characters of an error message to log.
const LONGEST_REFUSAL: usize = 200;

/// Shows the receiver of events.
#[derive(Debug, Clone)]
pub(super) struct EventSinks {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for EventSinks {
    fn name(&self) -> &'static str {
        "runtime.EventsSinkConfigController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<KernelCmdline>(Dependency::Weak).with_id(KernelCmdline::ID)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<EventSinkConfig>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            let (config, line) = next_wishes(&mut self.config, context).await?;
            context.start_outputs();
            if let Some(endpoint) = wanted(config.as_ref(), &line) {
                context.put(Draft::new(
                    EventSinkConfig::ID,
                    EventSinkConfig { endpoint },
                ))?;
            }
            context.remove_others::<EventSinkConfig>()?;
        }
    }
}

fn wanted(config: Option<&Document>, line: &Cmdline) -> Option<String> {
    let configured = config.and_then(|config| config.all::<kinds::EventSinkConfig>().next());
    let given = line.ours("events.sink").filter(|given| !given.is_empty());
    configured
        .map(|sink| authority(&sink.endpoint.host, sink.endpoint.port))
        .or_else(|| given.map(str::to_owned))
}

/// Sends events to the receiver.
#[derive(Debug, Clone)]
pub(super) struct EventSender {
    /// Shared by all runs, so that a restart of the controller continues where the last run ended.
    queue: Arc<Mutex<Queue>>,
}

impl EventSender {
    pub(super) fn new(events: &Events) -> EventSender {
        let queue = Queue {
            reader: events.read(events::From::Last(usize::MAX)),
            first: None,
        };
        EventSender {
            queue: Arc::new(Mutex::new(queue)),
        }
    }
}

impl Controller for EventSender {
    fn name(&self) -> &'static str {
        "v1alpha1.EventsSinkController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<EventSinkConfig>(Dependency::Weak).with_id(EventSinkConfig::ID),
            Input::of::<NetworkStatus>(Dependency::Weak).with_id(NetworkStatus::ID),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut queue = self.queue.lock().await;
        context.event().await;
        loop {
            // Without an address every boot would begin with a warning.
            let network = context.get::<NetworkStatus>(NetworkStatus::ID)?;
            let may_start = network.is_some_and(|network| network.address_ready);
            match present(context)?.filter(|_| may_start) {
                None => context.event().await,
                Some(sink) => tokio::select! {
                    () = queue.send_to(&sink) => {}
                    moved = moved_from(&sink, context) => moved?,
                },
            }
        }
    }
}

fn present(context: &Context) -> Result<Option<String>, Failure> {
    let config = context.get::<EventSinkConfig>(EventSinkConfig::ID)?;
    Ok(config.map(|config| config.endpoint.clone()))
}

/// Waits until the sink changes or is removed.
async fn moved_from(sink: &str, context: &mut Context) -> Result<(), Failure> {
    while present(context)?.as_deref() == Some(sink) {
        context.event().await;
    }
    Ok(())
}

/// Events that no sink has accepted yet.
#[derive(Debug)]
struct Queue {
    reader: Reader,
    first: Option<Arc<Event>>,
}

impl Queue {
    /// Sends events one by one, forever. Cancellation loses no event.
    async fn send_to(&mut self, sink: &str) {
        let (mut client, mut works, mut pause) = (None, None, FIRST_PAUSE);
        loop {
            let event = self.first().await;
            let sent = timeout(PATIENCE, publish(&mut client, sink, &event)).await;
            match sent.unwrap_or(Err(SinkError::Silent)) {
                Ok(()) => {
                    self.first = None;
                    pause = FIRST_PAUSE;
                    if works.replace(true) != Some(true) {
                        console::say(&format!("events are sent to {sink}"));
                    }
                }
                Err(error) => {
                    client = None;
                    if works.replace(false) != Some(false) {
                        let why = corten_resources::controller::with_causes(&error);
                        console::warn(&format!("events to {sink}: {why}; still trying"));
                    }
                    sleep(pause).await;
                    pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn first(&mut self) -> Arc<Event> {
        loop {
            if let Some(first) = &self.first {
                return first.clone();
            }
            match self.reader.next().await {
                Ok(event) => self.first = Some(event),
                Err(behind) => console::warn(&format!("events to a sink: {behind}")),
            }
        }
    }
}

/// Why a sink has not accepted an event.
#[derive(Debug, thiserror::Error)]
enum SinkError {
    #[error("cannot connect")]
    Connect(#[from] transport::Error),
    #[error("it answers {0}")]
    Refused(String),
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Silent,
}

impl From<Status> for SinkError {
    /// Keeps the printable, truncated part of its message.
    fn from(status: Status) -> SinkError {
        let words = status.message().chars().filter(|c| !c.is_control());
        let words: String = words.take(LONGEST_REFUSAL).collect();
        SinkError::Refused(format!("{:?}: {words}", status.code()))
    }
}

type Client = EventSinkServiceClient<Channel>;

async fn publish(client: &mut Option<Client>, sink: &str, event: &Event) -> Result<(), SinkError> {
    let client = match client {
        Some(client) => client,
        None => client.insert(connect(sink).await?),
    };
    let request = EventRequest {
        data: Some(event.data.clone()),
        id: event.id.to_string(),
        actor_id: event.actor.clone(),
    };
    client.publish(request).await?;
    Ok(())
}

async fn connect(sink: &str) -> Result<Client, transport::Error> {
    let endpoint = Endpoint::from_shared(format!("http://{sink}"))?;
    let client = EventSinkServiceClient::new(endpoint.connect().await?);
    Ok(client.max_decoding_message_size(LONGEST_ANSWER))
}

#[cfg(test)]
#[path = "event_sink_tests.rs"]
mod tests;
