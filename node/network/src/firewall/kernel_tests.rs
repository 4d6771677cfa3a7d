//! Tests the filter in the real kernel: two network namespaces with a cable between them.

use std::net::UdpSocket;

use corten_base::testing::{self, Neighbour, alone, give, kernel};
use corten_types::firewall::{PortMatch, PortRange, Rule};
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage};
use netlink_packet_netfilter::nftables::{NfTablesMessage, RuleAttribute, RuleMessage};
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterProtoFamily};
use netlink_sys::protocols::NETLINK_NETFILTER;

use super::tests::{BLOCK, document, rule};
use super::{Chains, chains, message, replace};
use crate::netlink::{bytes, exchange};

const OWN: &str = "10.0.0.1";

/// A cable to a neighbor with three addresses.
async fn cable() -> Neighbour {
    let neighbour = testing::cable([2, 0, 0, 0, 0, 1]).await;
    give(&kernel(), "plug", &[OWN]).await;
    neighbour.asks(async |handle| {
        give(&handle, "far", &["10.0.0.2", "10.0.0.66", "10.0.0.200"]).await;
    });
    neighbour
}

/// The kernel's rules, as (chain, number of expressions).
fn present() -> Vec<(String, usize)> {
    let header = NetfilterHeader::new(NetfilterProtoFamily::Inet, 0, 0);
    let attributes = vec![RuleAttribute::Table(message::TABLE.to_owned())];
    let ask = NfTablesMessage::GetRule(RuleMessage { attributes });
    let mut ask = NetlinkMessage::from(NetfilterMessage::new(header, ask));
    ask.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut rules = Vec::new();
    for answer in exchange::<NetfilterMessage>(NETLINK_NETFILTER, &bytes(ask)).unwrap() {
        let netlink_packet_core::NetlinkPayload::InnerMessage(message) = answer.payload else {
            continue;
        };
        let netlink_packet_netfilter::NetfilterMessageInner::NfTables(NfTablesMessage::NewRule(
            rule,
        )) = message.inner
        else {
            panic!("{message:?}");
        };
        let (mut chain, mut count) = (String::new(), 0);
        for attribute in rule.attributes {
            match attribute {
                RuleAttribute::Chain(name) => chain = name,
                RuleAttribute::Expressions(all) => count = all.len(),
                _ => {}
            }
        }
        rules.push((chain, count));
    }
    rules
}

/// Packets that arrive at our ports when the neighbor sends them in this order, each from an address to a port. A cable
/// keeps the order, so a packet missing before the last one was dropped.
fn arriving(neighbour: &Neighbour, sent: &[(&str, u16)]) -> Vec<(String, u16)> {
    let ports: Vec<UdpSocket> = [7000, 7001, 7002]
        .map(|port| UdpSocket::bind((OWN, port)).unwrap())
        .into();
    neighbour.acts(|| {
        for (from, port) in sent {
            let socket = UdpSocket::bind((*from, 0)).unwrap();
            socket.send_to(b"x", (OWN, *port)).unwrap();
        }
    });
    let last = ports.iter().find(|socket| {
        let port = socket.local_addr().unwrap().port();
        sent.last().unwrap().1 == port
    });
    let mut byte = [0];
    last.unwrap().peek_from(&mut byte).unwrap();
    let mut arrived = Vec::new();
    for socket in ports {
        socket.set_nonblocking(true).unwrap();
        let port = socket.local_addr().unwrap().port();
        while let Ok((_, from)) = socket.recv_from(&mut byte) {
            arrived.push((from.ip().to_string(), port));
        }
    }
    arrived
}

fn pairs(pairs: &[(&str, u16)]) -> Vec<(String, u16)> {
    let owned = |(from, port): &(&str, u16)| ((*from).to_owned(), *port);
    pairs.iter().map(owned).collect()
}

fn udp(ports: &str, from: &str) -> String {
    rule("udp", &format!("ports: [{ports}]"), from)
}

#[test]
fn only_listed_sources_reach_a_port_and_replies_pass() {
    alone(async {
        let neighbour = cable().await;
        let rules = udp(
            "6990-7000, 7002",
            "{subnet: 10.0.0.0/24, except: 10.0.0.64/26}",
        );
        let own = [OWN.parse().unwrap()];
        let blocked = chains(&document(&[BLOCK, &rules]), &own);
        replace(&blocked).unwrap();
        let sent = [
            ("10.0.0.2", 7001),
            ("10.0.0.66", 7000),
            ("10.0.0.200", 7000),
            ("10.0.0.2", 7002),
        ];
        let expected = pairs(&[("10.0.0.200", 7000), ("10.0.0.2", 7002)]);
        assert_eq!(arriving(&neighbour, &sent), expected);

        // The query leaves from a port that the filter closes to everyone.
        let socket = UdpSocket::bind((OWN, 7001)).unwrap();
        let address = "10.0.0.2:7001";
        let answers = neighbour.acts(|| {
            let server = UdpSocket::bind(address).unwrap();
            std::thread::spawn(move || {
                let (_, from) = server.recv_from(&mut [0]).unwrap();
                server.send_to(b"y", from).unwrap();
            })
        });
        socket.send_to(b"x", address).unwrap();
        socket.recv_from(&mut [0]).unwrap();
        answers.join().unwrap();
        drop(socket);

        // Without a blocking default, a port in a rule is open only to the rule's sources.
        let open = chains(&document(&[&rules]), &own);
        replace(&open).unwrap();
        let expected = pairs(&[("10.0.0.200", 7000), ("10.0.0.2", 7001), ("10.0.0.2", 7002)]);
        assert_eq!(arriving(&neighbour, &sent), expected);

        replace(&Chains::new()).unwrap();
        assert_eq!(present(), []);
        assert_eq!(arriving(&neighbour, &sent).len(), sent.len());
    });
}

#[test]
fn a_change_the_kernel_refuses_leaves_the_old_rules() {
    alone(async {
        let good = chains(&document(&[BLOCK, &udp("7000", "{subnet: fd00::/8}")]), &[]);
        replace(&good).unwrap();
        let before = present();
        assert!(before.len() > 8, "{before:?}");
        // The last chain's name exceeds the kernel's limit.
        let mut bad = good.clone();
        let mut chain = bad["ingress"].clone();
        chain.rules.push(Rule::default());
        bad.insert("z".repeat(300), chain);
        let error = replace(&bad).unwrap_err();
        assert!(
            error.starts_with("the kernel refuses NewChain: "),
            "{error}"
        );
        assert_eq!(present(), before);
        replace(&good).unwrap();
        assert_eq!(present(), before);
    });
}

/// As many networks and ports as a config can hold.
#[test]
fn thousands_of_networks_fit_into_one_rule() {
    alone(async {
        let networks: Vec<String> = (0..4000)
            .map(|n| format!("{{subnet: 10.{}.{}.0/25}}", n / 256, n % 256))
            .collect();
        let mut wanted = chains(&document(&[BLOCK, &udp("1", &networks.join(", "))]), &[]);
        let few = chains(&document(&[BLOCK, &udp("1", "{subnet: 10.0.0.0/8}")]), &[]);
        replace(&few).unwrap();
        let count = present().len();
        let ingress = wanted.get_mut("ingress").unwrap();
        let layer4 = ingress.rules.last_mut().unwrap().match_layer4.as_mut();
        let ranges = (0..2000).map(|n| PortRange {
            lo: n * 3,
            hi: n * 3 + 1,
        });
        layer4.unwrap().match_destination_port = Some(PortMatch {
            ranges: ranges.collect(),
        });
        replace(&wanted).unwrap();
        assert_eq!(present().len(), count);
    });
}
