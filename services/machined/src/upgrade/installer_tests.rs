use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::SystemTime;

use corten_base::sample;

use super::*;

const TAG: &str = "registry.example.org/installer:1";

/// A containerd with a registry: images by name.
#[derive(Debug, Default)]
struct Fake {
    registry: Mutex<BTreeMap<String, &'static str>>,
    stored: Mutex<BTreeMap<String, Image>>,
}

impl Fake {
    fn push(&self, name: &str, digest: &'static str) {
        let mut registry = self.registry.lock().unwrap();
        registry.insert(name.to_owned(), digest);
    }

    fn store(&self, name: &str, digest: &str, labels: &[&str]) {
        let labels = labels.iter().map(|label| (*label).to_owned());
        let image = Image {
            name: name.to_owned(),
            digest: digest.to_owned(),
            size: 1,
            created: SystemTime::UNIX_EPOCH,
            updated: SystemTime::UNIX_EPOCH,
            labels: labels
                .map(|label| (label, name.to_owned()))
                .collect::<HashMap<_, _>>(),
        };
        self.stored.lock().unwrap().insert(name.to_owned(), image);
    }

    fn names(&self) -> Vec<String> {
        self.stored.lock().unwrap().keys().cloned().collect()
    }

    /// Upgrades to this name; returns the digest of the written version.
    async fn upgrade(&self, name: &str) -> String {
        let digest = obtain(self, name).await.unwrap();
        release(self, name, &digest, None).await;
        digest
    }

    /// An upgrade that fails after the pull.
    async fn fail(&self, name: &str) {
        obtain(self, name).await.unwrap();
    }
}

impl Images for Fake {
    async fn find(&self, name: &str) -> Result<Option<Image>, Status> {
        Ok(self.stored.lock().unwrap().get(name).cloned())
    }

    async fn pull(&self, name: &str) -> Result<(), Status> {
        let digest = self.registry.lock().unwrap().get(name).copied();
        let digest = digest.ok_or_else(|| Status::failed_precondition("no such image"))?;
        self.store(name, digest, &["corten.installer"]);
        Ok(())
    }

    async fn remove(&self, digest: &str, kept: &[String]) -> Result<(), Status> {
        let stays =
            |name: &String, image: &mut Image| image.digest != digest || kept.contains(name);
        self.stored.lock().unwrap().retain(stays);
        Ok(())
    }
}

#[tokio::test]
async fn second_upgrade_by_the_same_tag_gets_the_rebuilt_installer() {
    let fake = Fake::default();
    fake.push(TAG, "sha256:a");
    assert_eq!(fake.upgrade(TAG).await, "sha256:a");
    assert!(fake.names().is_empty(), "{:?}", fake.names());
    fake.push(TAG, "sha256:b");
    assert_eq!(fake.upgrade(TAG).await, "sha256:b");
}

#[tokio::test]
async fn installer_of_a_failed_upgrade_stays_and_its_tag_is_asked_for_again() {
    let fake = Fake::default();
    fake.push(TAG, "sha256:a");
    fake.fail(TAG).await;
    assert_eq!(fake.names(), [TAG]);
    fake.push(TAG, "sha256:b");
    assert_eq!(fake.upgrade(TAG).await, "sha256:b");
}

#[tokio::test]
async fn installer_with_a_digest_is_pulled_once() {
    let digest = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
    let name = format!("registry.example.org/installer@{digest}");
    let fake = Fake::default();
    fake.push(&name, digest);
    fake.fail(&name).await;
    fake.registry.lock().unwrap().clear();
    assert_eq!(fake.upgrade(&name).await, digest);
}

#[tokio::test]
async fn imported_installer_needs_no_registry_and_goes_with_all_names_that_the_config_lacks() {
    let ca = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
    let config = sample::config(
        "kubelet: {image: 'registry.example.org/kubelet:1'}",
        &format!("  ca: {{crt: {ca}}}\n"),
    );
    let fake = Fake::default();
    for name in [
        "import:installer",
        "import:again",
        "registry.example.org/kubelet:1",
    ] {
        fake.store(name, "sha256:a", &[]);
    }
    fake.store("import:other", "sha256:b", &[]);
    let digest = obtain(&fake, "import:installer").await.unwrap();
    assert_eq!(digest, "sha256:a");
    release(&fake, "import:installer", &digest, Some(&config)).await;
    let kept = ["import:other", "registry.example.org/kubelet:1"];
    assert_eq!(fake.names(), kept);
}
