//! `wipe disk`.

use corten_api::storage as api;
use corten_api::storage::block_device_wipe_descriptor::Method;

use crate::answers::ask_within;
use crate::cli::{Wipe, WipeDisk, WipeMethod};
use crate::clients::Disks;
use crate::connect::Route;
use crate::failure::Failure;
use crate::table::printable;

pub(crate) async fn run(routes: Vec<Route>, what: &Wipe) -> Result<(), Failure> {
    let Wipe::Disk(args) = what;
    // Zeros on a large disk take their time.
    let answers = ask_within(
        None,
        routes,
        request(args),
        |mut client: Disks, request| async move { client.block_device_wipe(request).await },
    )
    .await?;
    for (node, _) in &answers.good {
        eprintln!("{}: {} wiped", printable(node), args.devices.join(", "));
    }
    answers.finish()
}

fn request(args: &WipeDisk) -> api::BlockDeviceWipeRequest {
    let method = match args.method {
        WipeMethod::Fast => Method::Fast,
        WipeMethod::Zeroes => Method::Zeroes,
    };
    let devices = args.devices.iter();
    api::BlockDeviceWipeRequest {
        devices: devices
            .map(|device| api::BlockDeviceWipeDescriptor {
                device: device.clone(),
                method: method.into(),
                skip_volume_check: args.skip_volume_check,
                skip_secondary_check: args.skip_secondary_check,
                drop_partition: args.drop_partition,
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Verb};

    fn asked(line: &str) -> Vec<api::BlockDeviceWipeDescriptor> {
        match Cli::try_parse_from(line.split_whitespace()).unwrap().verb {
            Verb::Wipe(Wipe::Disk(args)) => request(&args).devices,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_is_skipped_unless_it_was_said() {
        let device = |name: &str| api::BlockDeviceWipeDescriptor {
            device: name.to_owned(),
            ..Default::default()
        };
        let two = asked("cortenctl wipe disk vdb vdc1");
        assert_eq!(two, [device("vdb"), device("vdc1")]);
        let all = asked(
            "cortenctl wipe disk vdb --method zeroes --drop-partition --skip-volume-check --skip-secondary-check",
        );
        let expected = api::BlockDeviceWipeDescriptor {
            method: Method::Zeroes.into(),
            skip_volume_check: true,
            skip_secondary_check: true,
            drop_partition: true,
            ..device("vdb")
        };
        assert_eq!(all, [expected]);
    }
}
