//! A registry on this machine for images that a test brings: `registryd` with its own cache layout
//! (`services/registryd/src/cache.rs`).

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use corten_image::oci::{Blob, CONFIG, LAYER, MANIFEST};
use serde_json::{Value, json};

use crate::{images, workspace};

/// Where programs of an image are found.
const SEARCH_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Images in the directory of a registry.
#[derive(Debug)]
pub struct Images<'a> {
    directory: &'a Path,
}

impl<'a> Images<'a> {
    /// No images yet.
    ///
    /// # Panics
    /// The directory cannot be created.
    #[must_use]
    pub fn create(directory: &'a Path) -> Images<'a> {
        fs::create_dir_all(directory.join("blob")).expect("the directory of a registry");
        Images { directory }
    }

    /// Adds the images of a list: `[[image]]` with `names` (`REGISTRY/REPOSITORY:TAG`), `layers` and `run`. Layers are
    /// names of tar files in the directory `layers`, without `.tar`; `run` is OCI's `config` of its containers.
    ///
    /// # Panics
    /// It is no such list, a layer cannot be read, or a file cannot be written.
    pub fn add_all(&self, list: &Path, layers: &Path) {
        let list = fs::read_to_string(list).expect("the list of images");
        let list: Value = toml::from_str(&list).expect("the list of images");
        let texts = |image: &Value, field: &str| -> Vec<String> {
            let texts = image.get(field).and_then(Value::as_array).expect("a list");
            let texts = texts.iter().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        };
        let all = list.get("image").and_then(Value::as_array);
        for image in all.expect("images") {
            let files: Vec<PathBuf> = texts(image, "layers")
                .iter()
                .map(|name| layers.join(format!("{name}.tar")))
                .collect();
            let mut run = image.get("run").cloned().expect("how it runs");
            let fields = run.as_object_mut().expect("how it runs");
            let variables = fields.entry("Env").or_insert_with(|| json!([]));
            let variables = variables.as_array_mut().expect("variables");
            variables.push(SEARCH_PATH.into());
            self.add(&texts(image, "names"), &files, &run);
        }
    }

    fn add(&self, names: &[String], layers: &[PathBuf], run: &Value) {
        let blobs: Vec<Blob> = layers.iter().map(|layer| self.layer(layer)).collect();
        let digests: Vec<String> = blobs.iter().map(Blob::digest).collect();
        let config = json!({
            "architecture": images::builder_arch().names().oci,
            "os": "linux",
            "config": run,
            "rootfs": { "type": "layers", "diff_ids": digests },
        });
        let config = config.to_string();
        let described = Blob::of_bytes(config.as_bytes());
        write(&self.blob(&described), &config);
        let layers = blobs.iter().map(|blob| blob.descriptor(LAYER));
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": described.descriptor(CONFIG),
            "layers": layers.collect::<Vec<_>>(),
        });
        for name in names {
            self.name(name, &manifest.to_string());
        }
    }

    /// Adds the image of an OCI archive, such as an installer, under a name (`REGISTRY/REPOSITORY:TAG`).
    ///
    /// # Panics
    /// It is no archive of one image, or a file cannot be written.
    pub fn add_archive(&self, name: &str, archive: &Path) {
        let layout = self.directory.join("layout");
        fs::create_dir_all(&layout).expect("a directory for the archive");
        let mut tar = Command::new("tar");
        let tar = tar.arg("-xf").arg(archive).arg("-C").arg(&layout);
        assert!(tar.status().expect("tar").success(), "{tar:?}");
        for blob in fs::read_dir(layout.join("blobs/sha256")).expect("blobs") {
            let path = blob.expect("a blob").path();
            self.layer(&path);
        }
        let index = fs::read(layout.join("index.json")).expect("an index");
        let index: Value = serde_json::from_slice(&index).expect("an index");
        let digest = index.pointer("/manifests/0/digest").and_then(Value::as_str);
        let digest = digest.expect("an image").replace(':', "/");
        let manifest = fs::read_to_string(layout.join("blobs").join(digest));
        self.name(name, &manifest.expect("a manifest"));
        fs::remove_dir_all(layout).expect("the files of the archive to go");
    }

    /// Adds an image of an OCI layout under another name, with the files of `layer`, a tar file, over it.
    ///
    /// # Panics
    /// The layout has no such image, its layers are compressed, or a file cannot be written.
    pub fn add_from(&self, layout: &Path, image: &str, name: String, layer: Option<PathBuf>) {
        let read = |file: &Path| -> Value {
            let json = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            serde_json::from_slice(&json).expect("JSON of a layout")
        };
        let blob = |descriptor: &Value| {
            let digest = descriptor.get("digest").and_then(Value::as_str);
            let digest = digest.expect("a digest").replace(':', "/");
            layout.join("blobs").join(digest)
        };
        let list = |object: &Value, field: &str| {
            let list = object.get(field).and_then(Value::as_array);
            list.expect("a list of a layout").clone()
        };
        let is_it = |one: &Value| {
            let named = "/annotations/org.opencontainers.image.ref.name";
            one.pointer(named).and_then(Value::as_str) == Some(image)
        };
        let all = list(&read(&layout.join("index.json")), "manifests");
        let found = all.iter().find(|one| is_it(one));
        let manifest = read(&blob(found.unwrap_or_else(|| panic!("no image {image}"))));
        let config = read(&blob(manifest.get("config").expect("a config")));
        let mut layers: Vec<PathBuf> = list(&manifest, "layers").iter().map(blob).collect();
        layers.extend(layer);
        let run = config.get("config").expect("how it runs");
        self.add(&[name], &layers, run);
    }

    fn name(&self, name: &str, manifest: &str) {
        let (repository, tag) = name.rsplit_once(':').expect("a name with a tag");
        let sha256 = Blob::of_bytes(manifest.as_bytes()).sha256;
        let place = self.directory.join("manifests").join(repository);
        write(&place.join("reference").join(tag), manifest);
        write(
            &place.join("digest").join(format!("sha256-{sha256}")),
            manifest,
        );
    }

    fn blob(&self, blob: &Blob) -> PathBuf {
        let name = format!("sha256-{}", blob.sha256);
        self.directory.join("blob").join(name)
    }

    fn layer(&self, tar: &Path) -> Blob {
        let blob = Blob::of_file(tar).unwrap_or_else(|error| panic!("{}: {error}", tar.display()));
        let place = self.blob(&blob);
        if !place.exists() {
            // registryd follows no symbolic links.
            let linked = fs::hard_link(tar, &place).or_else(|_| fs::copy(tar, &place).map(drop));
            linked.expect("a layer of an image");
        }
        blob
    }
}

fn write(path: &Path, text: &str) {
    let parent = path.parent().expect("a directory");
    fs::create_dir_all(parent).expect("a directory of a registry");
    fs::write(path, text).expect("a file of a registry");
}

/// The repository of [`Registry::of_installer`].
const INSTALLER: &str = "registry.corten.test/corten/installer";

/// A running registry; it ends when this value is dropped.
#[derive(Debug)]
pub struct Registry {
    child: Child,
    address: SocketAddr,
}

impl Registry {
    /// Serves a directory of [`Images`] at an address.
    ///
    /// # Panics
    /// The program does not start.
    #[must_use]
    pub fn serve(directory: &Path, address: SocketAddr) -> Registry {
        let child = Command::new(workspace::program("corten-node"))
            .args(["registryd", "serve", "--root"])
            .arg(directory)
            .arg("--listen")
            .arg(address.to_string())
            .spawn();
        Registry {
            child: child.expect("registryd"),
            address,
        }
    }

    /// Serves an installer out of `directory` to the virtual machines on this host. Returns its name, too.
    ///
    /// # Panics
    /// It is no installer, or the program does not start.
    #[must_use]
    pub fn of_installer(directory: &Path, archive: &Path, tag: &str) -> (Registry, String) {
        let name = format!("{INSTALLER}:{tag}");
        Images::create(directory).add_archive(&name, archive);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        drop(listener);
        (Registry::serve(directory, address), name)
    }

    /// A config with which a virtual machine takes the images of [`Registry::of_installer`] from here.
    #[must_use]
    pub fn mirror(&self) -> String {
        let port = self.address.port();
        format!(
            "apiVersion: v1alpha1\nkind: RegistryMirrorConfig\nname: registry.corten.test\n\
             endpoints: [{{url: 'http://10.0.2.2:{port}'}}]\nskipFallback: true\n"
        )
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // It may have ended itself.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
