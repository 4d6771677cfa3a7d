//! The network apart from its links: names, resolvers, time, routes and the firewall.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use corten_values::{Cidr, ClockDevice, Endpoint, HostName, HostOrAddress, LinkName, Ports, Url};
use corten_yaml::read::Reader;
use corten_yaml::table::Support;
use corten_yaml::tree::Node;
use corten_yaml::{choices, section};

use super::check_number;

section! {
    /// The host name of the node.
    pub struct HostnameConfig [check_hostname] {
        Acted "auto" auto: Option<AutoHostname> = "Automatic host name: `stable`, from the machine's identity, or `off` with `hostname`";
        Acted "hostname" hostname: Option<HostName> = "Host name";
    }
}

choices! {
    /// Source of an automatic host name.
    pub enum AutoHostname { Stable = "stable", Address = "talos-addr", Off = "off", }
}

fn check_hostname(config: &HostnameConfig, node: &Node, reader: &mut Reader<'_>) {
    match (node.get("auto"), node.get("hostname")) {
        (None, None) => reader.wrong_in(node, "hostname", "or auto is required"),
        (Some(_), Some(_)) if config.auto != Some(AutoHostname::Off) => {
            reader.wrong_in(node, "auto", "excludes hostname");
        }
        _ => {}
    }
    let known = match config.auto {
        Some(AutoHostname::Address) => false,
        // Without any host name the node would wait for one.
        Some(AutoHostname::Off) => config.hostname.is_some(),
        Some(AutoHostname::Stable) | None => true,
    };
    if !known && !reader.reads(Support::Later) {
        let problem = "must be stable, or off beside hostname: other values are not supported yet";
        reader.wrong_in(node, "auto", problem);
    }
}

section! {
    /// The name servers, the search domains and the name cache of the node.
    pub struct ResolverConfig {
        Acted "nameservers" nameservers: Vec<NameServer> = "Name servers that replace those of the network";
        Acted "searchDomains" search_domains: SearchDomains = "Search domains for short names";
        Acted "hostDNS" host_dns: crate::v1alpha1::HostDns = "Name cache on the node";
    }
}

section! {
    /// A name server.
    pub struct NameServer [check_name_server] {
        Acted "address" address: Option<IpAddr> = "Address of the name server", required;
        Later "protocol" protocol: DnsProtocol = "Protocol for queries";
        Later "tlsServerName" tls_server_name: Option<HostName> = "Name in the server's certificate";
    }
}

choices! {
    /// Protocol of a name server.
    pub enum DnsProtocol { Do53 = "do53", DoT = "dot", DoH = "doh", }
}

fn check_name_server(server: &NameServer, node: &Node, reader: &mut Reader<'_>) {
    if server.tls_server_name.is_some() && server.protocol == DnsProtocol::Do53 {
        reader.wrong_in(node, "tlsServerName", "needs protocol dot or doh");
    }
}

section! {
    /// Search domains for short names.
    pub struct SearchDomains {
        Acted "domains" domains: Vec<HostName> = "Search domains in order of use";
        Acted "disableDefault" disable_default: bool = "Whether the domain of the node's own name is not searched";
    }
}

section! {
    /// A line of `/etc/hosts`.
    pub struct StaticHostConfig {
        Acted "name" name: Option<IpAddr> = "Address", required;
        Acted "hostnames" hostnames: Vec<HostName> = "Host names of the address", required;
    }
}

section! {
    /// The time servers and clocks.
    pub struct TimeSyncConfig [check_time] {
        Acted "enabled" enabled: Option<bool> = "Whether the clock is synchronised; absent: yes";
        Acted "bootTimeout" boot_timeout: Option<Duration> = "Timeout of the boot's wait for the clock; 0: no timeout";
        Acted "ntp" ntp: Option<Ntp> = "NTP settings";
        Acted "ptp" ptp: Option<Ptp> = "PTP settings";
    }
}

fn check_time(config: &TimeSyncConfig, node: &Node, reader: &mut Reader<'_>) {
    if config.ntp.is_some() && config.ptp.is_some() {
        reader.wrong_in(node, "ptp", "excludes ntp");
    }
}

section! {
    /// Network time servers.
    pub struct Ntp {
        Acted "servers" servers: Vec<HostOrAddress> = "Time servers; more than half of those that answer must agree";
        Acted "useNTS" use_nts: bool = "Whether the servers must authenticate their responses (NTS, RFC 8915)";
    }
}

section! {
    /// Precision clocks.
    pub struct Ptp {
        Acted "devices" devices: Vec<ClockDevice> = "Clock devices, such as `/dev/ptp0`", required;
    }
}

section! {
    /// DHCPv4 on a link.
    pub struct DHCPv4Config [check_dhcpv4] {
        Acted "name" name: LinkName = "Name of the link", required;
        Acted "routeMetric" route_metric: Option<u32> = "Metric of the offered routes";
        Acted "ignoreHostname" ignore_hostname: Option<bool> = "Whether the offered host name is ignored";
        Acted "ignoreRoutes" ignore_routes: Option<bool> = "Whether the offered routes are ignored";
        Acted "clientIdentifier" client_identifier: Option<ClientIdentifier> = "Client identifier; absent: the hardware address";
        Acted "duidRaw" duid_raw: Option<String> = "DUID in hexadecimal";
    }
}

section! {
    /// DHCPv6 on a link.
    pub struct DHCPv6Config [check_dhcpv6] {
        Acted "name" name: LinkName = "Name of the link", required;
        Acted "routeMetric" route_metric: Option<u32> = "Metric of the offered routes";
        Acted "ignoreHostname" ignore_hostname: Option<bool> = "Whether the offered host name is ignored";
        Acted "clientIdentifier" client_identifier: Option<ClientIdentifier> = "Client identifier; absent or `none`: the UUID of the firmware, else the hardware address";
        Acted "duidRaw" duid_raw: Option<String> = "DUID in hexadecimal";
    }
}

choices! {
    /// Client identifier for a DHCP server.
    pub enum ClientIdentifier { None = "none", Mac = "mac", Duid = "duid", }
}

fn check_dhcpv4(config: &DHCPv4Config, node: &Node, reader: &mut Reader<'_>) {
    let duid = ("duidRaw", config.duid_raw.as_deref());
    check_duid(config.client_identifier, duid, node, reader);
}

fn check_dhcpv6(config: &DHCPv6Config, node: &Node, reader: &mut Reader<'_>) {
    let duid = ("duidRaw", config.duid_raw.as_deref());
    check_duid(config.client_identifier, duid, node, reader);
}

/// Reports a DUID that is required but missing, or invalid. `field` names it in the document.
pub fn check_duid(
    kind: Option<ClientIdentifier>,
    (field, raw): (&str, Option<&str>),
    node: &Node,
    reader: &mut Reader<'_>,
) {
    let Some(raw) = raw else {
        if kind == Some(ClientIdentifier::Duid) {
            reader.wrong_in(node, field, "is required with clientIdentifier: duid");
        }
        return;
    };
    let digits: String = raw.chars().filter(|c| *c != ':').collect();
    // RFC 8415 section 11.1: a DUID is at most 130 octets.
    let good = digits.len().is_multiple_of(2)
        && (2..=260).contains(&digits.len())
        && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if !good {
        let what = "must be hexadecimal: 1 to 130 pairs of digits";
        reader.wrong_in(node, field, what);
    }
}

section! {
    /// An address that control plane nodes share. One of them has it at a time; gratuitous ARP announces the change.
    pub struct Layer2VIPConfig {
        Acted "name" name: Option<IpAddr> = "Address", required;
        Acted "link" link: LinkName = "Link that carries the address", required;
    }
}

section! {
    /// A blackhole route: the kernel drops packets to this network.
    pub struct BlackholeRouteConfig {
        Acted "name" name: Cidr = "Network", required;
        Acted "metric" metric: Option<u32> = "Metric; a lower one is preferred";
    }
}

choices! {
    /// Action of a routing rule.
    pub enum RuleAction {
        Unicast = "unicast", Blackhole = "blackhole", Unreachable = "unreachable", Prohibit = "prohibit",
    }
}

/// Valid priorities of rules: 0 and those above are the kernel's own.
pub const RULE_PRIORITIES: RangeInclusive<u32> = 1..=32765;
/// Valid tables of rules. For 0 the kernel creates an empty table of its own choice (net/ipv4/fib_rules.c,
/// `fib_empty_table`), or refuses it (IPv6).
pub const RULE_TABLES: RangeInclusive<u32> = 1..=u32::MAX;

section! {
    /// A routing rule: it selects the routing table for packets.
    pub struct RoutingRuleConfig [check_routing_rule] {
        Acted "name" priority: u32 = "Priority, 1 to 32765; lower comes first", required;
        Acted "src" src: Option<Cidr> = "Source network";
        Acted "dst" dst: Option<Cidr> = "Destination network";
        Acted "table" table: Option<u32> = "Routing table";
        Acted "action" action: RuleAction = "Action";
        Acted "iifName" iif_name: Option<LinkName> = "Incoming link";
        Acted "oifName" oif_name: Option<LinkName> = "Outgoing link";
        Acted "fwMark" fw_mark: Option<u32> = "Packet mark";
        Acted "fwMask" fw_mask: Option<u32> = "Bits of the mark to compare";
    }
}

fn check_routing_rule(rule: &RoutingRuleConfig, node: &Node, reader: &mut Reader<'_>) {
    if node.get("name").is_some() && !RULE_PRIORITIES.contains(&rule.priority) {
        reader.wrong_in(node, "name", "must be a priority from 1 to 32765");
    }
    if rule.action == RuleAction::Unicast {
        if rule.table.is_none() {
            reader.wrong_in(node, "table", "is required with action unicast");
        }
        check_number("table", rule.table, RULE_TABLES, node, reader);
    }
    let is_v4 = |cidr: &Option<Cidr>| cidr.map(|cidr| cidr.address.is_ipv4());
    if is_v4(&rule.src).is_some_and(|src| is_v4(&rule.dst).is_some_and(|dst| src != dst)) {
        reader.wrong_in(node, "dst", "must be of the family of src");
    }
}

choices! {
    /// Action for packets without a matching rule.
    pub enum DefaultAction { Accept = "accept", Block = "block", }
}

section! {
    /// The packet filter's default action, for packets without a matching rule.
    pub struct NetworkDefaultActionConfig {
        Acted "ingress" ingress: DefaultAction = "Action for incoming packets", required;
    }
}

choices! {
    /// A protocol of the firewall.
    pub enum Protocol { Tcp = "tcp", Udp = "udp", Icmp = "icmp", Icmpv6 = "icmpv6", }
}

section! {
    /// A rule of the packet filter: ports, and the networks that may reach them.
    pub struct NetworkRuleConfig {
        Acted "name" name: String = "Name of the rule", required;
        Acted "portSelector" port_selector: PortSelector = "Selector of ports", required;
        Acted "ingress" ingress: Vec<IngressRule> = "Networks that may reach the ports", replace;
    }
}

section! {
    /// Ports of a protocol.
    pub struct PortSelector [check_ports] {
        Acted "ports" ports: Vec<Ports> = "Ports and ranges", replace;
        Acted "protocol" protocol: Protocol = "Protocol", required;
    }
}

fn check_ports(selector: &PortSelector, node: &Node, reader: &mut Reader<'_>) {
    let has_ports = matches!(selector.protocol, Protocol::Tcp | Protocol::Udp);
    if node.get("protocol").is_some() && has_ports != node.get("ports").is_some() {
        let what = if has_ports {
            "is required"
        } else {
            "must not be given for this protocol"
        };
        reader.wrong_in(node, "ports", what);
    }
}

section! {
    /// A network that may send packets.
    pub struct IngressRule [check_ingress] {
        Acted "subnet" subnet: Cidr = "Network", required;
        Acted "except" except: Option<Cidr> = "Part of the network that is excluded";
    }
}

fn check_ingress(rule: &IngressRule, node: &Node, reader: &mut Reader<'_>) {
    let inside =
        |except: &Cidr| except.prefix > rule.subnet.prefix && rule.subnet.contains(except.address);
    if rule.except.as_ref().is_some_and(|except| !inside(except)) {
        reader.wrong_in(node, "except", "must be a part of subnet");
    }
}

section! {
    /// A probe: the network counts as connected while this TCP port answers.
    pub struct TCPProbeConfig [check_tcp_probe] {
        Acted "name" name: String = "Name of the probe", required;
        Acted "interval" interval: Option<Duration> = "Interval; 100 ms or more";
        Acted "failureThreshold" failure_threshold: Option<u32> = "Number of successive failures after which the probe fails";
        Acted "endpoint" endpoint: Endpoint = "Host and port", required;
        Acted "timeout" timeout: Option<Duration> = "Timeout";
    }
}

fn check_tcp_probe(config: &TCPProbeConfig, node: &Node, reader: &mut Reader<'_>) {
    check_interval(config.interval, node, reader);
}

section! {
    /// A probe: the network counts as connected while this URL answers.
    pub struct HTTPProbeConfig [check_http_probe] {
        Acted "name" name: String = "Name of the probe", required;
        Acted "interval" interval: Option<Duration> = "Interval; 100 ms or more";
        Acted "failureThreshold" failure_threshold: Option<u32> = "Number of successive failures after which the probe fails";
        Acted "url" url: Url = "URL, `http` or `https`; a status below 400 is a success", required;
        Acted "timeout" timeout: Option<Duration> = "Timeout; 1 minute or less";
    }
}

fn check_http_probe(config: &HTTPProbeConfig, node: &Node, reader: &mut Reader<'_>) {
    check_interval(config.interval, node, reader);
    if config
        .timeout
        .is_some_and(|timeout| timeout > LONGEST_ANSWER)
    {
        reader.wrong_in(node, "timeout", "must be at most 1m");
    }
    let Some((scheme, rest)) = config.url.split_once("://") else {
        return;
    };
    if !matches!(scheme, "http" | "https") {
        reader.wrong_in(node, "url", "must begin with http:// or https://");
    }
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.contains('@') {
        let what = "must not hold a user or password: every API client can read it";
        reader.wrong_in(node, "url", what);
    }
}

/// Limit of a probe's timeout: the probe occupies a thread of process 1.
const LONGEST_ANSWER: Duration = Duration::from_secs(60);

/// Limit of a probe's interval: a shorter one would keep process 1 busy.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

fn check_interval(interval: Option<Duration>, node: &Node, reader: &mut Reader<'_>) {
    // 0 means the default.
    if interval.is_some_and(|interval| !interval.is_zero() && interval < SHORTEST_INTERVAL) {
        reader.wrong_in(node, "interval", "must be at least 100ms");
    }
}
