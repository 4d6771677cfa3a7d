use std::io::Write as _;

use proptest::prelude::*;
use serde_json::json;
use tar::EntryType;

use super::testing::{Image, Member, PLAIN, digest, file, node, tar};
use super::*;

const MANIFEST: &str = "version: v1alpha1\nmetadata: {name: hello, version: '1'}\n";
const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";

fn read_bytes(
    bytes: &[u8],
    digest: Option<&str>,
) -> (tempfile::TempDir, Result<Extension, Problem>) {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("x.tar");
    fs::write(&archive, bytes).unwrap();
    let scratch = dir.path().join("scratch");
    fs::create_dir(&scratch).unwrap();
    let wanted = Wanted {
        architecture: "amd64",
        digest,
    };
    let found = super::read(&archive, wanted, &scratch);
    (dir, found)
}

/// Reads an image with these layers.
fn read(layers: &[&[Member<'_>]]) -> (tempfile::TempDir, Result<Extension, Problem>) {
    let mut image = Image::default();
    let layers: Vec<_> = layers.iter().map(|members| (PLAIN, tar(members))).collect();
    image.add("amd64", &layers);
    read_bytes(&image.archive(), None)
}

fn refused(members: &[Member<'_>]) -> String {
    let all: Vec<_> = [file("manifest.yaml", MANIFEST)]
        .into_iter()
        .chain(members.iter().copied())
        .collect();
    read(&[&all]).1.unwrap_err().to_string()
}

fn content(extension: &Extension, path: &str) -> String {
    match &extension.files[path].kind {
        EntryKind::File(kept) => fs::read_to_string(kept).unwrap(),
        other => panic!("{path} is {other:?}"),
    }
}

#[test]
fn later_layers_override_and_whiteouts_remove_files() {
    let lower = tar(&[
        file("manifest.yaml", MANIFEST),
        node("rootfs/usr/", EntryType::Directory, 0o700, ""),
        file("rootfs/usr/local/a", "old"),
        file("rootfs/usr/local/gone", ""),
        file("rootfs/usr/local/d/x", ""),
        node(
            "rootfs/usr/local/again",
            EntryType::Link,
            0o755,
            "rootfs/usr/local/a",
        ),
    ]);
    let middle = tar(&[
        file("rootfs/usr/local/.wh.gone", ""),
        file("rootfs/usr/local/d/.wh..wh..opq", ""),
        file("rootfs/usr/local/d/y", ""),
    ]);
    let upper = tar(&[
        file("./rootfs/usr/local/a", "new"),
        node("rootfs/usr/local/l", EntryType::Symlink, 0o777, "a"),
    ]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&middle).unwrap();
    let mut image = Image::default();
    let layers = [
        (PLAIN, lower),
        (GZIP, gzip.finish().unwrap()),
        (ZSTD, zstd::encode_all(upper.as_slice(), 1).unwrap()),
    ];
    image.add("amd64", &layers);
    let (_dir, found) = read_bytes(&image.archive(), None);
    let found = found.unwrap();
    assert_eq!(found.manifest.metadata.name, "hello");
    let paths: Vec<_> = found.files.keys().map(String::as_str).collect();
    assert_eq!(
        paths,
        [
            "usr",
            "usr/local",
            "usr/local/a",
            "usr/local/again",
            "usr/local/d",
            "usr/local/d/y",
            "usr/local/l"
        ]
    );
    assert_eq!(found.files["usr"].mode, 0o755);
    assert_eq!(content(&found, "usr/local/a"), "new");
    assert_eq!(content(&found, "usr/local/again"), "old");
    assert_eq!(found.files["usr/local/l"].kind, EntryKind::Link("a".into()));
}

#[test]
fn forbidden_content_of_an_extension_is_named() {
    for (member, said) in [
        (
            node("rootfs/usr/local/x", EntryType::Char, 0o600, ""),
            "a device",
        ),
        (
            node("rootfs/usr/local/x", EntryType::Fifo, 0o600, ""),
            "a pipe",
        ),
        (
            node("rootfs/usr/local/x", EntryType::Regular, 0o4755, ""),
            "set-user-id",
        ),
        (
            node(
                "rootfs/usr/local/x",
                EntryType::Symlink,
                0o777,
                "../../../x",
            ),
            "out of the root",
        ),
        (file("rootfs/usr/bin/init", ""), "add files there"),
        (file("rootfs/../../x", ""), "the path contains .."),
        (file("etc/passwd", ""), "contains only manifest.yaml"),
        (
            node(
                "rootfs/usr/local/x",
                EntryType::Link,
                0o644,
                "../../etc/passwd",
            ),
            "the path contains ..",
        ),
        (
            node("rootfs/usr/local/x", EntryType::Link, 0o644, "etc/passwd"),
            "a missing file",
        ),
    ] {
        let problem = refused(&[member]);
        assert!(problem.contains(said), "{problem}");
    }
    let link = node("rootfs/usr/local/l", EntryType::Symlink, 0o777, "/etc");
    let problem = refused(&[link, file("rootfs/usr/local/l/passwd", "")]);
    assert!(problem.contains("not a directory"), "{problem}");
    let (_dir, found) = read(&[&[file("rootfs/usr/local/a", "")]]);
    assert!(
        found
            .unwrap_err()
            .to_string()
            .starts_with("manifest.yaml: the file is missing")
    );
}

#[test]
fn image_is_selected_by_architecture_and_digest() {
    let layer = |content| {
        (
            PLAIN,
            tar(&[
                file("manifest.yaml", MANIFEST),
                file("rootfs/usr/local/a", content),
            ]),
        )
    };
    let mut image = Image::default();
    image.add("arm64", &[layer("arm")]);
    let one = image.add("amd64", &[layer("one")]);
    let bytes = image.archive();
    let (_dir, found) = read_bytes(&bytes, None);
    assert_eq!(content(&found.unwrap(), "usr/local/a"), "one");

    let two = image.add("amd64", &[layer("two")]);
    let bytes = image.archive();
    let (_dir, found) = read_bytes(&bytes, None);
    assert!(
        found
            .unwrap_err()
            .to_string()
            .contains("has 2 images for amd64")
    );
    for (digest, wanted) in [(one, "one"), (two, "two")] {
        let (_dir, found) = read_bytes(&bytes, Some(&digest));
        assert_eq!(content(&found.unwrap(), "usr/local/a"), wanted);
    }
    let other = digest(b"another");
    let (_dir, found) = read_bytes(&bytes, Some(&other));
    assert!(found.unwrap_err().to_string().contains(&other));
}

#[test]
fn image_of_a_content_store_is_found_by_digest_and_unpacked() {
    let layer = tar(&[
        file("manifest.yaml", MANIFEST),
        node("rootfs/usr/local/d", EntryType::Directory, 0o700, ""),
        file("rootfs/usr/local/d/a", "one"),
        node(
            "rootfs/usr/local/d/b",
            EntryType::Link,
            0o755,
            "rootfs/usr/local/d/a",
        ),
        node("rootfs/usr/local/l", EntryType::Symlink, 0o777, "d/a"),
    ]);
    let mut image = Image::default();
    let manifest = image.add("amd64", &[(PLAIN, layer)]);
    let index = json!({"schemaVersion": 2, "manifests": image.manifests}).to_string();
    image.blobs.push(index.clone().into_bytes());
    let store = tempfile::tempdir().unwrap();
    image.store(store.path());
    for wanted in [&manifest, &digest(index.as_bytes())] {
        let scratch = tempfile::tempdir_in(store.path()).unwrap();
        let wanted = Wanted {
            architecture: "amd64",
            digest: Some(wanted),
        };
        let found = super::read(store.path(), wanted, scratch.path()).unwrap();
        let root = scratch.path().join("root");
        found.place(&root).unwrap();
        for name in ["d/a", "d/b", "l"] {
            let text = fs::read_to_string(root.join("usr/local").join(name)).unwrap();
            assert_eq!(text, "one");
        }
        let mode = |name: &str| {
            let metadata = fs::metadata(root.join("usr/local").join(name)).unwrap();
            std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o7777
        };
        assert_eq!((mode("d"), mode("d/a"), mode("d/b")), (0o755, 0o644, 0o755));
        let again = found.place(&root).unwrap_err().to_string();
        assert!(again.contains("root"), "{again}");
    }
}

#[test]
fn content_that_differs_from_its_digest_is_refused() {
    let mut image = Image::default();
    let layer = tar(&[
        file("manifest.yaml", MANIFEST),
        file("rootfs/usr/local/a", "x"),
    ]);
    let manifest = image.add("amd64", &[(PLAIN, layer)]);
    let store = tempfile::tempdir().unwrap();
    image.store(store.path());
    let said = |digest: Option<&str>| {
        let scratch = tempfile::tempdir_in(store.path()).unwrap();
        let wanted = Wanted {
            architecture: "amd64",
            digest,
        };
        let found = super::read(store.path(), wanted, scratch.path());
        found.map_or_else(|problem| problem.to_string(), |_| "found".to_owned())
    };
    assert_eq!(said(Some(&manifest)), "found");
    assert!(said(None).contains("name the digest of the image"));
    assert!(said(Some("sha256:../../x")).contains("digest"));
    assert!(said(Some(&digest(b"another"))).contains("is missing"));
    let blob = |digest: &str| store.path().join("blobs").join(digest.replace(':', "/"));
    let good = fs::read(blob(&manifest)).unwrap();
    fs::write(blob(&manifest), [&good[..], b" "].concat()).unwrap();
    assert!(said(Some(&manifest)).contains("has another digest"));
}

#[test]
fn changed_byte_in_any_part_of_an_image_is_detected() {
    let mut image = Image::default();
    let layer = tar(&[
        file("manifest.yaml", MANIFEST),
        file("rootfs/usr/local/a", "secret"),
    ]);
    image.add("amd64", &[(PLAIN, layer)]);
    let good = image.archive();
    for part in ["secret", "schemaVersion\":2,\"config", "hello"] {
        let at = good
            .windows(part.len())
            .rposition(|window| window == part.as_bytes())
            .unwrap();
        let mut bad = good.clone();
        bad[at] ^= 1;
        let problem = read_bytes(&bad, None).1.unwrap_err().to_string();
        assert!(problem.contains("has another digest"), "{problem}");
    }
    let cut = &good[..good.len() / 2];
    read_bytes(cut, None).1.unwrap_err();
    let problem = read_bytes(b"no tar", None).1.unwrap_err();
    assert!(problem.remedy.contains("oci-archive"));
}

/// The number of cases from the environment (`make fuzz`), else 64, because each unpacks an archive.
fn cases() -> ProptestConfig {
    let asked = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return asked;
    }
    ProptestConfig { cases: 64, ..asked }
}

proptest! {
    #![proptest_config(cases())]

    /// Files from any layer obey the rules, and nothing is written elsewhere.
    #[test]
    fn hostile_layers_stay_in_the_scratch_directory(
        members in proptest::collection::vec(
            (
                "(rootfs|\\.\\.|usr|local|/|\\.|a|\\.wh\\.a|manifest\\.yaml){1}(/(usr|local|\\.\\.|a|b|\\.wh\\.a|\\.wh\\.\\.wh\\.\\.opq)){0,4}",
                prop_oneof![Just(b'0'), Just(b'1'), Just(b'2'), Just(b'3'), Just(b'5'), Just(b'6'), Just(b'x'), Just(b'L')],
                0_u32..0o10000,
                "(a|\\.\\./a|/etc/passwd|rootfs/usr/local/a)",
            ),
            0..8,
        ),
    ) {
        let members: Vec<Member<'_>> = members
            .iter()
            .map(|(path, kind, mode, content)| (path.as_str(), EntryType::new(*kind), *mode, content.as_bytes()))
            .collect();
        let (dir, found) = read(&[&members]);
        let mut here: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        here.sort();
        prop_assert_eq!(here, ["scratch", "x.tar"]);
        if let Ok(found) = found {
            for (path, entry) in &found.files {
                prop_assert!(rules::check(path, entry.kind.as_rule(), entry.mode).is_ok());
            }
        }
    }

    #[test]
    fn hostile_bytes_end_in_an_error(at in 0_usize..12_000, bytes in proptest::collection::vec(any::<u8>(), 1..64)) {
        let mut image = Image::default();
        let layer = tar(&[file("manifest.yaml", MANIFEST), file("rootfs/usr/local/a", "x")]);
        image.add("amd64", &[(PLAIN, layer)]);
        let mut archive = image.archive();
        let at = at.min(archive.len());
        let end = (at + bytes.len()).min(archive.len());
        archive.splice(at..end, bytes);
        let _ = read_bytes(&archive, None);
    }
}
