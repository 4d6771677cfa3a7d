//! The platforms: one file and one line each.

mod akamai;
mod alibabacloud;
mod aws;
mod azure;
mod cloudstack;
mod digital_ocean;
mod equinix;
mod exoscale;
mod gcp;
mod hcloud;
mod opennebula;
mod openstack;
mod oracle;
mod scaleway;
mod upcloud;
mod vmware;
mod vultr;

use crate::request::Platform;

/// All platforms, sorted by name.
///
/// A platform is one file and one line here: a table of requests, and a pure function from the documents to an
/// [`Instance`](crate::Instance). The function leaves out invalid fields and reports them by name.
pub const PLATFORMS: &[&Platform] = &[
    &akamai::PLATFORM,
    &alibabacloud::PLATFORM,
    &aws::PLATFORM,
    &azure::PLATFORM,
    &cloudstack::PLATFORM,
    &digital_ocean::PLATFORM,
    &equinix::PLATFORM,
    &equinix::PACKET,
    &exoscale::PLATFORM,
    &gcp::PLATFORM,
    &hcloud::PLATFORM,
    &opennebula::PLATFORM,
    &openstack::PLATFORM,
    &oracle::PLATFORM,
    &scaleway::PLATFORM,
    &upcloud::PLATFORM,
    &vmware::PLATFORM,
    &vultr::PLATFORM,
];

/// The platform of this name, as in `corten.platform`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Platform> {
    let mut platforms = PLATFORMS.iter().copied();
    platforms.find(|platform| platform.name == name)
}
