//! The platforms: a file and a line each.

mod aws;
mod hcloud;

use crate::request::Platform;

/// Every platform that can be asked, in the order of their names.
pub const PLATFORMS: &[&Platform] = &[&aws::PLATFORM, &hcloud::PLATFORM];

/// The platform of this name, as `corten.platform` has it.
#[must_use]
pub fn find(name: &str) -> Option<&'static Platform> {
    let mut platforms = PLATFORMS.iter().copied();
    platforms.find(|platform| platform.name == name)
}
