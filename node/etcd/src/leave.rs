//! Removes a node's own member from its cluster.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::cluster::Member;
use crate::error::EtcdError;

/// Port of a member for clients (IANA, `etcd-client`).
const CLIENT_PORT: u16 = 2379;

/// Times of the attempts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// Limit of all attempts.
    pub(crate) all: Duration,
    /// Pause between two of them.
    pub(crate) pause: Duration,
}

/// The reference's values.
const TIMES: Times = Times {
    all: Duration::from_mins(5),
    pause: Duration::from_secs(10),
};

/// The node whose member leaves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leaver {
    /// Endpoint of the node's own member.
    pub endpoint: String,
    /// Endpoints of other members, as far as they are known.
    pub others: Vec<String>,
    /// Name of the member.
    pub name: String,
    /// URLs at which the others reach the member.
    pub peer_urls: Vec<String>,
}

/// Reason why a member stays.
#[derive(Debug, thiserror::Error)]
pub enum LeaveError {
    /// It is the only one.
    #[error(
        "this node has the last member of etcd, and the cluster's data with it: to give up the cluster, reset the node \
         with --graceful=false"
    )]
    Last,
    /// Another member has its name, and it cannot say itself whether it is the same.
    #[error(
        "this node's member does not answer, and the cluster has a member {0:016x} of the same name at {1}: if that is \
         this node, remove it by its id on another control plane node"
    )]
    Unclear(u64, String),
    /// It does not answer, and the node knows no other.
    #[error("this node knows no other member, and its own does not answer: {0}")]
    Alone(EtcdError),
    /// A call failed.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
}

impl LeaveError {
    fn is_temporary(&self) -> bool {
        match self {
            LeaveError::Last | LeaveError::Unclear(..) | LeaveError::Alone(_) => false,
            LeaveError::Etcd(error) => error.is_temporary(),
        }
    }
}

/// Removes the node's member from the cluster, with further attempts for five minutes while etcd is not able to. A
/// member that the cluster does not list has left. `connect` connects to the first of some endpoints that answers.
///
/// # Errors
/// It is the last member, etcd refuses to remove it, or no member answers in time.
pub async fn leave<F>(connect: impl Fn(Vec<String>) -> F, leaver: &Leaver) -> Result<(), LeaveError>
where
    F: Future<Output = Result<Client, EtcdError>>,
{
    leave_within(TIMES, connect, leaver).await
}

pub(crate) async fn leave_within<F>(
    times: Times,
    connect: impl Fn(Vec<String>) -> F,
    leaver: &Leaver,
) -> Result<(), LeaveError>
where
    F: Future<Output = Result<Client, EtcdError>>,
{
    let end = Instant::now() + times.all;
    loop {
        let Err(error) = attempt(&connect, leaver).await else {
            return Ok(());
        };
        if !error.is_temporary() || Instant::now() + times.pause > end {
            return Err(error);
        }
        sleep(times.pause).await;
    }
}

async fn attempt<F>(connect: &impl Fn(Vec<String>) -> F, leaver: &Leaver) -> Result<(), LeaveError>
where
    F: Future<Output = Result<Client, EtcdError>>,
{
    let (own, seen) = match connect(vec![leaver.endpoint.clone()]).await {
        Ok(own) => {
            let seen = look(&own).await;
            (Some(own), seen)
        }
        Err(error) => (None, Err(error)),
    };
    let (id, members) = match seen {
        Ok(seen) => seen,
        Err(error) if leaver.others.is_empty() => return Err(LeaveError::Alone(error)),
        // A learner, and a member that ends, cannot say.
        Err(_) => {
            let members = connect(leaver.others.clone()).await?.members().await?;
            match find(&members, leaver)? {
                Some(id) => (id, members),
                None => return Ok(()),
            }
        }
    };
    if members.len() == 1 {
        return Err(LeaveError::Last);
    }
    if let Some(own) = &own {
        // etcd elects another leader anyway, a little later.
        let _ = own.hand_over().await;
    }
    // A member that removes itself ends, and its answer may be lost. So another one is asked first.
    let voters = members
        .iter()
        .filter(|member| member.id != id && !member.is_learner);
    let mut endpoints: Vec<String> = voters.flat_map(endpoints_of).collect();
    endpoints.push(leaver.endpoint.clone());
    match connect(endpoints).await?.remove(id).await {
        Err(error) if !error.is_member_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Id of this member, and all members.
async fn look(own: &Client) -> Result<(u64, Vec<Member>), EtcdError> {
    Ok((own.status().await?.member_id, own.members().await?))
}

/// Id of the node's member in the list of another member.
fn find(members: &[Member], leaver: &Leaver) -> Result<Option<u64>, LeaveError> {
    if let Some(own) = members
        .iter()
        .find(|member| member.is_at(&leaver.peer_urls))
    {
        return Ok(Some(own.id));
    }
    match members.iter().find(|member| member.name == leaver.name) {
        // It may be another machine that has replaced this one.
        Some(other) => Err(LeaveError::Unclear(other.id, other.peer_urls.join(", "))),
        None => Ok(None),
    }
}

/// Host and port of a URL.
fn endpoint(url: &str) -> String {
    url.rsplit_once("://")
        .map_or(url, |(_, rest)| rest)
        .trim_end_matches('/')
        .to_owned()
}

/// Endpoints of a member: at its current addresses, then those that it published when it started.
fn endpoints_of(member: &Member) -> Vec<String> {
    let current = member.hosts().into_iter();
    let mut all: Vec<String> = current
        .map(|host| SocketAddr::new(host, CLIENT_PORT).to_string())
        .collect();
    for published in member.client_urls.iter().map(|url| endpoint(url)) {
        if !all.contains(&published) {
            all.push(published);
        }
    }
    all
}
