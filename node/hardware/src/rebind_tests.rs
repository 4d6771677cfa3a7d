use corten_base::sample::{self, until};
use corten_resources::Store;

use super::*;

const DEVICE: &str = "0000:04:00.0";

/// A bus with one device whose default driver is `e1000`.
#[derive(Debug, Clone, Default)]
struct Pretended(Arc<Mutex<World>>);

#[derive(Debug, Default)]
struct World {
    is_there: bool,
    driver: String,
    chosen: String,
    drivers: BTreeSet<String>,
    /// A driver that refuses every device.
    refuses: String,
    mounted: Option<String>,
    probes: usize,
}

impl Pretended {
    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    fn with(drivers: &[&str]) -> Pretended {
        let bus = Pretended::default();
        bus.world().drivers = drivers.iter().map(|name| (*name).to_owned()).collect();
        bus.plug();
        bus
    }

    fn plug(&self) {
        let mut world = self.world();
        world.is_there = true;
        world.chosen = String::new();
        world.driver = "e1000".to_owned();
    }
}

impl Bus for Pretended {
    fn driver(&self, address: &str) -> Option<String> {
        let world = self.world();
        (world.is_there && address == DEVICE).then(|| world.driver.clone())
    }

    fn drivers(&self) -> BTreeSet<String> {
        self.world().drivers.clone()
    }

    fn carries(&self, _: &str) -> Option<String> {
        self.world().mounted.clone()
    }

    fn choose(&self, _: &str, driver: &str) -> io::Result<()> {
        driver.clone_into(&mut self.world().chosen);
        Ok(())
    }

    fn unbind(&self, _: &str) -> io::Result<()> {
        let mut world = self.world();
        match std::mem::take(&mut world.driver).is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(()),
        }
    }

    fn probe(&self, _: &str) -> io::Result<()> {
        let mut world = self.world();
        world.probes += 1;
        let driver = match &*world.chosen {
            "" => "e1000".to_owned(),
            chosen => chosen.to_owned(),
        };
        if world.driver.is_empty() && world.drivers.contains(&driver) && world.refuses != driver {
            world.driver = driver;
        }
        Ok(())
    }
}

fn wanted(driver: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(DEVICE.to_owned(), driver.to_owned())])
}

/// The driver of the device, and the error of the binding.
fn settled(memory: &mut Memory, bus: &Pretended, driver: &str) -> (String, String) {
    let mut statuses = memory.settle(bus, &wanted(driver));
    assert_eq!(statuses.len(), 1);
    let status = statuses.remove(0);
    assert_eq!((&*status.pci_id, &*status.target_driver), (DEVICE, driver));
    (status.driver, status.error)
}

fn had(driver: &str) -> (String, String) {
    (driver.to_owned(), String::new())
}

#[test]
fn device_gets_the_configured_driver_and_later_its_own_again() {
    let bus = Pretended::with(&["e1000", "vfio-pci", "uio"]);
    let mut memory = Memory::default();
    for driver in ["vfio-pci", "uio", "uio"] {
        assert_eq!(settled(&mut memory, &bus, driver), had(driver));
    }
    // A repeated request has no effect.
    assert_eq!(bus.world().probes, 2);
    assert!(memory.settle(&bus, &BTreeMap::new()).is_empty());
    assert_eq!(bus.driver(DEVICE).as_deref(), Some("e1000"));
    assert_eq!(bus.world().chosen, "");
    // A device that has its driver by default is left alone, also when the config drops it.
    assert_eq!(settled(&mut memory, &bus, "e1000"), had("e1000"));
    memory.settle(&bus, &BTreeMap::new());
    assert_eq!(bus.world().probes, 3);
}

#[test]
fn failed_rebind_is_tried_once_and_undone() {
    let bus = Pretended::with(&["e1000", "vfio-pci"]);
    bus.world().refuses = "vfio-pci".to_owned();
    let mut memory = Memory::default();
    for _ in 0..3 {
        let (driver, why) = settled(&mut memory, &bus, "vfio-pci");
        assert_eq!(driver, "e1000");
        assert!(
            why.starts_with("the driver vfio-pci does not accept it"),
            "{why}"
        );
        assert_eq!(bus.world().chosen, "");
    }
    // One attempt, and one to restore the default.
    assert_eq!(bus.world().probes, 2);
    // Another driver is available, perhaps after the module was reloaded.
    bus.world().refuses = String::new();
    bus.world().drivers.insert("nvme".to_owned());
    assert_eq!(settled(&mut memory, &bus, "vfio-pci"), had("vfio-pci"));
    // A changed config also causes a retry.
    bus.world().refuses = "uio".to_owned();
    bus.world().drivers.insert("uio".to_owned());
    assert!(!settled(&mut memory, &bus, "uio").1.is_empty());
    assert_eq!(settled(&mut memory, &bus, "vfio-pci"), had("vfio-pci"));
}

#[test]
fn rebind_waits_for_a_missing_device_or_driver() {
    let bus = Pretended::with(&["e1000"]);
    let mut memory = Memory::default();
    let (driver, why) = settled(&mut memory, &bus, "vfio-pci");
    assert_eq!(driver, "e1000");
    assert!(
        why.contains("no driver vfio-pci") && why.contains("KernelModuleConfig"),
        "{why}"
    );
    bus.world().drivers.insert("vfio-pci".to_owned());
    bus.world().mounted = Some("/var".to_owned());
    let (driver, why) = settled(&mut memory, &bus, "vfio-pci");
    assert_eq!((&*driver, why.contains("/var")), ("e1000", true), "{why}");
    bus.world().is_there = false;
    let (driver, why) = settled(&mut memory, &bus, "vfio-pci");
    assert_eq!((&*driver, why.contains("no device")), ("", true), "{why}");
    assert_eq!(bus.world().probes, 0);
    // The device is plugged in, removed, and plugged in again.
    bus.world().mounted = None;
    for _ in 0..2 {
        bus.plug();
        assert_eq!(settled(&mut memory, &bus, "vfio-pci"), had("vfio-pci"));
        bus.world().is_there = false;
        settled(&mut memory, &bus, "vfio-pci");
    }
    // A removed device has nothing to restore.
    memory.settle(&bus, &BTreeMap::new());
    assert_eq!(bus.world().probes, 2);
}

#[tokio::test]
async fn rebind_follows_the_config_and_new_drivers() {
    let bus = Pretended::with(&["e1000"]);
    let store = Store::new();
    let mut runtime = Runtime::new(store.clone());
    let config = watch::Sender::new(None);
    let (devices, drivers) = (watch::Sender::default(), watch::Sender::default());
    let configs = RebindConfigs {
        config: config.subscribe(),
    };
    runtime.add(configs).unwrap();
    let rebinds = Rebinds {
        bus: bus.clone(),
        devices: watch::Sender::<Told>::subscribe(&devices),
        drivers: drivers.subscribe(),
        memory: Arc::default(),
    };
    runtime.add(rebinds).unwrap();
    tokio::spawn(runtime.run(|notice| panic!("{notice}")));
    // The function number in the form of the reference's documentation.
    let document = "PCIDriverRebindConfig\nname: '0000:04:00.00'\ntargetDriver: vfio-pci";
    config.send_replace(Some(sample::kind(document)));
    until::<PciDriverRebindStatus>(&store, DEVICE, |status| {
        status.is_some_and(|status| status.error.contains("no driver vfio-pci"))
    })
    .await;
    bus.world().drivers.insert("vfio-pci".to_owned());
    drivers.send_replace(Told::default());
    until::<PciDriverRebindStatus>(&store, DEVICE, |status| {
        status.is_some_and(|status| status.driver == "vfio-pci" && status.error.is_empty())
    })
    .await;
    config.send_replace(Some(sample::config("", "")));
    until::<PciDriverRebindStatus>(&store, DEVICE, |status| status.is_none()).await;
    assert_eq!(bus.driver(DEVICE).as_deref(), Some("e1000"));
}
