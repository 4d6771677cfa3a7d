//! Settings of pods' containers: two forms, one result.

use super::{doc, document, good, problems};
use crate::cri::PART_FILE;
use crate::kinds::PCIDriverRebindConfig;

pub(super) fn part(name: &str, content: &str) -> String {
    let lines: Vec<String> = content.lines().map(|line| format!("    {line}")).collect();
    doc(
        "CRICustomizationConfig",
        &format!("name: {name}\ncontent: |\n{}", lines.join("\n")),
    )
}

pub(super) fn file(content: &str) -> String {
    let files = format!("files: [{{path: {PART_FILE}, content: '{content}'}}]");
    good().replace("registries: {}", &files)
}

#[test]
fn fields_and_documents_give_one_view() {
    let text = file("[debug]") + &part("b", "debug.level = 'info'") + &part("x.org/a", "[metrics]");
    let config = document(&text);
    let found: Vec<(&str, &str)> = config
        .containerd_parts()
        .into_iter()
        .map(|(name, content)| (name, content.expose().trim_end()))
        .collect();
    let expected = [
        ("b", "debug.level = 'info'"),
        ("customization", "[debug]"),
        ("x.org/a", "[metrics]"),
    ];
    assert_eq!(found, expected);
    assert!(
        !config.redacted().contains("level"),
        "{}",
        config.redacted()
    );
    assert!(document(&good()).containerd_parts().is_empty());

    let old = good().replace(
        "registries: {}",
        "baseRuntimeSpecOverrides: {process: {oomScoreAdj: 0x10, cwd: '1'}}",
    );
    let new = good()
        + &doc(
            "CRIBaseRuntimeSpecConfig",
            "overrides: {process: {oomScoreAdj: 16, cwd: '1'}}",
        );
    let overrides = document(&old).base_spec_overrides().unwrap();
    assert_eq!(
        overrides.to_string(),
        r#"{"process":{"oomScoreAdj":16,"cwd":"1"}}"#
    );
    assert_eq!(document(&new).base_spec_overrides(), Some(overrides));
    assert_eq!(document(&good()).base_spec_overrides(), None);

    let old = good().replace("rbac: true", "imageCache: {localEnabled: true}");
    let new = good() + &doc("ImageCacheConfig", "local: {enabled: true}");
    for (text, is_served) in [(&old, true), (&new, true), (&good(), false)] {
        assert_eq!(document(text).serves_image_cache(), is_served, "{text}");
    }
}

#[test]
fn setting_given_twice_or_in_both_forms_is_refused() {
    let both = good()
        .replace("rbac: true", "imageCache: {localEnabled: false}")
        .replace("registries: {}", "baseRuntimeSpecOverrides: {hostname: a}")
        + &doc("ImageCacheConfig", "local: {enabled: true}")
        + &doc("CRIBaseRuntimeSpecConfig", "overrides: {hostname: a}");
    let found = problems(&both).join("\n");
    for what in [
        "ImageCacheConfig excludes machine.features.imageCache",
        "CRIBaseRuntimeSpecConfig excludes machine.baseRuntimeSpecOverrides",
    ] {
        assert!(found.contains(what), "{found}");
    }
    let twice = format!(
        "files: [{{path: {PART_FILE}}}, {{path: /var/x}}, {{path: {PART_FILE}, content: '[debug]'}}]"
    );
    let found = problems(&good().replace("registries: {}", &twice));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("machine.files has /etc/cri/conf.d/20-customization.part twice"),
        "{found:?}"
    );
    for (name, what) in [
        (
            "customization",
            "name must not be customization: that is /etc/cri",
        ),
        ("-a", "name must be at most 63 letters"),
        ("a/b/c", "name must be at most 63 letters"),
    ] {
        let found = problems(&(good() + &part(name, "[debug]")));
        assert!(found.len() == 1 && found[0].contains(what), "{found:?}");
    }
}

#[test]
fn base_spec_overrides_are_validated_by_field() {
    let overrides =
        "{ociVersion: '9', process: {oomScoreAdj: high}, linux: {namespaces: [], seccomp: {}}}";
    for (text, field) in [
        (
            good()
                + &doc(
                    "CRIBaseRuntimeSpecConfig",
                    &format!("overrides: {overrides}"),
                ),
            "overrides",
        ),
        (
            good().replace(
                "registries: {}",
                &format!("baseRuntimeSpecOverrides: {overrides}"),
            ),
            "machine.baseRuntimeSpecOverrides",
        ),
    ] {
        let found = problems(&text);
        assert_eq!(found.len(), 4, "{found:?}");
        for (step, why) in [
            ("ociVersion", "is containerd's own"),
            (
                "process.oomScoreAdj",
                "does not fit the OCI runtime specification: invalid type",
            ),
            ("linux.namespaces", "is containerd's own"),
            ("linux.seccomp", "does not fit"),
        ] {
            let start = format!("{field}.{step} {why}");
            assert!(
                found.iter().any(|found| found.contains(&start)),
                "{start}: {found:?}"
            );
        }
    }
    let text = good() + &doc("CRIBaseRuntimeSpecConfig", "overrides: [a]");
    assert!(problems(&text)[0].contains("overrides must be a map"));
}

#[test]
fn pci_device_named_twice_in_different_spellings_is_refused() {
    let rebind = |name: &str, driver: &str| {
        doc(
            "PCIDriverRebindConfig",
            &format!("name: '{name}'\ntargetDriver: '{driver}'"),
        )
    };
    let text =
        good() + &rebind("0000:AF:00.00", "vfio-pci") + &rebind("0000:04:00.1", "uio_pci_generic");
    let config = document(&text);
    let drivers: Vec<_> = config.pci_drivers().into_iter().collect();
    let expected = [
        ("0000:04:00.1", "uio_pci_generic"),
        ("0000:af:00.0", "vfio-pci"),
    ];
    assert_eq!(
        drivers,
        expected.map(|(address, driver)| (address.to_owned(), driver))
    );
    let name = &config.all::<PCIDriverRebindConfig>().next().unwrap().name;
    assert_eq!(&**name, "0000:AF:00.00");
    let found = problems(&(text + &rebind("0000:af:00.0", "x")));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("the device 0000:af:00.0 is described twice"),
        "{found:?}"
    );
    let found = problems(&(good() + &rebind("04:00.0", "../x")));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].contains("name must be the address of a device on a PCI bus"),
        "{found:?}"
    );
    assert!(
        found[1].contains("targetDriver must be the name of a driver"),
        "{found:?}"
    );
}
