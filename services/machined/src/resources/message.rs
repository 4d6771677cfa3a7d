//! Specs as the messages typed clients decode (`api/proto/resource`).
//!
//! What a message has no value for is left out: it is the default of its type then, as everywhere in
//! protobuf.

use std::net::IpAddr;

use corten_api::common::{NetIp, NetIpPrefix, PemEncodedCertificate, PemEncodedCertificateAndKey};
use corten_api::talos::resource::definitions::network as wire;
use corten_api::talos::resource::definitions::secrets::OsRootSpec;
use prost::Message as _;

use super::names::{
    ADDRESS_FLAGS, FAMILIES, LINK_FLAGS, LINK_TYPES, OPERATIONAL_STATES, ROUTE_PROTOCOLS,
    ROUTE_TYPES, ROUTING_TABLES, SCOPES, bits, number,
};
use super::network::{AddressStatus, HardwareAddress, LinkStatus, NodeAddress, RouteStatus};
use super::network_names::ResolverStatus;
use super::network_wireguard::{WireguardPeerStatus, WireguardStatus};
use super::prefix::Prefix;
use super::secrets::OsRoot;

pub(super) fn link(link: &LinkStatus) -> Vec<u8> {
    let message = wire::LinkStatusSpec {
        index: link.index,
        r#type: number(&link.link_type, LINK_TYPES).unwrap_or(0xffff),
        link_index: link.link_index,
        flags: bits(&link.flags, LINK_FLAGS),
        hardware_addr: hardware(&link.hardware_addr),
        broadcast_addr: hardware(&link.broadcast_addr),
        mtu: link.mtu,
        queue_disc: link.queue_disc.clone(),
        master_index: link.master_index,
        operational_state: number(link.operational_state, OPERATIONAL_STATES).unwrap_or_default(),
        kind: link.kind.clone(),
        slave_kind: link.slave_kind.clone(),
        bus_path: link.bus_path.clone(),
        pciid: link.pci_id.clone(),
        driver: link.driver.clone(),
        link_state: link.link_state,
        permanent_addr: hardware(&link.permanent_addr),
        alt_names: link.alt_names.clone(),
        alias: link.alias.clone(),
        wireguard: link.wireguard.as_ref().map(wireguard),
    };
    message.encode_to_vec()
}

fn wireguard(tunnel: &WireguardStatus) -> wire::WireguardSpec {
    let peer = |peer: &WireguardPeerStatus| wire::WireguardPeer {
        public_key: peer.public_key.to_string(),
        endpoint: peer
            .endpoint
            .map(|endpoint| endpoint.to_string())
            .unwrap_or_default(),
        persistent_keepalive_interval: Some(prost_types::Duration {
            seconds: peer.keepalive.into(),
            nanos: 0,
        }),
        allowed_i_ps: peer
            .allowed_ips
            .iter()
            .map(|network| net_prefix(*network))
            .collect(),
    };
    wire::WireguardSpec {
        public_key: tunnel.public_key.to_string(),
        listen_port: tunnel.listen_port.into(),
        firewall_mark: tunnel.firewall_mark.into(),
        peers: tunnel.peers.iter().map(peer).collect(),
    }
}

pub(super) fn address(address: &AddressStatus) -> Vec<u8> {
    let message = wire::AddressStatusSpec {
        address: prefix(&address.address),
        local: ip(&address.local),
        broadcast: ip(&address.broadcast),
        link_index: address.link_index,
        link_name: address.link_name.clone(),
        family: number(address.family, FAMILIES).unwrap_or_default(),
        scope: number(address.scope, SCOPES).unwrap_or_default(),
        flags: bits(&address.flags, ADDRESS_FLAGS),
    };
    message.encode_to_vec()
}

pub(super) fn route(route: &RouteStatus) -> Vec<u8> {
    let message = wire::RouteStatusSpec {
        family: number(route.family, FAMILIES).unwrap_or_default(),
        destination: prefix(&route.dst),
        source: ip(&route.src),
        gateway: ip(&route.gateway),
        out_link_index: route.out_link_index,
        out_link_name: route.out_link_name.clone(),
        table: number(&route.table, ROUTING_TABLES).unwrap_or_default(),
        priority: route.priority,
        scope: number(route.scope, SCOPES).unwrap_or_default(),
        r#type: number(route.route_type, ROUTE_TYPES).unwrap_or_default(),
        protocol: number(&route.protocol, ROUTE_PROTOCOLS).unwrap_or_default(),
    };
    message.encode_to_vec()
}

pub(super) fn node_address(node: &NodeAddress) -> Vec<u8> {
    let message = wire::NodeAddressSpec {
        addresses: node
            .addresses
            .iter()
            .filter_map(|one| prefix(one))
            .collect(),
        sort_algorithm: u32::from(node.sort_algorithm == "v2"),
    };
    message.encode_to_vec()
}

pub(super) fn hardware_address(address: &HardwareAddress) -> Vec<u8> {
    let message = wire::HardwareAddrSpec {
        name: address.name.clone(),
        hardware_addr: hardware(&address.hardware_addr),
    };
    message.encode_to_vec()
}

pub(super) fn resolvers(resolvers: &ResolverStatus) -> Vec<u8> {
    let message = wire::ResolverStatusSpec {
        dns_servers: resolvers.dns_servers.iter().copied().map(net_ip).collect(),
        search_domains: resolvers.search_domains.clone(),
    };
    message.encode_to_vec()
}

pub(super) fn os_root(root: &OsRoot) -> Vec<u8> {
    let certificate = |crt: &str| PemEncodedCertificate {
        crt: crt.as_bytes().to_vec(),
    };
    let message = OsRootSpec {
        issuing_ca: Some(PemEncodedCertificateAndKey {
            crt: root.issuing_ca.crt.as_bytes().to_vec(),
            key: root.issuing_ca.key.expose().as_bytes().to_vec(),
        }),
        cert_sani_ps: root.cert_san_ips.iter().filter_map(|one| ip(one)).collect(),
        cert_sandns_names: root.cert_san_dns_names.clone(),
        token: root.token.expose().to_owned(),
        accepted_c_as: root
            .accepted_cas
            .iter()
            .map(|ca| certificate(&ca.crt))
            .collect(),
    };
    message.encode_to_vec()
}

fn net_ip(address: IpAddr) -> NetIp {
    let ip = match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    NetIp { ip }
}

fn ip(text: &str) -> Option<NetIp> {
    text.parse().ok().map(net_ip)
}

fn prefix(text: &str) -> Option<NetIpPrefix> {
    let (address, length) = text.split_once('/')?;
    Some(net_prefix(Prefix {
        address: address.parse().ok()?,
        length: length.parse().ok()?,
    }))
}

fn net_prefix(prefix: Prefix) -> NetIpPrefix {
    let NetIp { ip } = net_ip(prefix.address);
    NetIpPrefix {
        ip,
        prefix_length: prefix.length.into(),
    }
}

/// Bytes from hexadecimal with colons; none where that is not what the text is.
fn hardware(text: &str) -> Vec<u8> {
    let byte = |part| u8::from_str_radix(part, 16).ok();
    let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
    bytes.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use corten_config::values::WireguardKey;

    use super::*;

    #[test]
    fn a_default_route_has_no_destination() {
        let status = RouteStatus {
            family: "inet4",
            dst: String::new(),
            src: "10.0.2.15".to_owned(),
            gateway: "10.0.2.2".to_owned(),
            out_link_index: 2,
            out_link_name: "eth0".to_owned(),
            table: "main".to_owned(),
            priority: 1024,
            scope: "global",
            route_type: "unicast",
            protocol: "dhcp".to_owned(),
        };
        let message = wire::RouteStatusSpec::decode(route(&status).as_slice()).unwrap();
        assert_eq!(message.destination, None);
        assert_eq!(message.gateway.unwrap().ip, [10, 0, 2, 2]);
        assert_eq!((message.family, message.table), (2, 254));
        assert_eq!((message.r#type, message.protocol), (1, 16));
    }

    #[test]
    fn a_tunnel_is_told_with_its_peers() {
        let tunnel = WireguardStatus {
            public_key: WireguardKey([1; 32]),
            listen_port: 51820,
            firewall_mark: u32::MAX,
            peers: vec![WireguardPeerStatus {
                public_key: WireguardKey([2; 32]),
                endpoint: Some("192.0.2.1:51820".parse().unwrap()),
                keepalive: 25,
                allowed_ips: vec![Prefix::host("10.8.0.1".parse().unwrap())],
            }],
        };
        let message = wireguard(&tunnel);
        assert_eq!(
            message.public_key,
            "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
        );
        assert_eq!(
            (message.listen_port, message.firewall_mark),
            (51820, 0xffff_ffff)
        );
        let peer = &message.peers[0];
        assert_eq!(peer.endpoint, "192.0.2.1:51820");
        assert_eq!(peer.persistent_keepalive_interval.unwrap().seconds, 25);
        assert_eq!(
            (
                &*peer.allowed_i_ps[0].ip,
                peer.allowed_i_ps[0].prefix_length
            ),
            (&[10, 8, 0, 1][..], 32)
        );
    }

    #[test]
    fn addresses_are_bytes() {
        let node = NodeAddress {
            addresses: vec!["10.0.2.15/24".to_owned(), "fd00::1/64".to_owned()],
            sort_algorithm: "v1",
        };
        let message = wire::NodeAddressSpec::decode(node_address(&node).as_slice()).unwrap();
        assert_eq!(message.addresses[0].ip, [10, 0, 2, 15]);
        assert_eq!(message.addresses[1].ip.len(), 16);
        assert_eq!(message.addresses[1].prefix_length, 64);
        assert_eq!(hardware("52:54:00:01:02:fe"), [0x52, 0x54, 0, 1, 2, 0xfe]);
        assert!(hardware("").is_empty());
    }
}
