//! Where logs and events go beside the node.

use corten_api::common::Url;
use corten_api::talos::resource::definitions::runtime::{EventSinkConfigSpec, KmsgLogConfigSpec};
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::open;

/// Who receives the kernel's log; id [`KmsgLogConfig::ID`]. There is none when nobody does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KmsgLogConfig {
    /// `tcp://host:port` or `udp://host:port`.
    pub destinations: Vec<String>,
}

impl KmsgLogConfig {
    /// There is one.
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

/// Who receives events; id [`EventSinkConfig::ID`]. There is none when nobody does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventSinkConfig {
    /// `host:port`, an IPv6 address in brackets.
    pub endpoint: String,
}

impl EventSinkConfig {
    /// There is one.
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
