//! One link's DHCPv4 client: a lease, its renewal at T1 and T2, and its end.

use std::time::Duration;

use mozim::{DhcpV4Client, DhcpV4Config, DhcpV4State};
use tokio::sync::mpsc;

use super::link_config::{LinkConfig, from_lease};
use crate::console;

/// After an error of the client itself; lost packets it repeats on its own.
const RETRY: Duration = Duration::from_secs(3);

/// What the client has to tell: the link's index and what it may have, `None` when a lease is lost.
pub type News = (u32, Option<LinkConfig>);

/// Runs for as long as the link is there.
pub async fn run(index: u32, name: String, mac: Vec<u8>, news: mpsc::UnboundedSender<News>) {
    loop {
        if let Err(error) = lease_for_life(index, &name, &mac, &news).await {
            console::warn(&format!("network: DHCP on {name}: {}", error.msg()));
        }
        if news.send((index, None)).is_err() {
            return;
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn lease_for_life(
    index: u32,
    name: &str,
    mac: &[u8],
    news: &mpsc::UnboundedSender<News>,
) -> Result<(), mozim::DhcpError> {
    let mut config = DhcpV4Config::new(name);
    config
        .set_iface_index(index)
        .set_iface_mac_raw(mac)?
        .use_mac_as_client_id();
    let mut client = DhcpV4Client::init(config, None).await?;
    let mut leased = false;
    loop {
        match client.run().await? {
            DhcpV4State::Done(lease) => {
                leased = true;
                let _ = news.send((index, Some(from_lease(&lease))));
            }
            // Back at the beginning: the lease ran out and nobody renewed it.
            DhcpV4State::InitReboot if leased => {
                leased = false;
                console::warn(&format!("network: the DHCP lease on {name} ran out"));
                let _ = news.send((index, None));
            }
            _ => {}
        }
    }
}
