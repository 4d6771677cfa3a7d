use proptest::prelude::*;

use super::*;
use crate::versions_model::{
    Memory, TORN, start, start_by_grub, start_by_systemd_boot, versions, whole,
};

fn install(memory: &mut Memory, running: &str, version: &str) -> Result<Entry, Fault> {
    let content = whole(version);
    let length = u64::try_from(content.len()).unwrap();
    let image: (&mut dyn Read, u64) = (&mut content.as_slice(), length);
    versions(memory).install(running, version, image, |_| Ok(()))
}

/// Runs `change` with a power cut at each of its steps, in each way.
fn at_every_step(
    before: &Memory,
    change: impl Fn(&mut Memory),
    mut check: impl FnMut(Memory),
) -> usize {
    let mut whole = before.clone();
    change(&mut whole);
    let steps = whole.steps;
    assert!(steps > 0, "there is something to break off");
    check(whole);
    let mut cuts = 0;
    for left in 0..steps {
        for torn in TORN {
            let mut memory = Memory {
                left: Some(left),
                torn,
                ..before.clone()
            };
            change(&mut memory);
            memory.left = None;
            check(memory);
            cuts += 1;
        }
    }
    cuts
}

/// Pairs of running and new version: newer, older, the same.
const PAIRS: [(&str, &str); 4] = [
    ("1.0", "2.0"),
    ("2.0", "1.0"),
    ("1.0", "1.0"),
    ("1.0", "1.0~rc1"),
];

/// A node with its running entry, a running and a new version: for each pair and each boot loader.
fn cases() -> impl Iterator<Item = (Memory, String, &'static str, &'static str)> {
    PAIRS.into_iter().flat_map(|(from, to)| {
        let (memory, name) = running(from);
        let by_grub = memory.clone().with_grub();
        [memory, by_grub].map(|memory| (memory, name.clone(), from, to))
    })
}

fn running(version: &str) -> (Memory, String) {
    let name = format!("corten-{version}.efi");
    // An older version beside it, and the leftover of a power cut.
    let files = [
        (name.as_str(), version),
        ("corten-0.1.efi", "0.1"),
        ("corten-0.2.efi.new", "0"),
        ("other.efi", "9"),
    ];
    let mut memory = Memory::with(&files);
    memory.files.remove("other.efi");
    (memory, name)
}

#[test]
fn installed_version_gets_three_tries_and_is_left_unless_marked_good() {
    for (mut memory, running, from, to) in cases() {
        let entry = install(&mut memory, &running, to).unwrap();
        for tries in 1..=3 {
            assert_eq!(start(&mut memory).entry.id(), entry.id(), "{from} {to}");
            assert_eq!(versions(&mut memory).tries(&entry.id()).unwrap(), tries);
        }
        for _ in 0..3 {
            assert_eq!(start(&mut memory).entry.id(), running, "{from} {to}");
        }
    }
}

#[test]
fn version_marked_good_stays_and_version_marked_bad_is_left_at_once() {
    for (mut memory, running, _, to) in cases() {
        let entry = install(&mut memory, &running, to).unwrap();
        let mut left = memory.clone();
        start(&mut memory);
        assert!(versions(&mut memory).mark_good(&entry.id()).unwrap());
        assert!(!versions(&mut memory).mark_good(&entry.id()).unwrap());
        for _ in 0..5 {
            assert_eq!(start(&mut memory).entry, entry.good());
        }
        start(&mut left);
        versions(&mut left).mark_bad(&entry.id()).unwrap();
        assert_eq!(start(&mut left).entry.id(), running);
        // A rollback: the previous version, on trial.
        let other = versions(&mut memory).other(&entry.id()).unwrap();
        assert_eq!(other.entry.id(), running);
        versions(&mut memory).switch(&entry.id(), &running).unwrap();
        assert_eq!(start(&mut memory).entry.id(), running);
        for _ in 0..2 {
            start(&mut memory);
        }
        assert_eq!(start(&mut memory).entry.id(), entry.id());
    }
}

#[test]
fn power_cut_leaves_the_old_or_new_version_and_a_retry_succeeds() {
    let mut cuts = 0;
    for (before, running, _, to) in cases() {
        let upgrade = |memory: &mut Memory| drop(install(memory, &running, to));
        cuts += at_every_step(&before, upgrade, |mut memory| {
            let started = start(&mut memory);
            let is_old = started.entry.id() == running;
            assert!(is_old || started.version == to, "{started:?}");
            // The old version is there, whatever the result of the new one.
            for _ in 0..3 {
                start(&mut memory);
            }
            assert_eq!(start(&mut memory).entry.id(), running);
            install(&mut memory, &running, to).unwrap();
            assert_eq!(start(&mut memory).version, to);
        });
        let mut installed = before.clone();
        let entry = install(&mut installed, &running, to).unwrap();
        start(&mut installed);
        installed.steps = 0;
        let good = |memory: &mut Memory| drop(versions(memory).mark_good(&entry.id()));
        cuts += at_every_step(&installed, good, |mut memory| {
            assert_eq!(start(&mut memory).entry.id(), entry.id());
        });
        let revert = |memory: &mut Memory| drop(versions(memory).mark_bad(&entry.id()));
        cuts += at_every_step(&installed, revert, |mut memory| {
            let ids = [entry.id(), running.clone()];
            assert!(ids.contains(&start(&mut memory).entry.id()));
            start(&mut memory);
            start(&mut memory);
            assert_eq!(start(&mut memory).entry.id(), running);
        });
        let mut settled = installed.clone();
        versions(&mut settled).mark_good(&entry.id()).unwrap();
        settled.steps = 0;
        let back = |memory: &mut Memory| drop(versions(memory).switch(&entry.id(), &running));
        cuts += at_every_step(&settled, back, |mut memory| {
            for _ in 0..3 {
                let ids = [entry.id(), running.clone()];
                assert!(ids.contains(&start(&mut memory).entry.id()));
            }
            assert_eq!(start(&mut memory).entry.id(), entry.id());
        });
    }
    assert_eq!(cuts, CUTS);
}

/// Number of power cuts that the test above replays; docs/promises.md names it.
const CUTS: usize = 320;

#[test]
fn image_larger_than_the_partition_removes_no_version() {
    for (memory, running, _, to) in cases() {
        let kept = memory.files[&running].len();
        let room = |length: usize| SPARE + u64::try_from(length).unwrap();
        // The room of the other version and of the leftover counts.
        let mut fits = Memory {
            size: Some(room(kept + whole(to).len())),
            ..memory.clone()
        };
        install(&mut fits, &running, to).unwrap();
        let mut full = Memory {
            size: Some(room(kept + whole(to).len()) - 1),
            ..memory.clone()
        };
        let fault = install(&mut full, &running, to).unwrap_err();
        assert!(matches!(fault, Fault::Room { .. }), "{fault}");
        assert_eq!(full.files, memory.files);
    }
}

#[test]
fn failed_install_changes_no_bootable_version() {
    let (before, running) = running("1.0");
    let mut memory = before.clone();
    let content = whole("2.0");
    let image: (&mut dyn Read, u64) = (&mut content.as_slice(), u64::MAX - SPARE);
    let refused = |_: &Entry| Err("META is full".to_owned());
    let mut all = versions(&mut memory);
    let error = all.install(&running, "2.0", image, refused).unwrap_err();
    assert_eq!(error.to_string(), "META is full");
    assert_eq!(memory.files.len(), 1);
    assert_eq!(start(&mut memory).entry.id(), running);
    // A version on trial can fall back only to the one that the installation would remove.
    let mut trial = Memory::with(&[("corten-1.0.efi", "1.0"), ("corten-2.0+2-1.efi", "2.0")]);
    let error = install(&mut trial, "corten-2.0.efi", "3.0").unwrap_err();
    assert!(matches!(error, Fault::OnTrial), "{error}");
    let error = install(&mut trial, "corten-9.efi", "3.0").unwrap_err();
    assert!(matches!(error, Fault::Missing(_)), "{error}");
    assert_eq!(trial.files.len(), 2);
    let error = versions(&mut memory).other(&running).unwrap_err();
    assert!(matches!(error, Fault::Alone), "{error}");
}

#[test]
fn version_that_grub_cannot_start_is_refused_on_a_node_that_grub_started() {
    let (before, running) = running("1.0");
    let mut memory = before.with_grub();
    let error = install(&mut memory, &running, "unfit").unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("corten-unfit.efi.new: GRUB cannot start the image"),
        "{text}"
    );
    assert_eq!(memory.files.len(), 1);
    assert_eq!(start(&mut memory).entry.id(), running);
    // systemd-boot can start it. GRUB continues with the other version.
    let content = whole("unfit");
    let image: (&mut dyn Read, u64) = (&mut content.as_slice(), 6);
    let mut versions = Versions::new(&mut memory, Loader::SystemdBoot);
    versions
        .install(&running, "unfit", image, |_| Ok(()))
        .unwrap();
    assert_eq!(start_by_systemd_boot(&mut memory).version, "unfit");
    assert_eq!(start_by_grub(&mut memory).entry.id(), running);
}

#[test]
fn disk_works_with_either_firmware_at_each_start() {
    for (memory, running, _, to) in cases().filter(|(memory, ..)| memory.grub.is_some()) {
        for by in [Loader::SystemdBoot, Loader::Grub] {
            let mut memory = memory.clone();
            let content = whole(to);
            let image: (&mut dyn Read, u64) = (&mut content.as_slice(), 4);
            let mut versions = Versions::new(&mut memory, by);
            let entry = versions.install(&running, to, image, |_| Ok(())).unwrap();
            let mut kept = memory.clone();
            // Each of them counts its own starts.
            for _ in 0..3 {
                assert_eq!(start_by_grub(&mut memory).entry.id(), entry.id());
                start_by_systemd_boot(&mut memory);
            }
            assert_eq!(start_by_grub(&mut memory).entry.id(), running);
            assert_eq!(start_by_systemd_boot(&mut memory).entry.id(), running);
            Versions::new(&mut kept, by).mark_good(&entry.id()).unwrap();
            for _ in 0..3 {
                assert_eq!(start_by_systemd_boot(&mut kept).entry, entry.good());
                assert_eq!(start_by_grub(&mut kept).entry, entry.good());
            }
        }
    }
}

proptest! {
    #[test]
    fn running_version_is_kept_with_any_directory_contents(
        names in prop::collection::vec("(corten-)?[12](\\+[0-3](-[0-3])?)?(\\.efi)?(\\.new)?", 0..6),
        by_grub: bool,
    ) {
        let running = "corten-1.5.efi";
        let mut memory = Memory::with(&[(running, "1.5")]);
        for name in &names {
            memory.files.entry(name.clone()).or_insert_with(|| whole("1"));
        }
        if by_grub {
            memory = memory.with_grub();
        }
        install(&mut memory, running, "3.0").unwrap();
        prop_assert!(memory.files.contains_key(running));
        prop_assert_eq!(start(&mut memory).version, "3.0");
        prop_assert_eq!(versions(&mut memory).installed().unwrap().len(), 2);
    }
}
