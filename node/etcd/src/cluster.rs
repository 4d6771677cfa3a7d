//! The members of the cluster.

use crate::client::Client;
use crate::error::EtcdError;
use crate::wire::etcdserverpb as pb;
use crate::wire::etcdserverpb::cluster_client::ClusterClient;

/// A member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: u64,
    /// Its name; empty until it has started for the first time.
    pub name: String,
    /// Where members reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it; empty until it has started for the first time.
    pub client_urls: Vec<String>,
    /// Whether it has no vote yet.
    pub is_learner: bool,
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

/// A new member, and the cluster that it is to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// The new one.
    pub member: Member,
    /// All, the new one among them.
    pub members: Vec<Member>,
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
            return Err(self.broken("list the members", "it names no member"));
        }
        Ok(members(answer.members))
    }

    /// The members, as the cluster has agreed on them. It needs a quorum.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub async fn members(&self) -> Result<Vec<Member>, EtcdError> {
        self.list(true).await
    }

    /// The members as this member knows them, which may be out of date. It needs no quorum. A learner refuses it
    /// ([`EtcdError::is_from_learner`]).
    ///
    /// # Errors
    /// [`EtcdError`].
    pub async fn local_members(&self) -> Result<Vec<Member>, EtcdError> {
        self.list(false).await
    }

    /// Adds a member without a vote, which is to be started then.
    ///
    /// # Errors
    /// [`EtcdError::is_already_member`], [`EtcdError::is_unhealthy`], [`EtcdError::is_not_enough_started`], or another [`EtcdError`].
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

    /// Gives a learner its vote. Returns all members.
    ///
    /// # Errors
    /// [`EtcdError::is_not_in_sync`] until it has caught up, [`EtcdError::is_not_a_learner`], [`EtcdError::is_member_not_found`],
    /// or another [`EtcdError`].
    pub async fn promote(&self, id: u64) -> Result<Vec<Member>, EtcdError> {
        let request = pb::MemberPromoteRequest { id };
        let mut client = self.cluster();
        let answer = client.member_promote(request);
        Ok(members(
            self.call("promote a member", answer).await?.members,
        ))
    }

    /// Removes a member. Returns those that are left.
    ///
    /// # Errors
    /// [`EtcdError::is_member_not_found`], [`EtcdError::is_unhealthy`], [`EtcdError::is_not_enough_started`], or another
    /// [`EtcdError`].
    pub async fn remove(&self, id: u64) -> Result<Vec<Member>, EtcdError> {
        let request = pb::MemberRemoveRequest { id };
        let mut client = self.cluster();
        let answer = client.member_remove(request);
        Ok(members(self.call("remove a member", answer).await?.members))
    }

    /// Hands leadership to another member that votes, if this one has it. Returns whom to; empty when nothing was to do.
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

    /// Takes the member that answers out of the cluster, after it has handed over its leadership.
    ///
    /// # Errors
    /// [`EtcdError::is_unhealthy`], [`EtcdError::is_not_enough_started`], or another [`EtcdError`].
    pub async fn leave(&self) -> Result<(), EtcdError> {
        self.hand_over().await?;
        let own = self.status().await?.member_id;
        self.remove(own).await.map(drop)
    }

    /// Changes where members reach a member. Returns all members.
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
}
