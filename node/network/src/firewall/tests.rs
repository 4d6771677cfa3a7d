use corten_base::sample;
use corten_config::Document;

use super::*;

pub(super) const BLOCK: &str =
    "apiVersion: v1alpha1\nkind: NetworkDefaultActionConfig\ningress: block";

pub(super) fn rule(protocol: &str, ports: &str, from: &str) -> String {
    format!(
        "apiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: {protocol}\n\
         portSelector:\n  protocol: {protocol}\n  {ports}\ningress: [{from}]"
    )
}

pub(super) fn document(kinds: &[&str]) -> Document {
    let subnets = "  network: {podSubnets: [10.244.0.0/16], serviceSubnets: [10.96.0.0/12]}\n";
    let plain = sample::text("", subnets);
    let text = [&[plain.as_str()], kinds].concat().join("\n---\n");
    sample::read(&text)
}

/// A chain as the API shows it, with a line for each rule.
fn shown(chain: &NfTablesChain) -> String {
    let rules = chain.rules.iter().map(|rule| {
        let json = serde_json::to_string(rule).unwrap();
        json.replace('"', "")
    });
    let policy = format!("{:?} {} {:?}", chain.hook, chain.priority, chain.policy);
    [policy]
        .into_iter()
        .chain(rules)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn config_without_firewall_rules_creates_no_chain() {
    assert!(chains(&document(&[]), &[]).is_empty());
}

#[test]
fn default_action_block_admits_only_listed_traffic() {
    let api = rule(
        "tcp",
        "ports: [50000, 8000-8010]",
        "{subnet: 192.0.2.9/24, except: 192.0.2.128/25}",
    );
    let own = ["192.0.2.1".parse().unwrap(), "fd00::1".parse().unwrap()];
    let chains = chains(
        &document(&[BLOCK, &api, &rule("icmp", "", "{subnet: 0.0.0.0/0}")]),
        &own,
    );
    let inside = "{matchSourceAddress:{includeSubnets:[10.244.0.0/16,10.96.0.0/12]},\
                  matchDestinationAddress:{includeSubnets:[10.244.0.0/16,10.96.0.0/12]},verdict:accept}";
    let from = "matchSourceAddress:{includeSubnets:[192.0.2.0/24],excludeSubnets:[192.0.2.128/25]}";
    let tcp = "matchLayer4:{protocol:tcp,matchDestinationPort:{ranges:[{lo:50000,hi:50000},{lo:8000,hi:8010}]}}";
    let own = "matchDestinationAddress:{includeSubnets:[192.0.2.1/32,fd00::1/128]}";
    let known = "{matchIIfName:{interfaceName:[lo],operator:==},verdict:accept}\n\
                 {matchConntrackState:{states:[established,related]},verdict:accept}";
    let expected = format!(
        "Input -140 Drop\n{known}\n\
         {{matchConntrackState:{{states:[invalid]}},verdict:drop}}\n\
         {{matchLayer4:{{protocol:icmpv6,matchICMPType:{{types:[1,2,3,4,130,131,132,133,134,135,136,143]}}}},verdict:accept}}\n\
         {{matchLayer4:{{protocol:icmp}},matchLimit:{{packetRatePerSecond:5}},verdict:accept}}\n\
         {{matchLayer4:{{protocol:icmpv6}},matchLimit:{{packetRatePerSecond:5}},verdict:accept}}\n\
         {{matchSourceAddress:{{includeSubnets:[fe80::/10]}},matchDestinationAddress:{{includeSubnets:[fe80::/10]}},\
         matchLayer4:{{protocol:udp,matchDestinationPort:{{ranges:[{{lo:546,hi:546}}]}}}},verdict:accept}}\n\
         {inside}\n\
         {{{from},{tcp},anonymousCounter:true,verdict:accept}}\n\
         {{matchSourceAddress:{{includeSubnets:[0.0.0.0/0]}},matchLayer4:{{protocol:icmp}},anonymousCounter:true,verdict:accept}}"
    );
    assert_eq!(shown(&chains["ingress"]), expected);
    let expected = format!(
        "Prerouting -110 Accept\n{known}\n{inside}\n\
         {{{from},{tcp},anonymousCounter:true,verdict:accept}}\n\
         {{{own},matchLayer4:{{protocol:tcp}},anonymousCounter:true,verdict:drop}}\n\
         {{{own},matchLayer4:{{protocol:udp}},anonymousCounter:true,verdict:drop}}"
    );
    assert_eq!(shown(&chains["prerouting"]), expected);
}

#[test]
fn default_action_accept_closes_only_listed_ports() {
    let chains = chains(
        &document(&[&rule("udp", "ports: [53]", "{subnet: fd00::/8}")]),
        &[],
    );
    let text = shown(&chains["ingress"]);
    assert!(text.starts_with("Input -140 Accept"), "{text}");
    let end = "{matchLayer4:{protocol:udp,matchDestinationPort:{ranges:[{lo:53,hi:53}]}},anonymousCounter:true,verdict:drop}";
    assert!(text.ends_with(end), "{text}");
    assert!(!text.contains("icmp"), "{text}");
}
