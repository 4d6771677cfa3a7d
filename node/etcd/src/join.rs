//! The steps by which a node joins a cluster, each derived from the current list of members.

use crate::Member;

/// Next step of a join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Join {
    /// Remove this stale member: it belongs to this node before the loss of its data.
    Remove(Member),
    /// Wait: a member of another node has this node's name. The operator removes it if that node is gone for good.
    NameTaken(Member),
    /// Wait: this member of another node was added but has not started yet.
    Wait(Member),
    /// Add this node as a learner.
    Add,
    /// Start etcd with these members, including this node; each has a name and a peer URL.
    Start(Vec<(String, String)>),
}

/// Plans the next step of a node without data. `peer_url` is the node's own peer URL.
///
/// A started member with this node's URL counts as this node's own. A member with only the same name must count as
/// another machine's: two machines with the same name must not remove each other.
#[must_use]
pub fn plan(members: &[Member], name: &str, peer_url: &str) -> Join {
    let is_ours = |member: &&Member| member.peer_urls.iter().any(|url| url == peer_url);
    let is_new = |member: &Member| member.name.is_empty();
    if let Some(stale) = members.iter().find(|one| is_ours(one) && !is_new(one)) {
        return Join::Remove(stale.clone());
    }
    if let Some(other) = members.iter().find(|one| one.name == name) {
        return Join::NameTaken(other.clone());
    }
    if let Some(other) = members.iter().find(|one| is_new(one) && !is_ours(one)) {
        return Join::Wait(other.clone());
    }
    if !members.iter().any(|one| is_ours(&one)) {
        return Join::Add;
    }
    let named = members.iter().flat_map(|member| {
        let name = if is_new(member) { name } else { &member.name };
        let urls = member.peer_urls.iter();
        urls.map(move |url| (name.to_owned(), url.clone()))
    });
    Join::Start(named.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "https://10.0.0.2:2380";

    fn member(name: &str, url: &str) -> Member {
        Member {
            id: 1,
            name: name.to_owned(),
            peer_urls: vec![url.to_owned()],
            client_urls: Vec::new(),
            is_learner: false,
        }
    }

    #[test]
    fn new_node_is_added_and_starts_with_all_members() {
        let first = member("cp-1", "https://10.0.0.1:2380");
        let added = member("", OWN);
        let of = |members: &[Member]| plan(members, "cp-2", OWN);
        assert_eq!(of(std::slice::from_ref(&first)), Join::Add);
        let expected = [("cp-1", "https://10.0.0.1:2380"), ("cp-2", OWN)];
        let expected = expected.map(|(name, url)| (name.to_owned(), url.to_owned()));
        assert_eq!(of(&[first, added]), Join::Start(expected.into()));
    }

    #[test]
    fn wiped_node_removes_only_its_own_member() {
        let own = member("cp-2", OWN);
        assert_eq!(
            plan(std::slice::from_ref(&own), "cp-2", OWN),
            Join::Remove(own)
        );
        let renamed = member("old-name", OWN);
        assert_eq!(
            plan(std::slice::from_ref(&renamed), "cp-2", OWN),
            Join::Remove(renamed)
        );
        let elsewhere = member("cp-2", "https://10.0.0.9:2380");
        assert_eq!(
            plan(std::slice::from_ref(&elsewhere), "cp-2", OWN),
            Join::NameTaken(elsewhere)
        );
    }

    #[test]
    fn node_waits_while_another_node_joins() {
        let other = member("", "https://10.0.0.3:2380");
        assert_eq!(
            plan(std::slice::from_ref(&other), "cp-2", OWN),
            Join::Wait(other)
        );
    }
}
