//! Decides what to do with the content of a volume: a pure function of the content, the node's record and the config.
//!
//! Never accepts a plaintext volume where the config wants encryption or the volume was encrypted before. An attacker
//! with access to the disk may have put it there.

use corten_config::kinds::Encryption;

use super::disk::Content;
use super::table::Marks;

/// Advice for volumes that are beyond repair.
pub(super) const REMEDY: &str = "wipe or reset it to create the volume again without its data";

/// The decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Use the volume as it is, or make a file system in it.
    Clear,
    /// Encrypt the empty volume.
    Make,
    /// Open the encrypted volume.
    Open,
    /// Discard the clear volume and encrypt it anew.
    Migrate,
}

/// Decides for a partition or disk, which messages call `shown`.
pub(super) fn judge(
    found: Content,
    marks: Marks,
    wanted: Option<&Encryption>,
    shown: &str,
) -> Result<Step, String> {
    match (found, wanted) {
        (Content::Luks, Some(_)) => Ok(Step::Open),
        (Content::Luks, None) => Err(format!(
            "{shown} is encrypted, and its config has no key; see docs/configuration.md, Encryption"
        )),
        (Content::Nothing, Some(_)) if marks.is_made => Err(format!(
            "{shown} is damaged and cannot be opened: it was created before, and begins with zeros; {REMEDY}"
        )),
        (Content::Nothing, Some(_)) => Ok(Step::Make),
        (_, _) if marks.is_encrypted => Err(format!(
            "{shown} was encrypted and is not encrypted now: its header is lost, or another volume replaced it; \
             {REMEDY}"
        )),
        (_, None) => Ok(Step::Clear),
        (Content::Xfs, Some(wanted)) if wanted.migrates() => Ok(Step::Migrate),
        (Content::Xfs, Some(_)) => Err(format!(
            "{shown} is not encrypted, and the config requires encryption; set `migration: wipe` in its encryption, or \
             {REMEDY}"
        )),
        (Content::Foreign, Some(_)) => Err(format!(
            "{shown} contains data that is not encrypted; {REMEDY}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use corten_config::kinds::Migration;

    use super::*;

    const CONTENTS: [Content; 4] = [
        Content::Nothing,
        Content::Xfs,
        Content::Luks,
        Content::Foreign,
    ];

    fn all() -> impl Iterator<Item = (Content, Marks, Option<Encryption>)> {
        CONTENTS.into_iter().flat_map(|found| {
            (0..12u8).map(move |number| {
                let marks = Marks {
                    is_made: number & 1 != 0,
                    is_encrypted: number & 2 != 0,
                };
                let wanted = |migration| Encryption {
                    migration,
                    ..Encryption::default()
                };
                let wanted = match number >> 2 {
                    0 => None,
                    1 => Some(wanted(Migration::None)),
                    _ => Some(wanted(Migration::Wipe)),
                };
                (found, marks, wanted)
            })
        })
    }

    #[test]
    fn volume_to_be_or_once_encrypted_is_never_used_in_plaintext() {
        for (found, marks, wanted) in all() {
            let step = judge(found, marks, wanted.as_ref(), "/dev/vda4");
            let is_clear = step == Ok(Step::Clear);
            let may_be = wanted.is_none() && !marks.is_encrypted && found != Content::Luks;
            assert_eq!(is_clear, may_be, "{found:?} {marks:?} {wanted:?}: {step:?}");
        }
    }

    #[test]
    fn only_plaintext_volumes_are_migrated_and_only_on_request() {
        for (found, marks, wanted) in all() {
            let step = judge(found, marks, wanted.as_ref(), "/dev/vda4");
            let is_asked = wanted.as_ref().is_some_and(Encryption::migrates);
            let migrates = is_asked && found == Content::Xfs && !marks.is_encrypted;
            assert_eq!(step == Ok(Step::Migrate), migrates, "{found:?} {marks:?}");
        }
    }

    #[test]
    fn refusal_names_the_problem_and_a_remedy() {
        let wanted = Encryption::default();
        let made = Marks {
            is_made: true,
            is_encrypted: false,
        };
        let encrypted = Marks {
            is_encrypted: true,
            ..made
        };
        for (found, marks, wanted, why) in [
            (Content::Xfs, made, Some(&wanted), "set `migration: wipe`"),
            (Content::Xfs, encrypted, Some(&wanted), "was encrypted"),
            (Content::Xfs, encrypted, None, "was encrypted"),
            (Content::Foreign, made, Some(&wanted), "is not encrypted"),
            (Content::Nothing, made, Some(&wanted), "begins with zeros"),
        ] {
            let found = judge(found, marks, wanted, "/dev/vda4").unwrap_err();
            assert!(
                found.starts_with("/dev/vda4 ") && found.contains(why),
                "{found}"
            );
            assert!(found.ends_with(REMEDY), "{found}");
        }
        let found = judge(Content::Luks, made, None, "/dev/vda4").unwrap_err();
        assert!(found.contains("its config has no key"), "{found}");
    }
}
