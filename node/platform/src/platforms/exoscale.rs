//! Exoscale, and CloudStack with the same metadata: one document per value, and DHCP for the network.
//!
//! Exoscale's documentation: "Compute instances: user data and metadata".

use crate::documents::Given;
use crate::instance::{Instance, Metadata, Network};
use crate::request::{Platform, Request};

pub(super) const PLATFORM: Platform = Platform {
    name: "exoscale",
    bases: &["http://169.254.169.254/1.0"],
    requests: REQUESTS,
    read: |given| read_as(given, "exoscale"),
    ..Platform::BLANK
};

pub(super) const REQUESTS: &[Request] = &[
    Request::config("user-data", "/user-data"),
    Request::needed("instance-id", "/meta-data/instance-id"),
    Request::optional("hostname", "/meta-data/local-hostname"),
    Request::optional("offering", "/meta-data/service-offering"),
    Request::optional("public-ipv4", "/meta-data/public-ipv4"),
    Request::optional("zone", "/meta-data/availability-zone"),
];

/// Reads the documents. `scheme` is the scheme of the provider id.
pub(super) fn read_as(given: &Given<'_>, scheme: &str) -> Instance {
    let (id, zone) = (given.text("instance-id"), given.text("zone"));
    let offering = given.text("offering").to_ascii_lowercase();
    let metadata = Metadata {
        hostname: given.text("hostname"),
        region: zone.clone(),
        zone,
        instance_type: offering.split(' ').next().unwrap_or_default().to_owned(),
        provider_id: format!("{scheme}://{id}"),
        instance_id: id,
        ..Metadata::default()
    };
    let network = Network {
        external: given.address("public-ipv4").into_iter().collect(),
        ..Network::default()
    };
    given.instance("hostname", given.config("user-data"), metadata, network)
}

#[cfg(test)]
mod tests {
    //! Answers in the form of Exoscale's documentation, written by hand.

    use super::*;
    use crate::testing::Script;

    #[tokio::test]
    async fn exoscale_instance_is_read_from_one_document_per_field() {
        let (instance, notes) = Script::new()
            .get("/1.0/user-data", "machine: {}")
            .get("/1.0/meta-data/instance-id", "5a0d2f0e")
            .get("/1.0/meta-data/local-hostname", "vm-1")
            .get("/1.0/meta-data/service-offering", "Small 2 GB")
            .get("/1.0/meta-data/public-ipv4", "203.0.113.50\n")
            .get("/1.0/meta-data/availability-zone", "ch-gva-2")
            .ask(&PLATFORM)
            .await;
        assert_eq!(notes, [""; 0]);
        assert!(instance.config.is_some());
        let metadata = instance.metadata;
        assert_eq!(
            (&*metadata.instance_type, &*metadata.zone),
            ("small", "ch-gva-2")
        );
        assert_eq!(metadata.provider_id, "exoscale://5a0d2f0e");
        assert_eq!(instance.network.external.len(), 1);
    }
}
