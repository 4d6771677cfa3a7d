//! The steps by which a node joins a cluster, each derived from the current list of members.

use crate::Member;
use crate::cluster::same_urls;

/// Next step of a join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Join {
    /// Remove this stale member: this node before the loss of its data, or before other addresses.
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

/// Plans the next step of a node without data. `peer_urls` are the node's own peer URLs.
///
/// A started member with one of this node's URLs counts as this node's own. A member with only the same name must count
/// as another machine's: two machines with the same name must not remove each other.
#[must_use]
pub fn plan(members: &[Member], name: &str, peer_urls: &[String]) -> Join {
    let is_ours = |member: &&Member| member.is_at(peer_urls);
    let is_new = |member: &Member| member.name.is_empty();
    // etcd starts a new member only at exactly the URLs that the others know.
    let is_stale = |member: &Member| !is_new(member) || !same_urls(&member.peer_urls, peer_urls);
    if let Some(stale) = members.iter().find(|one| is_ours(one) && is_stale(one)) {
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
    const OWN_SECOND: &str = "https://[fd00::2]:2380";

    fn urls(urls: &[&str]) -> Vec<String> {
        urls.iter().map(|url| (*url).to_owned()).collect()
    }

    fn member(name: &str, at: &[&str]) -> Member {
        Member {
            id: 1,
            name: name.to_owned(),
            peer_urls: urls(at),
            client_urls: Vec::new(),
            is_learner: false,
        }
    }

    fn plan_of(member: &Member, own: &[&str]) -> Join {
        plan(std::slice::from_ref(member), "cp-2", &urls(own))
    }

    #[test]
    fn new_node_is_added_and_starts_with_all_members() {
        let first = member("cp-1", &["https://10.0.0.1:2380"]);
        let added = member("", &[OWN]);
        assert_eq!(plan_of(&first, &[OWN]), Join::Add);
        let expected = [("cp-1", "https://10.0.0.1:2380"), ("cp-2", OWN)];
        let expected = expected.map(|(name, url)| (name.to_owned(), url.to_owned()));
        assert_eq!(
            plan(&[first, added], "cp-2", &urls(&[OWN])),
            Join::Start(expected.into())
        );
    }

    #[test]
    fn node_with_two_addresses_starts_with_both() {
        // etcd lists URLs sorted.
        let added = member("", &[OWN_SECOND, OWN]);
        let expected = [OWN_SECOND, OWN].map(|url| ("cp-2".to_owned(), url.to_owned()));
        assert_eq!(
            plan_of(&added, &[OWN, OWN_SECOND]),
            Join::Start(expected.into())
        );
    }

    #[test]
    fn learner_that_was_added_at_other_addresses_is_added_again() {
        let added = member("", &[OWN]);
        assert_eq!(
            plan_of(&added, &[OWN, OWN_SECOND]),
            Join::Remove(added.clone())
        );
    }

    #[test]
    fn wiped_node_removes_only_its_own_member() {
        for name in ["cp-2", "old-name"] {
            let own = member(name, &[OWN]);
            assert_eq!(plan_of(&own, &[OWN]), Join::Remove(own.clone()));
        }
        let elsewhere = member("cp-2", &["https://10.0.0.9:2380"]);
        assert_eq!(
            plan_of(&elsewhere, &[OWN]),
            Join::NameTaken(elsewhere.clone())
        );
    }

    #[test]
    fn node_waits_while_another_node_joins() {
        let other = member("", &["https://10.0.0.3:2380"]);
        assert_eq!(plan_of(&other, &[OWN]), Join::Wait(other.clone()));
    }
}
