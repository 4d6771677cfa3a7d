use proptest::prelude::*;

use super::*;

const GOOD: &str = "name: hello-world
container:
  entrypoint: ./hello-world
  args: [--now]
  environment: [MODE=quiet]
  environmentFile: /var/etc/hello/env
  mounts:
    - source: /dev
      destination: /dev
      type: bind
      options: [rbind, rshared, rw]
    - source: tmpfs
      destination: /tmp
      type: tmpfs
  security:
    maskedPaths: []
    readonlyPaths: [/proc/sys]
    writeableRootfs: true
    writeableSysfs: true
    rootfsPropagation: shared
depends:
  - service: cri
  - path: /run/machined/machined.sock
  - network: [addresses, connectivity, hostname, etcfiles]
  - time: true
  - configuration: true
restart: untilSuccess
logToConsole: true
";

#[test]
fn valid_service_is_read() {
    let service = Service::parse(GOOD.as_bytes()).unwrap();
    assert_eq!(service.name, "hello-world");
    assert_eq!(service.restart, Restart::UntilSuccess);
    assert!(service.log_to_console);
    let container = &service.container;
    assert_eq!(container.security.masked_paths.as_deref(), Some(&[][..]));
    assert_eq!(container.mounts[0].options, ["rbind", "rshared", "rw"]);
    assert_eq!(
        service.depends,
        [
            Dependency::Service("cri".to_owned()),
            Dependency::Path("/run/machined/machined.sock".to_owned()),
            Dependency::Network(vec![
                NetworkPart::Addresses,
                NetworkPart::Connectivity,
                NetworkPart::Hostname,
                NetworkPart::EtcFiles,
            ]),
            Dependency::Time,
            Dependency::Configuration,
        ]
    );
    let least = "name: a\ncontainer: {entrypoint: /a}\nrestart: never\n";
    let service = Service::parse(least.as_bytes()).unwrap();
    assert_eq!(service.container.security.masked_paths, None);
    assert!(!service.container.security.writeable_rootfs);
}

#[test]
fn problem_of_a_service_is_named_with_its_field() {
    let with = |old: &str, new: &str| {
        assert!(GOOD.contains(old), "{old}");
        GOOD.replace(old, new)
    };
    let cases = [
        (
            with("hello-world\ncon", "../x\ncon"),
            "name: \"../x\" is not a valid name",
        ),
        (
            with("./hello-world", "''"),
            "container.entrypoint: it is empty",
        ),
        (
            with("[--now]", "[\"a\\0b\"]"),
            "container.args[0]: it contains a NUL",
        ),
        (
            with("MODE=quiet", "MODE"),
            "container.environment[0]: it does not have the form NAME=value",
        ),
        (
            with("/var/etc/hello/env", "etc/env"),
            "container.environmentFile: \"etc/env\" is not an absolute path",
        ),
        (
            with("destination: /dev", "destination: /a/../b"),
            "container.mounts[0].destination: ",
        ),
        (
            with("source: /dev", "source: dev"),
            "container.mounts[0].source: \"dev\" is not an absolute path",
        ),
        (
            with("[/proc/sys]", "[proc]"),
            "container.security.readonlyPaths[0]: ",
        ),
        (
            with("rootfsPropagation: shared", "rootfsPropagation: some"),
            "container.security.rootfsPropagation: \"some\" is not a mount propagation; use one of",
        ),
        (
            with("service: cri", "service: a/b"),
            "depends[0].service: \"a/b\" is not a service id",
        ),
        (with("path: /run", "path: run"), "depends[1].path: "),
        (
            with("[addresses, connectivity, hostname, etcfiles]", "[]"),
            "depends[2].network: it is empty",
        ),
        (with("[addresses, ", "[luck, "), "luck"),
        (with("- time: true", "- time: false"), "exactly one of"),
        (
            with("- time: true", "- {time: true, path: /a}"),
            "exactly one of",
        ),
        (with("untilSuccess", "sometimes"), "sometimes"),
        (with("restart: untilSuccess\n", ""), "restart"),
        (with("logToConsole", "logToScreen"), "logToScreen"),
        (with("args:", "arguments:"), "arguments"),
    ];
    for (text, expected) in cases {
        let problem = Service::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(problem.contains(expected), "{problem:?} lacks {expected:?}");
    }
    for name in ["a--b", "a-", "-a", "a-_b", "_", "a.b", &"a".repeat(61)] {
        let text = with("hello-world\ncon", &format!("{name}\ncon"));
        let problem = Service::parse(text.as_bytes()).unwrap_err();
        assert!(problem.place.contains("name"), "{name}: {problem}");
    }
    // The text next to an error may be a secret.
    let secret = with("logToConsole", "logToScreen").replace("MODE=quiet", "TOKEN=hunter2");
    let problem = Service::parse(secret.as_bytes()).unwrap_err().to_string();
    assert!(
        !problem.contains("hunter2") && !problem.contains('\n'),
        "{problem}"
    );
    let long = vec![b' '; LARGEST + 1];
    let problem = Service::parse(&long).unwrap_err();
    assert!(problem.what.contains("larger"), "{problem}");
}

proptest! {
    #[test]
    fn hostile_bytes_do_not_break_the_reader(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        at in 0..GOOD.len(),
        piece in "[\\x00-\\x7f]{0,12}",
    ) {
        let _ = Service::parse(&bytes);
        let mut text = GOOD.to_owned();
        text.insert_str(at, &piece);
        if let Ok(service) = Service::parse(text.as_bytes()) {
            prop_assert!(is_name(&service.name, LONGEST_NAME));
            prop_assert!(!service.container.entrypoint.is_empty());
        }
    }
}
