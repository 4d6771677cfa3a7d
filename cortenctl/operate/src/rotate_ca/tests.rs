use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_client::configfile;
use corten_client::failure::Failure;
use corten_config::Document;
use corten_pki::{Algorithm, Ca};

use super::Step;
use super::execute::{Addon, Fleet, Mark, With, execute};
use super::plan::{Member, Plan};
use super::trust::{Der, Issuing, Trusted};

/// Timeout of the simulated waits.
const LIMIT: Duration = Duration::from_secs(60);

/// A CA of Kubernetes that is this many days old.
fn aged_ca(days: u64) -> Ca {
    let made = SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60);
    Ca::generate(Algorithm::EcdsaP256, "kubernetes", "", made).unwrap()
}

fn der(ca: &Ca) -> Der {
    Issuing::of(ca).der().unwrap()
}

/// A config with these CAs, in the old or the new form.
fn config(kind: &str, by_kind: bool, ca: Option<&Ca>, accepted: &[&Ca]) -> String {
    let machine = Ca::generate(Algorithm::Ed25519, "talos", "", SystemTime::now()).unwrap();
    let [crt, key] = [&machine.pem().crt, &machine.pem().key].map(|pem| STANDARD.encode(pem));
    let signs = kind == "controlplane";
    let mut text = format!(
        "version: v1alpha1\nmachine:\n  type: {kind}\n  token: abcdef.0123456789abcdef\n  ca: {{crt: {crt}{}}}\n\
         cluster:\n  controlPlane: {{endpoint: 'https://10.0.0.1:6443'}}\n",
        if signs {
            format!(", key: {key}")
        } else {
            String::new()
        }
    );
    if by_kind {
        let all: Vec<String> = accepted.iter().map(|ca| ca.pem().crt.clone()).collect();
        let mut document = serde_json::json!({
            "apiVersion": "v1alpha1", "kind": "KubeAPIServerCAConfig", "acceptedCAs": all,
        });
        if let Some(ca) = ca.filter(|_| signs) {
            document["issuingCA"] = serde_json::json!({"cert": ca.pem().crt, "key": ca.pem().key});
        }
        return format!("{text}---\n{document}\n");
    }
    if let Some(ca) = ca {
        let [crt, key] = [&ca.pem().crt, &ca.pem().key].map(|pem| STANDARD.encode(pem));
        let key = if signs {
            format!(", key: {key}")
        } else {
            String::new()
        };
        text.push_str(&format!("  ca: {{crt: {crt}{key}}}\n"));
    }
    let item = |ca: &&Ca| format!("{{crt: {}}}", STANDARD.encode(&ca.pem().crt));
    let all: Vec<String> = accepted.iter().map(item).collect();
    text + &format!("  acceptedCAs: [{}]\n", all.join(", "))
}

fn trusted(text: &str) -> Trusted {
    Trusted::of(&Document::parse(text.as_bytes()).unwrap()).unwrap()
}

fn member(name: &str, text: &str) -> Member {
    let document = Document::parse(text.as_bytes()).unwrap();
    Member {
        name: name.to_owned(),
        nodename: name.to_owned(),
        is_control_plane: document.machine.kind.is_control_plane(),
        trusted: trusted(text),
    }
}

fn plan(members: &[Member]) -> Plan {
    Plan::new(members, SystemTime::now()).unwrap()
}

/// The config after a step, as the node gets it.
fn after(text: &str, step: Step, plan: &Plan) -> String {
    let is_control_plane = text.contains("type: controlplane");
    let next = trusted(text)
        .after(step, &plan.change(), is_control_plane)
        .unwrap();
    let changed = configfile::patched(text.as_bytes().to_vec(), &next.patches()).unwrap();
    let changed = String::from_utf8(changed).unwrap();
    assert!(trusted(&changed) == next);
    changed
}

#[test]
fn every_form_of_the_config_goes_through_the_steps() {
    let (old, operators) = (aged_ca(100), aged_ca(50));
    for (kind, by_kind) in [
        ("controlplane", false),
        ("controlplane", true),
        ("worker", false),
        ("worker", true),
    ] {
        let control = member("cp", &config("controlplane", false, Some(&old), &[]));
        let signs = kind == "controlplane";
        // A worker in the new form only accepts.
        let text = match (signs, by_kind) {
            (false, true) => config(kind, by_kind, None, &[&old]),
            _ => config(kind, by_kind, Some(&old), &[]),
        };
        let mut plan = plan(&[control]);
        plan.kept = vec![der(&operators)];
        let new = plan.new_der.clone();
        let issues = |text: &str| trusted(text).issuing.map(|one| one.der().unwrap());

        let accepts = after(&text, Step::Accept, &plan);
        let all = trusted(&accepts).all().unwrap();
        assert_eq!(all, [der(&old), new.clone()], "{kind} {by_kind}");
        assert_eq!(issues(&accepts), issues(&text));

        let issued = after(&accepts, Step::Issue, &plan);
        let all = trusted(&issued).all().unwrap();
        assert_eq!(all, [new.clone(), der(&old)], "{kind} {by_kind}");
        let key = trusted(&issued).issuing.map(|one| one.key);
        match (signs, by_kind) {
            (true, _) => assert_eq!(key, Some(plan.new.pem().key.clone())),
            (false, false) => assert_eq!(key, Some(String::new())),
            (false, true) => assert_eq!(key, None),
        }

        let forgotten = after(&issued, Step::Forget, &plan);
        assert_eq!(
            trusted(&forgotten).all().unwrap(),
            [new],
            "{kind} {by_kind}"
        );
        // A step that was done before changes nothing.
        for (text, step) in [
            (&accepts, Step::Accept),
            (&issued, Step::Accept),
            (&issued, Step::Issue),
            (&forgotten, Step::Issue),
            (&forgotten, Step::Forget),
        ] {
            let same = trusted(text).after(step, &plan.change(), signs).unwrap();
            assert!(same == trusted(text), "{step:?} {kind} {by_kind}");
        }
    }
}

#[test]
fn cas_that_no_rotation_made_stay_accepted() {
    let old = aged_ca(100);
    let now = SystemTime::now();
    let own = Ca::generate(Algorithm::EcdsaP256, "example", "own", now).unwrap();
    let text = config("controlplane", false, Some(&old), &[&own]);
    let plan = plan(&[member("cp", &text)]);
    assert!(!plan.resumes);
    assert_eq!(plan.kept, [der(&own)]);
    assert_eq!(plan.forgotten, [der(&old)]);
    let mut text = text;
    for step in [Step::Accept, Step::Issue, Step::Forget] {
        text = after(&text, step, &plan);
    }
    let all = trusted(&text).all().unwrap();
    assert_eq!(all, [plan.new_der.clone(), der(&own)]);
}

#[test]
fn rsa_ca_of_an_imported_cluster_is_replaced() {
    let sample = |name| String::from_utf8(corten_corpus::sample("pki", name)).unwrap();
    let old = Ca::from_pem(&sample("rsa.crt"), &sample("rsa.key")).unwrap();
    for by_kind in [false, true] {
        let mut text = config("controlplane", by_kind, Some(&old), &[]);
        let plan = plan(&[member("cp", &text)]);
        assert_eq!(plan.forgotten, [der(&old)]);
        text = after(&text, Step::Accept, &plan);
        let key = trusted(&text).issuing.map(|one| one.key);
        assert_eq!(key.as_ref(), Some(&old.pem().key));
        for step in [Step::Issue, Step::Forget] {
            text = after(&text, step, &plan);
        }
        let all = trusted(&text).all().unwrap();
        assert_eq!(all, std::slice::from_ref(&plan.new_der));
    }
}

#[test]
fn rotation_that_was_interrupted_at_any_node_is_brought_to_its_end() {
    let old = aged_ca(100);
    let start = || {
        ["cp1", "cp2", "w1"].map(|name| match name {
            "w1" => config("worker", false, Some(&old), &[]),
            _ => config("controlplane", name == "cp2", Some(&old), &[]),
        })
    };
    let names = ["cp1", "cp2", "w1"];
    let members = |configs: &[String; 3]| -> Vec<Member> {
        names
            .iter()
            .zip(configs)
            .map(|(name, text)| member(name, text))
            .collect()
    };
    let steps = [Step::Accept, Step::Issue, Step::Forget];
    for done in 0..9 {
        let mut configs = start();
        let first = plan(&members(&configs));
        for number in 0..done {
            let (step, place) = (steps[number / 3], number % 3);
            let text = after(&configs[place], step, &first);
            configs[place] = text;
        }
        let second = plan(&members(&configs));
        // Until a node has the key of the new CA, a new one is made.
        assert_eq!(second.resumes, done > 3, "{done}");
        assert_eq!(second.new_der == first.new_der, done > 3, "{done}");
        for step in steps {
            configs = configs.map(|text| after(&text, step, &second));
        }
        for text in &configs {
            assert_eq!(
                trusted(text).all().unwrap(),
                std::slice::from_ref(&second.new_der),
                "{done}"
            );
        }
    }
}

#[test]
fn nodes_of_different_clusters_are_refused() {
    let (one, other) = (aged_ca(100), aged_ca(50));
    let control = || member("cp", &config("controlplane", false, Some(&one), &[]));
    let refused = |members: &[Member]| match Plan::new(members, SystemTime::now()) {
        Err(Failure::Call(why)) => format!("{why:#}"),
        Err(Failure::Usage(why)) => why,
        _ => panic!("it is not refused"),
    };
    for stranger in [
        config("controlplane", false, Some(&other), &[]),
        config("worker", true, None, &[&other]),
    ] {
        let why = refused(&[control(), member("x", &stranger)]);
        assert!(why.contains("different clusters"), "{why}");
    }
    let worker = member("w", &config("worker", false, Some(&one), &[]));
    assert!(refused(&[worker]).contains("none of the nodes is a control plane node"));
}

/// A simulated cluster: the log of operations, and its faults.
#[derive(Default)]
struct Made {
    log: Vec<String>,
    /// Operations that never succeed.
    broken: BTreeSet<&'static str>,
    /// Steps that were done before.
    done: BTreeSet<&'static str>,
    /// Checks until the last operation has taken effect.
    left: u32,
}

impl Made {
    fn did(&mut self, what: String) -> Result<(), String> {
        match self.broken.contains(&*what) {
            true => Err("it is broken".to_owned()),
            false => {
                self.log.push(what);
                Ok(())
            }
        }
    }

    fn look(&mut self, what: String) -> Result<(), String> {
        if self.left > 0 {
            self.left -= 1;
            return Err("not yet".to_owned());
        }
        self.did(what)
    }
}

impl Fleet for Made {
    async fn change(&mut self, member: &Member, step: Step) -> Result<Option<Mark>, String> {
        let what = format!("{step:?} {}", member.name);
        if self.done.contains(&*what) {
            return Ok(None);
        }
        self.left = 2;
        self.did(what)?;
        Ok(Some(Mark {
            kubelet: Some(7),
            manager: None,
        }))
    }

    async fn settled(
        &mut self,
        member: &Member,
        mark: Option<&Mark>,
        with: With,
    ) -> Result<(), String> {
        let kubelet = mark.and_then(|mark| mark.kubelet);
        self.look(format!("settled {} {kubelet:?} {with:?}", member.name))
    }

    async fn ready(&mut self, with: With) -> Result<(), String> {
        self.look(format!("ready {with:?}"))
    }

    async fn published(&mut self) -> Result<(), String> {
        self.look("published".to_owned())
    }

    async fn restart(&mut self, (_, name): Addon) -> Result<bool, String> {
        self.left = 2;
        self.did(format!("restart {name}"))?;
        // A cluster may have another program in place of kube-proxy.
        Ok(name != "kube-proxy")
    }

    async fn runs(&mut self, (_, name): Addon) -> Result<(), String> {
        self.look(format!("{name} runs"))
    }

    fn say(&mut self, _: &str) {}
}

fn cluster() -> [Member; 2] {
    let ca = aged_ca(100);
    [
        member("w", &config("worker", false, Some(&ca), &[])),
        member("cp", &config("controlplane", false, Some(&ca), &[])),
    ]
}

#[tokio::test(start_paused = true)]
async fn each_step_is_done_and_verified_on_every_node_before_the_next() {
    let mut made = Made::default();
    execute(&mut made, &cluster(), LIMIT).await.unwrap();
    let expected = [
        "ready Kubeconfig",
        "Accept cp",
        "settled cp Some(7) Kubeconfig",
        "Accept w",
        "settled w Some(7) Kubeconfig",
        "ready Both",
        "published",
        "restart kube-flannel",
        "kube-flannel runs",
        "restart kube-proxy",
        "restart coredns",
        "coredns runs",
        "Issue cp",
        "settled cp Some(7) Both",
        "Issue w",
        "settled w Some(7) Both",
        "ready New",
        "Forget w",
        "settled w Some(7) New",
        "Forget cp",
        "settled cp Some(7) New",
        "ready New",
    ];
    assert_eq!(made.log, expected);
}

#[tokio::test(start_paused = true)]
async fn a_failure_ends_the_rotation_before_the_next_node() {
    for (broken, last, why) in [
        ("ready Kubeconfig", None, "nothing was changed"),
        (
            "Accept w",
            Some("settled cp Some(7) Kubeconfig"),
            "node w: it is broken",
        ),
        (
            "settled cp Some(7) Both",
            Some("Issue cp"),
            "timeout after 60 s",
        ),
        ("published", Some("ready Both"), "it continues here"),
        (
            "Forget cp",
            Some("settled w Some(7) New"),
            "node cp: it is broken",
        ),
    ] {
        let mut made = Made {
            broken: BTreeSet::from([broken]),
            ..Made::default()
        };
        let told = execute(&mut made, &cluster(), LIMIT).await.unwrap_err();
        assert!(told.contains(why), "{told}");
        assert_eq!(made.log.last().map(String::as_str), last, "{broken}");
    }
}

#[tokio::test(start_paused = true)]
async fn node_that_was_changed_before_is_verified_without_a_restart() {
    let mut made = Made {
        done: BTreeSet::from(["Accept cp", "Accept w", "Issue cp"]),
        ..Made::default()
    };
    execute(&mut made, &cluster(), LIMIT).await.unwrap();
    let log: Vec<&str> = made.log.iter().map(String::as_str).collect();
    assert!(!log.contains(&"Accept cp") && !log.contains(&"Issue cp"));
    assert!(log.contains(&"settled cp None Both"), "{log:?}");
    assert!(log.contains(&"Issue w"));
}
