//! Membership of the cluster.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tonic::transport::Uri;

use crate::client::Client;
use crate::error::EtcdError;
use crate::wire::etcdserverpb as pb;
use crate::wire::etcdserverpb::cluster_client::ClusterClient;

/// A member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Id.
    pub id: u64,
    /// Name; empty until the member has started for the first time.
    pub name: String,
    /// URLs for other members.
    pub peer_urls: Vec<String>,
    /// URLs for clients; empty until the member has started for the first time.
    pub client_urls: Vec<String>,
    /// Whether the member is a learner, without a vote.
    pub is_learner: bool,
}

impl Member {
    /// Whether other members reach it at one of these URLs.
    pub(crate) fn is_at(&self, peer_urls: &[String]) -> bool {
        self.peer_urls.iter().any(|url| peer_urls.contains(url))
    }

    /// Addresses of its node, the current ones first: a member publishes its client URLs only when it starts, and its peer
    /// URLs follow the node.
    #[must_use]
    pub fn hosts(&self) -> Vec<IpAddr> {
        let mut hosts = Vec::new();
        for host in self
            .peer_urls
            .iter()
            .chain(&self.client_urls)
            .filter_map(|url| host(url))
        {
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        hosts
    }
}

/// Address in a URL; `None` for a name.
fn host(url: &str) -> Option<IpAddr> {
    let url: Uri = url.parse().ok()?;
    url.host()?.trim_matches(['[', ']']).parse().ok()
}

impl From<pb::Member> for Member {
    fn from(member: pb::Member) -> Member {
        Member {
            id: member.id,
            name: member.name,
            peer_urls: member.peer_ur_ls,
            client_urls: member.client_ur_ls,
            is_learner: member.is_learner,
        }
    }
}

/// A new member with its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// The new member.
    pub member: Member,
    /// All members, including the new one.
    pub members: Vec<Member>,
}

/// Whether two lists have the same URLs, in any order.
pub(crate) fn same_urls(some: &[String], others: &[String]) -> bool {
    let set = |urls: &[String]| urls.iter().cloned().collect::<BTreeSet<String>>();
    set(some) == set(others)
}

fn members(members: Vec<pb::Member>) -> Vec<Member> {
    members.into_iter().map(Member::from).collect()
}

impl Client {
    fn cluster(&self) -> ClusterClient<tonic::transport::Channel> {
        ClusterClient::new(self.channel())
    }

    async fn list(&self, linearizable: bool) -> Result<Vec<Member>, EtcdError> {
        let request = pb::MemberListRequest { linearizable };
        let mut client = self.cluster();
        let answer = self
            .call("list the members", client.member_list(request))
            .await?;
        if answer.members.is_empty() {
            return Err(self.broken("list the members", "it lists no member"));
        }
        Ok(members(answer.members))
    }

    /// The members, read with consensus; needs a quorum.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub async fn members(&self) -> Result<Vec<Member>, EtcdError> {
        self.list(true).await
    }

    /// The members known to this member, possibly out of date; needs no quorum. A learner refuses the call
    /// ([`EtcdError::is_from_learner`]).
    ///
    /// # Errors
    /// [`EtcdError`].
    pub async fn local_members(&self) -> Result<Vec<Member>, EtcdError> {
        self.list(false).await
    }

    /// Adds a learner, which the caller starts afterwards.
    ///
    /// # Errors
    /// [`EtcdError::is_already_member`], [`EtcdError::is_unhealthy`], [`EtcdError::is_not_enough_started`], or another
    /// [`EtcdError`].
    pub async fn add_learner(&self, peer_urls: &[String]) -> Result<Added, EtcdError> {
        let request = pb::MemberAddRequest {
            peer_ur_ls: peer_urls.to_vec(),
            is_learner: true,
        };
        let what = "add a learner";
        let answer = self.call(what, self.cluster().member_add(request)).await?;
        let member = answer
            .member
            .ok_or_else(|| self.broken(what, "it does not name the new member"))?;
        Ok(Added {
            member: member.into(),
            members: members(answer.members),
        })
    }

    /// Promotes a learner to a voting member. Returns all members.
    ///
    /// # Errors
    /// [`EtcdError::is_not_in_sync`] until the learner has caught up, [`EtcdError::is_not_a_learner`],
    /// [`EtcdError::is_member_not_found`], or another [`EtcdError`].
    pub async fn promote(&self, id: u64) -> Result<Vec<Member>, EtcdError> {
        let request = pb::MemberPromoteRequest { id };
        let mut client = self.cluster();
        let answer = client.member_promote(request);
        Ok(members(
            self.call("promote a member", answer).await?.members,
        ))
    }

    /// Removes a member. Returns the remaining members.
    ///
    /// # Errors
    /// [`EtcdError::is_member_not_found`], [`EtcdError::is_unhealthy`], [`EtcdError::is_not_enough_started`], or
    /// another [`EtcdError`].
    pub async fn remove(&self, id: u64) -> Result<Vec<Member>, EtcdError> {
        let request = pb::MemberRemoveRequest { id };
        let mut client = self.cluster();
        let answer = client.member_remove(request);
        Ok(members(self.call("remove a member", answer).await?.members))
    }

    /// If this member leads, moves the leadership to another voting member. Returns the new leader's name; empty if
    /// nothing was done.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub async fn hand_over(&self) -> Result<String, EtcdError> {
        let status = self.status().await?;
        if status.leader != status.member_id {
            return Ok(String::new());
        }
        let members = self.members().await?.into_iter();
        let mut others =
            members.filter(|member| member.id != status.member_id && !member.is_learner);
        match others.next() {
            Some(other) => {
                self.move_leader(other.id).await?;
                Ok(other.name)
            }
            None => Ok(String::new()),
        }
    }

    /// Changes a member's peer URLs. Returns all members.
    ///
    /// # Errors
    /// [`EtcdError::is_member_not_found`], [`EtcdError::is_already_member`], or another [`EtcdError`].
    pub async fn update(&self, id: u64, peer_urls: &[String]) -> Result<Vec<Member>, EtcdError> {
        let request = pb::MemberUpdateRequest {
            id,
            peer_ur_ls: peer_urls.to_vec(),
        };
        let mut client = self.cluster();
        let answer = client.member_update(request);
        Ok(members(self.call("update a member", answer).await?.members))
    }

    /// Makes other members reach the connected member at these URLs. Returns whether that changed its URLs; their order
    /// has no meaning.
    ///
    /// # Errors
    /// [`EtcdError::is_from_learner`], [`EtcdError::is_already_member`], or another [`EtcdError`].
    pub async fn advertise(&self, peer_urls: &[String]) -> Result<bool, EtcdError> {
        let id = self.status().await?.member_id;
        let members = self.members().await?;
        let own = members.into_iter().find(|member| member.id == id);
        let own = own
            .ok_or_else(|| self.broken("list the members", "it does not list the member itself"))?;
        if same_urls(&own.peer_urls, peer_urls) {
            return Ok(false);
        }
        self.update(id, peer_urls).await.map(|_| true)
    }
}
