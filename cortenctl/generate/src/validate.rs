//! `validate`: checks whether a node would accept a config.

use corten_client::configfile;
use corten_client::failure::Failure;
use corten_config::Mode;

use crate::args::{Validate, ValidateMode};

/// Checks the config, and prints the verdict.
///
/// # Errors
/// A node would refuse the config.
pub fn run(args: &Validate) -> Result<(), Failure> {
    println!("{}", verdict(args)?);
    Ok(())
}

fn verdict(args: &Validate) -> Result<String, Failure> {
    let name = args.config.display().to_string();
    let document = configfile::parse(&name, &configfile::read(&args.config)?)?;
    let (mode, text) = match args.mode {
        ValidateMode::Metal => (Mode::Metal, "metal"),
        ValidateMode::Cloud => (Mode::Cloud, "cloud"),
        ValidateMode::Container => (Mode::Container, "container"),
    };
    document
        .validate(mode)
        .map_err(|problems| configfile::wrong(&name, &problems))?;
    let warnings = document.warnings();
    for warning in &warnings {
        eprintln!("{name}: warning: {warning}");
    }
    if args.strict && !warnings.is_empty() {
        return Err(Failure::call(format!(
            "{name}: warnings are errors with --strict"
        )));
    }
    Ok(format!("{name} is valid for {text} mode"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, mode: ValidateMode, strict: bool) -> Result<String, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let args = Validate {
            config: file.path().into(),
            mode,
            strict,
        };
        let plain = |text: &str| text.replace(&file.path().display().to_string(), "FILE");
        match verdict(&args) {
            Ok(text) => Ok(plain(&text)),
            Err(Failure::Call(error)) => Err(plain(&format!("{error:#}"))),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn validation_depends_on_mode_and_strictness() {
        let directory = tempfile::tempdir().unwrap();
        let worker = crate::example(directory.path());
        let good = check(&worker, ValidateMode::Metal, true);
        assert_eq!(good.unwrap(), "FILE is valid for metal mode");

        let diskless = worker.replace("disk: /dev/vda", "disk: \"\"");
        let refusal = check(&diskless, ValidateMode::Metal, false).unwrap_err();
        assert_eq!(
            refusal,
            "FILE: machine.install.disk, diskSelector or an UnattendedInstallConfig is required to install on metal"
        );
        let cloud = check(&diskless, ValidateMode::Cloud, false);
        assert_eq!(cloud.unwrap(), "FILE is valid for cloud mode");
        check(&diskless, ValidateMode::Container, false).unwrap();

        let old = format!("{worker}    apiServer:\n        disablePodSecurityPolicy: true\n");
        check(&old, ValidateMode::Metal, false).unwrap();
        let refusal = check(&old, ValidateMode::Metal, true).unwrap_err();
        assert!(refusal.contains("--strict"), "{refusal}");

        let two = worker
            .replace("type: worker", "type: wroker")
            .replace("debug:", "debgu:");
        let refusal = check(&two, ValidateMode::Metal, false).unwrap_err();
        assert_eq!(refusal.lines().count(), 2, "{refusal}");
        assert!(
            refusal.lines().all(|line| line.starts_with("FILE: line ")),
            "{refusal}"
        );
    }
}
