//! The step that signs what firmware starts and the unified kernel image does not hold.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::steps::Context;
use crate::cache::KeyBuilder;
use crate::error::Result;
use crate::kernel::build::VMLINUZ;
use crate::recipe::{Handle, Recipe};
use crate::secure_boot::{Signer, authenticode, enrolment, read};

/// systemd-boot in the output of this step.
pub const SD_BOOT: &str = "systemd-boot.efi";

/// Adds the step: [`SD_BOOT`], the kernel ([`VMLINUZ`]) and what sets the firmware's keys.
pub fn add<'a>(
    recipe: &mut Recipe<'a>,
    context: &'a Context,
    [kernel, boot]: [&Handle; 2],
) -> Result<Handle> {
    let keys = context.options.key_set();
    // The private keys of the others are not needed, and may be elsewhere.
    let updates = enrolment::ALL.map(|variable| variable.update());
    let mut key = KeyBuilder::new("signed")
        .add("revision", "1")
        .step(&kernel.key)
        .step(&boot.key);
    let inputs = [enrolment::DB.key(), enrolment::DB.certificate()];
    for name in inputs.iter().chain(&updates) {
        key = key.add(name, read(&keys, name)?);
    }
    let (kernel, boot) = (kernel.clone(), boot.clone());
    Ok(recipe.add("signed", key.finish(), move |built, out, _| {
        let signer = signer(context)?;
        let programs = [
            (context.sd_boot(built.dir(&boot)), SD_BOOT),
            (built.dir(&kernel).join(VMLINUZ), VMLINUZ),
        ];
        for (program, name) in programs {
            sign(&program, &signer, &out.join(name))?;
        }
        for name in &updates {
            fs::write(out.join(name), read(&keys, name)?)?;
        }
        Ok(())
    }))
}

/// Who signs what firmware starts.
pub fn signer(context: &Context) -> Result<Signer> {
    Signer::read(&context.options.key_set(), &enrolment::DB)
}

fn sign(program: &Path, signer: &Signer, out: &Path) -> Result<()> {
    let content = fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    let signed = authenticode::sign(content, signer)
        .with_context(|| format!("signing {}", program.display()))?;
    fs::write(out, signed).with_context(|| format!("writing {}", out.display()))
}
