use std::sync::{Arc, Mutex};

use corten_base::sample;
use corten_types::block::Disk;
use corten_volumes::user::wanted;
use tokio::sync::Notify;
use tokio::task::yield_now;

use super::*;

/// Records calls. A volume in use is not released; `trouble` is the answer to each attach. The attach of a volume on the
/// hung disk waits until the disk answers.
#[derive(Debug, Clone, Default)]
struct Fake(Arc<Mutex<State>>, Arc<Notify>);

#[derive(Debug, Default)]
struct State {
    asked: Vec<&'static str>,
    is_used: bool,
    is_unmounted: bool,
    trouble: Option<Trouble>,
    on_hung_disk: Option<String>,
}

impl Fake {
    fn end(&self, how: &'static str) -> Result<(), String> {
        let mut state = self.0.lock().unwrap();
        state.asked.push(how);
        if state.is_used {
            return Err("it is in use".to_owned());
        }
        Ok(())
    }

    fn asked(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.lock().unwrap().asked)
    }
}

impl Outside for Fake {
    async fn attach(&self, volume: &UserVolume, _: &Facts) -> Result<Place, Trouble> {
        let hangs = {
            let mut state = self.0.lock().unwrap();
            state.asked.push("attach");
            state.on_hung_disk.as_ref() == Some(&volume.id)
        };
        if hangs {
            self.1.notified().await;
        }
        let trouble = self.0.lock().unwrap().trouble.clone();
        trouble.map_or(Ok(Place::default()), Err)
    }

    async fn release(&self, _: &UserVolume, _: &Place) -> Result<(), String> {
        self.end("release")
    }

    async fn abandon(&self, _: &UserVolume, _: &Place) -> Result<(), String> {
        self.end("abandon")
    }

    fn is_mounted(&self, _: &UserVolume, _: &Place) -> bool {
        !self.0.lock().unwrap().is_unmounted
    }

    async fn forget_others(&self, _: &[UserVolume]) {}
}

fn data() -> Vec<UserVolume> {
    wanted(&sample::kind(
        "UserVolumeConfig\nname: data\nprovisioning: {diskSelector: {match: '!system_disk'}}",
    ))
}

/// An attempt unmounts the volume and mounts it again. This changes the mount table, which wakes the controller.
#[tokio::test]
async fn release_of_a_used_volume_is_retried_after_a_pause_or_a_change() {
    let (fake, facts, start) = (Fake::default(), Facts::default(), Instant::now());
    let mut kept = Kept::default();
    kept.attach(&fake, &data(), &facts, start).await;
    fake.0.lock().unwrap().is_used = true;
    kept.release(&fake, &[], start).await;
    assert_eq!(fake.asked(), ["attach", "release"]);
    for after in [Duration::ZERO, AGAIN / 2] {
        kept.look(&fake, &facts);
        kept.release(&fake, &[], start + after).await;
        assert!(fake.asked().is_empty() && kept.is_pending());
    }
    kept.release(&fake, &[], start + AGAIN).await;
    assert_eq!(fake.asked(), ["release"]);

    kept.hurry();
    kept.release(&fake, &[], start + AGAIN).await;
    assert_eq!(fake.asked(), ["release"]);
    fake.0.lock().unwrap().is_unmounted = true;
    kept.look(&fake, &facts);
    kept.release(&fake, &[], start + AGAIN).await;
    assert_eq!(fake.asked(), ["release"]);

    // A volume that is wanted again stays, and its next release does not wait.
    fake.0.lock().unwrap().is_unmounted = false;
    kept.look(&fake, &facts);
    kept.release(&fake, &data(), start + AGAIN).await;
    assert!(fake.asked().is_empty() && !kept.is_pending());
    fake.0.lock().unwrap().is_used = false;
    kept.release(&fake, &[], start + AGAIN).await;
    assert_eq!(fake.asked(), ["release"]);
    assert_eq!(kept.held().count(), 0);
}

#[tokio::test]
async fn failed_volume_is_retried_after_growing_pauses() {
    let (fake, mut facts, mut now) = (Fake::default(), Facts::default(), Instant::now());
    let mut kept = Kept::default();
    let answer = |trouble| fake.0.lock().unwrap().trouble = trouble;
    // The tries of a busy disk do not count.
    answer(Some(Trouble::Busy("vdb: it is being wiped".to_owned())));
    kept.attach(&fake, &data(), &facts, now).await;
    kept.attach(&fake, &data(), &facts, now).await;
    let why = "vdb1 cannot be wiped: it is busy".to_owned();
    answer(Some(Trouble::Failed(why)));
    kept.attach(&fake, &data(), &facts, now).await;
    assert!(kept.is_pending());
    assert_eq!(fake.asked().len(), 3);
    for pause in [15, 30, 60, 120, 240, 300, 300].map(Duration::from_secs) {
        let early = now + pause - Duration::from_secs(1);
        kept.attach(&fake, &data(), &facts, early).await;
        assert!(fake.asked().is_empty(), "{pause:?}");
        now += pause;
        kept.attach(&fake, &data(), &facts, now).await;
        assert_eq!(fake.asked(), ["attach"], "{pause:?}");
    }
    // Changed facts are a new start.
    facts.disks.push(Disk::default());
    kept.attach(&fake, &data(), &facts, now).await;
    answer(None);
    kept.attach(&fake, &data(), &facts, now + AGAIN).await;
    assert_eq!(fake.asked(), ["attach", "attach"]);
    assert!(!kept.is_pending());
}

#[tokio::test]
async fn missing_volume_is_retried_only_for_changed_inputs() {
    let (fake, facts, now) = (Fake::default(), Facts::default(), Instant::now());
    let mut kept = Kept::default();
    let missing = Trouble::Missing("its disk is missing".to_owned());
    fake.0.lock().unwrap().trouble = Some(missing);
    kept.attach(&fake, &data(), &facts, now).await;
    kept.attach(&fake, &data(), &facts, now + 10 * LONGEST)
        .await;
    assert_eq!(fake.asked(), ["attach"]);
    assert!(!kept.is_pending());
}

#[tokio::test(start_paused = true)]
async fn volume_on_a_hung_disk_holds_up_no_other_volume() {
    let (fake, facts, now) = (Fake::default(), Facts::default(), Instant::now());
    let mut kept = Kept::default();
    fake.0.lock().unwrap().on_hung_disk = Some("u-hung".to_owned());
    let wanted = wanted(&sample::kind(
        "UserVolumeConfig\nname: hung\nprovisioning: {diskSelector: {match: '!system_disk'}}\n\
         ---\napiVersion: v1alpha1\nkind: UserVolumeConfig\nname: data\nprovisioning: {diskSelector: {match: 'true'}}",
    ));
    kept.attach(&fake, &wanted, &facts, now).await;
    assert_eq!(fake.asked(), ["attach", "attach"]);
    let held = |kept: &Kept| kept.held().map(|one| one.id.clone()).collect::<Vec<_>>();
    assert_eq!(held(&kept), ["u-data"]);
    let status = kept.status(&wanted[0], &facts);
    assert_eq!(status.phase, "waiting");
    let why = &status.error_message;
    assert!(why.ends_with("60 s; its disk may not answer"), "{why}");
    // The attempt goes on; there is no second one.
    kept.settle(now).await;
    kept.attach(&fake, &wanted, &facts, now + LONGEST).await;
    assert!(fake.asked().is_empty() && kept.is_pending());
    // The disk answers when the volume is no longer wanted.
    fake.1.notify_one();
    yield_now().await;
    kept.settle(now).await;
    assert_eq!(held(&kept), ["u-data", "u-hung"]);
    assert!(!kept.is_pending());
    kept.release(&fake, &wanted[1..], now).await;
    assert_eq!(
        (fake.asked(), held(&kept)),
        (vec!["release"], vec!["u-data".to_owned()])
    );
}
