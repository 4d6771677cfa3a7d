//! Remote destinations of logs and events.

use corten_api::common::Url;
use corten_api::talos::resource::definitions::runtime::{EventSinkConfigSpec, KmsgLogConfigSpec};
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::open;

/// Receivers of the kernel log; id [`KmsgLogConfig::ID`]. Without receivers there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KmsgLogConfig {
    /// URLs of the receivers: `tcp://host:port` or `udp://host:port`.
    pub destinations: Vec<String>,
}

impl KmsgLogConfig {
    /// Id of the only resource of this type.
    pub const ID: &str = "kmsg-log";
}

impl Spec for KmsgLogConfig {
    const DEFINITION: Definition = open("KmsgLogConfigs.runtime.talos.dev", "runtime", &[], &[]);

    type Message = KmsgLogConfigSpec;

    fn message(&self) -> KmsgLogConfigSpec {
        let url = |url: &String| Url {
            full_path: url.clone(),
        };
        let destinations = self.destinations.iter().map(url).collect();
        KmsgLogConfigSpec { destinations }
    }
}

/// Receiver of events; id [`EventSinkConfig::ID`]. Without a receiver there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventSinkConfig {
    /// `host:port`, with an IPv6 address in brackets.
    pub endpoint: String,
}

impl EventSinkConfig {
    /// Id of the only resource of this type.
    pub const ID: &str = "event-sink";
}

impl Spec for EventSinkConfig {
    const DEFINITION: Definition = open("EventSinkConfigs.runtime.talos.dev", "runtime", &[], &[]);

    type Message = EventSinkConfigSpec;

    fn message(&self) -> EventSinkConfigSpec {
        let endpoint = self.endpoint.clone();
        EventSinkConfigSpec { endpoint }
    }
}
