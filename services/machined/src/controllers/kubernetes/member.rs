//! Watches the node's running etcd member: promotes a learner to a voter, and shows a working member.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use corten_etcd::Client;
use corten_kubernetes::pods::HOST_SECRETS;
use corten_resources::Draft;
use corten_resources::controller::with_causes as describe;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_services::kubernetes::ETCD;
use corten_types::etcd::EtcdMember;
use corten_types::runtime::Service;
use corten_types::secrets::Endpoint;
use tokio::time::sleep;

use super::Complaints;
use super::join::connect;
use super::prism::known;

/// Poll interval until the member works.
const SOON: Duration = Duration::from_secs(2);
/// Poll interval after that.
const PAUSE: Duration = Duration::from_secs(15);

#[derive(Debug, Clone)]
pub(super) struct Member;

impl Controller for Member {
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
        vec![Output::exclusive::<EtcdMember>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let secrets = Path::new(HOST_SECRETS).join(ETCD);
        let mut complaints = Complaints::default();
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
                    Ok(State::Works(member_id)) => {
                        complaints.none();
                        pause = PAUSE;
                        let member_id = format!("{member_id:016x}");
                        context.put(Draft::new(EtcdMember::ID, EtcdMember { member_id }))?;
                    }
                    Ok(State::Waits) => pause = SOON,
                    Err(why) => {
                        complaints.say("this node's etcd member", &why);
                        client = None;
                        pause = SOON;
                    }
                }
            } else {
                client = None;
                pause = PAUSE;
            }
            context.remove_others::<EtcdMember>()?;
        }
    }
}

enum State {
    Works(u64),
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
        return Ok(State::Works(status.member_id));
    }
    promote(secrets, status.member_id, others).await
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
