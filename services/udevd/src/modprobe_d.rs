//! The statements of modprobe.d(5) that libkmod leaves to its caller: `blacklist`, `softdep` and `install`. No I/O.
//!
//! libkmod applies `alias` and `options` itself. The patterns of `alias` are kept here to skip libkmod's slow search,
//! because most devices have no module.

use glob::Pattern;
use std::collections::{BTreeMap, BTreeSet};

/// Modules to load before and after another one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Soft {
    /// Modules to load before it.
    pub pre: Vec<String>,
    /// Modules to load after it.
    pub post: Vec<String>,
}

/// Deny-list, soft dependencies and known aliases.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    denied: BTreeSet<String>,
    soft: BTreeMap<String, Soft>,
    /// Patterns in the form of [`normal`].
    aliases: Vec<String>,
}

impl Policy {
    /// Adds the text of one file. Skips unknown lines, as modprobe does.
    pub fn add(&mut self, text: &str) {
        let text = text.replace("\\\n", " ");
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some("blacklist"), Some(module)) => self.deny(module),
                // The node has no shell to run the command. An `install` line also rules out the plain insertion.
                (Some("install"), Some(module)) => self.deny(module),
                (Some("softdep"), Some(module)) => self.soften(module, words),
                (Some("alias"), Some(pattern)) => self.aliases.push(normal(pattern)),
                _ => {}
            }
        }
    }

    /// Adds `modprobe.blacklist=a,b` from the kernel command line.
    pub fn add_command_line(&mut self, line: &str) {
        for word in line.split_whitespace() {
            let list = word.strip_prefix("modprobe.blacklist=");
            list.into_iter()
                .flat_map(|list| list.split(','))
                .for_each(|module| self.deny(module));
        }
    }

    /// Whether the deny-list holds the module.
    pub fn denies(&self, module: &str) -> bool {
        self.denied.contains(&normal(module))
    }

    /// The module's soft dependencies.
    pub fn soft(&self, module: &str) -> Option<&Soft> {
        self.soft.get(&normal(module))
    }

    /// Whether an `alias` line matches this alias.
    pub fn knows(&self, alias: &str) -> bool {
        let alias = normal(alias);
        self.aliases.iter().any(|pattern| {
            let literal = pattern.split(['*', '?', '[']).next().unwrap_or_default();
            // A pattern that `glob` cannot parse is left to libkmod.
            alias.starts_with(literal)
                && Pattern::new(pattern).map_or(true, |pattern| pattern.matches(&alias))
        })
    }

    fn deny(&mut self, module: &str) {
        if !module.is_empty() {
            self.denied.insert(normal(module));
        }
    }

    fn soften<'a>(&mut self, module: &str, words: impl Iterator<Item = &'a str>) {
        let soft = self.soft.entry(normal(module)).or_default();
        let mut list = None;
        for word in words {
            match (word, &mut list) {
                ("pre:", _) => list = Some(&mut soft.pre),
                ("post:", _) => list = Some(&mut soft.post),
                (name, Some(list)) => list.push(normal(name)),
                _ => {}
            }
        }
    }
}

/// The kernel's spelling of a module name: `-` and `_` are equal, and the kernel uses `_`.
pub fn normal(module: &str) -> String {
    module.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::{Policy, Soft};
    use proptest::prelude::proptest;

    #[test]
    fn blacklists_and_soft_dependencies_are_read() {
        let mut policy = Policy::default();
        policy.add(
            "# a comment\nblacklist pcspkr\n  blacklist snd-pcsp # why\ninstall floppy /bin/true\n\
             softdep mlx5_core pre: mlxfw psample \\\n post: mlx5-ib\noptions x y=1\nblacklist\n",
        );
        policy.add_command_line("quiet modprobe.blacklist=nouveau,i915 ro");
        for module in [
            "pcspkr", "snd_pcsp", "snd-pcsp", "floppy", "nouveau", "i915",
        ] {
            assert!(policy.denies(module), "{module}");
        }
        assert!(!policy.denies("x") && !policy.denies(""));
        let soft = Soft {
            pre: vec!["mlxfw".into(), "psample".into()],
            post: vec!["mlx5_ib".into()],
        };
        assert_eq!(policy.soft("mlx5-core"), Some(&soft));
        assert_eq!(policy.soft("x"), None);
    }

    #[test]
    fn module_aliases_match_as_patterns() {
        let mut policy = Policy::default();
        policy.add(
            "alias pci:v00008086d0000100Esv*sd*bc*sc*i* e1000\nalias acpi*:PNP0C0A:* battery\n\
             alias cpu:type:x86,ven*fam*mod*:feature:*0081* ghash\nalias crypto-x x\n",
        );
        for known in [
            "pci:v00008086d0000100Esv00001AF4sd00001100bc02sc00i00",
            "acpi:PNP0C0A:",
            "cpu:type:x86,ven0002fam000Fmod006B:feature:,0000,0081,00C0",
            "crypto_x",
        ] {
            assert!(policy.knows(known), "{known}");
        }
        for unknown in ["pci:v00008086d0000100Fsv1sd1bc1sc1i1", "acpi:PNP0303:", ""] {
            assert!(!policy.knows(unknown), "{unknown}");
        }
    }

    proptest! {
        #[test]
        fn hostile_text_never_panics(text in "(blacklist|softdep|install|alias|pre:|[ \\\\\n#*\\[\\]a-z])*") {
            let mut policy = Policy::default();
            policy.add(&text);
            policy.add_command_line(&text);
            policy.knows(&text);
        }
    }
}
