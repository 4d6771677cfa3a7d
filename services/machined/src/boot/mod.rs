//! The boot as data: phases that run one after the other, each with tasks that run in parallel. `machine.rs` runs them.

pub mod cgroups;
pub mod overlays;
pub mod system;

use std::fmt;

use corten_base::mode::{Ability, Mode};
use corten_supervisor::runs_in;

/// A task of the boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Mounts the essential file systems of the table in `mounts.rs`.
    MountFileSystems,
    /// Mounts the optional ones. For one of them the kernel runs a program (bpf requests a module).
    MountOptional,
    /// Mounts STATE and EPHEMERAL, if a disk carries the node.
    MountVolumes,
    /// Mounts volumes whose disk appeared late, since its driver is a module that udevd loads. Then loads their
    /// content, and grows them.
    FinishVolumes,
    /// Makes the directories of the table in `system.rs`.
    MakeDirectories,
    /// Raises the limit of open files, and makes ctrl-alt-del a request instead of a reset.
    SetLimits,
    /// Makes the cgroups of the table in `cgroups.rs`.
    MakeCgroups,
    /// Sets the image's `/etc/sysctl.d` and the reaction to a processor that locks up. Comes before any slow task.
    SetSysctls,
    /// Writes `/run/machine-id`.
    IdentifyMachine,
    /// Loads the machine config, if there is one.
    LoadConfig,
    /// Reads why the previous boot ended, and records that this one has begun.
    ReadLastStop,
    /// The same for a STATE that appeared late, and for drivers that udevd has loaded.
    FinishLastStop,
    /// Mounts the overlays of the table in `overlays.rs`, on EPHEMERAL.
    MountOverlays,
    /// Writes the files of the machine config, on EPHEMERAL.
    WriteFiles,
    /// Runs the node's controllers; their file systems must be mounted.
    RunControllers,
    /// Watches the power button.
    WatchPowerButton,
    /// Brings up links, addresses and names.
    BringUpNetwork,
    /// Opens the socket at which the kubelet learns of the machine's end.
    AnnounceEnds,
    /// Opens machined's socket, and writes apid's certificates.
    ServeApi,
    /// Mounts the image cache and starts registryd, if the config enables them.
    ServeImages,
    /// Starts the services of extensions, which wait for containerd.
    StartExtensions,
    /// Starts this service, and waits until it is up.
    Start(&'static str),
}

impl Task {
    /// The ability that the task needs; `None` if every node can run it.
    fn needs(self) -> Option<Ability> {
        match self {
            Task::MountOptional => Some(Ability::KernelFileSystems),
            Task::WatchPowerButton => Some(Ability::PowerButton),
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
            Task::AnnounceEnds => "announce ends",
            Task::ServeApi => "serve API",
            Task::ServeImages => "serve images",
            Task::StartExtensions => "start extensions",
            Task::Start(id) => return write!(f, "start {id}"),
        })
    }
}

/// Tasks that may run in parallel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// Name on the console.
    pub name: &'static str,
    /// Tasks in no particular order, unless `one_by_one`.
    pub tasks: Vec<Task>,
    /// Whether each task needs the one before.
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
/// The API needs neither devices nor containers, so it answers while an operator looks for the reason why these do not
/// come up. The longest way to the API is udevd's, to the network card, so it starts first. containerd comes last, so
/// that it does not compete for resources. An interrupted boot is recorded as one from the moment STATE is mounted.
///
/// Tasks that need an ability that this mode lacks are left out.
#[must_use]
pub fn plan(mode: Mode) -> Vec<Phase> {
    let mut plan = whole_plan();
    for phase in &mut plan {
        let can = |task: &Task| match task {
            Task::Start(id) => runs_in(id, mode),
            task => task.needs().is_none_or(|ability| mode.can(ability)),
        };
        phase.tasks.retain(can);
    }
    plan
}

fn whole_plan() -> Vec<Phase> {
    use Task::{
        AnnounceEnds, BringUpNetwork, FinishLastStop, FinishVolumes, IdentifyMachine, LoadConfig,
        MakeCgroups, MakeDirectories, MountFileSystems, MountOptional, MountOverlays, MountVolumes,
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
                AnnounceEnds,
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
    use corten_supervisor::{ApiMode, table};

    use super::*;

    #[test]
    fn boot_plan_matches_its_transcript() {
        let lines: Vec<String> = plan(Mode::Machine).iter().map(Phase::to_string).collect();
        assert_eq!(
            lines,
            [
                "system: mount file systems, then set sysctls, then make cgroups, then mount volumes, \
                 then read last stop, then make directories, then set limits, then identify machine, \
                 then load machine config",
                "core: start udevd | announce ends | run controllers | bring up network | serve API | start syslogd | \
                 mount optional file systems | watch power button",
                "runtime: finish volumes, then finish last stop, then mount overlays, then write files, \
                 then serve images, then start extensions, then start containerd",
            ]
        );
    }

    #[test]
    fn boot_of_a_container_leaves_out_tasks_of_the_host() {
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
                // ServeApi writes apid's certificates first.
                "apid" => Task::ServeApi.to_string(),
                // ServeImages mounts the image cache first, if enabled.
                "registryd" => Task::ServeImages.to_string(),
                id => format!("start {id}"),
            };
            let times = tasks.iter().filter(|other| **other == task).count();
            assert_eq!(times, 1, "{}", spec.id);
        }
    }
}
