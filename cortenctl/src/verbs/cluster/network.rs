//! Links of this machine and of its nodes: a bridge for each cluster, a veth pair for each node.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Context as _;
use futures_util::TryStreamExt as _;
use rtnetlink::packet_route::link::LinkMessage;
use rtnetlink::{Handle, LinkBridge, LinkUnspec, LinkVeth, RouteMessageBuilder};

/// `ENODEV`: the link does not exist.
const NO_LINK: i32 = 19;

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

    /// Whether no address of this machine conflicts with `address`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) async fn is_free(&self, address: Ipv4Addr) -> anyhow::Result<bool> {
        let wanted = IpAddr::V4(address);
        let found = self.0.address().get().set_address_filter(wanted).execute();
        Ok(found.try_collect::<Vec<_>>().await?.is_empty())
    }

    /// Makes a bridge with an address.
    ///
    /// # Errors
    /// The kernel refuses; the text names the bridge.
    pub(super) async fn add_bridge(
        &self,
        name: &str,
        address: Ipv4Addr,
        prefix: u8,
    ) -> anyhow::Result<()> {
        let add = async {
            self.0
                .link()
                .add(LinkBridge::new(name).build())
                .execute()
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
            let bridge = self.index(bridge).await?;
            let end = self.index(name).await?;
            self.change(
                LinkUnspec::new_with_index(end)
                    .controller(bridge)
                    .up()
                    .build(),
            )
            .await?;
            let other = self.index(inside).await?;
            self.change(LinkUnspec::new_with_index(other).setns_by_pid(pid).build())
                .await
        };
        add.await.with_context(|| format!("making the link {name}"))
    }

    /// Removes a link. Idempotent: a missing link is fine.
    ///
    /// # Errors
    /// The kernel refuses; the text names the link.
    pub(super) async fn remove(&self, name: &str) -> anyhow::Result<()> {
        let index = match self.find(name).await {
            Ok(Some(index)) => index,
            Ok(None) => return Ok(()),
            Err(error) => return Err(error),
        };
        let removed = self.0.link().del(index).execute().await;
        removed.with_context(|| format!("removing the link {name}"))
    }

    async fn index(&self, name: &str) -> anyhow::Result<u32> {
        let found = self.find(name).await?;
        found.with_context(|| format!("there is no link {name}"))
    }

    async fn find(&self, name: &str) -> anyhow::Result<Option<u32>> {
        let mut found = self.0.link().get().match_name(name.to_owned()).execute();
        match found.try_next().await {
            Ok(link) => Ok(link.map(|link| link.header.index)),
            Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code().abs() == NO_LINK => {
                Ok(None)
            }
            Err(error) => Err(error).with_context(|| format!("looking for the link {name}")),
        }
    }

    async fn change(&self, message: LinkMessage) -> anyhow::Result<()> {
        Ok(self.0.link().set(message).execute().await?)
    }
}
