//! The boot as a value: phases one after the other, the tasks of a phase side by side. `machine.rs` runs it.

pub mod cgroups;
pub mod lockups;
pub mod overlays;
pub mod sysctls;
pub mod system;

use std::fmt;

use corten_base::mode::{Ability, Mode};

/// One thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Those of the table in `mounts.rs` that everything needs.
    MountFileSystems,
    /// Those a node can do without. For one of them the kernel runs a program (bpf asks for a module).
    MountOptional,
    /// STATE and EPHEMERAL, where a disk carries the node.
    MountVolumes,
    /// The same, when the disk's driver is a module and came with udevd, and what the volumes hold; growth.
    FinishVolumes,
    /// The table in `system.rs`.
    MakeDirectories,
    /// Open files, and ctrl-alt-del as a request instead of a reset.
    SetLimits,
    /// The table in `cgroups.rs`.
    MakeCgroups,
    /// The image's `/etc/sysctl.d`, and what a processor that locks up means here: before anything takes long.
    SetSysctls,
    /// `/run/machine-id`.
    IdentifyMachine,
    /// The machine config, where there is one.
    LoadConfig,
    /// Why the boot before ended, and that this one has begun.
    ReadLastStop,
    /// The same, when STATE came with udevd, and by what drivers know that came with it.
    FinishLastStop,
    /// The table in `overlays.rs`, on EPHEMERAL.
    MountOverlays,
    /// Those of the machine config, on EPHEMERAL.
    WriteFiles,
    /// The node's controllers, which see their file systems from the start.
    RunControllers,
    /// Listen to the power button.
    WatchPowerButton,
    /// Links, addresses, names.
    BringUpNetwork,
    /// machined's socket, and the certificates apid serves with.
    ServeApi,
    /// The image cache's partition and registryd, when the config wants them.
    ServeImages,
    /// The services extensions brought, which wait for containerd.
    StartExtensions,
    /// Start this service and wait until it is up.
    Start(&'static str),
}

impl Task {
    /// What a node must be able to do for it, if it is not every node.
    fn needs(self) -> Option<Ability> {
        match self {
            Task::MountOptional => Some(Ability::KernelFileSystems),
            Task::WatchPowerButton => Some(Ability::PowerButton),
            Task::Start("udevd") => Some(Ability::Devices),
            _ => None,
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Task::MountFileSystems => "mount file systems",
            Task::MountOptional => "mount optional file systems",
            Task::MountVolumes => "mount volumes",
            Task::FinishVolumes => "finish volumes",
            Task::MakeDirectories => "make directories",
            Task::SetLimits => "set limits",
            Task::MakeCgroups => "make cgroups",
            Task::SetSysctls => "set sysctls",
            Task::IdentifyMachine => "identify machine",
            Task::LoadConfig => "load machine config",
            Task::ReadLastStop => "read last stop",
            Task::FinishLastStop => "finish last stop",
            Task::MountOverlays => "mount overlays",
            Task::WriteFiles => "write files",
            Task::RunControllers => "run controllers",
            Task::WatchPowerButton => "watch power button",
            Task::BringUpNetwork => "bring up network",
            Task::ServeApi => "serve API",
            Task::ServeImages => "serve images",
            Task::StartExtensions => "start extensions",
            Task::Start(id) => return write!(f, "start {id}"),
        })
    }
}

/// Tasks that may run side by side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// For the console.
    pub name: &'static str,
    /// In no particular order, unless `one_by_one`.
    pub tasks: Vec<Task>,
    /// Each task needs the one before.
    pub one_by_one: bool,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks: Vec<String> = self.tasks.iter().map(Task::to_string).collect();
        let separator = if self.one_by_one { ", then " } else { " | " };
        write!(f, "{}: {}", self.name, tasks.join(separator))
    }
}

/// The boot of a node.
///
/// The API needs neither devices nor containers: whoever looks for the reason why these do not come up shall
/// find it answering. So the way to it starts first (the longest is udevd's, to the network card), and containerd
/// comes last, not to compete with it. A boot that is cut off is known as one from the moment STATE is there.
///
/// Tasks that a node of this mode cannot do are left out.
#[must_use]
pub fn plan(mode: Mode) -> Vec<Phase> {
    let mut plan = whole_plan();
    for phase in &mut plan {
        let can = |task: &Task| task.needs().is_none_or(|ability| mode.can(ability));
        phase.tasks.retain(can);
    }
    plan
}

fn whole_plan() -> Vec<Phase> {
    use Task::{
        BringUpNetwork, FinishLastStop, FinishVolumes, IdentifyMachine, LoadConfig, MakeCgroups,
        MakeDirectories, MountFileSystems, MountOptional, MountOverlays, MountVolumes,
        ReadLastStop, RunControllers, ServeApi, ServeImages, SetLimits, SetSysctls, Start,
        StartExtensions, WatchPowerButton, WriteFiles,
    };
    vec![
        Phase {
            name: "system",
            tasks: vec![
                MountFileSystems,
                SetSysctls,
                MakeCgroups,
                MountVolumes,
                ReadLastStop,
                MakeDirectories,
                SetLimits,
                IdentifyMachine,
                LoadConfig,
            ],
            one_by_one: true,
        },
        Phase {
            name: "core",
            tasks: vec![
                Start("udevd"),
                RunControllers,
                BringUpNetwork,
                ServeApi,
                Start("syslogd"),
                MountOptional,
                WatchPowerButton,
            ],
            one_by_one: false,
        },
        Phase {
            name: "runtime",
            tasks: vec![
                FinishVolumes,
                FinishLastStop,
                MountOverlays,
                WriteFiles,
                ServeImages,
                StartExtensions,
                Start("containerd"),
            ],
            one_by_one: true,
        },
    ]
}

#[cfg(test)]
mod tests {
    use corten_services::{ApiMode, table};

    use super::*;

    #[test]
    fn the_plan_reads_well() {
        let lines: Vec<String> = plan(Mode::Machine).iter().map(Phase::to_string).collect();
        assert_eq!(
            lines,
            [
                "system: mount file systems, then set sysctls, then make cgroups, then mount volumes, \
                 then read last stop, then make directories, then set limits, then identify machine, \
                 then load machine config",
                "core: start udevd | run controllers | bring up network | serve API | start syslogd | \
                 mount optional file systems | watch power button",
                "runtime: finish volumes, then finish last stop, then mount overlays, then write files, \
                 then serve images, then start extensions, then start containerd",
            ]
        );
    }

    #[test]
    fn a_container_leaves_out_what_is_its_hosts() {
        let names = |mode| {
            let phases = plan(mode).into_iter();
            let tasks = phases.flat_map(|phase| phase.tasks);
            tasks.map(|task| task.to_string()).collect::<Vec<_>>()
        };
        let own = names(Mode::Container);
        let all = names(Mode::Machine).into_iter();
        let left: Vec<String> = all.filter(|task| !own.contains(task)).collect();
        let expected = [
            "start udevd",
            "mount optional file systems",
            "watch power button",
        ];
        assert_eq!(left, expected);
    }

    #[test]
    fn every_service_is_started_once() {
        let tasks: Vec<String> = plan(Mode::Machine)
            .iter()
            .flat_map(|phase| &phase.tasks)
            .map(Task::to_string)
            .collect();
        for spec in table(ApiMode::Maintenance) {
            let task = match &*spec.id {
                // ServeApi first writes what it serves with.
                "apid" => Task::ServeApi.to_string(),
                // ServeImages first mounts what it serves, when it shall.
                "registryd" => Task::ServeImages.to_string(),
                id => format!("start {id}"),
            };
            let times = tasks.iter().filter(|other| **other == task).count();
            assert_eq!(times, 1, "{}", spec.id);
        }
    }
}
