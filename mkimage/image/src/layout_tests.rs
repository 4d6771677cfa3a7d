use std::os::unix::fs::PermissionsExt as _;

use corten_rootfs::images::Image;

use super::*;

fn image(name: &str) -> Image {
    Image {
        name: name.into(),
        version: "v1.2.3".into(),
        module: None,
        entrypoint: vec!["/program".into()],
        programs: vec!["/program".into()],
        parts: Vec::new(),
        user: Some("65535:65535".into()),
    }
}

/// Writes a layout of two images with one program, whose file has the given mode on the build
/// machine.
fn layout(directory: &Path, mode: u32) {
    begin(directory, mode).finish().unwrap();
}

fn begin(directory: &Path, mode: u32) -> Layout<'_> {
    let program = directory.with_extension("program");
    fs::write(&program, "a program").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
    let mut tree = Tree::default();
    insert(&mut tree, "usr/bin/program", &program).unwrap();
    let mut link = plain(Kind::Link("usr/bin/program".into()));
    link.mode = 0o777;
    tree.insert("program".into(), link).unwrap();
    let mut layout = Layout::create(directory, Arch::X86_64).unwrap();
    for name in ["one", "two"] {
        let image = image(name);
        let name = format!("images.example/{name}:{}", image.version);
        let added = layout.add(&name, &image.run(), &image.annotations(), &tree);
        added.unwrap();
    }
    layout
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn every_descriptor_leads_to_a_blob_of_its_digest_and_size() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("layout");
    layout(&dir, 0o755);
    let blob = |described: &Value| {
        let digest = described["digest"].as_str().unwrap();
        let path = dir
            .join("blobs/sha256")
            .join(digest.strip_prefix("sha256:").unwrap());
        let found = Blob::of_file(&path).unwrap();
        assert_eq!(found.digest(), digest);
        assert_eq!(described["size"], found.size);
        path
    };
    let index = json(&dir.join("index.json"));
    let manifests = index["manifests"].as_array().unwrap();
    assert_eq!(manifests.len(), 2);
    assert_eq!(
        manifests[1]["annotations"][FULL_NAME],
        "images.example/two:v1.2.3"
    );
    for described in manifests {
        let manifest = json(&blob(described));
        let config = json(&blob(&manifest["config"]));
        let layer = blob(&manifest["layers"][0]);
        assert_eq!(
            config["rootfs"]["diff_ids"][0],
            manifest["layers"][0]["digest"]
        );
        assert_eq!(config["config"]["User"], "65535:65535");
        let mut tar = tar::Archive::new(fs::File::open(layer).unwrap());
        let entries: Vec<_> = tar
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                assert_eq!(header.mtime().unwrap(), 0);
                (
                    entry.path().unwrap().display().to_string(),
                    header.mode().unwrap(),
                )
            })
            .collect();
        let wanted = [
            ("program", 0o777),
            ("usr/", 0o755),
            ("usr/bin/", 0o755),
            ("usr/bin/program", 0o644),
        ];
        assert_eq!(entries, wanted.map(|(path, mode)| (path.to_owned(), mode)));
    }
}

#[test]
fn index_of_docker_names_files_of_the_archive() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("layout");
    begin(&dir, 0o755).finish_for_docker().unwrap();
    let mut out = Vec::new();
    archive(&dir, &mut out).unwrap();
    let mut files = std::collections::BTreeMap::new();
    for entry in tar::Archive::new(&*out).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        files.insert(path, content);
    }
    let index: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
    let images = index.as_array().unwrap();
    assert_eq!(images.len(), 2);
    assert_eq!(images[1]["RepoTags"][0], "images.example/two:v1.2.3");
    for image in images {
        let config = &files[image["Config"].as_str().unwrap()];
        let config: Value = serde_json::from_slice(config).unwrap();
        let layer = &files[image["Layers"][0].as_str().unwrap()];
        let digest = Blob::of_bytes(layer).digest();
        assert_eq!(config["rootfs"]["diff_ids"][0], digest);
    }
}

#[test]
fn archive_bytes_are_independent_of_the_file_modes_of_the_build_machine() {
    let scratch = tempfile::tempdir().unwrap();
    let archives = [("one", 0o755), ("two", 0o600)].map(|(name, mode)| {
        let dir = scratch.path().join(name);
        layout(&dir, mode);
        let mut out = Vec::new();
        archive(&dir, &mut out).unwrap();
        out
    });
    assert!(archives[0] == archives[1]);
    let mut tar = tar::Archive::new(archives[0].as_slice());
    let names: Vec<_> = tar
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().display().to_string())
        .collect();
    assert_eq!(names[names.len() - 2..], ["index.json", "oci-layout"]);
}

#[test]
fn cache_lists_images_by_tag_and_digest_and_stores_no_manifest_as_a_blob() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("layout");
    layout(&dir, 0o755);
    let tree = cache(&dir).unwrap();
    let index = json(&dir.join("index.json"));
    for (name, described) in ["one", "two"]
        .iter()
        .zip(index["manifests"].as_array().unwrap())
    {
        let sha256 = described["digest"]
            .as_str()
            .unwrap()
            .replace("sha256:", "sha256-");
        let place = format!("manifests/images.example/{name}");
        let tag = tree.get(&format!("{place}/reference/v1.2.3")).unwrap();
        let digest = tree.get(&format!("{place}/digest/{sha256}")).unwrap();
        assert_eq!(tag, digest);
        assert!(tree.get(&format!("blob/{sha256}")).is_none());
    }
    // Both images share one layer, and each has a configuration.
    let blobs = tree
        .nodes()
        .filter(|(path, _)| path.starts_with("blob/"))
        .count();
    assert_eq!(blobs, 3);
}
