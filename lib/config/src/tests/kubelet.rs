//! Seccomp profiles.

use super::{good, problems};

#[test]
fn seccomp_profiles_have_the_names_of_files_and_fields() {
    let base = good();
    for (profiles, wrong) in [
        (
            "[{name: audit.json, value: {defaultAction: SCMP_ACT_LOG}}]",
            "",
        ),
        (
            "[{name: a/b, value: {a: b}}]",
            "[0].name must be the name of a file",
        ),
        (
            "[{name: .., value: {a: b}}]",
            "[0].name must be the name of a file",
        ),
        ("[{name: '', value: {a: b}}]", "[0].name is required"),
        ("[{name: a, value: text}]", "[0].value must be a map"),
        ("[{name: a}]", "[0].value is required"),
        (
            "[{name: a, value: {a: b}}, {name: a, value: {a: b}}]",
            " must have one profile of each name",
        ),
    ] {
        let profiles = format!("seccompProfiles: {profiles}");
        let found = problems(&base.replace("registries: {}", &profiles));
        let wrong = format!("machine.seccompProfiles{wrong}");
        match wrong.ends_with("Profiles") {
            true => assert!(found.is_empty(), "{profiles}: {found:?}"),
            false => assert!(
                found.len() == 1 && found[0].contains(&wrong),
                "{profiles}: {found:?}"
            ),
        }
    }
}
