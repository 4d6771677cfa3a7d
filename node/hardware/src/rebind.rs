//! Binds PCI devices to the drivers of the config, and restores the default when the config drops them.
//!
//! Interface: `driver_override`, `unbind`, `drivers_probe` (Documentation/ABI/testing/sysfs-bus-pci). Never retries a
//! refused device before the config or the set of drivers changes: a bind causes events, so a retry would be endless.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use corten_base::console;
use corten_config::Document;
use corten_resources::Draft;
use corten_resources::controller::{
    Context, Controller, Dependency, Failure, GraphError, Input, Output, Runtime,
};
use corten_types::rebind::{PciDriverRebindConfig, PciDriverRebindStatus};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::pci_bus::{Bus, PciBus};
use crate::Sources;
use crate::uevents::Told;

/// Adds the controllers of this file.
pub(crate) fn add(runtime: &mut Runtime, sources: &Sources) -> Result<(), GraphError> {
    runtime.add(RebindConfigs {
        config: sources.config.clone(),
    })?;
    runtime.add(Rebinds {
        bus: PciBus {
            sysfs: "/sys".into(),
        },
        devices: sources.uevents.follow("pci"),
        drivers: sources.uevents.follow("drivers"),
        memory: Arc::default(),
    })
}

/// Shows the driver bindings of the config.
#[derive(Debug, Clone)]
struct RebindConfigs {
    config: watch::Receiver<Option<Document>>,
}

impl Controller for RebindConfigs {
    fn name(&self) -> &'static str {
        "hardware.PCIDriverRebindConfigController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<PciDriverRebindConfig>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let config = self.config.borrow_and_update().clone();
            let drivers = config.iter().flat_map(Document::pci_drivers);
            context.start_outputs();
            for (address, driver) in drivers {
                let spec = PciDriverRebindConfig {
                    pci_id: address.clone(),
                    target_driver: driver.to_owned(),
                };
                context.put(Draft::new(&address, spec))?;
            }
            context.remove_others::<PciDriverRebindConfig>()?;
            if self.config.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

/// Results of past actions; it outlives a restart of the controller.
#[derive(Debug, Default)]
struct Memory {
    /// Devices restricted to a driver of the config.
    chosen: BTreeSet<String>,
    /// Failed attempts.
    refused: BTreeMap<String, Refusal>,
    /// Last console message about each device.
    told: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Refusal {
    target: String,
    /// Drivers that were available then.
    drivers: BTreeSet<String>,
    why: String,
}

/// Binds devices to the drivers of the config.
#[derive(Debug, Clone)]
struct Rebinds<B> {
    bus: B,
    /// Signals that devices were added or removed, or their driver changed.
    devices: watch::Receiver<Told>,
    /// Signals that drivers were added or removed.
    drivers: watch::Receiver<Told>,
    memory: Arc<Mutex<Memory>>,
}

impl<B: Bus> Controller for Rebinds<B> {
    fn name(&self) -> &'static str {
        "hardware.PCIDriverRebindController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<PciDriverRebindConfig>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<PciDriverRebindStatus>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            tokio::select! {
                () = context.event() => {}
                Ok(()) = self.devices.changed() => {}
                Ok(()) = self.drivers.changed() => {}
            }
            self.devices.mark_unchanged();
            self.drivers.mark_unchanged();
            let wanted: BTreeMap<String, String> = context
                .list::<PciDriverRebindConfig>()?
                .iter()
                .map(|spec| (spec.pci_id.clone(), spec.target_driver.clone()))
                .collect();
            let (bus, memory) = (self.bus.clone(), self.memory.clone());
            // A driver may release a device slowly.
            let settle = move || {
                let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
                memory.settle(&bus, &wanted)
            };
            let statuses = spawn_blocking(settle).await?;
            context.start_outputs();
            for status in statuses {
                let address = status.pci_id.clone();
                context.put(Draft::new(&address, status))?;
            }
            context.remove_others::<PciDriverRebindStatus>()?;
        }
    }
}

impl Memory {
    /// Binds devices to the wanted drivers, given by address, and releases all others.
    fn settle(
        &mut self,
        bus: &impl Bus,
        wanted: &BTreeMap<String, String>,
    ) -> Vec<PciDriverRebindStatus> {
        let dropped = |address: &String| !wanted.contains_key(address);
        let released: Vec<String> = self
            .chosen
            .iter()
            .filter(|it| dropped(it))
            .cloned()
            .collect();
        for address in &released {
            self.chosen.remove(address);
            match release(bus, address) {
                Ok(()) => console::say(&format!(
                    "PCI device {address}: the kernel chooses its driver again"
                )),
                Err(error) => console::warn(&format!(
                    "PCI device {address} cannot get its own driver back: {error}"
                )),
            }
        }
        self.refused
            .retain(|address, refusal| wanted.get(address) == Some(&refusal.target));
        self.told.retain(|address, _| !dropped(address));
        let status = |(address, target): (&String, &String)| {
            let error = self.bind(bus, address, target).err().unwrap_or_default();
            self.tell(address, target, &error);
            PciDriverRebindStatus {
                pci_id: address.clone(),
                target_driver: target.clone(),
                driver: bus.driver(address).unwrap_or_default(),
                error,
            }
        };
        wanted.iter().map(status).collect()
    }

    fn tell(&mut self, address: &str, target: &str, error: &str) {
        let before = self.told.insert(address.to_owned(), error.to_owned());
        if before.as_deref() == Some(error) {
            return;
        }
        if error.is_empty() {
            console::say(&format!("PCI device {address} has the driver {target}"));
        } else {
            console::warn(&format!("PCI device {address}: {error}"));
        }
    }

    /// Binds a device; the error gives the reason and the remedy.
    fn bind(&mut self, bus: &impl Bus, address: &str, target: &str) -> Result<(), String> {
        let Some(driver) = bus.driver(address) else {
            self.refused.remove(address);
            return Err("no device has this address; waiting for it".to_owned());
        };
        if driver == target {
            return Ok(());
        }
        let drivers = bus.drivers();
        let refusal = self.refused.get(address);
        if let Some(refusal) = refusal.filter(|refusal| refusal.drivers == drivers) {
            return Err(refusal.why.clone());
        }
        if !drivers.contains(target) {
            return Err(format!(
                "there is no driver {target}; waiting for it: a KernelModuleConfig loads its module"
            ));
        }
        if let Some(user) = bus.carries(address) {
            return Err(format!("it keeps the driver {driver}: {user} needs it"));
        }
        let Err(error) = take(bus, address, &driver, target) else {
            self.refused.remove(address);
            self.chosen.insert(address.to_owned());
            return Ok(());
        };
        self.chosen.remove(address);
        let again = match release(bus, address) {
            Ok(()) => String::new(),
            Err(error) => format!("; and it cannot get its own driver back: {error}"),
        };
        let why = format!("the driver {target} does not accept it: {error}{again}");
        let refusal = Refusal {
            target: target.to_owned(),
            drivers,
            why: why.clone(),
        };
        self.refused.insert(address.to_owned(), refusal);
        Err(why)
    }
}

/// Moves a device from its driver, if any, to another.
fn take(bus: &impl Bus, address: &str, driver: &str, target: &str) -> io::Result<()> {
    bus.choose(address, target)?;
    if !driver.is_empty() {
        bus.unbind(address)?;
    }
    bus.probe(address)?;
    if bus.driver(address).as_deref() == Some(target) {
        return Ok(());
    }
    Err(io::Error::other("the kernel's log may say why (dmesg)"))
}

/// Lets the kernel choose the driver again. A device in use keeps its driver.
fn release(bus: &impl Bus, address: &str) -> io::Result<()> {
    let Some(driver) = bus.driver(address) else {
        return Ok(());
    };
    bus.choose(address, "")?;
    if bus.carries(address).is_some() {
        return Ok(());
    }
    if !driver.is_empty() {
        bus.unbind(address)?;
    }
    bus.probe(address)
}

#[cfg(test)]
#[path = "rebind_tests.rs"]
mod tests;
