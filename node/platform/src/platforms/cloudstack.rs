//! Apache CloudStack: the virtual router serves the metadata and resolves the service's name itself.
//!
//! CloudStack's documentation: "User data and metadata".

use super::exoscale::{REQUESTS, read_as};
use crate::request::Platform;

pub(super) const PLATFORM: Platform = Platform {
    name: "cloudstack",
    bases: &["http://data-server/latest"],
    requests: REQUESTS,
    read: |given| read_as(given, "cloudstack"),
    ..Platform::BLANK
};

#[cfg(test)]
mod tests {
    //! Answers in the form of CloudStack's documentation, written by hand.

    use super::*;
    use crate::testing::Script;

    #[tokio::test]
    async fn cloudstack_instance_is_read_from_the_virtual_router() {
        let (instance, notes) = Script::new()
            .get("/latest/meta-data/instance-id", "i-2-3-VM")
            .get("/latest/meta-data/availability-zone", "zone1")
            .ask(&PLATFORM)
            .await;
        assert_eq!(notes, [""; 0]);
        assert_eq!(instance.config, None);
        assert_eq!(instance.metadata.provider_id, "cloudstack://i-2-3-VM");
    }
}
