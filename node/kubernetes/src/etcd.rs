//! etcd's certificates and arguments (etcd, "Configuration options").

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use corten_pki::{CA_LIFETIME, Ca, CertificateAndKey, Leaf, PkiError, Usage};
use corten_values::Arguments;

use crate::Facts;
use crate::etcd_addresses::urls;
use crate::extra::with;

pub use crate::etcd_addresses::{
    Addresses, CLIENT_PORT, NoAddress, PEER_PORT, advertised_subnets, listen_subnets, peer_urls,
    shared,
};

/// Validity of etcd's certificates, as long as a CA's: etcd is not restarted to renew them.
const LIFETIME: Duration = CA_LIFETIME;
/// Directory of the certificates in etcd's container.
pub const SECRETS: &str = "/system/secrets/etcd";
/// Data directory, on the node and in the container.
pub const DATA: &str = "/var/lib/etcd";
/// Path of the snapshot to restore a new cluster from.
pub const SNAPSHOT: &str = "/var/lib/etcd.snapshot";
/// Directory below [`DATA`] in which a snapshot is restored: the data of no member yet.
pub const RESTORING: &str = "restoring";
/// Port of the metrics and health endpoints.
const METRICS_PORT: u16 = 2383;

/// Allocated bytes above which a database is not the empty one of a start that never reached its cluster: that one has
/// 20 KiB in a sparse file of 16 MiB (etcd 3.7).
const EMPTY: u64 = 1 << 20;
/// Unit of the allocated blocks of a file (stat(3type), `st_blocks`).
const BLOCK: u64 = 512;
/// Directories below the data directory in which a write-ahead log is searched.
const DEPTH: u32 = 3;

/// Certificates of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificates {
    /// Server certificate for clients.
    pub server: CertificateAndKey,
    /// Certificate for other members.
    pub peer: CertificateAndKey,
    /// Client certificate of machined.
    pub admin: CertificateAndKey,
    /// Client certificate of kube-apiserver.
    pub api_server: CertificateAndKey,
}

impl Certificates {
    /// Issues all certificates.
    ///
    /// # Errors
    /// The host name is not a DNS name, or `now` is out of range.
    pub fn issue(ca: &Ca, facts: &Facts, now: SystemTime) -> Result<Certificates, PkiError> {
        let mut names: Vec<String> = vec![facts.hostname.clone(), facts.fqdn.clone()];
        names.dedup();
        names.retain(|name| !name.is_empty());
        names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
        let all = facts.addresses.iter().chain(&facts.reachable);
        for address in all.map(ToString::to_string) {
            if !names.contains(&address) {
                names.push(address);
            }
        }
        let member = Leaf {
            common_name: &facts.hostname,
            organizations: &[],
            names: &names,
            usage: Usage::Both,
        };
        let client = |common_name| {
            let leaf = Leaf {
                common_name,
                organizations: &[],
                names: &[],
                usage: Usage::Client,
            };
            ca.leaf(&leaf, now, LIFETIME)
        };
        Ok(Certificates {
            server: ca.leaf(&member, now, LIFETIME)?,
            peer: ca.leaf(&member, now, LIFETIME)?,
            admin: client("talos")?,
            api_server: client("kube-apiserver")?,
        })
    }
}

/// Initial data of a new etcd cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// An empty database.
    Empty,
    /// The uploaded snapshot.
    Snapshot {
        /// Skip the checksum, which a copied database file lacks.
        skip_hash_check: bool,
    },
}

/// How a member starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// The first member of a new cluster.
    New,
    /// A new member that joins these members, including itself; each has a name and a peer URL.
    Join(Vec<(String, String)>),
    /// A member whose data determine the cluster.
    Resume,
}

/// Whether this node has been a member and still has its data: a file of the write-ahead log, or a database of some
/// size. etcd makes its directory and an empty database before it reaches the cluster, so that these prove no membership.
/// Nor does an unfinished restoration. In doubt it has data.
#[must_use]
pub fn has_data(directory: &Path) -> bool {
    let database = fs::metadata(directory.join("member/snap/db"));
    database.is_ok_and(|about| about.blocks() * BLOCK > EMPTY) || holds_log(directory, DEPTH)
}

/// Whether a directory has a file of a write-ahead log, at most `depth` directories below: an argument may move the log.
fn holds_log(directory: &Path, depth: u32) -> bool {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => return error.kind() != io::ErrorKind::NotFound,
    };
    entries.into_iter().any(|entry| {
        let Ok((path, kind)) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))
        else {
            return true;
        };
        if depth == DEPTH && path.ends_with(RESTORING) {
            return false;
        }
        match kind.is_dir() {
            true => depth > 0 && holds_log(&path, depth - 1),
            false => path.extension().is_some_and(|extension| extension == "wal"),
        }
    })
}

/// Program and arguments of the member at these addresses, with the config's `own` arguments.
#[must_use]
pub fn args(facts: &Facts, addresses: &Addresses, start: &Start, own: &Arguments) -> Vec<String> {
    let at = |addresses: &[IpAddr], port| urls(addresses, port).join(",");
    let clients = |port| at(&addresses.listen_client, port);
    let (state, cluster) = match start {
        Start::New => ("new", alone(facts, addresses)),
        // The data name the members. Without data, etcd must not begin another cluster.
        Start::Resume => ("existing", alone(facts, addresses)),
        Start::Join(members) => ("existing", joined(members)),
    };
    let flags = [
        ("name", facts.hostname.clone()),
        ("data-dir", DATA.to_owned()),
        ("auto-tls", "false".to_owned()),
        ("peer-auto-tls", "false".to_owned()),
        ("client-cert-auth", "true".to_owned()),
        ("peer-client-cert-auth", "true".to_owned()),
        ("cert-file", format!("{SECRETS}/server.crt")),
        ("key-file", format!("{SECRETS}/server.key")),
        ("trusted-ca-file", format!("{SECRETS}/ca.crt")),
        ("peer-cert-file", format!("{SECRETS}/peer.crt")),
        ("peer-key-file", format!("{SECRETS}/peer.key")),
        ("peer-trusted-ca-file", format!("{SECRETS}/ca.crt")),
        ("tls-min-version", "TLS1.3".to_owned()),
        ("listen-peer-urls", at(&addresses.listen_peer, PEER_PORT)),
        ("listen-client-urls", clients(CLIENT_PORT)),
        ("listen-client-http-urls", clients(METRICS_PORT)),
        (
            "initial-advertise-peer-urls",
            at(&addresses.advertised, PEER_PORT),
        ),
        (
            "advertise-client-urls",
            at(&addresses.advertised, CLIENT_PORT),
        ),
        ("initial-cluster", cluster),
        ("initial-cluster-state", state.to_owned()),
        ("watch-progress-notify-interval", "5s".to_owned()),
        (
            "feature-gates",
            "InitialCorruptCheck=true,CompactHashCheck=true".to_owned(),
        ),
    ];
    let mut args = vec!["/usr/local/bin/etcd".to_owned()];
    args.extend(flags.map(|(name, value)| format!("--{name}={value}")));
    match own.0.is_empty() {
        true => args,
        false => with(args, own),
    }
}

/// Revisions that a restored database skips (the number that etcd's documentation recommends).
///
/// Programs on other nodes have read revisions that the snapshot does not have. A revision must not come twice with
/// different data: their caches would stay as they are.
const SKIPPED_REVISIONS: u64 = 1_000_000_000;

/// Program and arguments that restore [`SNAPSHOT`] in [`RESTORING`] as the data of a new cluster's first member (etcdutl,
/// "snapshot restore"; etcd, "Disaster recovery"). The database is in place long before its log: a power cut leaves data
/// that no etcd starts on.
///
/// The revisions up to the first new one count as compacted, so that every watcher reads its objects again.
#[must_use]
pub fn restore_args(facts: &Facts, addresses: &Addresses, skip_hash_check: bool) -> Vec<String> {
    let (name, peers) = (&facts.hostname, addresses.peer_urls().join(","));
    let cluster = alone(facts, addresses);
    vec![
        "/usr/local/bin/etcdutl".to_owned(),
        "snapshot".to_owned(),
        "restore".to_owned(),
        SNAPSHOT.to_owned(),
        format!("--name={name}"),
        format!("--data-dir={DATA}/{RESTORING}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster={cluster}"),
        format!("--skip-hash-check={skip_hash_check}"),
        format!("--bump-revision={SKIPPED_REVISIONS}"),
        "--mark-compacted".to_owned(),
    ]
}

/// The cluster of this node alone, as an argument.
fn alone(facts: &Facts, addresses: &Addresses) -> String {
    let urls = addresses.peer_urls().into_iter();
    let members: Vec<(String, String)> = urls.map(|url| (facts.hostname.clone(), url)).collect();
    joined(&members)
}

/// Names and peer URLs of members as an argument.
fn joined(members: &[(String, String)]) -> String {
    let each = members.iter().map(|(name, url)| format!("{name}={url}"));
    each.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_is_restored_beside_the_data_of_the_member() {
        let addresses = Addresses {
            advertised: vec![[10, 0, 0, 5].into()],
            listen_peer: Vec::new(),
            listen_client: Vec::new(),
        };
        let args = restore_args(&Facts::default(), &addresses, false);
        assert!(args.contains(&"--data-dir=/var/lib/etcd/restoring".to_owned()));
        // Watchers of the lost data must read everything again.
        for flag in ["--bump-revision=1000000000", "--mark-compacted"] {
            assert!(args.contains(&flag.to_owned()), "{flag}");
        }
    }

    #[test]
    fn only_a_log_or_a_filled_database_proves_a_membership() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        assert!(!has_data(data));
        // What a start leaves that never reached its cluster.
        for path in ["member/snap", "member/wal"] {
            fs::create_dir_all(data.join(path)).unwrap();
        }
        let database = fs::File::create(data.join("member/snap/db")).unwrap();
        database.set_len(16 << 20).unwrap();
        fs::write(data.join("member/wal/0.tmp"), "").unwrap();
        assert!(!has_data(data));
        fs::write(
            data.join("member/wal/0000000000000000-0000000000000000.wal"),
            "",
        )
        .unwrap();
        assert!(has_data(data));
        // A log in another place, and a database that lost its log.
        let other = tempfile::tempdir().unwrap();
        fs::create_dir_all(other.path().join("log")).unwrap();
        fs::write(other.path().join("log/0.wal"), "").unwrap();
        assert!(has_data(other.path()));
        fs::remove_file(other.path().join("log/0.wal")).unwrap();
        fs::create_dir_all(other.path().join("member/snap")).unwrap();
        assert!(!has_data(other.path()));
        fs::write(other.path().join("member/snap/db"), vec![7; 2 << 20]).unwrap();
        assert!(has_data(other.path()));
        // An unfinished restoration is no member's data, but those of a finished one in its directory are.
        let restored = tempfile::tempdir().unwrap();
        let part = restored.path().join(RESTORING);
        fs::create_dir_all(part.join("member/wal")).unwrap();
        fs::write(part.join("member/wal/0.wal"), "").unwrap();
        assert!(!has_data(restored.path()));
        assert!(has_data(&part));
        // In doubt it has data.
        assert!(has_data(Path::new("/proc/self/cmdline")));
    }
}
