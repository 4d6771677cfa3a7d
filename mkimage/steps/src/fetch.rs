//! Fetches the locked files, by SHA-256, from the mirrors that the host is configured for.

use std::fs;
use std::io::{Read, Write as _};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use crate::cache::{Cache, sha256_file};
use crate::error::{Failure, Remedy as _, Result};
use crate::lock::Package;
use crate::tool::Tool;

/// Timeout of a mirror's answer; a stalled mirror must not hang a build.
const ANSWER: Duration = Duration::from_secs(60);

/// Largest archive index read, in bytes; Debian's are about 10 MB compressed.
const METADATA_LIMIT: u64 = 256 << 20;

/// Every mirror answered that it no longer has a locked package.
#[derive(Debug, Clone)]
pub struct Gone {
    /// The package.
    pub package: Package,
}

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no mirror has {}", self.package.path)
    }
}

impl std::error::Error for Gone {}

/// Fetches locked files into the cache.
#[derive(Debug)]
pub struct Fetcher {
    cache: Cache,
    offline: bool,
    mirrors: OnceLock<Vec<String>>,
}

impl Fetcher {
    /// A fetcher into `cache`; with `offline` it only finds files of the cache. A non-empty
    /// `mirrors` replaces the host's apt configuration.
    pub fn new(cache: Cache, offline: bool, mirrors: Vec<String>) -> Self {
        let chosen = OnceLock::new();
        if !mirrors.is_empty() {
            // The cell is new, so that `set` cannot fail.
            let _ = chosen.set(mirrors);
        }
        Self {
            cache,
            offline,
            mirrors: chosen,
        }
    }

    /// The package's file in the cache, fetched and verified if it is missing.
    pub fn package(&self, package: &Package) -> Result<PathBuf> {
        if let Some(found) = self.cache.find_fetched(&package.sha256) {
            return Ok(found);
        }
        let what = format!("{} {}", package.name, package.version);
        if self.offline {
            return Err(Failure::new(
                format!("{what} is not in the cache and the build is --offline"),
                "run the same build once without --offline",
            ));
        }
        let _lock = self.cache.lock(&package.sha256)?;
        if let Some(found) = self.cache.find_fetched(&package.sha256) {
            return Ok(found);
        }
        let mut answers = Vec::new();
        let mut is_gone = true;
        for mirror in self.mirrors()? {
            let url = format!("{}/{}", mirror.trim_end_matches('/'), package.path);
            match self.download(&url, package) {
                Ok(path) => return Ok(path),
                Err(error) if error.is::<Failure>() => return Err(error),
                Err(error) => {
                    is_gone &= matches!(
                        error.downcast_ref::<ureq::Error>(),
                        Some(ureq::Error::StatusCode(404 | 410))
                    );
                    answers.push(format!("{mirror}: {error:#}"));
                }
            }
        }
        let (suite, answers) = (&package.suite, answers.join("\n  "));
        if is_gone {
            let gone = Gone {
                package: package.clone(),
            };
            return Err::<PathBuf, _>(gone).or_fail(
                format!("no mirror has {what} ({suite}):\n  {answers}"),
                "the archive has newer versions only; add a snapshot archive, which keeps old versions, to \
                 CORTEN_MIRRORS or to apt's sources, or run `mkimage lock` to use the newest version",
            );
        }
        Err(Failure::new(
            format!("{what} ({suite}) cannot be fetched:\n  {answers}"),
            "check the network and the mirrors, or set others in CORTEN_MIRRORS",
        ))
    }

    /// The file `path` and the first mirror that has it; for archive metadata, which no lock names.
    pub fn text(&self, path: &str) -> Result<(String, Vec<u8>)> {
        let mut answers = Vec::new();
        for mirror in self.mirrors()? {
            match self.bytes(mirror, path) {
                Ok(content) => return Ok((mirror.clone(), content)),
                Err(error) => answers.push(format!("{error:#}")),
            }
        }
        Err(Failure::new(
            format!("no mirror has {path}:\n  {}", answers.join("\n  ")),
            "set a mirror that has it in CORTEN_MIRRORS",
        ))
    }

    /// The file at `path` of one mirror.
    pub fn bytes(&self, mirror: &str, path: &str) -> Result<Vec<u8>> {
        let url = format!("{}/{path}", mirror.trim_end_matches('/'));
        let mut response = agent()
            .get(&url)
            .call()
            .with_context(|| format!("fetching {url}"))?;
        let body = response
            .body_mut()
            .with_config()
            .limit(METADATA_LIMIT)
            .read_to_vec();
        body.with_context(|| format!("fetching {url}"))
    }

    /// The given mirrors, or those of the host's apt configuration.
    fn mirrors(&self) -> Result<&[String]> {
        if let Some(mirrors) = self.mirrors.get() {
            return Ok(mirrors);
        }
        let output = Tool::new("apt-get")
            .args(["indextargets", "--format", "$(REPO_URI)"])
            .output()
            .or_fail(
                "cannot ask apt for this host's Debian mirrors",
                "set them in CORTEN_MIRRORS, separated by commas",
            )?;
        let mut mirrors: Vec<String> = Vec::new();
        for line in String::from_utf8_lossy(&output).lines() {
            if line.starts_with("http") && !mirrors.iter().any(|known| known == line) {
                mirrors.push(line.to_owned());
            }
        }
        if mirrors.is_empty() {
            return Err(Failure::new(
                "apt on this host knows no http mirror",
                "set Debian mirrors in CORTEN_MIRRORS, separated by commas",
            ));
        }
        Ok(self.mirrors.get_or_init(|| mirrors))
    }

    fn download(&self, url: &str, package: &Package) -> Result<PathBuf> {
        let mut response = agent().get(url).call()?;
        let partial = self.cache.partial(&package.sha256);
        let full = "free disk space in CORTEN_CACHE, then build again";
        let mut file =
            fs::File::create(&partial).or_fail(format!("creating {}", partial.display()), full)?;
        let mut hash = Sha256::new();
        let mut reader = response.body_mut().as_reader().take(package.size + 1);
        let mut buffer = vec![0; 1 << 16];
        let mut size = 0;
        loop {
            let read = reader
                .read(&mut buffer)
                .context("the transfer was interrupted")?;
            let Some(chunk) = buffer.get(..read).filter(|chunk| !chunk.is_empty()) else {
                break;
            };
            hash.update(chunk);
            size += read as u64;
            file.write_all(chunk)
                .or_fail(format!("writing {}", partial.display()), full)?;
        }
        let digest = hex::encode(hash.finalize());
        if size != package.size || digest != package.sha256 {
            fs::remove_file(&partial)?;
            return Err(Failure::new(
                format!(
                    "{} {} differs from the lock: sha256 {digest}, expected {}",
                    package.name, package.version, package.sha256
                ),
                "the mirror, the transfer or the lock was changed: try another mirror (CORTEN_MIRRORS); \
                 if the error remains, compare the lock with its history",
            ));
        }
        file.sync_all()
            .or_fail(format!("writing {}", partial.display()), full)?;
        let path = self.cache.fetched(&package.sha256);
        fs::rename(&partial, &path).with_context(|| format!("keeping {}", path.display()))?;
        Ok(path)
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .timeout_connect(Some(ANSWER))
        .timeout_recv_response(Some(ANSWER))
        .build()
        .into()
}

/// Copies a file of the user into the cache if it has the locked digest.
pub fn adopt(cache: &Cache, file: &std::path::Path, sha256: &str) -> Result<PathBuf> {
    let digest = sha256_file(file)?;
    if digest != sha256 {
        return Err(Failure::new(
            format!(
                "{} has sha256 {digest}, the lock names {sha256}",
                file.display()
            ),
            "use the file of the lock, or change the lock deliberately",
        ));
    }
    let path = cache.fetched(sha256);
    if !sha256_file(&path).is_ok_and(|found| found == sha256) {
        let partial = cache.partial(sha256);
        fs::copy(file, &partial)
            .and_then(|_| fs::rename(&partial, &path))
            .or_fail(
                format!("copying {}", file.display()),
                "free disk space in CORTEN_CACHE",
            )?;
    }
    Ok(path)
}

/// The mirrors named in `CORTEN_MIRRORS`, separated by commas; none means the host's own.
pub fn mirrors() -> Vec<String> {
    let named = std::env::var("CORTEN_MIRRORS").unwrap_or_default();
    named
        .split(',')
        .filter(|m| !m.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn package(content: &[u8]) -> Package {
        Package {
            name: "demo".into(),
            version: "1".into(),
            arch: "all".into(),
            suite: "trixie".into(),
            path: "pool/demo.deb".into(),
            size: content.len() as u64,
            sha256: hex::encode(Sha256::digest(content)),
            purpose: "rootfs".into(),
        }
    }

    /// A mirror that answers one request with `answer`.
    fn mirror(answer: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(answer).unwrap();
        });
        format!("http://{address}/")
    }

    fn fetch(answer: &'static [u8], package: &Package) -> Result<PathBuf> {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), Vec::new()).unwrap();
        let got = Fetcher::new(cache, false, vec![mirror(answer)]).package(package);
        got.inspect(|path| assert_eq!(fs::read(path).unwrap(), b"good"))
    }

    #[test]
    fn locked_file_is_fetched_and_cached() {
        fetch(
            b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood",
            &package(b"good"),
        )
        .unwrap();
    }

    #[test]
    fn content_that_differs_from_the_lock_is_refused_by_name() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
        let error = fetch(answer, &package(b"good")).unwrap_err().to_string();
        assert!(error.contains("demo 1 differs from the lock"), "{error}");
    }

    #[test]
    fn missing_package_on_a_mirror_is_named() {
        let answer = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        let error = fetch(answer, &package(b"good")).unwrap_err();
        assert!(
            error.to_string().contains("no mirror has demo 1"),
            "{error}"
        );
        assert_eq!(error.downcast_ref::<Gone>().unwrap().package.name, "demo");
        assert!(
            error
                .downcast_ref::<Failure>()
                .unwrap()
                .remedy()
                .contains("mkimage lock")
        );
    }

    #[test]
    fn mirror_error_is_not_reported_as_a_missing_package() {
        let answer = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
        let error = fetch(answer, &package(b"good")).unwrap_err();
        assert!(error.downcast_ref::<Gone>().is_none(), "{error}");
        assert!(error.to_string().contains("cannot be fetched"), "{error}");
    }

    #[test]
    fn a_cached_file_that_changed_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), Vec::new()).unwrap();
        let good = package(b"good");
        fs::write(cache.fetched(&good.sha256), "evil").unwrap();
        Fetcher::new(cache.clone(), true, Vec::new())
            .package(&good)
            .unwrap_err();
        let mirror = mirror(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood");
        let path = Fetcher::new(cache, false, vec![mirror])
            .package(&good)
            .unwrap();
        assert_eq!(fs::read(path).unwrap(), b"good");
    }

    #[test]
    fn offline_mode_makes_no_requests() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), Vec::new()).unwrap();
        let error = Fetcher::new(cache, true, Vec::new())
            .package(&package(b"good"))
            .unwrap_err();
        assert!(error.to_string().contains("--offline"), "{error}");
    }
}
