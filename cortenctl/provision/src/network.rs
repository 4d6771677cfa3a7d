//! Links of this machine and of its nodes: a bridge for each cluster, a veth pair for each container, a tap for each
//! virtual machine.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Context as _;
use futures_util::TryStreamExt as _;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage};
use rtnetlink::{Handle, LinkBridge, LinkUnspec, LinkVeth, RouteMessageBuilder};

/// `ENODEV`: the link does not exist.
const NO_LINK: i32 = 19;
/// Longest alias of a link in bytes (Linux, `IFALIASZ` with the final zero).
const LONGEST_ALIAS: usize = 255;

/// The links in the network namespace of the thread that opened it.
pub(super) struct Network(Handle);

impl Network {
    /// # Errors
    /// The kernel refuses the netlink socket.
    pub(super) fn open() -> anyhow::Result<Network> {
        let (connection, handle, _) =
            rtnetlink::new_connection().context("cannot speak to the kernel about links")?;
        tokio::spawn(connection);
        Ok(Network(handle))
    }

    /// Whether no network of this machine's links overlaps the network of `address`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) async fn is_free(&self, address: Ipv4Addr, prefix: u8) -> anyhow::Result<bool> {
        let mut found = self.0.address().get().execute();
        while let Some(message) = found.try_next().await? {
            let assigned = message
                .attributes
                .iter()
                .find_map(|attribute| match attribute {
                    AddressAttribute::Address(IpAddr::V4(address)) => Some(*address),
                    _ => None,
                });
            let shared = prefix.min(message.header.prefix_len);
            if assigned.is_some_and(|assigned| is_same_network(assigned, address, shared)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether there is a link with this name.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) async fn has(&self, name: &str) -> anyhow::Result<bool> {
        Ok(self.find(name).await?.is_some())
    }

    /// The alias of a link; `None` without an alias or a link.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) async fn alias(&self, name: &str) -> anyhow::Result<Option<String>> {
        let attributes = self.link(name).await?.map(|link| link.attributes);
        let mut attributes = attributes.into_iter().flatten();
        Ok(attributes.find_map(|attribute| match attribute {
            LinkAttribute::IfAlias(alias) => Some(alias),
            _ => None,
        }))
    }

    /// Makes a bridge with an address and an alias.
    ///
    /// # Errors
    /// The kernel refuses; the text names the bridge.
    pub(super) async fn add_bridge(
        &self,
        (name, alias): (&str, &str),
        address: Ipv4Addr,
        prefix: u8,
    ) -> anyhow::Result<()> {
        let add = async {
            self.0
                .link()
                .add(LinkBridge::new(name).build())
                .execute()
                .await?;
            // A new link takes no alias.
            let alias = LinkAttribute::IfAlias(alias.to_owned());
            let link = LinkUnspec::new_with_index(self.index(name).await?);
            self.change(link.append_extra_attribute(alias).build())
                .await?;
            self.configure(name, address, prefix).await
        };
        add.await
            .with_context(|| format!("making the bridge {name}"))
    }

    /// Adds an address to a link, and sets the link up.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) async fn configure(
        &self,
        name: &str,
        address: Ipv4Addr,
        prefix: u8,
    ) -> anyhow::Result<()> {
        let index = self.index(name).await?;
        let add = self.0.address().add(index, address.into(), prefix);
        add.execute().await?;
        self.change(LinkUnspec::new_with_index(index).up().build())
            .await
    }

    /// Sets a link up.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) async fn set_up(&self, name: &str) -> anyhow::Result<()> {
        let index = self.index(name).await?;
        self.change(LinkUnspec::new_with_index(index).up().build())
            .await
    }

    /// Renames a link that is down.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) async fn rename(&self, from: &str, to: &str) -> anyhow::Result<()> {
        let index = self.index(from).await?;
        self.change(
            LinkUnspec::new_with_index(index)
                .name(to.to_owned())
                .build(),
        )
        .await
    }

    /// Adds the default route through `gateway`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) async fn route_through(&self, gateway: Ipv4Addr) -> anyhow::Result<()> {
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .gateway(gateway)
            .build();
        Ok(self.0.route().add(route).execute().await?)
    }

    /// Makes a veth pair from the bridge into the network namespace of the process `pid`, where its end has the name
    /// `inside`.
    ///
    /// # Errors
    /// The kernel refuses; the text names the link.
    pub(super) async fn add_cable(
        &self,
        name: &str,
        bridge: &str,
        inside: &str,
        pid: u32,
    ) -> anyhow::Result<()> {
        let add = async {
            let veth = LinkVeth::new(name, inside).build();
            self.0.link().add(veth).execute().await?;
            self.attach(name, bridge).await?;
            let other = self.index(inside).await?;
            self.change(LinkUnspec::new_with_index(other).setns_by_pid(pid).build())
                .await
        };
        add.await.with_context(|| format!("making the link {name}"))
    }

    /// Makes a link a port of a bridge, and sets it up.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) async fn attach(&self, name: &str, bridge: &str) -> anyhow::Result<()> {
        let bridge = self.index(bridge).await?;
        let port = self.index(name).await?;
        self.change(
            LinkUnspec::new_with_index(port)
                .controller(bridge)
                .up()
                .build(),
        )
        .await
    }

    /// Removes a link. Idempotent: a missing link is fine.
    ///
    /// # Errors
    /// The kernel refuses; the text names the link.
    pub(super) async fn remove(&self, name: &str) -> anyhow::Result<()> {
        let Some(index) = self.find(name).await? else {
            return Ok(());
        };
        match self.0.link().del(index).execute().await {
            // The kernel removes the links of a container that has ended, and may do so just now.
            Err(error) if is_missing(&error) => Ok(()),
            removed => removed.with_context(|| format!("removing the link {name}")),
        }
    }

    async fn index(&self, name: &str) -> anyhow::Result<u32> {
        let found = self.find(name).await?;
        found.with_context(|| format!("there is no link {name}"))
    }

    async fn find(&self, name: &str) -> anyhow::Result<Option<u32>> {
        Ok(self.link(name).await?.map(|link| link.header.index))
    }

    async fn link(&self, name: &str) -> anyhow::Result<Option<LinkMessage>> {
        let mut found = self.0.link().get().match_name(name.to_owned()).execute();
        match found.try_next().await {
            Ok(link) => Ok(link),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("looking for the link {name}")),
        }
    }

    async fn change(&self, message: LinkMessage) -> anyhow::Result<()> {
        Ok(self.0.link().set(message).execute().await?)
    }
}

/// A text as an alias, which keeps its end if it is too long.
pub(super) fn as_alias(text: &str) -> &str {
    let from = text.len().saturating_sub(LONGEST_ALIAS);
    let from = (from..text.len()).find(|from| text.is_char_boundary(*from));
    from.and_then(|from| text.get(from..)).unwrap_or_default()
}

/// Whether the kernel knows no such link.
fn is_missing(error: &rtnetlink::Error) -> bool {
    matches!(error, rtnetlink::Error::NetlinkError(why) if why.raw_code().abs() == NO_LINK)
}

/// Whether two addresses have the same first `prefix` bits.
fn is_same_network(one: Ipv4Addr, other: Ipv4Addr, prefix: u8) -> bool {
    let differing = u32::from(one) ^ u32::from(other);
    differing.leading_zeros() >= u32::from(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alias_keeps_the_end_of_a_long_text() {
        assert_eq!(as_alias("/state/lab"), "/state/lab");
        let long = format!("/{}/lab", "é".repeat(LONGEST_ALIAS));
        let alias = as_alias(&long);
        assert!(alias.len() <= LONGEST_ALIAS && alias.len() > LONGEST_ALIAS - 2);
        assert!(long.ends_with(alias));
        assert_eq!(as_alias(""), "");
    }

    #[test]
    fn networks_overlap_if_they_share_the_shorter_prefix() {
        let is_same = |one: &str, other: &str, prefix| {
            is_same_network(one.parse().unwrap(), other.parse().unwrap(), prefix)
        };
        assert!(is_same("10.5.0.77", "10.5.0.1", 24));
        assert!(is_same("10.5.200.1", "10.5.0.129", 16));
        assert!(!is_same("10.5.0.127", "10.5.0.129", 25));
        assert!(is_same("10.5.0.1", "10.5.0.1", 32));
        assert!(!is_same("10.5.0.2", "10.5.0.1", 32));
    }
}
