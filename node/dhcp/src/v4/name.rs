//! The name that the client tells the server (option 12; RFC 2132, section 3.14), for the network's DNS.

use corten_values::is_host_name;

use super::message::Lease;

/// The node's name towards the server, and the server's name for the node.
///
/// A server's name for the node is not told back to it. Before a lease the client does not know whether the node's own
/// name will yield to that of the server, so it tells its own only after an offer without a name.
#[derive(Debug, Default)]
pub(super) struct Name {
    /// The node's name, without its domain.
    pub own: Option<String>,
    /// Whether the node takes no name from the server.
    ignores: bool,
    /// The server's name for the node, in its last offer or lease.
    given: Option<String>,
    /// The name in the last message.
    told: Option<String>,
}

impl Name {
    pub fn new(ignores: bool) -> Name {
        Name {
            ignores,
            ..Name::default()
        }
    }

    /// Reads the server's name for the node, and drops from the lease one that is none: some servers repeat the client's
    /// name when they have no other (dnsmasq).
    pub fn hear(&mut self, lease: &mut Lease) {
        let told = self.told.as_ref();
        let is_own = |name: &String| !self.ignores && !is_same(Some(name), told);
        lease.hostname = lease.hostname.take().filter(is_own);
        self.given.clone_from(&lease.hostname);
    }

    /// The name to tell in a message: none at first, then in the answer to an offer, then in a renewal.
    pub fn tell(&mut self, at: Occasion) -> Option<String> {
        let is_due = match at {
            Occasion::Start => false,
            Occasion::Offer => self.given.is_none(),
            Occasion::Renewal => !is_same(self.own.as_ref(), self.given.as_ref()),
        };
        self.told = self.own.clone().filter(|_| is_due);
        self.told.clone()
    }

    /// Whether a lease began without a name of either side.
    pub fn is_untold(&self) -> bool {
        self.own.is_some() && self.given.is_none() && self.told.is_none()
    }
}

/// When a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    /// Before the server has said anything.
    Start,
    /// After an offer.
    Offer,
    /// During a lease.
    Renewal,
}

fn is_same(one: Option<&String>, other: Option<&String>) -> bool {
    let first = |name: &String| name.split('.').next().map(str::to_ascii_lowercase);
    one.and_then(first) == other.and_then(first)
}

/// The node's name without its domain, from the kernel's host name; `None` while that is the kernel's placeholder.
pub(super) fn own(kernel: &str) -> Option<String> {
    let name = kernel.split('.').next().unwrap_or_default();
    (is_host_name(name) && name != "localhost").then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_name_is_the_first_part_of_the_kernels_host_name() {
        assert_eq!(own("n1.example.com").as_deref(), Some("n1"));
        assert_eq!(own("n1").as_deref(), Some("n1"));
        for placeholder in ["(none)", "localhost", ""] {
            assert_eq!(own(placeholder), None, "{placeholder}");
        }
    }
}
