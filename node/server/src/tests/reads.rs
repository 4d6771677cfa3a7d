//! Views of the machine and its services.

use super::{World, world};

#[tokio::test]
async fn the_system_is_read_from_this_machine() {
    let World {
        directory: _directory,
        mut client,
        ..
    } = world();
    let version = client
        .version(())
        .await
        .unwrap()
        .into_inner()
        .messages
        .remove(0);
    let own = corten_base::os_release::image_version();
    let tag = corten_api::version_tag(&own);
    assert_eq!(version.version.unwrap().tag, tag);
    assert!(!version.features.unwrap().rbac);
    let memory = client
        .memory(())
        .await
        .unwrap()
        .into_inner()
        .messages
        .remove(0)
        .meminfo
        .unwrap();
    assert!(memory.memtotal > memory.memfree && memory.memfree > 0);
    let load = client.load_avg(()).await.unwrap().into_inner();
    assert_eq!(load.messages.len(), 1);
    let stat = client
        .system_stat(())
        .await
        .unwrap()
        .into_inner()
        .messages
        .remove(0);
    assert!(stat.boot_time > 0 && !stat.cpu.is_empty());
    let cpus = client
        .cpu_info(())
        .await
        .unwrap()
        .into_inner()
        .messages
        .remove(0)
        .cpu_info;
    assert_eq!(cpus.len(), stat.cpu.len());
    client.disk_stats(()).await.unwrap();
    let devices = client
        .network_device_stats(())
        .await
        .unwrap()
        .into_inner()
        .messages
        .remove(0);
    assert!(devices.devices.iter().any(|device| device.name == "lo"));
    let mounts = client
        .mounts(())
        .await
        .unwrap()
        .into_inner()
        .messages
        .remove(0)
        .stats;
    assert!(mounts.iter().any(|mount| mount.mounted_on == "/"));
    assert!(
        !client.hostname(()).await.unwrap().into_inner().messages[0]
            .hostname
            .is_empty()
    );
}

#[tokio::test]
async fn services_are_listed_with_their_history() {
    let reply = world().client.service_list(()).await.unwrap().into_inner();
    let service = &reply.messages[0].services[0];
    assert_eq!(
        (service.id.as_str(), service.state.as_str()),
        ("udevd", "Running")
    );
    assert!(service.health.as_ref().unwrap().unknown);
    let event = &service.events.as_ref().unwrap().events[0];
    assert_eq!(
        (event.state.as_str(), event.ts.unwrap().seconds),
        ("Failed", 5)
    );
}
