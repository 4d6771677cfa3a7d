//! The services that start at the first connection.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use corten_api::{IMAGE_CACHE_PORT, TRUST_PORT};
use corten_sys::child::CapabilitySet;

use super::{READY, checked, limits, port, sees, strings};
use crate::health::Probe;
use crate::supervisor::limits::{Limits, Start};
use crate::{
    Condition, IMAGE_CACHE, Part, Process, REGISTRYD, REGISTRYD_UID, Runner, ServiceSpec,
    SystemCalls, TRUSTD_PKI, TRUSTD_UID,
};

/// The service that a node with the CA's key runs in addition to [`table`](fn@super::table).
#[must_use]
pub fn trustd() -> ServiceSpec {
    ServiceSpec {
        id: "trustd".into(),
        runner: Runner::Process(Process {
            argv: strings(&["/usr/bin/trustd", "--on-demand", "--pki", TRUSTD_PKI]),
            uid: TRUSTD_UID,
            capabilities: CapabilitySet::empty(),
            no_new_privs: true,
            env: Vec::new(),
            system_calls: SystemCalls::Server,
            // An attacker who takes trustd over gets the CA, but nothing else of the node.
            sandbox: sees(const { &[Part::reads(TRUSTD_PKI)] }),
        }),
        depends_on: Vec::new(),
        needs: vec![Condition::TrustdFiles],
        // It serves the joining of a node and the renewal of a worker's certificate.
        limits: on_demand(
            (Ipv6Addr::UNSPECIFIED, TRUST_PORT),
            checked(port(TRUST_PORT), limits(READY, 15)),
        ),
        oom_score_adj: -998,
        cgroup: "system/trustd".to_owned(),
    }
}

pub(super) fn registryd() -> ServiceSpec {
    ServiceSpec {
        id: REGISTRYD.into(),
        runner: Runner::Process(Process {
            argv: strings(&[
                "/usr/bin/registryd",
                "serve",
                "--on-demand",
                "--root",
                IMAGE_CACHE,
            ]),
            uid: REGISTRYD_UID,
            capabilities: CapabilitySet::empty(),
            no_new_privs: true,
            env: Vec::new(),
            system_calls: SystemCalls::Server,
            // Pods on the host's network can reach it, too.
            sandbox: sees(const { &[Part::reads(IMAGE_CACHE)] }),
        }),
        depends_on: Vec::new(),
        needs: Vec::new(),
        // It serves the pull of an image.
        limits: on_demand(
            (Ipv4Addr::LOCALHOST, IMAGE_CACHE_PORT),
            checked(
                Probe::Http((Ipv4Addr::LOCALHOST, IMAGE_CACHE_PORT).into(), "/healthz"),
                limits(READY, 5),
            ),
        ),
        oom_score_adj: -500,
        cgroup: "system/registryd".to_owned(),
    }
}

/// A service that starts at the first connection to this address.
fn on_demand(address: impl Into<SocketAddr>, limits: Limits) -> Limits {
    let start = Start::OnDemand(address.into());
    Limits { start, ..limits }
}
