//! The node's membership in etcd.

use corten_api::talos::resource::definitions::etcd as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::{column, open};

/// The node's etcd member; id [`EtcdMember::ID`]. It exists while the member runs, can vote and knows a leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdMember {
    /// Member id in hexadecimal.
    #[serde(rename = "memberID")]
    pub member_id: String,
}

impl EtcdMember {
    /// Id of the only resource of this type.
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
