//! Shows the protections that the firmware, the boot loader and the kernel enforce, read once.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use corten_base::mount_table::Mount;
use corten_base::sysfs;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::security::{BootedEntry, SecurityState};
use tokio::sync::watch;
use tokio::time::timeout;

/// Directory of EFI variables, once they are mounted.
const VARIABLES: &str = "sys/firmware/efi/efivars";
/// EFI_GLOBAL_VARIABLE (UEFI Specification 2.10, 3.3).
const FIRMWARE: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// Vendor GUID of the Boot Loader Interface (systemd.io/BOOT_LOADER_INTERFACE).
const LOADER: &str = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";
/// EFI_IMAGE_SECURITY_DATABASE_GUID (UEFI Specification 2.10, 32.4.1).
const DATABASE: &str = "d719b2cb-3d3a-4596-a3bc-dad00e67656f";
/// Fingerprint of the published development key that signs images (`kernel-config/keys/development/db.crt`).
const DEVELOPMENT_DB: &str = "5TPGydU/9VADKAJotljHzslHnJtQZU+8XGc7qhiHHBA=";
/// EFI_CERT_X509_GUID in its byte order in a list (UEFI Specification 2.10, 32.4.1).
const X509: [u8; 16] = [
    0xa1, 0x59, 0xc0, 0xa5, 0xe4, 0x94, 0xa7, 0x4a, 0x87, 0xb5, 0xab, 0x15, 0x5c, 0x2b, 0xf0, 0x72,
];
/// Length of the attributes in front of a variable's data (Documentation/filesystems/efivarfs.rst).
const ATTRIBUTES: usize = 4;
/// Maximum length of a variable in bytes; exceeds all variables read here.
const LONGEST: u64 = 1 << 16;

/// Timeout for the mount of the EFI variables; without it they count as missing.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub(super) struct Security {
    /// `/`, except in tests.
    pub(super) root: PathBuf,
    pub(super) mounts: watch::Receiver<Vec<Mount>>,
}

impl Controller for Security {
    fn name(&self) -> &'static str {
        "runtime.SecurityStateController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<SecurityState>(),
            Output::exclusive::<BootedEntry>(),
        ]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        if self.root.join(VARIABLES).is_dir() {
            // Without the variables the result would wrongly be that nothing is enforced.
            let are_there = |mounts: &Vec<Mount>| mounts.iter().any(|one| one.kind == "efivarfs");
            // If the mount table cannot be followed, its present state is final.
            drop(timeout(PATIENCE, self.mounts.wait_for(are_there)).await);
        }
        context.put(Draft::new(SecurityState::ID, self.state()))?;
        if let Some(booted_entry) = self.booted_entry() {
            context.put(Draft::new(BootedEntry::ID, BootedEntry { booted_entry }))?;
        }
        Ok(())
    }
}

impl Security {
    fn state(&self) -> SecurityState {
        let is_set = |name| self.variable(name, FIRMWARE).first() == Some(&1);
        let selinux = sysfs::read(&self.root.join("sys/fs/selinux/enforce"));
        let fips = sysfs::read(&self.root.join("proc/sys/crypto/fips_enabled"));
        let signatures = sysfs::read(&self.root.join("sys/module/module/parameters/sig_enforce"));
        SecurityState {
            // In setup mode the firmware accepts any key.
            secure_boot: is_set("SecureBoot") && !is_set("SetupMode"),
            selinux_state: match selinux.as_str() {
                "1" => "enabled, enforcing",
                "0" => "enabled, permissive",
                _ => "disabled",
            },
            fips_state: if fips == "1" { "enabled" } else { "disabled" },
            // The stub at the start of every UKI sets it.
            booted_with_uki: !self.variable("StubInfo", LOADER).is_empty(),
            module_signature_enforced: signatures == "Y",
            development_keys: trusts(&self.variable("db", DATABASE), DEVELOPMENT_DB),
        }
    }

    fn booted_entry(&self) -> Option<String> {
        let bytes = self.variable("LoaderEntrySelected", LOADER);
        // UTF-16, little-endian, up to a zero.
        let units = bytes
            .chunks_exact(2)
            .filter_map(|pair| pair.try_into().ok());
        let units: Vec<u16> = units
            .map(u16::from_le_bytes)
            .take_while(|unit| *unit != 0)
            .collect();
        Some(String::from_utf16_lossy(&units)).filter(|entry| !entry.is_empty())
    }

    /// Data of a variable; empty if it does not exist.
    fn variable(&self, name: &str, vendor: &str) -> Vec<u8> {
        let path = self.root.join(VARIABLES).join(format!("{name}-{vendor}"));
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
        match read {
            Ok(length) if length > ATTRIBUTES => bytes.split_off(ATTRIBUTES),
            _ => Vec::new(),
        }
    }
}

/// Whether a signature database contains the certificate of the key with this fingerprint. The database is a sequence
/// of EFI_SIGNATURE_LIST (UEFI Specification 2.10, 32.4.1); the search ends at the first malformed list.
fn trusts(mut lists: &[u8], fingerprint: &str) -> bool {
    const HEADER: usize = 28;
    const OWNER: usize = 16;
    let number = |bytes: &[u8], at: usize| {
        let found: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(found)).ok()
    };
    while let (Some(size), Some(own), Some(each)) =
        (number(lists, 16), number(lists, 20), number(lists, 24))
    {
        let Some((list, rest)) = lists.split_at_checked(size) else {
            return false;
        };
        if size < HEADER {
            return false;
        }
        let is_it = |entry: &[u8]| {
            let certificate = entry.get(OWNER..).unwrap_or_default();
            corten_pki::fingerprint(certificate).is_ok_and(|found| found == fingerprint)
        };
        let entries = HEADER.checked_add(own).and_then(|start| list.get(start..));
        if list.starts_with(&X509)
            && each > OWNER
            && entries.unwrap_or_default().chunks_exact(each).any(is_it)
        {
            return true;
        }
        lists = rest;
    }
    false
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use corten_base::mount_table;
    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;

    struct Machine {
        _root: tempfile::TempDir,
        mounts: watch::Sender<Vec<Mount>>,
        store: Store,
        runtime: Runtime,
    }

    fn machine(files: &[(&str, &[u8])], mounts: &str) -> Machine {
        let root = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let mounts = watch::Sender::new(mount_table::parse(mounts));
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let security = Security {
            root: root.path().to_owned(),
            mounts: mounts.subscribe(),
        };
        runtime.add(security).unwrap();
        Machine {
            _root: root,
            mounts,
            store,
            runtime,
        }
    }

    async fn shown(files: &[(&str, &[u8])], mounts: &str) -> Store {
        let machine = machine(files, mounts);
        machine.runtime.run(|notice| panic!("{notice}")).await;
        machine.store
    }

    fn variable(name: &str, vendor: &str) -> String {
        format!("{VARIABLES}/{name}-{vendor}")
    }

    /// A list of hashes, then one with the development key's certificate.
    fn database() -> Vec<u8> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../kernel-config/keys/development/db.crt");
        let pem = fs::read(file).unwrap();
        let certificate = corten_pki::certificates_from_pem(&pem).unwrap().remove(0);
        let list = |kind: [u8; 16], content: &[u8]| {
            let each = u32::try_from(16 + content.len()).unwrap();
            let numbers = [28 + each, 0, each].map(u32::to_le_bytes).concat();
            [&kind[..], &numbers, &[7; 16], content].concat()
        };
        [
            b"\x27\0\0\0".to_vec(),
            list([9; 16], &[1; 32]),
            list(X509, &certificate),
        ]
        .concat()
    }

    #[test]
    fn hostile_signature_database_ends_the_search() {
        let whole = database().split_off(ATTRIBUTES);
        assert!(trusts(&whole, DEVELOPMENT_DB));
        assert!(!trusts(&whole, "another"));
        for length in 0..whole.len() {
            assert!(!trusts(&whole[..length], DEVELOPMENT_DB), "{length}");
        }
        for at in 16..28 {
            for byte in [0, 1, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                // It must terminate for any content.
                let _ = trusts(&changed, DEVELOPMENT_DB);
            }
        }
    }

    const MOUNTED: &str = "efivarfs /sys/firmware/efi/efivars efivarfs ro 0 0";

    #[tokio::test]
    async fn secure_boot_state_and_booted_entry_are_shown() {
        let entry: Vec<u8> = [0; ATTRIBUTES]
            .into_iter()
            .chain(
                "corten-1.efi\0rest"
                    .encode_utf16()
                    .flat_map(u16::to_le_bytes),
            )
            .collect();
        let store = shown(
            &[
                (&variable("SecureBoot", FIRMWARE), b"\x06\0\0\0\x01"),
                (&variable("SetupMode", FIRMWARE), b"\x06\0\0\0\0"),
                (&variable("StubInfo", LOADER), b"\x06\0\0\0s\0\0\0"),
                (&variable("db", DATABASE), &database()),
                (&variable("LoaderEntrySelected", LOADER), &entry),
                ("sys/module/module/parameters/sig_enforce", b"Y\n"),
                ("proc/sys/crypto/fips_enabled", b"1\n"),
                ("sys/fs/selinux/enforce", b"0"),
            ],
            MOUNTED,
        )
        .await;
        let state = store.get_as::<SecurityState>(SecurityState::ID).unwrap();
        let expected = SecurityState {
            secure_boot: true,
            selinux_state: "enabled, permissive",
            fips_state: "enabled",
            booted_with_uki: true,
            module_signature_enforced: true,
            development_keys: true,
        };
        assert_eq!(*state, expected);
        let booted = store.get_as::<BootedEntry>(BootedEntry::ID).unwrap();
        assert_eq!(booted.booted_entry, "corten-1.efi");
    }

    #[tokio::test]
    async fn security_features_without_evidence_are_not_claimed() {
        let nothing = SecurityState {
            secure_boot: false,
            selinux_state: "disabled",
            fips_state: "disabled",
            booted_with_uki: false,
            module_signature_enforced: false,
            development_keys: false,
        };
        // No firmware with variables, setup mode, truncated variables.
        let setup: &[(&str, &[u8])] = &[
            (&variable("SecureBoot", FIRMWARE), b"\x06\0\0\0\x01"),
            (&variable("SetupMode", FIRMWARE), b"\x06\0\0\0\x01"),
        ];
        let broken: &[(&str, &[u8])] = &[
            (&variable("SecureBoot", FIRMWARE), b"\x06\0\0\0"),
            (&variable("StubInfo", LOADER), b""),
            (&variable("LoaderEntrySelected", LOADER), b"\x06\0\0\0\xff"),
        ];
        for (files, mounts) in [(&[][..], ""), (setup, MOUNTED), (broken, MOUNTED)] {
            let store = shown(files, mounts).await;
            let state = store.get_as::<SecurityState>(SecurityState::ID).unwrap();
            assert_eq!(*state, nothing);
            assert!(store.get_as::<BootedEntry>(BootedEntry::ID).is_none());
        }
    }

    #[tokio::test]
    async fn security_state_waits_for_the_efi_variables() {
        let checked: &[(&str, &[u8])] = &[(&variable("SecureBoot", FIRMWARE), b"\x06\0\0\0\x01")];
        let machine = machine(checked, "proc /proc proc rw 0 0");
        let run = tokio::spawn(machine.runtime.run(|notice| panic!("{notice}")));
        for _ in 0..100 {
            tokio::task::yield_now().await;
            let state = machine.store.get_as::<SecurityState>(SecurityState::ID);
            assert!(state.is_none());
        }
        machine.mounts.send_replace(mount_table::parse(MOUNTED));
        run.await.unwrap();
        let state = machine.store.get_as::<SecurityState>(SecurityState::ID);
        assert!(state.unwrap().secure_boot);
    }
}
