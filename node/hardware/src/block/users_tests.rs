use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex as Shared;

use corten_base::sample;
use corten_resources::controller::Runtime;
use corten_resources::{Pointer, Store};
use corten_volumes::user::{Kind, Place, Trouble};

use super::*;

/// Records calls and gives prepared answers.
#[derive(Debug, Clone, Default)]
struct Fake(Arc<Shared<State>>);

#[derive(Debug, Default)]
struct State {
    asked: Vec<String>,
    troubles: BTreeMap<String, Trouble>,
    busy: BTreeSet<String>,
    unmounted: bool,
    known: Vec<String>,
}

impl Outside for Fake {
    async fn attach(&self, volume: &UserVolume, facts: &Facts) -> Result<Place, Trouble> {
        let mut state = self.0.lock().unwrap();
        let disks = facts.disks.len();
        state.asked.push(format!("attach {} of {disks}", volume.id));
        state.unmounted = false;
        let device = match volume.kind {
            Kind::Disk(_) => "/dev/vdb",
            _ => "/dev/vdb1",
        };
        match state.troubles.get(&volume.id) {
            Some(trouble) => Err(trouble.clone()),
            None => Ok(Place {
                device: device.to_owned(),
                opened: device.to_owned(),
                sequence: facts.disks.first().map(|disk| disk.sequence),
            }),
        }
    }

    async fn release(&self, volume: &UserVolume, _: &Place) -> Result<(), String> {
        self.end("release", volume)
    }

    async fn abandon(&self, volume: &UserVolume, _: &Place) -> Result<(), String> {
        self.end("abandon", volume)
    }

    fn is_mounted(&self, _: &UserVolume, _: &Place) -> bool {
        !self.0.lock().unwrap().unmounted
    }

    async fn forget_others(&self, wanted: &[UserVolume]) {
        let ids = wanted.iter().map(|volume| volume.id.clone());
        self.0.lock().unwrap().known = ids.collect();
    }
}

impl Fake {
    fn end(&self, how: &str, volume: &UserVolume) -> Result<(), String> {
        let mut state = self.0.lock().unwrap();
        state.asked.push(format!("{how} {}", volume.id));
        if state.busy.contains(&volume.id) {
            return Err("it is in use".to_owned());
        }
        Ok(())
    }

    /// Sets the result of later attaches of the volume; `None` is a success.
    fn answer(&self, volume: &str, trouble: Option<Trouble>) {
        let mut state = self.0.lock().unwrap();
        state.troubles.remove(volume);
        let trouble = trouble.map(|trouble| (volume.to_owned(), trouble));
        state.troubles.extend(trouble);
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().asked)
    }
}

struct Node {
    store: Store,
    fake: Fake,
    config: watch::Sender<Option<Document>>,
    mounts: watch::Sender<Vec<Mount>>,
}

const DATA: &str =
    "UserVolumeConfig\nname: data\nprovisioning: {diskSelector: {match: '!system_disk'}}";

impl Node {
    fn start(document: Document) -> Node {
        let (config, fake) = (watch::Sender::new(Some(document)), Fake::default());
        let (store, mounts) = (Store::new(), watch::Sender::default());
        let mut runtime = Runtime::new(store.clone());
        let users = UserVolumes {
            config: config.subscribe(),
            mounts: mounts.subscribe(),
            outside: fake.clone(),
            kept: Arc::default(),
        };
        runtime.add(users).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        Node {
            store,
            fake,
            config,
            mounts,
        }
    }

    fn up(document: Document) -> Node {
        let node = Node::start(document);
        node.come_up();
        node
    }

    /// The node's own volume is mounted, and its devices are known.
    fn come_up(&self) {
        let disk = SystemDisk {
            disk_id: "vda".to_owned(),
            dev_path: "/dev/vda".to_owned(),
        };
        self.put(SystemDisk::ID, disk);
        let service = Service {
            running: true,
            healthy: true,
            unknown: false,
        };
        self.put(UDEVD, service);
        let ephemeral = VolumeStatus {
            phase: "ready",
            ..VolumeStatus::default()
        };
        self.put(EPHEMERAL.name, ephemeral);
    }

    fn put<S: corten_resources::Spec>(&self, id: &str, spec: S) {
        self.store.put(Draft::new(id, spec), "").unwrap();
    }

    fn disk(&self, name: &str) {
        self.numbered_disk(name, 0);
    }

    fn numbered_disk(&self, name: &str, sequence: u64) {
        let disk = Disk {
            dev_path: format!("/dev/{name}"),
            sequence,
            ..Disk::default()
        };
        self.put(name, disk);
    }

    fn partition(&self) {
        let found = DiscoveredVolume {
            dev_path: "/dev/vdb1".to_owned(),
            kind: "partition",
            parent: "vdb".to_owned(),
            size: 1 << 30,
            name: "xfs".to_owned(),
            partition_index: 1,
            ..DiscoveredVolume::default()
        };
        self.put("vdb1", found);
    }

    fn pull<S: corten_resources::Spec>(&self, id: &str) {
        self.store.destroy(&Pointer::of::<S>(id), "").unwrap();
    }

    async fn until(&self, volume: &str, done: impl Fn(Option<&VolumeStatus>) -> bool) {
        sample::until(&self.store, volume, done).await;
    }

    async fn until_phase(&self, volume: &str, phase: &str) {
        self.until(volume, |status| {
            status.is_some_and(|status| status.phase == phase)
        })
        .await;
    }
}

#[tokio::test]
async fn user_volume_waits_for_the_system_volumes() {
    let node = Node::start(sample::kind(DATA));
    node.disk("vdb");
    node.until_phase("u-data", "waiting").await;
    assert!(node.fake.asked().is_empty());
    drop(node);

    let node = Node::up(sample::kind(DATA));
    node.until_phase("u-data", "ready").await;
    node.partition();
    node.until("u-data", |status| {
        status.is_some_and(|status| status.size == 1 << 30)
    })
    .await;
    let status = node.store.get_as::<VolumeStatus>("u-data").unwrap();
    assert_eq!(
        (&*status.location, &*status.parent_location),
        ("/dev/vdb1", "/dev/vdb")
    );
    assert_eq!((&*status.filesystem, status.kind), ("xfs", "partition"));
    let spec = status.mount_spec.as_ref().unwrap();
    assert!(spec.target_path == "/var/mnt/data" && spec.secure);
    // An attached volume is not made again.
    assert_eq!(node.fake.asked().len(), 1);
}

#[tokio::test]
async fn a_whole_disk_is_a_volume_without_a_parent() {
    let node = Node::start(sample::kind(&format!("{DATA}\nvolumeType: disk")));
    let kind = || {
        let status = node.store.get_as::<VolumeStatus>("u-data").unwrap();
        (status.kind, status.phase, status.parent_location.clone())
    };
    node.disk("vdb");
    node.until_phase("u-data", "waiting").await;
    assert_eq!(kind(), ("disk", "waiting", String::new()));
    node.come_up();
    let found = DiscoveredVolume {
        dev_path: "/dev/vdb".to_owned(),
        kind: "disk",
        size: 1 << 30,
        name: "xfs".to_owned(),
        label: "u-data".to_owned(),
        ..DiscoveredVolume::default()
    };
    node.put("vdb", found);
    node.until("u-data", |status| {
        status.is_some_and(|status| status.size == 1 << 30)
    })
    .await;
    assert_eq!(kind(), ("disk", "ready", String::new()));
    let status = node.store.get_as::<VolumeStatus>("u-data").unwrap();
    assert_eq!((&*status.location, status.partition_index), ("/dev/vdb", 0));
    // The volume disappears with its disk.
    node.fake.answer("u-data", missing());
    node.pull::<Disk>("vdb");
    node.pull::<DiscoveredVolume>("vdb");
    node.until_phase("u-data", "missing").await;
    assert_eq!(kind().0, "disk");
}

#[tokio::test]
async fn failed_volume_is_reported_and_retried_at_once_only_for_a_new_disk() {
    let node = Node::start(sample::kind(DATA));
    let trouble = Trouble::Failed("vdb: it holds something".to_owned());
    let failing = ("u-data".to_owned(), trouble);
    node.fake.0.lock().unwrap().troubles.extend([failing]);
    let fake = node.fake.clone();
    node.disk("vdb");
    node.come_up();
    node.until_phase("u-data", "failed").await;
    let status = node.store.get_as::<VolumeStatus>("u-data").unwrap();
    assert_eq!(status.error_message, "vdb: it holds something");
    fake.asked();
    // The same volume with another document in the config: no input of this volume has changed.
    node.config.send_replace(Some(sample::kind(&format!(
        "{DATA}\n---\napiVersion: v1alpha1\nkind: UserVolumeConfig\nname: b\nvolumeType: directory"
    ))));
    node.until_phase("u-b", "ready").await;
    assert_eq!(fake.asked(), ["attach u-b of 1"]);
    assert_eq!(fake.0.lock().unwrap().known, ["u-data", "u-b"]);
    fake.0.lock().unwrap().troubles.clear();
    node.disk("vdc");
    node.until_phase("u-data", "ready").await;
    assert_eq!(fake.asked(), ["attach u-data of 2"]);
}

#[tokio::test]
async fn busy_disk_is_waited_for() {
    let node = Node::start(sample::kind(DATA));
    let busy = Trouble::Busy("vdb: it is being wiped".to_owned());
    let id = "u-data".to_owned();
    node.fake.0.lock().unwrap().troubles.insert(id, busy);
    node.come_up();
    node.until("u-data", |status| {
        status.is_some_and(|status| status.error_message == "vdb: it is being wiped")
    })
    .await;
    let status = node.store.get_as::<VolumeStatus>("u-data").unwrap();
    assert_eq!(status.phase, "waiting");
    node.fake.0.lock().unwrap().troubles.clear();
    // No input has changed.
    node.config.send_modify(|_| {});
    node.until_phase("u-data", "ready").await;
}

#[tokio::test]
async fn removed_volume_is_released_once_it_is_unused() {
    let node = Node::up(sample::kind(DATA));
    node.until_phase("u-data", "ready").await;
    node.fake.asked();
    node.fake.0.lock().unwrap().busy.insert("u-data".to_owned());
    // Another volume with the same mount point, which is still occupied.
    let other = sample::kind(
        "ExistingVolumeConfig\nname: data\ndiscovery: {volumeSelector: {match: 'true'}}",
    );
    node.config.send_replace(Some(other));
    node.until("u-data", |status| {
        status
            .is_some_and(|status| status.phase == "ready" && status.error_message == "it is in use")
    })
    .await;
    node.until_phase("e-data", "waiting").await;
    let asked = node.fake.asked();
    assert!(asked.iter().all(|one| one == "release u-data"), "{asked:?}");
    node.fake.0.lock().unwrap().busy.clear();
    node.config.send_modify(|_| {});
    node.until("u-data", |status| status.is_none()).await;
    node.until_phase("e-data", "ready").await;
    let asked = node.fake.asked();
    assert_eq!(asked.first().unwrap(), "release u-data");
    assert!(asked.last().unwrap().starts_with("attach e-data"));
    assert_eq!(node.fake.0.lock().unwrap().known, ["e-data"]);
}

#[tokio::test]
async fn changed_mount_options_take_effect_at_once() {
    let node = Node::up(sample::kind(DATA));
    node.until_phase("u-data", "ready").await;
    node.fake.asked();
    let open = sample::kind(&format!("{DATA}\nmount: {{secure: false}}"));
    node.config.send_replace(Some(open));
    node.until("u-data", |status| {
        let spec = status.and_then(|status| status.mount_spec.as_ref());
        spec.is_some_and(|spec| !spec.secure)
    })
    .await;
    assert_eq!(node.fake.asked(), ["release u-data", "attach u-data of 0"]);
}

fn missing() -> Option<Trouble> {
    let why = "its partition is on none of the disks";
    Some(Trouble::Missing(why.to_owned()))
}

#[tokio::test]
async fn volume_disappears_and_returns_with_its_disk() {
    let node = Node::start(sample::kind(DATA));
    node.numbered_disk("vdb", 7);
    node.come_up();
    node.until_phase("u-data", "ready").await;
    node.fake.asked();
    node.fake.answer("u-data", missing());
    node.pull::<Disk>("vdb");
    node.until_phase("u-data", "missing").await;
    assert_eq!(node.fake.asked(), ["abandon u-data", "attach u-data of 0"]);
    node.fake.answer("u-data", None);
    node.numbered_disk("vdb", 8);
    node.until_phase("u-data", "ready").await;

    // Another disk gets its name between two checks.
    node.fake.asked();
    node.fake.0.lock().unwrap().busy.insert("u-data".to_owned());
    node.numbered_disk("vdb", 9);
    node.until_phase("u-data", "failed").await;
    let status = node.store.get_as::<VolumeStatus>("u-data").unwrap();
    assert_eq!(
        status.error_message,
        "its disk or partition is gone; it is in use"
    );
    // The remains of the previous volume are in the way.
    node.fake.0.lock().unwrap().busy.clear();
    node.config.send_modify(|_| {});
    node.until_phase("u-data", "ready").await;
    let asked = node.fake.asked();
    let (last, before) = asked.split_last().unwrap();
    assert!(last.starts_with("attach u-data"), "{asked:?}");
    assert!(
        before.iter().all(|one| one == "abandon u-data"),
        "{asked:?}"
    );
}

#[tokio::test]
async fn volume_disappears_with_its_partition() {
    let node = Node::start(sample::kind(DATA));
    node.disk("vdb");
    node.come_up();
    node.until_phase("u-data", "ready").await;
    node.partition();
    node.until("u-data", |status| {
        status.is_some_and(|status| status.size == 1 << 30)
    })
    .await;
    node.fake.0.lock().unwrap().busy.insert("u-data".to_owned());
    node.pull::<DiscoveredVolume>("vdb1");
    node.until_phase("u-data", "failed").await;
    // The partition there now is not the mounted one.
    node.partition();
    node.config.send_replace(Some(sample::kind(&format!(
        "{DATA}\n---\napiVersion: v1alpha1\nkind: UserVolumeConfig\nname: b\nvolumeType: directory"
    ))));
    node.until_phase("u-b", "ready").await;
    let status = node.store.get_as::<VolumeStatus>("u-data").unwrap();
    assert_eq!((status.phase, &*status.location), ("failed", ""));
    node.fake.0.lock().unwrap().busy.clear();
    node.fake.answer("u-data", missing());
    node.config.send_modify(|_| {});
    node.until_phase("u-data", "missing").await;
}

#[tokio::test]
async fn unmounted_volume_is_mounted_again() {
    let node = Node::up(sample::kind(DATA));
    node.until_phase("u-data", "ready").await;
    node.fake.asked();
    let why = Trouble::Failed("it is damaged".to_owned());
    node.fake.answer("u-data", Some(why));
    node.fake.0.lock().unwrap().unmounted = true;
    node.mounts.send_modify(|_| {});
    node.until_phase("u-data", "failed").await;
    assert_eq!(node.fake.asked(), ["release u-data", "attach u-data of 0"]);
    node.fake.answer("u-data", None);
    node.disk("vdb");
    node.until_phase("u-data", "ready").await;
}
