//! The step that signs the boot loader. The kernel has no signature of its own. Under Secure Boot it starts only as
//! part of the unified kernel image, whose signature covers initramfs and command line.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use corten_image::secure_boot::{
    Signer, authenticode, digest_of_certificate, enrolment, pem, read,
};
use corten_kernel::CONFIG_DIR;
use corten_kernel::keys::DEVELOPMENT;
use corten_steps::cache::KeyBuilder;
use corten_steps::error::Result;
use corten_steps::recipe::{Handle, Recipe};

use super::context::Context;

/// systemd-boot in the output of this step.
pub const SD_BOOT: &str = "systemd-boot.efi";

/// Adds the step: [`SD_BOOT`], and the updates that enrol our keys in firmware, unless the keys are
/// published ones.
pub fn add<'a>(recipe: &mut Recipe<'a>, context: &'a Context, boot: &Handle) -> Result<Handle> {
    let keys = context.options.key_set();
    let updates = updates(&keys, &context.source(CONFIG_DIR).join(DEVELOPMENT))?;
    let key = KeyBuilder::new("signed").add("revision", "2");
    let mut key = signing(key, &keys)?.step(&boot.key);
    for (name, update) in &updates {
        key = key.add(name, update);
    }
    let boot = boot.clone();
    Ok(recipe.add("signed", key.finish(), move |built, out, _| {
        let signer = signer(context)?;
        sign(
            &context.sd_boot(built.dir(&boot)),
            &signer,
            &out.join(SD_BOOT),
        )?;
        for (name, update) in &updates {
            fs::write(out.join(name), update)?;
        }
        Ok(())
    }))
}

/// Adds the inputs of a signature to the key of a step.
pub fn signing(mut key: KeyBuilder, keys: &Path) -> Result<KeyBuilder> {
    for name in [enrolment::DB.key(), enrolment::DB.certificate()] {
        key = key.add(&name, read(keys, &name)?);
    }
    Ok(key)
}

/// The files of the key set `keys` that set the firmware's variables, by name. Empty when one of
/// them would enrol a key of `published`: anyone can sign with a published key.
fn updates(keys: &Path, published: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut updates = Vec::new();
    for variable in &enrolment::ALL {
        updates.push((variable.update(), read(keys, &variable.update())?));
    }
    for variable in &enrolment::ALL {
        let certificate = pem(&read(published, &variable.certificate())?, "CERTIFICATE")?;
        let enrols = |update: &[u8]| {
            let mut windows = update.windows(certificate.len());
            windows.any(|window| window == certificate)
        };
        if updates.iter().any(|(_, update)| enrols(update)) {
            return Ok(Vec::new());
        }
    }
    Ok(updates)
}

/// The signer of EFI programs.
pub fn signer(context: &Context) -> Result<Signer> {
    Signer::read(&context.options.key_set(), &enrolment::DB)
}

/// The keys whose images the node accepts, separated by commas: the image's own, and those that the profile adds.
pub fn accepted(context: &Context) -> Result<String> {
    let mut keys = vec![signer(context)?.digest()];
    for certificate in &context.options.profile.accepted_keys {
        let key = digest_of_certificate(certificate)?;
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    Ok(keys.join(","))
}

fn sign(program: &Path, signer: &Signer, out: &Path) -> Result<()> {
    let content = fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    let signed = authenticode::sign(content, signer)
        .with_context(|| format!("signing {}", program.display()))?;
    fs::write(out, signed).with_context(|| format!("writing {}", out.display()))
}

#[cfg(test)]
mod tests {
    use corten_image::testing::development;

    use super::*;

    #[test]
    fn published_keys_are_never_enrolled() {
        let published = development();
        assert_eq!(updates(&published, &published).unwrap(), []);
        // A published key is refused under another name, and when it is only one of the three.
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        crate::keys::make(&own).unwrap();
        let names: Vec<_> = updates(&own, &published)
            .unwrap()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["PK.auth", "KEK.auth", "db.auth"]);
        fs::copy(published.join("KEK.auth"), own.join("KEK.auth")).unwrap();
        assert_eq!(updates(&own, &published).unwrap(), []);
    }
}
