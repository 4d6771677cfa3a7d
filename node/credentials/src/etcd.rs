//! Connects machined to etcd.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use corten_etcd::{Client, Tls};
use corten_kubernetes::etcd::CLIENT_PORT;
use corten_resources::controller::with_causes as describe;

/// Timeout of a call; a member without a leader answers late.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connects as an administrator to the first of these addresses that answers.
///
/// # Errors
/// A certificate cannot be read, or no member answers.
pub async fn connect(secrets: &Path, addresses: &[IpAddr]) -> Result<Client, String> {
    let tls = Tls::read(secrets).map_err(|error| describe(&error))?;
    let endpoint = |address: &IpAddr| SocketAddr::new(*address, CLIENT_PORT).to_string();
    let endpoints: Vec<String> = addresses.iter().map(endpoint).collect();
    let connected = Client::connect(&endpoints, &tls, PATIENCE).await;
    connected.map_err(|error| describe(&error))
}
