//! The caller that machined is told of, and the audit lines of refused calls.

use std::time::Instant;

use tonic::Code;
use tonic::metadata::BinaryMetadataValue;

use super::client::full;
use super::routing::node;
use super::support::{Cluster, Manner, Node, Setup};
use crate::frames::framed;

const MEMORY: &str = "/machine.MachineService/Memory";
const REBOOT: &str = "/machine.MachineService/Reboot";

#[tokio::test]
async fn machined_gets_only_the_certificate_of_the_caller_through_any_node() {
    let cluster = Cluster::new();
    let (a, b) = (
        node(&cluster, "a", Manner::Answer(1)).await,
        node(&cluster, "b", Manner::Answer(2)).await,
    );
    let reader = cluster.client(&a, &["os:reader"]).await;
    let shown = |node: &Node| node.machined.seen().pop().unwrap().certificates;
    reader.call(MEMORY, &[], &[]).await;
    let own = shown(&a);
    assert_eq!(own.0, 1);
    let forged = ("corten-certificate-bin", "YWRtaW4");
    reader.call(MEMORY, &[forged], &[]).await;
    assert_eq!(shown(&a), own);
    reader.call(MEMORY, &[("node", "b"), forged], &[]).await;
    assert_eq!(shown(&b), own);
    reader.call(MEMORY, &[("nodes", "a,b")], &[]).await;
    assert_eq!((shown(&a), shown(&b)), (own.clone(), own));
}

#[tokio::test]
async fn machined_gets_the_audit_identity_of_callers_except_for_read_calls() {
    let cluster = Cluster::new();
    let (a, b) = (
        node(&cluster, "a", Manner::Answer(1)).await,
        node(&cluster, "b", Manner::Answer(2)).await,
    );
    let operator = cluster.client(&a, &["os:operator"]).await;
    // A caller cannot name itself.
    let who = "roles=os:admin serial=1 from=1.2.3.4:5 via=-";
    let claimed = [("corten-caller", who)];
    operator.call(MEMORY, &claimed, &[]).await;
    operator.call(REBOOT, &claimed, &[]).await;
    operator.call(REBOOT, &[("node", "b")], &[]).await;
    let callers = |node: &Node| {
        let seen = node.machined.seen().into_iter();
        seen.map(|seen| seen.caller).collect::<Vec<_>>()
    };
    let [none, here] = callers(&a).try_into().unwrap();
    let [there] = callers(&b).try_into().unwrap();
    assert_eq!(none, None);
    for (node, caller) in [(&a, here.unwrap()), (&b, there.unwrap())] {
        node.is_quiet().await;
        let lines = node.audit.lock().unwrap().clone();
        assert!(caller.starts_with("roles=os:operator serial="), "{caller}");
        let own = format!(" {caller} nodes=");
        assert!(
            lines.iter().any(|line| line.contains(&own)),
            "{own} {lines:#?}"
        );
    }
}

#[tokio::test]
async fn repeatedly_refused_calls_share_an_audit_line() {
    let cluster = Cluster::new();
    let a = node(&cluster, "a", Manner::Answer(1)).await;
    let reader = cluster.client(&a, &["os:reader"]).await;
    for n in 0..50 {
        reader.call(REBOOT, &[], &[]).await;
        let unheard_of = format!("/machine.MachineService/Nothing{n}");
        reader.call(&unheard_of, &[], &[]).await;
    }
    let admin = cluster.client(&a, &["os:admin"]).await;
    for _ in 0..3 {
        admin.call(REBOOT, &[], &[]).await;
    }
    a.is_quiet().await;
    let is_for = |line: &&String, part: &str| line.contains(part);
    let lines = a.audit.lock().unwrap().clone();
    let refused = lines
        .iter()
        .filter(|line| is_for(line, "result=PermissionDenied"));
    assert_eq!(refused.count(), 2, "{lines:#?}");
    // Every executed call has its own line.
    let done = lines.iter().filter(|line| is_for(line, "roles=os:admin"));
    assert_eq!(done.count(), 3, "{lines:#?}");
    a.proxy
        .audit
        .tell_repeated(Instant::now() + crate::refusals::INTERVAL);
    let lines = a.audit.lock().unwrap().clone();
    let counted = lines.iter().filter(|line| is_for(line, " repeated=49"));
    assert_eq!(counted.count(), 2, "{lines:#?}");
}

#[tokio::test]
async fn forged_certificates_get_no_audit_lines_of_their_own() {
    let cluster = Cluster::new();
    let a = node(&cluster, "a", Manner::Answer(1)).await;
    let another = cluster.client(&a, &["os:impersonator"]).await;
    for _ in 0..10 {
        let own = Cluster::new().certificate(&["os:reader"]);
        let der = corten_pki::certificates_from_pem(own.crt.as_bytes()).unwrap();
        let shown = BinaryMetadataValue::from_bytes(&der[0]);
        let shown = str::from_utf8(shown.as_encoded_bytes()).unwrap();
        let claims = [
            ("talos-role", "os:reader"),
            ("corten-certificate-bin", shown),
        ];
        let refused = another.call(REBOOT, &claims, &[]).await.status;
        assert_eq!(refused.code(), Code::PermissionDenied);
    }
    a.is_quiet().await;
    let lines = a.audit.lock().unwrap().clone();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains(" for="), "{lines:#?}");
}

#[tokio::test]
async fn calls_over_the_quota_share_an_audit_line_and_invalid_calls_reach_no_node() {
    let cluster = Cluster::new();
    let none = Setup {
        calls: (1, 1, 0),
        ..Setup::default()
    };
    let a = cluster.node(none).await;
    let operator = cluster.client(&a, &["os:operator"]).await;
    let several = [("nodes", "127.0.0.1,node")];
    for _ in 0..3 {
        let refused = operator.call(REBOOT, &several, &[]).await.status;
        assert_eq!(refused.code(), Code::ResourceExhausted);
    }
    a.is_quiet().await;
    let lines = a.audit.lock().unwrap().clone();
    assert_eq!(lines.len(), 1, "{lines:#?}");

    let b = node(&cluster, "b", Manner::Answer(1)).await;
    let operator = cluster.client(&b, &["os:operator"]).await;
    let two = [framed(&[]), framed(&[])].concat();
    let refused = operator.send(REBOOT, &several, full(two.into())).await;
    assert_eq!(refused.unwrap().headers()["grpc-status"], "3");
    b.is_quiet().await;
    let lines = b.audit.lock().unwrap().clone();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].ends_with("result=InvalidArgument"), "{lines:#?}");
}
