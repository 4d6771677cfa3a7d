//! Shows how apid serves, derived from its certificates.

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::api_service::{ApiServiceConfig, MaintenanceServiceConfig};
use corten_types::network::NodeAddress;
use corten_types::secrets::ApiCertificates;

#[derive(Debug, Clone)]
pub(super) struct ApiServices;

impl Controller for ApiServices {
    fn name(&self) -> &'static str {
        "runtime.APIServiceConfigController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<ApiCertificates>(Dependency::Weak).with_id(ApiCertificates::ID),
            Input::of::<NodeAddress>(Dependency::Weak).with_id(NodeAddress::CURRENT),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<ApiServiceConfig>(),
            Output::exclusive::<MaintenanceServiceConfig>(),
        ]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let listen_address = format!(":{}", corten_api::PORT);
        loop {
            context.event().await;
            let certificates = context.get::<ApiCertificates>(ApiCertificates::ID)?;
            let addresses = context.get::<NodeAddress>(NodeAddress::CURRENT)?;
            context.start_outputs();
            if let Some(certificates) = certificates {
                let maintenance = certificates.skip_verifying_client_cert;
                let config = ApiServiceConfig {
                    listen_address: listen_address.clone(),
                    node_routing_disabled: maintenance,
                    readonly_role_mode: maintenance,
                    skip_verifying_client_cert: maintenance,
                };
                context.put(Draft::new(ApiServiceConfig::ID, config))?;
                if maintenance {
                    let config = MaintenanceServiceConfig {
                        listen_address: listen_address.clone(),
                        reachable_addresses: addresses
                            .map(|addresses| addresses.ips().collect())
                            .unwrap_or_default(),
                    };
                    context.put(Draft::new(MaintenanceServiceConfig::ID, config))?;
                }
            }
            context.remove_others::<ApiServiceConfig>()?;
            context.remove_others::<MaintenanceServiceConfig>()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_base::sample::until;
    use corten_resources::controller::Runtime;
    use corten_resources::{Spec as _, Store};
    use corten_types::secrets::PemPair;
    use corten_values::Secret;

    use super::*;

    fn certificates(skip_verifying_client_cert: bool) -> Draft {
        let certificates = ApiCertificates {
            client: None,
            server: PemPair {
                crt: String::new(),
                key: Secret::new(""),
            },
            accepted_cas: Vec::new(),
            skip_verifying_client_cert,
        };
        Draft::new(ApiCertificates::ID, certificates)
    }

    #[tokio::test]
    async fn node_without_a_config_serves_readers_only_and_shows_its_addresses() {
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        runtime.add(ApiServices).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let addresses = NodeAddress {
            addresses: vec!["10.0.2.15/24".to_owned(), "fd00::1/64".to_owned()],
            sort_algorithm: "v1",
        };
        store
            .put(Draft::new(NodeAddress::CURRENT, addresses), "")
            .unwrap();
        store.put(certificates(true), "").unwrap();
        let id = MaintenanceServiceConfig::ID;
        let config = until::<MaintenanceServiceConfig>(&store, id, |config| {
            config.is_some_and(|config| config.reachable_addresses.len() == 2)
        })
        .await;
        let message = config.unwrap().message();
        assert_eq!(message.listen_address, ":50000");
        assert_eq!(message.reachable_addresses[0].ip, [10, 0, 2, 15]);
        let api = || {
            store
                .get_as::<ApiServiceConfig>(ApiServiceConfig::ID)
                .unwrap()
                .message()
        };
        let message = api();
        assert!(message.readonly_role_mode && message.node_routing_disabled);
        assert!(message.skip_verifying_client_cert);
        store.put(certificates(false), "").unwrap();
        until::<MaintenanceServiceConfig>(&store, id, |config| config.is_none()).await;
        let message = api();
        assert!(!message.readonly_role_mode && !message.node_routing_disabled);
        assert!(!message.skip_verifying_client_cert);
    }
}
