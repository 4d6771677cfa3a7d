//! Views of the node and its services.

use corten_config::Document;

use super::{config_text, world};
use crate::node::{Apply, Node as _};

#[tokio::test]
async fn version_says_whether_the_node_has_a_config() {
    let mut world = world();
    let version = world.client.version(()).await.unwrap().into_inner();
    assert!(!version.messages[0].features.unwrap().rbac);
    let config = Document::parse(config_text().as_bytes()).unwrap();
    world.node.apply_config(config, Apply::Now).unwrap();
    let version = world.client.version(()).await.unwrap().into_inner();
    assert!(version.messages[0].features.unwrap().rbac);
}

#[tokio::test]
async fn services_are_listed_with_their_history() {
    let reply = world().client.service_list(()).await.unwrap().into_inner();
    let service = &reply.messages[0].services[0];
    assert_eq!(
        (service.id.as_str(), service.state.as_str()),
        ("udevd", "Running")
    );
    assert!(service.health.as_ref().unwrap().unknown);
    let event = &service.events.as_ref().unwrap().events[0];
    assert_eq!(
        (event.state.as_str(), event.ts.unwrap().seconds),
        ("Failed", 5)
    );
}
