//! The time that a new machine in a cloud takes to its config, with a metadata service that answers at once.

use std::fmt::Write as _;

use ::tests::clouds::{AWS, METADATA};
use ::tests::disk::NodeDisk;
use ::tests::images;
use ::tests::node::BOOT;
use anyhow::Context as _;

use crate::document::Section;
use crate::measure::MEMORY_MIB;
use crate::report::{median, verdict};

/// The title of the section.
const TITLE: &str = "A new machine in a cloud";
/// Limit in seconds of docs/promises.md from the first address to the config. The pause after a request that came too
/// early would not fit.
const LIMIT: f64 = 1.0;
/// A moment, and its line on the console.
const MOMENTS: [(&str, &str); 3] = [
    ("first address, by DHCP", "network: address "),
    ("metadata service asked", "asking the platform aws"),
    (
        "machine config from its answer",
        "using the machine config of the platform aws",
    ),
];

/// The seconds of one boot.
#[derive(Debug, Clone, PartialEq)]
struct Boot {
    /// From QEMU's start to an answer of the API to the owner.
    answer: f64,
    /// From the kernel's start to each of [`MOMENTS`].
    moments: [f64; MOMENTS.len()],
}

/// Boots `rounds` new machines, each with a new disk and as `aws`.
pub fn measure(rounds: usize) -> anyhow::Result<Section> {
    let mut boots = Vec::new();
    for round in 1..=rounds {
        let boot = boot()?;
        eprintln!(
            "round {round}: a config in a cloud after {:.1} s",
            boot.answer
        );
        boots.push(boot);
    }
    let text = text(&boots);
    let title = TITLE.to_owned();
    Ok(Section { title, text })
}

fn boot() -> anyhow::Result<Boot> {
    let disk = NodeDisk::new("bench-cloud", 4);
    let configs = tempfile::tempdir()?;
    let server = AWS.service(configs.path(), 0);
    let mut direct = images::direct();
    direct.append.push_str(" corten.platform=aws");
    let node = disk.start(|machine| {
        server
            .at(METADATA, machine)
            .direct(direct)
            .memory_mib(MEMORY_MIB)
            .cpus(2)
    });
    let node = node.with_configs(configs.path().to_owned());
    node.vm.wait_tls(BOOT)?;
    let answer = node.admin().call(&["version"]).map_err(anyhow::Error::msg);
    answer.with_context(|| node.vm.report())?;
    let answer = node.vm.started().elapsed().as_secs_f64();
    let console = node.vm.console().text();
    let mut moments = [0.0; MOMENTS.len()];
    for (moment, (what, line)) in moments.iter_mut().zip(MOMENTS) {
        let found = seconds(&console, line);
        *moment = found.with_context(|| format!("{what}: no line {line:?}\n{console}"))?;
    }
    Ok(Boot { answer, moments })
}

/// The kernel's time of the first line with this text.
fn seconds(console: &str, text: &str) -> Option<f64> {
    let line = console.lines().find(|line| line.contains(text))?;
    let (time, _) = line.split_once('[')?.1.split_once(']')?;
    time.trim().parse().ok()
}

fn text(boots: &[Boot]) -> String {
    let of = |value: fn(&Boot) -> f64| {
        let values: Vec<f64> = boots.iter().map(value).collect();
        median(&values).unwrap_or_default()
    };
    let mut text = "\
The machine has the image on a disk of 4 GiB and starts for the first time. QEMU is its DHCP server; the metadata \
service is on\nthe host, in the form of AWS, and answers at once. Medians.\n\n| moment | after the kernel's start |\n|---|---|\n"
        .to_owned();
    let moments = [
        of(|boot| boot.moments[0]),
        of(|boot| boot.moments[1]),
        of(|boot| boot.moments[2]),
    ];
    for ((what, _), moment) in MOMENTS.iter().zip(moments) {
        let _infallible = writeln!(text, "| {what} | {moment:.2} s |");
    }
    let took = of(|boot| boot.moments[2] - boot.moments[0]);
    let _infallible = write!(
        text,
        "\nFrom the first address to the config: {took:.2} s; limit {LIMIT} s, {}. From QEMU's start to the API's \
         answer to\nthe owner: {:.1} s.",
        verdict(took, LIMIT),
        of(|boot| boot.answer)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::not_kept;

    #[test]
    fn moments_are_the_kernels_times_of_the_first_lines() {
        let console = "x\n[    7.518974] [corten] network: address 168.0.2.15\r\n\
                       [   17.5] [corten] network: address fd00::1\n";
        assert_eq!(seconds(console, "network: address "), Some(7.518_974));
        assert_eq!(seconds(console, "asking"), None);
        assert_eq!(seconds("asking [", "asking"), None);
    }

    #[test]
    fn slow_config_is_reported() {
        let boot = |config| Boot {
            answer: 9.0,
            moments: [5.0, 5.1, config],
        };
        let text = text(&[boot(5.4), boot(9.0), boot(6.3)]);
        assert!(
            text.contains("| metadata service asked | 5.10 s |"),
            "{text}"
        );
        assert!(text.contains("1.30 s; limit 1 s, NOT KEPT"), "{text}");
        let title = TITLE.to_owned();
        assert_eq!(not_kept(&Section { title, text }).len(), 1);
    }
}
