//! Watches the node's running etcd member: promotes a learner to a voter, shows a working member, and publishes the
//! control plane nodes by the list of members.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use corten_credentials::etcd::connect;
use corten_etcd::{Client, Member};
use corten_kubernetes::pods::HOST_SECRETS;
use corten_resources::Draft;
use corten_resources::controller::with_causes as describe;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_supervisor::kubernetes::ETCD;
use corten_types::etcd::EtcdMember;
use corten_types::runtime::Service;
use corten_types::secrets::Endpoint;
use http::Uri;
use tokio::time::sleep;

use super::Complaints;
use super::prism::known;

/// Poll interval until the member works.
const SOON: Duration = Duration::from_secs(2);
/// Poll interval after that.
const PAUSE: Duration = Duration::from_secs(15);
/// Time that etcd gets to start before an obstacle is logged.
const STARTS: Duration = Duration::from_secs(15);

#[derive(Debug, Clone)]
pub(super) struct OwnMember;

impl Controller for OwnMember {
    fn name(&self) -> &'static str {
        "etcd.MemberController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<Service>(Dependency::Weak).with_id(ETCD),
            Input::of::<Endpoint>(Dependency::Weak).with_id(Endpoint::CLUSTER),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<EtcdMember>(),
            Output::shared::<Endpoint>(),
        ]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let secrets = Path::new(HOST_SECRETS).join(ETCD);
        let mut complaints = Complaints::of_lasting(STARTS);
        let mut pause = PAUSE;
        // The connection is kept, since each new one costs etcd a TLS handshake.
        let mut client: Option<Client> = None;
        loop {
            tokio::select! {
                () = context.event() => {}
                () = sleep(pause) => {}
            }
            let service = context.get::<Service>(ETCD)?;
            context.start_outputs();
            if service.is_some_and(|service| service.healthy) {
                match look(&secrets, &mut client, &known(context)?).await {
                    Ok(State::Works(member_id, nodes)) => {
                        complaints.none();
                        pause = PAUSE;
                        let member_id = format!("{member_id:016x}");
                        context.put(Draft::new(EtcdMember::ID, EtcdMember { member_id }))?;
                        // It stays while etcd is down: the nodes are still what they are.
                        context.put(Draft::new(Endpoint::MEMBERS, nodes))?;
                    }
                    Ok(State::Waits) => pause = SOON,
                    Err(why) => {
                        complaints.say("this node's etcd member", &why);
                        client = None;
                        pause = SOON;
                    }
                }
            } else {
                complaints.none();
                client = None;
                pause = PAUSE;
            }
            context.remove_others::<EtcdMember>()?;
        }
    }
}

enum State {
    /// Id of the member, and the nodes of all members.
    Works(u64, Endpoint),
    /// It has no leader yet, or is catching up with the others.
    Waits,
}

async fn look(
    secrets: &Path,
    client: &mut Option<Client>,
    others: &[IpAddr],
) -> Result<State, String> {
    let client = match client {
        Some(client) => client,
        None => client.insert(connect(secrets, &[IpAddr::from([127, 0, 0, 1])]).await?),
    };
    let status = client.status().await.map_err(|error| describe(&error))?;
    if status.leader == 0 {
        return Ok(State::Waits);
    }
    if !status.is_learner {
        let members = client.local_members().await;
        let members = members.map_err(|error| describe(&error))?;
        return Ok(State::Works(status.member_id, nodes(&members)));
    }
    promote(secrets, status.member_id, others).await
}

/// Nodes of the members; the name of a member is the host name of its node.
fn nodes(members: &[Member]) -> Endpoint {
    let mut addresses: Vec<String> = members
        .iter()
        .flat_map(|member| &member.peer_urls)
        .filter_map(|url| url.parse::<Uri>().ok())
        .filter_map(|uri| uri.host().map(plain))
        .collect();
    addresses.sort();
    addresses.dedup();
    let names = members.iter().map(|member| member.name.clone());
    let mut hosts: Vec<String> = names.filter(|name| !name.is_empty()).collect();
    hosts.sort();
    Endpoint {
        addresses,
        hosts,
        api_port: None,
    }
}

/// Host of a URL without the brackets of an IPv6 address.
fn plain(host: &str) -> String {
    host.trim_matches(['[', ']']).to_owned()
}

/// Makes another member promote this one once it has caught up; a learner itself rejects that request.
async fn promote(secrets: &Path, own: u64, others: &[IpAddr]) -> Result<State, String> {
    let mut why = "no other control plane node is known that could promote it".to_owned();
    for other in others {
        let voter = match connect(secrets, &[*other]).await {
            Ok(voter) => voter,
            Err(error) => {
                why = error;
                continue;
            }
        };
        let status = voter.status().await.map_err(|error| describe(&error))?;
        if status.is_learner {
            continue;
        }
        match voter.promote(own).await {
            Ok(_) => return Ok(State::Waits),
            Err(error) if error.is_not_in_sync() || error.is_not_a_learner() => {
                return Ok(State::Waits);
            }
            Err(error) => why = describe(&error),
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_plane_names_and_addresses_come_from_etcd_members() {
        let member = |name: &str, urls: &[&str]| Member {
            id: 1,
            name: name.to_owned(),
            peer_urls: urls.iter().map(|url| (*url).to_owned()).collect(),
            client_urls: Vec::new(),
            is_learner: false,
        };
        let members = [
            member("cp-2", &["https://10.0.0.2:2380", "https://[fd00::2]:2380"]),
            // A member that has not started has no name yet.
            member("", &["https://10.0.0.3:2380"]),
            member("cp-1", &["https://10.0.0.1:2380", "no URL"]),
        ];
        let told = nodes(&members);
        assert_eq!(
            told.addresses,
            ["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::2"]
        );
        assert_eq!(told.hosts, ["cp-1", "cp-2"]);
    }
}
