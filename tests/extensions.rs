//! Promise: a running node loads the extensions of its config from a volume or a registry's image,
//! and unloads them. An extension with a wrong digest has no effect. A service of an extension
//! survives containerd.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_extension::archive::testing::{Image, digest as content_digest, file};
use qemu::{Disk, DiskMode};
use serde_json::json;
use tests::chaos::{self, Agent};
use tests::client::Table;
use tests::disk::NodeDisk;
use tests::node::{BOOT, Node, ORDERLY, SOON};
use tests::{extension, workspace};

/// A registry that does not exist: its images are on the node.
const REGISTRY: &str = "registry.example.org/team/tool:v1";
const LABEL: &str = "EXTRA";

/// A static program of the node, with files of the extension.
const SERVICE: &str = "\
name: hello
container:
  entrypoint: /usr/bin/registryd
  args: [serve, --root, /data, --listen, '127.0.0.1:4000']
  mounts: [{source: /usr/bin, destination: /usr/bin, type: bind, options: [bind, ro]}]
restart: always
";

/// A service whose dependencies never appear.
const WAITS: &str = "\
name: waits
container: {entrypoint: /usr/bin/registryd}
depends: [{service: ext-missing}, {path: /var/nothing}]
restart: always
";
const WAITS_FOR: &str = "Waiting for service \"ext-missing\" to be \"up\", the path /var/nothing";

/// The image of an extension with services, and its digest.
fn hello() -> (Image, String) {
    let services = [
        file("rootfs/usr/local/etc/containers/hello.yaml", SERVICE),
        file("rootfs/usr/local/lib/containers/hello/data/x", ""),
        file("rootfs/usr/local/etc/containers/waits.yaml", WAITS),
    ];
    extension::image("hello", &services)
}

/// Writes its archive; returns its digest.
fn hello_archive(path: &Path) -> String {
    let (image, digest) = hello();
    fs::write(path, image.archive()).unwrap();
    digest
}

/// A volume with these files in its root.
fn volume(path: &Path, files: &[&Path]) {
    let volume = fs::File::create(path).unwrap();
    volume.set_len(64 << 20).unwrap();
    let run = |command: &mut Command| {
        let status = command.status().unwrap();
        assert!(status.success(), "{command:?}: {status}");
    };
    run(Command::new("/sbin/mkfs.vfat")
        .args(["-n", LABEL])
        .arg(path));
    let mut copy = Command::new("mcopy");
    run(copy.arg("-i").arg(path).args(files).arg("::"));
}

fn apply(node: &Node, images: &[String]) {
    let images: Vec<_> = images.iter().map(|image| json!({"image": image})).collect();
    let patch = json!({"machine": {"install": {"extensions": images}}});
    node.apply_patch(&patch.to_string());
}

/// Waits until the node lists exactly these extensions.
fn until_listed(node: &Node, names: &[&str], deadline: Duration) {
    let admin = node.admin();
    node.until(&format!("the extensions {names:?}"), deadline, || {
        let text = admin.call(&["get", "extensions"])?;
        let table = Table::parse(&text);
        match table.rows.is_empty() {
            true if names.is_empty() => Ok(()),
            false if table.column("NAME") == names => Ok(()),
            _ => Err(text),
        }
    });
}

fn until_it_serves(node: &Node) {
    let admin = node.admin();
    node.until("the extension's service", SOON, || {
        let text = admin.call(&["netstat", "-l", "-t"])?;
        text.contains("127.0.0.1:4000").then_some(()).ok_or(text)
    });
}

/// Checks that the API shows the container of the extension's service, with its resource usage.
fn its_container_is_shown(node: &Node) {
    let field = |verb: &str, field: &str| {
        let path = format!("jsonpath={{.{verb}[?(@.id==\"ext-hello\")].{field}}}");
        let verb = [verb, "-o", &path];
        node.ask(&node.admin(), &verb, SOON).trim().to_owned()
    };
    assert_eq!(field("containers", "status"), "RUNNING");
    assert_eq!(field("containers", "namespace"), "system");
    let pid: u32 = field("containers", "pid").parse().unwrap();
    let memory: u64 = field("stats", "memory").parse().unwrap();
    let time: u64 = field("stats", "cpu").parse().unwrap();
    assert!(pid > 1 && memory > 0 && time > 0, "{pid} {memory} {time}");
    for verb in ["containers", "stats"] {
        let text = node.ask(&node.admin(), &[verb], SOON);
        let is_its = |line: &&str| line.split_whitespace().nth(2) == Some("ext-hello");
        assert_eq!(text.lines().filter(is_its).count(), 1, "{text}");
    }
}

#[test]
#[ignore = "make test-vm"]
fn extensions_of_the_config_are_loaded_and_unloaded() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let hello = hello_archive(&at("hello.tar"));
    let changed = extension::archive(&at("changed.tar"), "changed", None);
    let other = extension::archive(&at("changed.tar"), "other", None);
    assert_ne!(changed, other);
    let tool = extension::archive(&at("tool.tar"), "tool", Some(REGISTRY));
    volume(&at("volume"), &[&at("hello.tar"), &at("changed.tar")]);
    let on_volume = |file: &str, digest: &str| format!("oci-archive://{LABEL}/{file}@{digest}");

    let disk = NodeDisk::new("extensions", 4);
    let beside = Disk::raw(at("volume")).mode(DiskMode::Snapshot);
    let node = disk.start(|machine| machine.disk(beside));
    node.configure();
    let hello = on_volume("hello.tar", &hello);
    apply(&node, &[on_volume("changed.tar", &changed), hello.clone()]);
    until_listed(&node, &["hello"], SOON);
    until_it_serves(&node);
    its_container_is_shown(&node);
    let read = |name: &str| {
        node.admin()
            .call(&["read", &format!("/usr/local/share/{name}")])
    };
    assert_eq!(read("hello").as_deref(), Ok("hello"));
    node.until("a service that shows its dependencies", SOON, || {
        let text = node.admin().call(&["service"])?;
        let row = text.lines().find(|line| line.contains("ext-waits"));
        let waits = row.is_some_and(|row| row.contains(" Waiting ") && row.contains(WAITS_FOR));
        waits.then_some(()).ok_or(text)
    });
    let said = node.ask(&node.admin(), &["logs", "machined"], SOON);
    assert!(
        said.contains("changed.tar") && said.contains("is not loaded"),
        "{said}"
    );

    let archive = at("tool.tar").display().to_string();
    let import = ["image", "import", "--namespace", "system", &archive];
    node.ask(&node.admin(), &import, SOON);
    let tool = format!("{REGISTRY}@{tool}");
    apply(&node, &[hello.clone(), tool.clone()]);
    until_listed(&node, &["hello", "tool"], SOON);
    assert_eq!(read("tool").as_deref(), Ok("tool"));

    node.expect_reset(ORDERLY, || {
        // The connection may end before the answer.
        let _maybe_answered = node.admin().call(&["reboot", "--wait=false"]);
    });
    until_listed(&node, &["hello", "tool"], BOOT);
    until_it_serves(&node);

    apply(&node, &[tool]);
    until_listed(&node, &["tool"], SOON);
    node.until("the end of its services", SOON, || {
        let text = node.admin().call(&["service"])?;
        if text.contains("ext-") {
            Err(text)
        } else {
            Ok(())
        }
    });
    read("hello").unwrap_err();
    assert_eq!(read("tool").as_deref(), Ok("tool"));
    apply(&node, &[]);
    until_listed(&node, &[], SOON);
    read("tool").unwrap_err();
}

#[test]
#[ignore = "make test-vm"]
fn a_service_of_an_extension_outlives_containerd() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let hello = hello_archive(&at("hello.tar"));
    volume(&at("volume"), &[&at("hello.tar")]);
    let disk = NodeDisk::new("outlives", 4);
    let initramfs = workspace::target().join("vm/outlives-initramfs");
    let beside = Disk::raw(at("volume")).mode(DiskMode::Snapshot);
    let node = disk.start(|machine| chaos::add(machine.disk(beside), &initramfs));
    node.configure();
    apply(&node, &[format!("oci-archive://{LABEL}/hello.tar@{hello}")]);
    until_it_serves(&node);

    let mut agent = Agent::connect(&node.vm);
    let service = agent.only("registryd").unwrap();
    agent.kill_and_wait(&node, "containerd");
    assert_eq!(agent.only("registryd"), Ok(service));
    until_it_serves(&node);
    // Commands to the service take effect, too.
    let stopped = node.ask(&node.admin(), &["service", "ext-hello", "stop"], SOON);
    assert!(stopped.contains("ext-hello"), "{stopped}");
    node.until("its end", SOON, || {
        match agent.named("registryd").as_slice() {
            [] => Ok(()),
            left => Err(format!("{left:?}")),
        }
    });
}

/// An image cache with this image, as the content of its partition (`docs/architecture.md`, "The image cache").
fn image_cache(directory: &Path, image: &Image, digest: &str) -> Vec<u8> {
    let cache = directory.join("cache");
    let manifests = cache.join("manifests/registry.example.org/team/hello/digest");
    fs::create_dir_all(&manifests).unwrap();
    fs::create_dir_all(cache.join("blob")).unwrap();
    for blob in &image.blobs {
        let name = content_digest(blob);
        let place = if name == digest {
            manifests.join(name)
        } else {
            cache.join("blob").join(name)
        };
        fs::write(place, blob).unwrap();
    }
    let squashed = directory.join("cache.squashfs");
    let mut command = Command::new("mksquashfs");
    command.arg(&cache).arg(&squashed);
    let made = command.args(["-quiet", "-no-progress", "-all-root", "-comp", "zstd"]);
    let status = made.status().unwrap();
    assert!(status.success(), "mksquashfs: {status}");
    fs::read(squashed).unwrap()
}

#[test]
#[ignore = "make test-vm"]
fn extension_is_loaded_from_the_image_cache() {
    let directory = tempfile::tempdir().unwrap();
    let (image, digest) = hello();
    let disk = NodeDisk::new("image-cache", 4);
    disk.add_partition(
        "IMAGECACHE",
        &image_cache(directory.path(), &image, &digest),
    );
    let node = disk.start(|machine| machine);
    node.configure();
    let name = format!("registry.example.org/team/hello:v1@{digest}");
    let wanted = json!({"machine": {
        "install": {"extensions": [{"image": name}]},
        "features": {"imageCache": {"localEnabled": true}},
    }});
    node.apply_patch(&wanted.to_string());
    until_listed(&node, &["hello"], BOOT);
    until_it_serves(&node);
    // The image can only come from the node's cache: the registry does not exist, and the image was
    // not uploaded.
    let served = node.ask(&node.admin(), &["netstat", "-l", "-t"], SOON);
    assert!(served.contains("127.0.0.1:3172"), "{served}");
    let (source, _) = node.mount("/system/imagecache");
    assert!(source.starts_with("/dev/vda"), "{source}");
}

/// Answers requests for a registry's blobs (distribution spec, "Pulling manifests", "Pulling
/// blobs") that have the right user and password; `None` when the client has disconnected.
fn answer(mut stream: TcpStream, blobs: &HashMap<String, Vec<u8>>, login: &str) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let request = lines.next()?.ok()?;
    let headers: Vec<String> = lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .collect();
    let wanted = format!("authorization: basic {}", STANDARD.encode(login));
    let is_let_in = headers
        .iter()
        .any(|line| line.eq_ignore_ascii_case(&wanted));
    let mut words = request.split(['?', ' ']);
    let (method, path) = (words.next()?, words.next()?);
    let name = path.rsplit('/').next()?;
    let (status, more, body) = match blobs.get(name) {
        _ if !is_let_in => (
            "401 Unauthorized",
            "www-authenticate: Basic realm=\"r\"".to_owned(),
            &[] as &[u8],
        ),
        Some(blob) => {
            let kind = match path.contains("/manifests/") {
                true => "application/vnd.oci.image.manifest.v1+json",
                false => "application/octet-stream",
            };
            let more = format!("docker-content-digest: {name}\r\ncontent-type: {kind}");
            ("200 OK", more, blob.as_slice())
        }
        None => ("404 Not Found", "x: y".to_owned(), &[] as &[u8]),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{more}\r\nconnection: close\r\n\r\n"
    );
    let body = if method == "HEAD" { &[] } else { body };
    stream.write_all(&[head.as_bytes(), body].concat()).ok()
}

/// A registry mirror with this image on this host; returns its port.
fn mirror(image: &Image, login: &'static str) -> u16 {
    let named = image
        .blobs
        .iter()
        .map(|blob| (content_digest(blob), blob.clone()));
    let blobs: HashMap<String, Vec<u8>> = named.collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that disconnects retries.
            let _gone = answer(stream, &blobs, login);
        }
    });
    port
}

#[test]
#[ignore = "make test-vm"]
fn extension_is_loaded_from_a_mirror_with_a_password() {
    let (image, digest) = hello();
    let port = mirror(&image, "node:secret");
    let disk = NodeDisk::new("mirror", 4);
    let node = disk.start(|machine| machine);
    node.configure();
    // This host's address for the guest.
    let host = format!("10.0.2.2:{port}");
    let name = format!("registry.example.org/team/hello:v1@{digest}");
    let config = |password: &str| {
        let auth = json!({"username": "node", "password": password});
        let registries = json!({
            "mirrors": {"registry.example.org": {"endpoints": [format!("http://{host}")], "skipFallback": true}},
            "config": {host.as_str(): {"auth": auth}},
        });
        let install = json!({"extensions": [{"image": name}]});
        json!({"machine": {"install": install, "registries": registries}}).to_string()
    };
    node.apply_patch(&config("wrong"));
    node.until("the reason of the failed load", SOON, || {
        let said = node.admin().call(&["logs", "machined"])?;
        // A restart of containerd for the new credentials does not count as the reason.
        let is_told = said.contains("is not loaded: containerd rejected the image");
        is_told.then_some(()).ok_or(said)
    });
    node.apply_patch(&config("secret"));
    until_listed(&node, &["hello"], BOOT);
    let hosts = "/etc/cri/conf.d/hosts/registry.example.org/hosts.toml";
    let hosts = node.ask(&node.admin(), &["read", hosts], SOON);
    assert!(
        hosts.contains(&format!("server = \"http://{host}\"")),
        "{hosts}"
    );
    let shown = node.ask(
        &node.admin(),
        &["get", "registryconfigs", "-o", "yaml"],
        SOON,
    );
    assert!(
        shown.contains("registry.example.org") && shown.contains("skipFallback: true"),
        "{shown}"
    );
    // A pull into the other namespace, which does not have the image.
    let (admin, listed) = (node.admin(), ["image", "list", "--namespace", "cri"]);
    let before = node.ask(&admin, &listed, SOON);
    assert!(!before.contains(&digest), "{before}");
    node.ask(&admin, &["image", "pull", &name], SOON);
    // By its name, and by the id that the kubelet uses, which containerd's CRI adds after the pull.
    let text = node.until("the image under both names", SOON, || {
        let text = admin.call(&listed)?;
        match Table::parse(&text).column("IMAGE").len() {
            2 => Ok(text),
            _ => Err(text),
        }
    });
    let table = Table::parse(&text);
    let mut images = table.column("IMAGE");
    images.sort_unstable();
    let [by_name, by_id] = images[..] else {
        panic!("{text}")
    };
    assert!(
        by_name.starts_with("registry.example.org/team/hello"),
        "{text}"
    );
    assert!(by_id.starts_with("sha256:"), "{text}");
    assert_eq!(table.column("DIGEST"), [&*digest; 2], "{text}");
    let refused = admin.call(&["image", "pull", "registry.example.org/team/none:v1"]);
    let refused = refused.unwrap_err();
    let (_, said) = refused.split_once("exit status: 1: ").unwrap();
    assert!(said.contains("team/none"), "{said}");
}
