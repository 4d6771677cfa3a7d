//! `apply-config`: applies a machine config to one or more nodes.

use corten_api::machine::apply_configuration_request::Mode;
use corten_api::machine::{ApplyConfiguration, ApplyConfigurationRequest};
use corten_client::answers::ask;
use corten_client::clients::Machine;
use corten_client::configfile;
use corten_client::connect::routes;
use corten_client::failure::Failure;
use corten_client::flags::Global;
use corten_client::table::printable;

use crate::args::{ApplyConfig, ApplyMode, How};

/// The request, with the content of the file. No error quotes the file, because it has secrets.
fn request(args: &ApplyConfig) -> Result<ApplyConfigurationRequest, Failure> {
    let data = configfile::patched(configfile::read(&args.file)?, &args.config_patch)?;
    Ok(body(data, &args.how))
}

/// The request for a config.
pub(super) fn body(data: Vec<u8>, how: &How) -> ApplyConfigurationRequest {
    let try_mode_timeout = match how.mode {
        ApplyMode::Try => prost_types::Duration::try_from(how.timeout).ok(),
        _ => None,
    };
    let mode = match how.mode {
        ApplyMode::Auto => Mode::Auto,
        ApplyMode::NoReboot => Mode::NoReboot,
        ApplyMode::Reboot => Mode::Reboot,
        ApplyMode::Staged => Mode::Staged,
        ApplyMode::Try => Mode::Try,
    };
    ApplyConfigurationRequest {
        data,
        mode: mode.into(),
        dry_run: how.dry_run,
        try_mode_timeout,
    }
}

/// Runs `apply-config`.
///
/// # Errors
/// The file is no machine config, or a node refuses it.
pub async fn run(global: &Global, args: &ApplyConfig) -> Result<(), Failure> {
    let body = request(args)?;
    let answers = ask(
        routes(global).await?,
        body,
        |mut client: Machine, request| async move { client.apply_configuration(request).await },
    )
    .await?;
    let several = answers.good.len() + answers.failed.len() > 1;
    for (node, message) in &answers.good {
        tell(several.then_some(node.as_str()), message);
    }
    answers.finish()
}

/// Reports on stderr how a node applied its config; `node` is its name if there are several.
pub(super) fn tell(node: Option<&str>, message: &ApplyConfiguration) {
    let node = node.map_or_else(String::new, |node| format!("{}: ", printable(node)));
    for warning in &message.warnings {
        eprintln!("{node}warning: {}", printable(warning));
    }
    // A dry run answers with a diff of many lines.
    for line in message.mode_details.lines() {
        let cells: Vec<String> = line.split('\t').map(printable).collect();
        eprintln!("{node}{}", cells.join("\t"));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use corten_client::flags::Short;

    use super::*;

    fn args(file: &Path, mode: ApplyMode) -> ApplyConfig {
        ApplyConfig {
            file: file.into(),
            config_patch: Vec::new(),
            how: How {
                mode,
                dry_run: true,
                timeout: Duration::from_secs(90),
            },
            short: Short { insecure: false },
        }
    }

    #[test]
    fn the_file_and_the_mode_become_the_request() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "version: v1alpha1\n").unwrap();
        let request = request(&args(file.path(), ApplyMode::Try)).unwrap();
        assert_eq!(request.data, b"version: v1alpha1\n");
        assert_eq!(request.mode(), Mode::Try);
        assert!(request.dry_run);
        assert_eq!(request.try_mode_timeout.unwrap().seconds, 90);
        let auto = super::request(&args(file.path(), ApplyMode::Auto)).unwrap();
        assert_eq!((auto.mode(), auto.try_mode_timeout), (Mode::Auto, None));
    }

    #[test]
    fn client_refuses_files_that_cannot_be_a_config() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = |path: &Path| match request(&args(path, ApplyMode::Auto)) {
            Err(Failure::Call(error)) => format!("{error:#}"),
            other => panic!("{other:?}"),
        };
        std::fs::write(file.path(), " \n").unwrap();
        assert!(text(file.path()).ends_with("it is empty"));
        std::fs::write(file.path(), vec![b'x'; corten_yaml::MAX_SIZE + 1]).unwrap();
        assert!(text(file.path()).ends_with("larger than 8 MiB"));
        assert!(text(Path::new("/no/such/file")).starts_with("machine config /no/such/file: "));
    }
}
