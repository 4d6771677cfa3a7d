//! Which outputs a cache returns, and which it makes again.

use std::path::PathBuf;

use super::record::Record;
use super::trust::Signer;
use super::*;

fn cache() -> (tempfile::TempDir, Cache) {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path(), Vec::new()).unwrap();
    (dir, cache)
}

fn key() -> Key {
    KeyBuilder::new("demo").finish()
}

/// Runs the step `demo`; returns its output and whether it was made.
fn demo(cache: &Cache) -> (PathBuf, bool) {
    let mut made = false;
    let path = cache.step("demo", &key(), |out, _| {
        made = true;
        Ok(fs::write(out.join("f"), "content")?)
    });
    let path = path.unwrap();
    assert_eq!(fs::read(path.join("f")).unwrap(), b"content");
    (path, made)
}

/// The cache, opened anew as by another process.
fn again(cache: &Cache) -> Cache {
    let again = Cache::open(cache.root(), cache.substituters.clone()).unwrap();
    again.trusting(cache.trusted.clone())
}

#[test]
fn step_is_built_once_and_addressed_by_content() {
    let (_dir, cache) = cache();
    let (first, made) = demo(&cache);
    assert!(made);
    assert_eq!(demo(&cache), (first.clone(), false));
    assert_eq!(demo(&again(&cache)), (first.clone(), false));
    assert_eq!(cache.lookup("demo", &key()), Some(first.clone()));
    let name = crate::file_name(&first);
    assert_eq!(name, digest::of_tree(&first).unwrap());
    assert!(cache.is_recorded([&entry("demo", &key())], &name));
}

#[test]
fn entries_are_not_removed_while_a_build_uses_them() {
    let (_dir, cache) = cache();
    let builds = [&cache, &again(&cache)].map(|cache| cache.keep_entries().unwrap());
    let refused = cache.remove_entries().unwrap_err();
    assert!(refused.to_string().contains("a build uses"), "{refused}");
    drop(builds);
    cache.remove_entries().unwrap();
}

#[test]
fn a_failed_step_leaves_no_entry() {
    let (_dir, cache) = cache();
    cache
        .step("demo", &key(), |_, _| anyhow::bail!("no"))
        .unwrap_err();
    assert_eq!(cache.lookup("demo", &key()), None);
}

#[test]
fn changed_output_is_rebuilt() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 4] = [
        ("content", |out| {
            fs::write(out.join("f"), "Content").unwrap();
        }),
        ("a file more", |out| fs::write(out.join("g"), "").unwrap()),
        ("a file less", |out| fs::remove_file(out.join("f")).unwrap()),
        ("all of it", |out| fs::remove_dir_all(out).unwrap()),
    ];
    for (what, change) in changes {
        let (_dir, cache) = cache();
        let (path, _) = demo(&cache);
        change(&path);
        let again = again(&cache);
        assert_eq!(demo(&again), (path.clone(), true), "{what}");
        assert!(!path.join("g").exists(), "{what}");
        assert_eq!(demo(&self::again(&cache)), (path, false), "{what}");
    }
}

#[test]
fn step_with_a_damaged_record_is_rebuilt() {
    let (_dir, cache) = cache();
    let (path, _) = demo(&cache);
    let record = cache.root().join(STEPS).join(entry("demo", &key()));
    fs::write(&record, "{\"output\": \"../../elsewhere\"}").unwrap();
    assert_eq!(demo(&again(&cache)), (path, true));
}

#[test]
fn steps_with_equal_output_share_it() {
    let (_dir, cache) = cache();
    let (path, _) = demo(&cache);
    let other = KeyBuilder::new("other").finish();
    let made = cache.step("other", &other, |out, _| {
        Ok(fs::write(out.join("f"), "content")?)
    });
    assert_eq!(made.unwrap(), path);
    let outputs = fs::read_dir(cache.root().join(OUTPUTS)).unwrap();
    assert_eq!(outputs.count(), 1);
}

#[test]
fn leftovers_of_a_killed_build_are_removed() {
    let (_dir, cache) = cache();
    let left = cache
        .root()
        .join("work")
        .join(format!("{}.1", entry("demo", &key())))
        .join("out");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("half"), "").unwrap();
    let (out, _) = demo(&cache);
    assert!(!out.join("half").exists() && !left.exists());
}

#[test]
fn two_builds_at_once_make_an_entry_once() {
    let (_dir, cache) = cache();
    let built = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                if demo(&cache).1 {
                    built.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(built.into_inner(), 1);
}

#[test]
fn fresh_cache_shares_downloads_and_no_built_steps() {
    use sha2::Digest as _;
    let (dir, cache) = cache();
    let empty = hex::encode(sha2::Sha256::digest(b""));
    fs::write(cache.fetched(&empty), "").unwrap();
    demo(&cache);
    let fresh = cache.fresh(&dir.path().join("fresh")).unwrap();
    assert_eq!(fresh.find_fetched(&empty), Some(cache.fetched(&empty)));
    assert_eq!(fresh.lookup("demo", &key()), None);
}

/// A cache with `demo` signed by `signer`, and a cache that trusts `named` and has the first as
/// substituter.
fn substituted(signer: Option<&Signer>, named: &Signer) -> (tempfile::TempDir, Cache, Cache) {
    let dir = tempfile::tempdir().unwrap();
    let theirs = Cache::open(&dir.path().join("theirs"), Vec::new()).unwrap();
    demo(&theirs);
    if let Some(signer) = signer {
        theirs.sign(signer, &["demo".to_owned()]).unwrap();
    }
    let ours = Cache::open(&dir.path().join("ours"), vec![theirs.root().to_owned()]).unwrap();
    (dir, theirs, ours.trusting(vec![named.public()]))
}

#[test]
fn signed_step_of_a_substituter_is_copied_and_not_built() {
    let signer = Signer::generate().unwrap();
    let (_dir, theirs, ours) = substituted(Some(&signer), &signer);
    let found = ours.lookup("demo", &key()).unwrap();
    assert!(found.starts_with(theirs.root()));
    let (path, made) = demo(&ours);
    assert!(!made && path.starts_with(ours.root()));
    // A later change in the substituter has no effect here.
    fs::write(found.join("f"), "Content").unwrap();
    assert_eq!(demo(&again(&ours)), (path, false));
}

#[test]
fn substituted_step_without_a_trusted_signature_is_built() {
    let (named, other) = (Signer::generate().unwrap(), Signer::generate().unwrap());
    for signer in [None, Some(&other)] {
        let (_dir, _theirs, ours) = substituted(signer, &named);
        assert_eq!(ours.lookup("demo", &key()), None);
        assert!(demo(&ours).1);
    }
    let (_dir, _theirs, ours) = substituted(Some(&named), &named);
    assert!(demo(&ours.trusting(Vec::new())).1, "no key is named");
}

#[test]
fn substituted_output_that_differs_from_the_signed_one_is_built() {
    let signer = Signer::generate().unwrap();
    let (_dir, theirs, ours) = substituted(Some(&signer), &signer);
    let output = theirs.lookup("demo", &key()).unwrap();
    fs::write(output.join("f"), "Content").unwrap();
    assert!(demo(&ours).1);

    // A signature of another output does not count.
    let (_dir, theirs, ours) = substituted(Some(&signer), &signer);
    let record = theirs.root().join(STEPS).join(entry("demo", &key()));
    let signed = fs::read_to_string(&record).unwrap();
    let evil = theirs.root().join("evil");
    fs::create_dir(&evil).unwrap();
    fs::write(evil.join("f"), "evil").unwrap();
    let digest = digest::of_tree(&evil).unwrap();
    fs::rename(&evil, theirs.root().join(OUTPUTS).join(&digest)).unwrap();
    let before = Record::read(&record).unwrap().unwrap().output;
    fs::write(&record, signed.replace(&before, &digest)).unwrap();
    assert!(demo(&ours).1);
}

#[test]
fn only_existing_unchanged_outputs_are_signed() {
    let (_dir, cache) = cache();
    let signer = Signer::generate().unwrap();
    let (path, _) = demo(&cache);
    // An entry of an older version.
    fs::create_dir(cache.root().join("steps/demo-0123456789abcdef")).unwrap();
    let signed = cache.sign(&signer, &[]).unwrap();
    assert_eq!(signed, [entry("demo", &key())].into());
    let error = cache.sign(&signer, &["kernel".to_owned()]).unwrap_err();
    assert!(
        error.to_string().contains("no finished step kernel"),
        "{error}"
    );
    fs::write(path.join("f"), "Content").unwrap();
    let error = again(&cache).sign(&signer, &[]).unwrap_err().to_string();
    assert!(error.contains(&entry("demo", &key())), "{error}");
}
