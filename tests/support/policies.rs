//! Network policies of a cluster under test.

use std::net::SocketAddr;
use std::path::Path;

use crate::cluster::until;
use crate::dns::resolve;
use crate::kubectl::Kubectl;

/// A policy for the pods `app: relay`.
const POLICY: &str = "
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: relay}
spec:
  podSelector: {matchLabels: {app: relay}}
  policyTypes: [Egress]
  egress: ALLOWED
";
/// The DNS of the cluster, as a peer of a policy.
const DNS: &str =
    "[{to: [{namespaceSelector: {}, podSelector: {matchLabels: {k8s-app: kube-dns}}}]}]";

/// The config patch of a control plane whose cluster enforces policies.
pub const ENFORCED: &str =
    "cluster: {network: {cni: {name: flannel, flannel: {kubeNetworkPoliciesEnabled: true}}}}";

/// Policies decide about the packets of the Deployment `relay`, whose pods have the label `app: relay` and forward
/// queries to the DNS of the cluster. `port` is that of its pods, `local` a free port of this machine.
///
/// # Panics
/// A policy is not enforced.
pub fn are_enforced(kubectl: &Kubectl, directory: &Path, local: SocketAddr, port: u16) {
    let file = directory.join("policy.yaml");
    let apply = |allowed| {
        let policy = POLICY.replace("ALLOWED", allowed);
        kubectl.apply(&file, &policy).expect("a policy");
    };
    let relay = kubectl.forward("deploy/relay", local, port);
    let ask = || resolve(relay.connect()?, "kubernetes.default.svc.cluster.local.");
    until("an answer without a policy", ask);
    apply("[]");
    until("no answer, because the policy allows no packet", || {
        let answer = ask();
        answer.map_or(Ok(()), |address| Err(address.to_string()))
    });
    apply(DNS);
    until("an answer that the policy allows", ask);
    let deleted = kubectl.call(&["delete", "networkpolicy", "relay"]);
    deleted.expect("the policy is gone");
}
