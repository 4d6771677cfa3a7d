//! Tests the engine on a fake kernel that can refuse steps.

use std::sync::Mutex;
use std::time::Duration;

use corten_types::network_spec::{Bond, Layer, Vlan};

use super::*;
use crate::layers::{Specs, route};
use crate::wireguard::tests::take;

pub(super) const LAYER: Layer = Layer::Configuration;

/// A kernel's network, and the text of the steps it refuses.
#[derive(Debug, Default)]
pub(super) struct Fake {
    pub(super) found: Mutex<Found>,
    refuses: Mutex<Vec<&'static str>>,
    /// Whether its refusals are transient.
    is_busy: Mutex<bool>,
    taken: Mutex<Vec<String>>,
}

impl Kernel for Fake {
    async fn look(&self) -> Result<Found, String> {
        Ok(self.found.lock().unwrap().clone())
    }

    async fn perform(&self, step: &Step) -> Result<(), Refusal> {
        let text = step.to_string();
        if self
            .refuses
            .lock()
            .unwrap()
            .iter()
            .any(|word| text.contains(word))
        {
            return Err(Refusal {
                why: "refused".to_owned(),
                passes: *self.is_busy.lock().unwrap(),
            });
        }
        self.taken.lock().unwrap().push(text);
        self.take(step);
        Ok(())
    }
}

impl Fake {
    /// A fake with these devices.
    pub(super) fn with(links: &[&str]) -> Fake {
        let fake = Fake::default();
        for name in links {
            fake.add(name, "");
        }
        fake
    }

    pub(super) fn add(&self, name: &str, kind: &str) {
        let mut found = self.found.lock().unwrap();
        let last = found.links.values().map(|link| link.index).max();
        let link = FoundLink {
            index: last.unwrap_or(0) + 1,
            kind: kind.to_owned(),
            mtu: 1500,
            takes_multicast: true,
            ..FoundLink::default()
        };
        found.links.insert(name.to_owned(), link);
    }

    fn take(&self, step: &Step) {
        if let Step::Make(spec) = step {
            self.add(&spec.name, spec.kind);
        }
        let mut found = self.found.lock().unwrap();
        let found = &mut *found;
        let index = |found: &Found, name: &str| found.links.get(name).map_or(0, |link| link.index);
        match step {
            Step::Make(spec) => {
                let settings = spec.bond_master.as_ref().map(bond::made_with);
                let link = found.links.get_mut(&spec.name).unwrap();
                link.bond = settings.unwrap_or_default();
            }
            Step::Bond(name, settings) => {
                let known = &mut found.links.get_mut(name).unwrap().bond;
                let kind = std::mem::discriminant::<InfoBond>;
                known.retain(|old| !settings.iter().any(|new| kind(new) == kind(old)));
                known.extend(settings.iter().cloned());
            }
            Step::Delete(name) => {
                let gone = found.links.remove(name).unwrap().index;
                found.addresses.retain(|(link, _), _| *link != gone);
                found.routes.retain(|route| route.link != gone);
            }
            Step::Up(name, on) => {
                let link = found.links.get_mut(name).unwrap();
                link.is_up = *on;
                let index = link.index;
                found.routes.retain(|route| *on || route.link != index);
            }
            Step::Wireguard(name, change) => {
                let link = found.links.get_mut(name).unwrap();
                take(change, link.wireguard.get_or_insert_default());
            }
            Step::Mtu(name, mtu) => found.links.get_mut(name).unwrap().mtu = *mtu,
            Step::Master(name, master) => {
                let master = master.as_deref().map_or(0, |master| index(found, master));
                found.links.get_mut(name).unwrap().master = master;
            }
            Step::Primary(bond, port) => {
                let port = port.as_deref().map_or(0, |port| index(found, port));
                found.links.get_mut(bond).unwrap().primary = port;
            }
            Step::AddAddress(spec) => {
                let index = index(found, &spec.link_name);
                found.addresses.insert((index, spec.address), true);
            }
            Step::RemoveAddress(spec) => {
                let gone = index(found, &spec.link_name);
                found.addresses.remove(&(gone, spec.address));
            }
            Step::AddRoute(spec) | Step::RemoveRoute(spec) => {
                let route = FoundRoute {
                    table: spec.table,
                    dst: spec.dst,
                    gateway: spec.gateway,
                    priority: spec.priority,
                    link: index(found, &spec.out_link_name),
                };
                found.routes.remove(&route);
                if matches!(step, Step::AddRoute(_)) {
                    found.routes.insert(route);
                }
            }
            _ => {}
        }
    }

    pub(super) fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.taken.lock().unwrap())
    }

    pub(super) fn refuse(&self, words: &[&'static str]) {
        *self.refuses.lock().unwrap() = words.to_vec();
    }
}

pub(super) fn prefix(text: &str) -> Prefix {
    let (address, length) = text.split_once('/').unwrap();
    Prefix {
        address: address.parse().unwrap(),
        length: length.parse().unwrap(),
    }
}

pub(super) fn all(specs: &Specs) -> Units {
    units(
        specs.links.iter().cloned(),
        specs.addresses.iter().cloned(),
        specs.routes.iter().cloned(),
    )
}

/// A link with an address and a default route.
fn eth0(address: &str, gateway: &str) -> Units {
    let mut specs = Specs::default();
    specs.link(LAYER, "eth0");
    specs.address(LAYER, "eth0", prefix(address), 0);
    let gateway = gateway.parse().unwrap();
    let everywhere = Prefix::everywhere(gateway);
    specs
        .routes
        .push(route(LAYER, "eth0", everywhere, Some(gateway)));
    all(&specs)
}

pub(super) async fn apply_to(fake: &Fake, memory: &mut Memory, wanted: &Units) -> Vec<String> {
    apply(fake, memory, wanted, Instant::now()).await.unwrap()
}

#[tokio::test]
async fn existing_settings_are_not_applied_again() {
    let (fake, mut memory) = (Fake::with(&["eth0"]), Memory::default());
    let wanted = eth0("10.0.0.2/24", "10.0.0.1");
    assert!(apply_to(&fake, &mut memory, &wanted).await.is_empty());
    let expected = [
        "set eth0 up",
        "add the address 10.0.0.2/24 to eth0",
        "add the route to 0.0.0.0/0",
    ];
    assert_eq!(fake.taken(), expected);
    assert!(apply_to(&fake, &mut memory, &wanted).await.is_empty());
    assert!(fake.taken().is_empty());
    // An unplugged cable, or an operator, removes the route.
    fake.found.lock().unwrap().routes.clear();
    apply_to(&fake, &mut memory, &wanted).await;
    assert_eq!(fake.taken(), ["add the route to 0.0.0.0/0"]);
}

#[tokio::test]
async fn gateway_route_waits_for_an_address_of_its_link() {
    let (fake, mut memory) = (Fake::with(&["eth0"]), Memory::default());
    let complete = eth0("10.0.0.2/24", "10.0.0.1");
    let mut early = complete.clone();
    early.get_mut("eth0").unwrap().addresses.clear();
    assert!(apply_to(&fake, &mut memory, &early).await.is_empty());
    assert_eq!(fake.taken(), ["set eth0 up"]);
    assert!(apply_to(&fake, &mut memory, &complete).await.is_empty());
    let expected = [
        "add the address 10.0.0.2/24 to eth0",
        "add the route to 0.0.0.0/0",
    ];
    assert_eq!(fake.taken(), expected);
    // A route onto the link leads to the gateway as well (platforms with addresses of /32).
    let mut direct = early.clone();
    let unit = direct.get_mut("eth0").unwrap();
    unit.routes
        .push(route(LAYER, "eth0", prefix("10.0.0.1/32"), None));
    let (fake, mut memory) = (Fake::with(&["eth0"]), Memory::default());
    apply_to(&fake, &mut memory, &direct).await;
    let expected = [
        "set eth0 up",
        "add the route to 10.0.0.1/32",
        "add the route to 0.0.0.0/0",
    ];
    assert_eq!(fake.taken(), expected);
}

#[tokio::test]
async fn removed_settings_are_deleted_and_foreign_ones_stay() {
    let (fake, mut memory) = (Fake::with(&["eth0"]), Memory::default());
    fake.found
        .lock()
        .unwrap()
        .addresses
        .insert((1, prefix("10.9.9.9/32")), true);
    apply_to(&fake, &mut memory, &eth0("10.0.0.2/24", "10.0.0.1")).await;
    fake.taken();
    // Within the same network, the old address must go first.
    apply_to(&fake, &mut memory, &eth0("10.0.0.3/24", "10.0.0.1")).await;
    assert_eq!(
        fake.taken(),
        [
            "remove the address 10.0.0.2/24 from eth0",
            "add the address 10.0.0.3/24 to eth0"
        ]
    );
    // For another network, the new address comes first.
    apply_to(&fake, &mut memory, &eth0("10.1.0.3/24", "10.0.0.1")).await;
    assert_eq!(
        fake.taken(),
        [
            "add the address 10.1.0.3/24 to eth0",
            "remove the address 10.0.0.3/24 from eth0"
        ]
    );
    apply_to(&fake, &mut memory, &Units::new()).await;
    let found = fake.look().await.unwrap();
    assert!(found.routes.is_empty());
    assert_eq!(
        found.addresses.into_keys().collect::<Vec<_>>(),
        [(1, prefix("10.9.9.9/32"))]
    );
}

#[tokio::test]
async fn refused_change_is_rolled_back() {
    let (fake, mut memory) = (Fake::with(&["eth0"]), Memory::default());
    let good = eth0("10.0.0.2/24", "10.0.0.1");
    apply_to(&fake, &mut memory, &good).await;
    let before = fake.look().await.unwrap();
    fake.taken();
    fake.refuse(&["add the route"]);
    let bad = eth0("10.5.0.2/24", "10.6.0.1");
    let complaints = apply_to(&fake, &mut memory, &bad).await;
    let [complaint] = complaints.as_slice() else {
        panic!("{complaints:?}");
    };
    // The rollback needs the old route, which the fake refuses as well; the message tells both.
    assert!(complaint.starts_with(
        "cannot add the route to 0.0.0.0/0: refused; the previous settings cannot be restored"
    ));
    fake.refuse(&[]);
    let mut memory = Memory::default();
    apply_to(&fake, &mut memory, &good).await;
    fake.refuse(&["add the address 10.5.0.2"]);
    let complaints = apply_to(&fake, &mut memory, &bad).await;
    assert_eq!(
        complaints,
        ["cannot add the address 10.5.0.2/24 to eth0: refused; the previous settings are restored"]
    );
    assert_eq!(fake.look().await.unwrap(), before);
    // The same change would fail again, so the engine leaves the network alone.
    fake.taken();
    assert!(apply_to(&fake, &mut memory, &bad).await.is_empty());
    assert!(fake.taken().is_empty());
    // Once something about the link changes, the engine retries.
    fake.refuse(&[]);
    fake.found
        .lock()
        .unwrap()
        .links
        .get_mut("eth0")
        .unwrap()
        .mtu = 1400;
    assert!(apply_to(&fake, &mut memory, &bad).await.is_empty());
    assert!(
        fake.taken()
            .contains(&"add the address 10.5.0.2/24 to eth0".to_owned())
    );
}

#[tokio::test]
async fn temporary_failure_is_retried_with_backoff() {
    let (fake, mut memory) = (Fake::with(&["eth0"]), Memory::default());
    apply_to(&fake, &mut memory, &eth0("10.0.0.2/24", "10.0.0.1")).await;
    fake.taken();
    fake.refuse(&["add the address 10.5.0.2"]);
    *fake.is_busy.lock().unwrap() = true;
    let wanted = eth0("10.5.0.2/24", "10.5.0.1");
    let mut now = Instant::now();
    let refused = |pause: u64| {
        let what = "cannot add the address 10.5.0.2/24 to eth0: refused; the previous settings are restored";
        [format!("{what}; it is tried again in {pause} s")]
    };
    let all = apply(&fake, &mut memory, &wanted, now).await.unwrap();
    assert_eq!(all, refused(5));
    for (pause, next) in [
        (5, 10),
        (10, 20),
        (20, 40),
        (40, 80),
        (80, 160),
        (160, 300),
        (300, 300),
    ] {
        let again = memory.again().unwrap();
        assert_eq!(again, now + Duration::from_secs(pause));
        let early = again - Duration::from_millis(1);
        let nothing = apply(&fake, &mut memory, &wanted, early).await.unwrap();
        assert!(nothing.is_empty() && fake.taken().is_empty());
        now = again;
        let all = apply(&fake, &mut memory, &wanted, now).await.unwrap();
        assert_eq!(all, refused(next));
    }
    fake.refuse(&[]);
    now += Duration::from_secs(300);
    let all = apply(&fake, &mut memory, &wanted, now).await.unwrap();
    assert!(all.is_empty() && memory.again().is_none());
    let gives = "add the address 10.5.0.2/24 to eth0".to_owned();
    assert!(fake.taken().contains(&gives));
}

#[tokio::test]
async fn deleted_route_is_restored_on_a_failed_link() {
    let (fake, mut memory) = (Fake::with(&["eth0"]), Memory::default());
    apply_to(&fake, &mut memory, &eth0("10.0.0.2/24", "10.0.0.1")).await;
    fake.refuse(&["add the address 10.5.0.2"]);
    let bad = eth0("10.5.0.2/24", "10.6.0.1");
    assert_eq!(apply_to(&fake, &mut memory, &bad).await.len(), 1);
    let before = fake.look().await.unwrap();
    assert_eq!(before.routes.len(), 1);
    // Another program's route does not concern this link.
    fake.taken();
    let mut others = before.routes.clone();
    others.extend(before.routes.iter().cloned().map(|mut route| {
        route.table = 7;
        route
    }));
    fake.found.lock().unwrap().routes = others;
    assert!(apply_to(&fake, &mut memory, &bad).await.is_empty());
    assert!(fake.taken().is_empty());
    fake.found.lock().unwrap().routes.clear();
    assert_eq!(apply_to(&fake, &mut memory, &bad).await.len(), 1);
    assert_eq!(fake.look().await.unwrap(), before);
    fake.taken();
    assert!(apply_to(&fake, &mut memory, &bad).await.is_empty());
    assert!(fake.taken().is_empty());
}

#[tokio::test]
async fn first_failed_change_keeps_its_applied_part() {
    let (fake, mut memory) = (Fake::with(&["eth0"]), Memory::default());
    fake.refuse(&["add the route"]);
    let wanted = eth0("10.0.0.2/24", "10.6.0.1");
    assert_eq!(apply_to(&fake, &mut memory, &wanted).await.len(), 1);
    assert_eq!(fake.look().await.unwrap().addresses.len(), 1);
}

/// The settings of a lease come to a link that the engine has already set up without any.
#[tokio::test]
async fn first_address_stays_when_the_link_refuses_another_part() {
    for refused in ["set the MTU", "add the route"] {
        let (fake, mut memory) = (Fake::with(&["eth0"]), Memory::default());
        let mut specs = Specs::default();
        specs.link(LAYER, "eth0");
        assert!(apply_to(&fake, &mut memory, &all(&specs)).await.is_empty());
        let mut leased = eth0("10.0.0.2/24", "10.0.0.1");
        let link = leased.get_mut("eth0").unwrap().link.as_mut();
        link.unwrap().mtu = 9000;
        fake.refuse(&[refused]);
        let complaints = apply_to(&fake, &mut memory, &leased).await;
        assert!(complaints[0].ends_with(": refused"), "{complaints:?}");
        let found = fake.look().await.unwrap();
        assert!(found.addresses.contains_key(&(1, prefix("10.0.0.2/24"))));
        assert_eq!(found.routes.is_empty(), refused == "add the route");
        // The engine does not repeat the attempt while nothing changes.
        assert!(apply_to(&fake, &mut memory, &leased).await.is_empty());
    }
}

#[tokio::test]
async fn bond_without_an_address_returns_when_another_one_is_refused() {
    use corten_config::kinds::BondMode;
    let (fake, mut memory) = (Fake::with(&["eth0"]), Memory::default());
    let mut old = bonded(BondMode::BalanceRr);
    old.get_mut("bond0").unwrap().addresses.clear();
    assert!(apply_to(&fake, &mut memory, &old).await.is_empty());
    fake.refuse(&["add the address"]);
    let complaints = apply_to(&fake, &mut memory, &bonded(BondMode::Lacp)).await;
    assert!(complaints[0].ends_with("the previous settings are restored"));
}

#[tokio::test]
async fn failed_removal_is_remembered_and_retried() {
    let (fake, mut memory) = (Fake::with(&["eth0"]), Memory::default());
    fake.refuse(&["add the route"]);
    let wanted = eth0("10.0.0.2/24", "10.6.0.1");
    assert_eq!(apply_to(&fake, &mut memory, &wanted).await.len(), 1);
    fake.refuse(&["remove the address 10.0.0.2"]);
    *fake.is_busy.lock().unwrap() = true;
    let (nothing, mut now) = (Units::new(), Instant::now());
    // The second consecutive refusal doubles the pause.
    for pause in [10, 20] {
        let all = apply(&fake, &mut memory, &nothing, now).await.unwrap();
        let what = "cannot remove the address 10.0.0.2/24 from eth0: refused";
        assert_eq!(all, [format!("{what}; it is tried again in {pause} s")]);
        now = memory.again().unwrap();
    }
    fake.refuse(&[]);
    let all = apply(&fake, &mut memory, &nothing, now).await.unwrap();
    assert!(all.is_empty() && memory.again().is_none());
    assert!(fake.look().await.unwrap().addresses.is_empty());
}

pub(super) fn bonded(mode: corten_config::kinds::BondMode) -> Units {
    let mut specs = Specs::default();
    for member in ["eth0", "eth1"] {
        "bond0".clone_into(&mut specs.link(LAYER, member).bond_name);
    }
    let vlan = specs.link(LAYER, "a-vlan");
    (vlan.logical, vlan.kind) = (true, "vlan");
    "bond0".clone_into(&mut vlan.parent_name);
    let protocol = "802.1q";
    vlan.vlan = Some(Vlan { id: 5, protocol });
    let bond = specs.link(LAYER, "bond0");
    (bond.logical, bond.kind) = (true, "bond");
    bond.bond_master = Some(Bond {
        mode,
        ..Bond::default()
    });
    specs.address(LAYER, "bond0", prefix("10.0.0.2/24"), 0);
    all(&specs)
}

#[tokio::test]
async fn links_are_created_in_dependency_order_and_recreated_when_changed() {
    use corten_config::kinds::BondMode;
    let (fake, mut memory) = (Fake::with(&["eth0"]), Memory::default());
    let rr = bonded(BondMode::BalanceRr);
    assert!(apply_to(&fake, &mut memory, &rr).await.is_empty());
    let expected = [
        "create the bond bond0",
        "set bond0 up",
        "add the address 10.0.0.2/24 to bond0",
        "create the vlan a-vlan",
        "set a-vlan up",
        "add eth0 to bond0",
        "set eth0 up",
    ];
    assert_eq!(fake.taken(), expected);
    // A card that appears later joins.
    fake.add("eth1", "");
    assert!(apply_to(&fake, &mut memory, &rr).await.is_empty());
    assert_eq!(fake.taken(), ["add eth1 to bond0", "set eth1 up"]);
    // A new mode needs a new bond; if the kernel refuses it, the old bond returns.
    let lacp = bonded(BondMode::Lacp);
    assert!(apply_to(&fake, &mut memory, &lacp).await.is_empty());
    assert_eq!(fake.taken()[..2], ["remove bond0", "create the bond bond0"]);
    let found = fake.look().await.unwrap();
    let bond = found.links["bond0"].index;
    assert_eq!(
        (found.links["eth0"].master, found.links["eth1"].master),
        (bond, bond)
    );
    // The engine deletes only the virtual links.
    apply_to(&fake, &mut memory, &Units::new()).await;
    let names: Vec<String> = fake.look().await.unwrap().links.into_keys().collect();
    assert_eq!(names, ["eth0", "eth1"]);
}

#[tokio::test]
async fn link_is_removed_before_the_specs_of_its_addresses() {
    use corten_config::kinds::BondMode;
    let (fake, mut memory) = (Fake::with(&["eth0"]), Memory::default());
    let mut wanted = bonded(BondMode::BalanceRr);
    assert!(apply_to(&fake, &mut memory, &wanted).await.is_empty());
    for unit in wanted.values_mut() {
        unit.link = None;
    }
    assert!(apply_to(&fake, &mut memory, &wanted).await.is_empty());
    assert!(apply_to(&fake, &mut memory, &Units::new()).await.is_empty());
    let names: Vec<String> = fake.look().await.unwrap().links.into_keys().collect();
    assert_eq!(names, ["eth0"]);
}

#[tokio::test]
async fn physical_device_is_not_taken_for_a_virtual_link() {
    let (fake, mut memory) = (Fake::with(&["bond0"]), Memory::default());
    let wanted = bonded(corten_config::kinds::BondMode::Lacp);
    let why = "cannot create the bond bond0: a physical link of that name already exists";
    assert_eq!(apply_to(&fake, &mut memory, &wanted).await, [why]);
    assert!(!fake.taken().iter().any(|step| step.contains("remove")));
    // Removing the unit from the config and adding it again repeats the message.
    apply_to(&fake, &mut memory, &Units::new()).await;
    assert_eq!(apply_to(&fake, &mut memory, &wanted).await, [why]);
}

#[tokio::test]
async fn mtu_returns_to_the_default_of_the_link() {
    let (fake, mut memory) = (Fake::with(&["eth0"]), Memory::default());
    let mut specs = Specs::default();
    specs.link(LAYER, "eth0").mtu = 9000;
    apply_to(&fake, &mut memory, &all(&specs)).await;
    assert_eq!(fake.look().await.unwrap().links["eth0"].mtu, 9000);
    specs.link(LAYER, "eth0").mtu = 0;
    apply_to(&fake, &mut memory, &all(&specs)).await;
    assert_eq!(fake.look().await.unwrap().links["eth0"].mtu, 1500);
}
