use super::fake::{fake, ok, refused};
use serde_json::json;

#[tokio::test]
async fn ready_api_servers_are_listed_and_invalid_addresses_left_out() {
    let (cluster, log) = fake(|_| {
        ok(&json!({
            "kind": "Endpoints",
            "apiVersion": "v1",
            "metadata": { "name": "kubernetes" },
            "subsets": [
                {
                    "addresses": [{ "ip": "10.0.0.2" }, { "ip": "10.0.0.1" }, { "ip": "x" }, {}],
                    "ports": [{ "name": "https", "port": 8443, "protocol": "TCP" }],
                },
                {
                    "addresses": [{ "ip": "10.0.0.2" }],
                    "notReadyAddresses": [{ "ip": "10.0.0.3" }],
                    "ports": [{ "port": 8443 }],
                },
                { "addresses": [{ "ip": "10.0.0.4" }], "ports": [{ "port": 70_000 }] },
                { "addresses": [{ "ip": "10.0.0.5" }] },
                { "addresses": "no list", "ports": [{ "port": 8443 }] },
            ],
        }))
    });
    let found = cluster.api_servers().await.unwrap();
    let expected: Vec<std::net::SocketAddr> = ["10.0.0.1:8443", "10.0.0.2:8443"]
        .map(|ip| ip.parse().unwrap())
        .into();
    assert_eq!(found, expected);
    let line = log.lock().unwrap()[0].line();
    assert_eq!(line, "GET /api/v1/namespaces/default/endpoints/kubernetes");
}

#[tokio::test]
async fn missing_endpoints_object_means_no_api_servers_yet() {
    let (cluster, _) = fake(|_| refused(404, "not found"));
    assert!(cluster.api_servers().await.unwrap().is_empty());
}
