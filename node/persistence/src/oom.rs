//! Finds service processes that the kernel killed because memory ran out, in the kernel log.

use std::io;
use std::time::{Duration, SystemTime};

use corten_base::calendar::rfc3339;
use corten_base::kernel_log::KernelLog;
use corten_supervisor::extension::{self, EXTENSIONS_CGROUP};
use corten_supervisor::{ApiMode, Id, table, trustd};
use corten_sys::kmsg::{self, booted};
use corten_types::stop::Kill;
use tokio::time::sleep;

/// Pause after a report, because the receiver writes to the disk.
const PAUSE: Duration = Duration::from_secs(10);
/// Limit of reported kills per round; the most recent ones are kept.
pub(crate) const MOST: usize = 16;

/// Reports all kills in the log and all later ones, for ever.
///
/// # Errors
/// If the log cannot be read.
pub async fn watch(log: &mut KernelLog, told: impl Fn(Vec<Kill>)) -> io::Result<()> {
    loop {
        let booted = booted();
        let mut kills = Vec::new();
        while let Some(record) = log.next_record()? {
            if let Some(kill) = kill(record, booted) {
                kills.push(kill);
                let older = kills.len().saturating_sub(MOST);
                kills.drain(..older);
            }
        }
        if !kills.is_empty() {
            told(kills);
            sleep(PAUSE).await;
        }
        log.more().await?;
    }
}

/// Parses a record of the log (kernel: `dump_oom_victim` of mm/oom_kill.c:
/// `oom-kill:constraint=...,task_memcg=/system/apid,task=apid,pid=321,uid=50`); `None` for another record.
fn kill(record: &[u8], booted: SystemTime) -> Option<Kill> {
    let record = kmsg::parse(record)?;
    // Only the kernel can write with its own facility.
    if record.priority / 8 != 0 {
        return None;
    }
    let (_, victim) = record.text.split_once(",task_memcg=/")?;
    let (cgroup, victim) = victim.split_once(",task=")?;
    let (process, _) = victim.rsplit_once(",pid=")?;
    let service = service(cgroup)?;
    let at = booted.checked_add(Duration::from_micros(record.microseconds))?;
    Some(Kill {
        service: service.to_string(),
        process: process.to_owned(),
        time: rfc3339(at),
    })
}

/// The service whose cgroup holds the process; `None` for pods and tools.
fn service(cgroup: &str) -> Option<Id> {
    if let Some(name) = below(cgroup, EXTENSIONS_CGROUP).filter(|name| !name.is_empty()) {
        return name.split('/').next().map(extension::id);
    }
    let own = table(ApiMode::Secure).into_iter().chain([trustd()]);
    let mut holding = own.filter(|spec| below(cgroup, &spec.cgroup).is_some());
    holding.next().map(|spec| spec.id)
}

/// The path below cgroup `of`, empty for `of` itself.
fn below<'a>(cgroup: &'a str, of: &str) -> Option<&'a str> {
    match cgroup.strip_prefix(of)? {
        "" => Some(""),
        rest => rest.strip_prefix('/'),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::sync::Mutex;

    use corten_base::panics::caught;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn record(cgroup: &str, process: &str) -> String {
        format!(
            "6,1500,5000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,\
             oom_memcg=/system,task_memcg=/{cgroup},task={process},pid=321,uid=50\n SUBSYSTEM=x\n"
        )
    }

    fn read(record: &str) -> Option<Kill> {
        kill(record.as_bytes(), SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn oom_kill_is_reported_with_service_and_time() {
        for (cgroup, service) in [
            ("system/apid", "apid"),
            ("system/trustd", "trustd"),
            ("system/runtime", "containerd"),
            ("system/extensions/ups/inner", "ext-ups"),
        ] {
            let kill = read(&record(cgroup, "a,pid=1")).unwrap();
            assert_eq!(kill.service, service);
            assert_eq!(kill.process, "a,pid=1");
            assert_eq!(kill.time, "1970-01-01T00:00:05Z");
        }
        // Memory of the whole machine ran out.
        let global = record("system/syslogd", "syslogd").replace("oom_memcg=/system", "global_oom");
        let text =
            "syslogd of service syslogd was killed at 1970-01-01T00:00:05Z, as memory ran out";
        assert_eq!(read(&global).unwrap().to_string(), text);
    }

    #[test]
    fn oom_kills_of_pods_and_forged_records_are_ignored() {
        let own = record("system/apid", "apid");
        for other in [
            record("kubepods/burstable/a/b", "nginx"),
            record("system/apidx", "x"),
            record("system", "x"),
            record("", "x"),
            // Written by a program.
            own.replacen("6,", "30,", 1),
            own.replacen(",task=", ";task=", 1),
            own.replacen("5000000", "18446744073709551615", 1),
            "6,1,2,-;NET: Registered PF_INET\n".to_owned(),
            ";".to_owned(),
            String::new(),
        ] {
            let kill = read(&other);
            assert!(
                kill.as_ref().is_none_or(|kill| kill.time.is_empty()),
                "{other}: {kill:?}"
            );
        }
    }

    #[test]
    fn extension_service_is_found_by_its_cgroup() {
        let text = b"name: ups\ncontainer: {entrypoint: /a}\nrestart: always\n";
        let declared = corten_extension::service::Service::parse(text).unwrap();
        let spec = extension::declare(&declared, None);
        assert_eq!(service(&spec.cgroup), Some(spec.id));
    }

    #[tokio::test]
    async fn invalid_kernel_log_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kmsg");
        KernelLog::open(&file).unwrap_err();
        // A file that cannot be polled.
        fs::write(&file, record("system/apid", "apid")).unwrap();
        KernelLog::open(&file).unwrap_err();
    }

    #[tokio::test]
    async fn each_oom_kill_is_reported_once_even_after_a_restart_of_the_reader() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kmsg");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let mut kernel = File::options().read(true).write(true).open(&path).unwrap();
        let mut log = KernelLog::open(&path).unwrap();
        let told = Mutex::new(Vec::new());
        for service in ["apid", "trustd"] {
            let text = record(&format!("system/{service}"), service);
            kernel.write_all(text.as_bytes()).unwrap();
            // The task panics in its report.
            let watched = watch(&mut log, |kills| {
                told.lock().unwrap().extend(kills);
                panic!("a bug");
            });
            caught(watched).await.unwrap_err();
        }
        let told = told.into_inner().unwrap();
        let services: Vec<&str> = told.iter().map(|kill| kill.service.as_str()).collect();
        assert_eq!(services, ["apid", "trustd"]);
    }
}
