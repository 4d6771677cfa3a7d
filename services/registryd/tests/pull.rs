//! Pulls like the conformance tests of the OCI distribution spec, and hostile requests. Requests are written to a
//! socket by hand, so that no client normalizes them.

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs;
    use std::path::Path;

    use corten_daemon::Clients;
    use registryd::Cache;
    use sha2::{Digest as _, Sha256};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    const INDEX: &str = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;
    const IMAGE: &str = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{}}"#;

    struct Answer {
        status: u16,
        headers: HashMap<String, String>,
        body: Vec<u8>,
    }

    impl Answer {
        fn header(&self, name: &str) -> &str {
            self.headers.get(name).map_or("", String::as_str)
        }

        fn code(&self) -> String {
            let body: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
            assert_eq!(self.header("content-type"), "application/json");
            body["errors"][0]["code"].as_str().unwrap().to_owned()
        }
    }

    fn digest(bytes: &[u8]) -> String {
        format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
    }

    /// A file of a cache, with its parent directories.
    fn write(root: &Path, path: &str, bytes: impl AsRef<[u8]>) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// A cache with the image `docker.io/library/pause:3.10` and one blob; returns the blob's bytes.
    fn fill(root: &Path) -> Vec<u8> {
        let image = "manifests/docker.io/library/pause";
        write(root, &format!("{image}/reference/3.10"), INDEX);
        for manifest in [INDEX, IMAGE] {
            let path = format!("{image}/digest/{}", digest(manifest.as_bytes()));
            write(root, &path, manifest);
        }
        let blob: Vec<u8> = (0..300_000_u32).map(|at| at.to_le_bytes()[0] ^ 7).collect();
        write(root, &format!("blob/{}", digest(&blob)), &blob);
        blob
    }

    async fn served(roots: &[&Path]) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let roots = roots.iter().map(|root| (*root).to_owned()).collect();
        tokio::spawn(registryd::serve(
            listener,
            Cache::new(roots),
            Clients::default(),
        ));
        address
    }

    /// All bytes that the server sends after this request.
    async fn exchange(address: std::net::SocketAddr, request: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        answer
    }

    async fn send(address: std::net::SocketAddr, request: &str) -> Answer {
        let answer = exchange(address, request).await;
        let end = answer
            .windows(4)
            .position(|part| part == b"\r\n\r\n")
            .unwrap();
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap();
        let headers = lines.map(|line| line.split_once(": ").unwrap());
        Answer {
            status: status.parse().unwrap(),
            headers: headers
                .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
                .collect(),
            body: answer[end + 4..].to_vec(),
        }
    }

    async fn ask(address: std::net::SocketAddr, method: &str, path: &str, more: &str) -> Answer {
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n");
        send(address, &request).await
    }

    async fn get(address: std::net::SocketAddr, path: &str) -> Answer {
        ask(address, "GET", path, "").await
    }

    #[tokio::test]
    async fn image_is_pulled_with_the_requests_of_containerd() {
        let root = tempfile::tempdir().unwrap();
        let blob = fill(root.path());
        let registry = served(&[root.path()]).await;
        assert_eq!(get(registry, "/healthz").await.status, 200);
        assert_eq!(get(registry, "/v2/").await.body, b"{}");

        let manifests = "/v2/library/pause/manifests";
        let head = ask(
            registry,
            "HEAD",
            &format!("{manifests}/3.10?ns=docker.io"),
            "",
        )
        .await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(
            head.header("content-type"),
            "application/vnd.oci.image.index.v1+json"
        );
        assert_eq!(head.header("content-length"), INDEX.len().to_string());
        let index = head.header("docker-content-digest");
        assert_eq!(index, digest(INDEX.as_bytes()));

        let index = get(registry, &format!("{manifests}/{index}?ns=docker.io")).await;
        assert_eq!(index.body, INDEX.as_bytes());
        let image = digest(IMAGE.as_bytes());
        let image = get(registry, &format!("{manifests}/{image}?ns=docker.io")).await;
        assert_eq!(image.body, IMAGE.as_bytes());
        assert_eq!(
            image.header("content-type"),
            "application/vnd.oci.image.manifest.v1+json"
        );

        let path = format!("/v2/library/pause/blobs/{}?ns=docker.io", digest(&blob));
        let head = ask(registry, "HEAD", &path, "").await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.header("content-length"), "300000");
        let whole = get(registry, &path).await;
        assert_eq!(whole.header("docker-content-digest"), digest(&blob));
        assert!(whole.body == blob);
    }

    #[tokio::test]
    async fn interrupted_pull_resumes_with_a_range_request() {
        let root = tempfile::tempdir().unwrap();
        let blob = fill(root.path());
        let registry = served(&[root.path()]).await;
        let path = format!("/v2/docker.io/library/pause/blobs/{}", digest(&blob));
        let rest = ask(registry, "GET", &path, "Range: bytes=131000-\r\n").await;
        assert_eq!(rest.status, 206);
        assert_eq!(rest.header("content-range"), "bytes 131000-299999/300000");
        assert!(rest.body == blob[131_000..]);
        let beyond = ask(registry, "GET", &path, "Range: bytes=300000-\r\n").await;
        assert_eq!((beyond.status, beyond.body.len()), (416, 0));
        assert_eq!(beyond.header("content-range"), "bytes */300000");
    }

    #[tokio::test]
    async fn missing_content_is_reported_in_the_form_of_the_specification() {
        let root = tempfile::tempdir().unwrap();
        fill(root.path());
        let registry = served(&[root.path()]).await;
        let missing = digest(b"nothing");
        for (path, status, code) in [
            (
                "/v2/library/pause/manifests/9?ns=docker.io",
                404,
                "MANIFEST_UNKNOWN",
            ),
            (
                "/v2/library/pause/manifests/3.10?ns=other.example",
                404,
                "MANIFEST_UNKNOWN",
            ),
            (
                &format!("/v2/a/blobs/{missing}?ns=docker.io"),
                404,
                "BLOB_UNKNOWN",
            ),
            ("/v2/a/blobs/sha256:1?ns=docker.io", 400, "DIGEST_INVALID"),
            ("/v2/A/manifests/1?ns=docker.io", 400, "NAME_INVALID"),
            ("/v2/pause/manifests/1", 400, "NAME_INVALID"),
            ("/anything", 404, "UNSUPPORTED"),
        ] {
            let answer = get(registry, path).await;
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (status, code),
                "{path}"
            );
        }
        let written = ask(registry, "PUT", "/v2/a/manifests/1?ns=docker.io", "").await;
        assert_eq!(
            (written.status, written.header("allow")),
            (405, "GET, HEAD")
        );
        assert_eq!(written.code(), "UNSUPPORTED");
    }

    #[tokio::test]
    async fn bytes_that_do_not_match_their_digest_are_not_served() {
        let (bad, good) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let blob = fill(bad.path());
        let path = format!("/v2/docker.io/library/pause/blobs/{}", digest(&blob));
        let mut damaged = blob.clone();
        damaged[0] ^= 1;
        write(bad.path(), &format!("blob/{}", digest(&blob)), &damaged);
        let image = digest(IMAGE.as_bytes());
        let manifest = format!("/v2/docker.io/library/pause/manifests/{image}");
        let kept = format!("manifests/docker.io/library/pause/digest/{image}");
        write(bad.path(), &kept, INDEX);

        // The first answer ends before its last bytes. The server then knows the blob.
        let first = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let end = &blob[blob.len() - 100..];
        let registry = served(&[bad.path()]).await;
        assert!(!exchange(registry, &first).await.ends_with(end));
        assert_eq!(get(registry, &path).await.code(), "BLOB_UNKNOWN");
        let part = ask(registry, "GET", &path, "Range: bytes=1-2\r\n").await;
        assert_eq!(part.code(), "BLOB_UNKNOWN");
        assert_eq!(get(registry, &manifest).await.code(), "MANIFEST_UNKNOWN");
        // Another cache may have an intact copy.
        fill(good.path());
        let registry = served(&[bad.path(), good.path()]).await;
        assert!(get(registry, &path).await.body == blob);
        assert_eq!(get(registry, &manifest).await.body, IMAGE.as_bytes());
    }

    #[tokio::test]
    async fn a_cache_on_a_file_system_without_colons_is_served_too() {
        let root = tempfile::tempdir().unwrap();
        let image = "manifests/a.example_5000_/app";
        write(root.path(), &format!("{image}/reference/v1"), INDEX);
        let blob = digest(b"blob");
        write(
            root.path(),
            &format!("blob/{}", blob.replace(':', "-")),
            "blob",
        );
        let registry = served(&[root.path()]).await;
        let answer = get(registry, "/v2/app/manifests/v1?ns=a.example%3A5000").await;
        assert_eq!(answer.body, INDEX.as_bytes());
        let answer = get(
            registry,
            &format!("/v2/app/blobs/{blob}?ns=a.example%3A5000"),
        )
        .await;
        assert_eq!(answer.body, b"blob");
    }

    #[tokio::test]
    async fn paths_cannot_escape_the_cache() {
        let above = tempfile::tempdir().unwrap();
        let root = above.path().join("cache");
        fill(&root);
        write(above.path(), "secret", INDEX);
        write(above.path(), "reference/secret", INDEX);
        let outside = root.join("manifests/docker.io/library/pause/reference/outside");
        std::os::unix::fs::symlink(above.path().join("secret"), outside).unwrap();
        let registry = served(&[&root]).await;
        for path in [
            "/v2/../../../secret",
            "/v2/docker.io/../../../manifests/secret",
            "/v2/library/pause/manifests/../../../../../secret?ns=docker.io",
            "/v2/library/pause/manifests/..%2f..%2fsecret?ns=docker.io",
            "/v2/x/manifests/secret?ns=..%2f..%2f..",
            "/v2/library/pause/manifests/outside?ns=docker.io",
            "//v2/x/manifests/secret",
        ] {
            let answer = get(registry, path).await;
            assert!(
                (400..500).contains(&answer.status),
                "{path}: {}",
                answer.status
            );
            assert!(answer.body != INDEX.as_bytes(), "{path}");
        }
    }

    #[tokio::test]
    async fn endless_request_header_is_cut_off() {
        let root = tempfile::tempdir().unwrap();
        let registry = served(&[root.path()]).await;
        let long = "a".repeat(64 * 1024);
        let answer = ask(registry, "GET", "/v2/", &format!("X: {long}\r\n")).await;
        assert_eq!(answer.status, 431);
        let answer = get(registry, &format!("/v2/{}/manifests/1?ns=a", &long[..9000])).await;
        assert_eq!(answer.code(), "NAME_INVALID");
    }
}
