//! What the node is to etcd.

use corten_api::talos::resource::definitions::etcd as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::{column, open};

/// The node's member of etcd; id [`EtcdMember::ID`]. It is there while the member runs, has a vote and knows a leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdMember {
    /// Its id, hexadecimal.
    #[serde(rename = "memberID")]
    pub member_id: String,
}

impl EtcdMember {
    /// There is one.
    pub const ID: &str = "local";
}

impl Spec for EtcdMember {
    const DEFINITION: Definition = open(
        "EtcdMembers.etcd.talos.dev",
        "etcd",
        &[],
        &[column("Member ID", ".memberID")],
    );

    type Message = wire::MemberSpec;

    fn message(&self) -> wire::MemberSpec {
        wire::MemberSpec {
            member_id: self.member_id.clone(),
        }
    }
}
