use serde_json::{Value, json};

use super::fake::{fake, ok, refused};

const USER: &str = "system:node:n1";

fn request(name: &str, user: &str, condition: Option<&str>) -> Value {
    let conditions: Vec<Value> = condition
        .map(|kind| json!({ "type": kind, "status": "True" }))
        .into_iter()
        .collect();
    json!({
        "metadata": { "name": name },
        "spec": { "username": user, "signerName": "kubernetes.io/kubelet-serving" },
        "status": { "conditions": conditions },
    })
}

fn page(items: &[Value], next: &str) -> Value {
    json!({
        "kind": "CertificateSigningRequestList",
        "apiVersion": "certificates.k8s.io/v1",
        "metadata": { "continue": next },
        "items": items,
    })
}

#[tokio::test]
async fn unapproved_serving_requests_are_those_of_the_user_alone() {
    let bare = json!({ "metadata": { "name": "bare" }, "spec": { "username": USER } });
    let items = [
        request("approved", USER, Some("Approved")),
        request("denied", USER, Some("Denied")),
        request("pending", USER, None),
        request("other", "system:node:n10", None),
        json!({ "metadata": { "name": "nonsense" }, "spec": 7 }),
        bare,
    ];
    let (cluster, log) = fake(move |_| ok(&page(&items, "")));
    let found = cluster.unapproved_serving_requests(USER).await.unwrap();
    assert_eq!(found, ["denied", "pending", "bare"]);
    let seen = log.lock().unwrap()[0].clone();
    let line = "GET /apis/certificates.k8s.io/v1/certificatesigningrequests";
    assert_eq!(seen.line(), line);
    let selector = "fieldSelector=spec.signerName%3Dkubernetes.io%2Fkubelet-serving";
    assert!(seen.query.contains(selector), "{}", seen.query);
    let (cluster, _) = fake(|_| refused(403, "no"));
    let refused = cluster.unapproved_serving_requests(USER).await;
    assert_eq!(refused.unwrap_err().code(), Some(403));
}

#[tokio::test]
async fn many_requests_are_read_page_by_page_until_one_of_the_user_or_the_limit() {
    let (cluster, log) = fake(|seen| {
        ok(&match seen.query.contains("continue=second") {
            true => page(&[request("pending", USER, None)], "third"),
            false => page(&[request("other", "system:node:n2", None)], "second"),
        })
    });
    let found = cluster.unapproved_serving_requests(USER).await.unwrap();
    assert_eq!(found, ["pending"]);
    assert_eq!(log.lock().unwrap().len(), 2);
    let (cluster, log) = fake(|_| ok(&page(&[], "endless")));
    let found = cluster.unapproved_serving_requests(USER).await.unwrap();
    assert!(found.is_empty());
    assert_eq!(log.lock().unwrap().len(), 20);
}
