//! A link's DHCP clients: a lease, its renewal at T1 and T2, and its end.
//!
//! A lease holds until its time is up, whatever becomes of the client: not when the server is away, and
//! not when a cable is pulled out and put in again, after which the server is asked anew.

use std::net::Ipv6Addr;
use std::time::Duration;

use mozim::{
    DhcpError, DhcpV4Client, DhcpV4Config, DhcpV4State, DhcpV6Client, DhcpV6Config, DhcpV6Duid,
    DhcpV6Mode, DhcpV6State,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::layers::Specs;
use super::lease;
use crate::console;
use crate::resources::network_names::{ClientIdentifier, Dhcp};

/// After an error of the client itself; lost packets it repeats on its own.
const RETRY: Duration = Duration::from_secs(3);
/// Type of a client identifier that is a DUID (RFC 4361, section 6.1).
const DUID_CLIENT_ID: u8 = 255;

/// A link, for its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asking {
    /// The kernel's number.
    pub index: u32,
    pub name: String,
    pub mac: Vec<u8>,
    /// How it asks.
    pub dhcp: Dhcp,
    /// Where it asks from: by DHCPv6, its link-local address; by DHCPv4 nothing.
    pub source: Option<Ipv6Addr>,
}

/// What a server gave, and for how long from now on.
pub type Lease = (Specs, Duration);

/// A client of either version.
enum Client {
    V4(DhcpV4Client),
    V6(DhcpV6Client),
}

impl Client {
    async fn new(asking: &Asking) -> Result<Client, DhcpError> {
        match asking.source {
            None => {
                let mut config = DhcpV4Config::new(&asking.name);
                config
                    .set_iface_index(asking.index)
                    .set_iface_mac_raw(&asking.mac)?;
                identify(&mut config, &asking.dhcp.client_identifier, asking.index);
                Ok(Client::V4(DhcpV4Client::init(config, None).await?))
            }
            Some(source) => {
                let mode = DhcpV6Mode::NonTemporaryAddresses;
                let mut config = DhcpV6Config::new(&asking.name, mode);
                config
                    .set_iface_index(asking.index)
                    .set_link_local_ip(source)
                    .set_duid_by_iface_mac(&asking.mac);
                let identifier = &asking.dhcp.client_identifier;
                if identifier.client_identifier == "duid" {
                    config.set_duid(DhcpV6Duid::Raw(bytes(&identifier.duid)));
                }
                Ok(Client::V6(DhcpV6Client::init(config, None).await?))
            }
        }
    }

    /// Goes on until something has changed; returns a new lease, if that is it.
    async fn run(&mut self, asking: &Asking) -> Result<Option<Lease>, DhcpError> {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        Ok(match self {
            Client::V4(client) => match client.run().await? {
                DhcpV4State::Done(found) => {
                    let specs = lease::of_v4(&asking.name, &asking.dhcp, &found);
                    Some((specs, seconds(found.lease_time_sec)))
                }
                _ => None,
            },
            Client::V6(client) => match client.run().await? {
                DhcpV6State::Done(found) => {
                    let specs = lease::of_v6(&asking.name, &found);
                    Some((specs, seconds(found.valid_time_sec)))
                }
                _ => None,
            },
        })
    }
}

fn identify(config: &mut DhcpV4Config, identifier: &ClientIdentifier, index: u32) {
    match identifier.client_identifier {
        "none" => {}
        "duid" => {
            // RFC 4361: four bytes that tell links of one machine apart, then the DUID.
            let id = [&index.to_be_bytes(), &*bytes(&identifier.duid)].concat();
            config.set_client_id(DUID_CLIENT_ID, &id);
        }
        _ => drop(config.use_mac_as_client_id()),
    }
}

/// Hexadecimal digits as bytes; the config has checked them.
fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .filter_map(|digit| u8::try_from(digit).ok())
        .collect();
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(high << 4 | low),
        _ => None,
    };
    digits.chunks(2).filter_map(byte).collect()
}

/// Asks for as long as the link is there. `tell` gets what a lease gives, and `None` when it is over; `again`
/// says that the link has its carrier back.
pub async fn ask(
    asking: Asking,
    mut again: mpsc::UnboundedReceiver<()>,
    tell: impl Fn(Option<Specs>) + Send,
) {
    let mut ends: Option<Instant> = None;
    loop {
        let mut client = match Client::new(&asking).await {
            Ok(client) => Some(client),
            Err(error) => {
                complain(&asking, &error);
                None
            }
        };
        loop {
            let over = async {
                match ends {
                    Some(ends) => tokio::time::sleep_until(ends).await,
                    None => std::future::pending().await,
                }
            };
            let run = async {
                match &mut client {
                    Some(client) => client.run(&asking).await.map_err(Some),
                    None => {
                        tokio::time::sleep(RETRY).await;
                        Err(None)
                    }
                }
            };
            tokio::select! {
                biased;
                () = over => {
                    let name = &asking.name;
                    console::warn(&format!("network: the DHCP lease on {name} ran out"));
                    ends = None;
                    tell(None);
                }
                carrier = again.recv() => match carrier {
                    Some(()) => break,
                    None => return,
                },
                result = run => match result {
                    Ok(None) => {}
                    Ok(Some((specs, time))) => {
                        ends = Instant::now().checked_add(time);
                        tell(Some(specs));
                    }
                    Err(Some(error)) => {
                        complain(&asking, &error);
                        client = None;
                    }
                    Err(None) => break,
                },
            }
        }
    }
}

fn complain(asking: &Asking, error: &DhcpError) {
    let name = &asking.name;
    console::warn(&format!("network: DHCP on {name}: {}", error.msg()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duid_is_read() {
        assert_eq!(bytes("000100FF"), [0, 1, 0, 255]);
        assert!(bytes("").is_empty());
    }
}
