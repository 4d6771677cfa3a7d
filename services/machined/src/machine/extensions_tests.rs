//! Tests of the services of extensions: their service files, and the files of their configs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use corten_base::sample;
use corten_extension::service::NetworkPart;
use corten_server::node::{ServiceState, ServiceView};
use corten_supervisor::supervisor::container::make_fifo;
use corten_supervisor::supervisor::testing::{spec, world};
use tokio::runtime::Handle;

use super::*;

fn config(contents: &[&str]) -> ExtensionServiceConfig {
    let file = |content: &&str| format!("- {{mountPath: /etc/{content}, content: {content}}}\n");
    let files: String = contents.iter().map(file).collect();
    let document = sample::kind(&format!(
        "ExtensionServiceConfig\nname: a\nconfigFiles:\n{files}"
    ));
    document
        .all::<ExtensionServiceConfig>()
        .next()
        .unwrap()
        .clone()
}

#[test]
fn extension_files_follow_the_config_and_are_replaced_atomically() {
    let text = b"name: a\ncontainer: {entrypoint: /a}\nrestart: always\n";
    let service = Service::parse(text).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let files = || {
        let entries = fs::read_dir(directory.path().join("a")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut texts: Vec<String> = paths
            .map(|path| fs::read_to_string(path).unwrap())
            .collect();
        texts.sort();
        texts
    };
    let give = |config: Option<&ExtensionServiceConfig>| {
        write_files(directory.path(), &service, config).unwrap();
        withdraw(directory.path(), &service, config).unwrap();
    };
    // No file was ever written.
    give(None);
    let first = config(&["old", "stays"]);
    give(Some(&first));
    assert_eq!(files(), ["old", "stays"]);
    let stays = directory
        .path()
        .join("a")
        .join(file_name(&service, &first.config_files[1]));
    // A running container has the file open.
    let mounted = fs::File::open(stays).unwrap();
    give(Some(&config(&["new", "stays"])));
    assert_eq!(files(), ["new", "stays"]);
    assert_eq!(io::read_to_string(mounted).unwrap(), "stays");
    give(None);
    assert!(files().is_empty());
}

#[tokio::test]
async fn extension_service_that_needs_a_config_never_starts_without_it() {
    let text =
        "name: a\ncontainer: {entrypoint: /a}\ndepends: [{configuration: true}]\nrestart: always\n";
    let service = Service::parse(text.as_bytes()).unwrap();
    let world = world();
    world.supervisor.declare(spec("containerd"));
    world.until_up("containerd").await;
    let names = Condition::Network(NetworkPart::EtcFiles);
    world.supervisor.conditions().set(names, Ok(()));
    tell(&world.supervisor, &service, None, declare(&service, None));
    let waits = |view: &ServiceView| view.state == ServiceState::Waiting;
    world.until("ext-a", waits).await;
    let own = config(&["x"]);
    tell(
        &world.supervisor,
        &service,
        Some(&own),
        declare(&service, Some(&own)),
    );
    world.until_up("ext-a").await;
    world.fake.change(|state| {
        assert_eq!(state.made, 2);
        // Its file, and those for name resolution.
        assert_eq!(state.running["ext-a"].0.container.mounts.len(), 3);
    });
}

#[test]
fn broken_service_file_is_named_and_the_others_are_used() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write(
        "a.yaml",
        "name: a\ncontainer: {entrypoint: /a}\nrestart: always\n",
    );
    write(
        "Bad one.yaml",
        "name: b\ncontainer: {entrypoint: ''}\nrestart: always\n",
    );
    write(
        "c.yaml",
        "name: a\ncontainer: {entrypoint: /c}\nrestart: never\n",
    );
    write("d.yaml", "\0\u{1}: [");
    write("A.yaml", "");
    write("readme.txt", "no service");
    fs::create_dir(directory.path().join("e.yaml")).unwrap();
    // A file larger than the memory, and a FIFO whose open would block.
    let huge = fs::File::create(directory.path().join("f.yaml")).unwrap();
    huge.set_len(1 << 40).unwrap();
    make_fifo(&directory.path().join("g.yaml")).unwrap();
    let found = find(directory.path()).unwrap();
    let shown: Vec<(&str, &str)> = found
        .iter()
        .map(|Entry(entry)| match entry {
            Ok(service) => (service.name.as_str(), ""),
            Err((name, why)) => (name.as_str(), why.as_str()),
        })
        .collect();
    let names: Vec<&str> = shown.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["_", "_ad_one", "a", "c", "d", "e", "f", "g"]);
    let at = |place: usize| shown[place].1;
    assert!(
        at(1).contains(
            "Bad one.yaml: container.entrypoint: it is empty; set the path of the program"
        ),
        "{}",
        at(1)
    );
    assert_eq!(at(2), "");
    assert!(
        at(3).ends_with("c.yaml: name: another file has \"a\""),
        "{}",
        at(3)
    );
    assert!(at(4).contains("d.yaml: the file: "), "{}", at(4));
    assert!(at(5).contains("e.yaml: "), "{}", at(5));
    let large = "f.yaml: the file: it is larger than 65536 bytes";
    assert!(at(6).contains(large), "{}", at(6));
    let pipe = "g.yaml: must be a regular file";
    assert!(at(7).ends_with(pipe), "{}", at(7));
    assert!(find(&directory.path().join("none")).unwrap().is_empty());
}

#[test]
fn only_containers_of_currently_loaded_extensions_are_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str| {
        let text = format!("name: {name}\ncontainer: {{entrypoint: /a}}\nrestart: always\n");
        fs::write(directory.path().join(format!("{name}.yaml")), text).unwrap();
    };
    let extensions = Extensions::default();
    // The list that the attempts share while they wait for containerd.
    let found = extensions.found.clone();
    let look = || *lock(&extensions.found) = find(directory.path()).unwrap();
    write("early");
    look();
    assert!(is_found(&found, "ext-early") && !is_found(&found, "ext-late"));
    write("late");
    fs::remove_file(directory.path().join("early.yaml")).unwrap();
    look();
    assert!(!is_found(&found, "ext-early") && is_found(&found, "ext-late"));
}

#[tokio::test]
async fn hung_path_check_blocks_one_thread_and_not_the_runtime() {
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    static IS_AWAY: AtomicBool = AtomicBool::new(true);
    fn exists(_: &Path) -> bool {
        BEGUN.fetch_add(1, Ordering::SeqCst);
        assert!(Handle::try_current().is_err(), "a thread of the runtime");
        while IS_AWAY.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
    let looks = Extensions::default().looks;
    let waiting = is_there(Path::new("/mnt/nfs/socket"), exists, &looks);
    let back = async {
        sleep(2 * LOOK).await;
        IS_AWAY.store(false, Ordering::SeqCst);
    };
    tokio::join!(waiting, back);
    assert_eq!(BEGUN.load(Ordering::SeqCst), 1);
}
