//! The kernel command line. Our own parameters are `corten.*`; `talos.*` is accepted as an alias of each.

/// A parsed command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cmdline {
    parameters: Vec<(String, String)>,
}

impl Cmdline {
    /// Splits the text as the kernel does: at spaces outside double quotes. A word without `=` has an empty value
    /// (Documentation/admin-guide/kernel-parameters.rst).
    #[must_use]
    pub fn parse(text: &str) -> Cmdline {
        let mut parameters = Vec::new();
        let mut word = String::new();
        let mut quoted = false;
        for character in text.chars().chain([' ']) {
            match character {
                '"' => quoted = !quoted,
                c if c.is_whitespace() && !quoted => {
                    if !word.is_empty() {
                        let (name, value) = word.split_once('=').unwrap_or((&word, ""));
                        parameters.push((name.to_owned(), value.to_owned()));
                        word.clear();
                    }
                }
                c => word.push(c),
            }
        }
        Cmdline { parameters }
    }

    /// The last value of a kernel parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parameters
            .iter()
            .rev()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// All values of a kernel parameter, in order.
    pub fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.parameters
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// The last value of `corten.<name>` or `talos.<name>`.
    #[must_use]
    pub fn ours(&self, name: &str) -> Option<&str> {
        self.parameters
            .iter()
            .rev()
            .find(|(key, _)| is_ours(key, name))
            .map(|(_, value)| value.as_str())
    }

    /// All values of `corten.<name>` and `talos.<name>`, in order.
    pub fn all_ours(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.parameters
            .iter()
            .filter(move |(key, _)| is_ours(key, name))
            .map(|(_, value)| value.as_str())
    }

    /// The platform of the machine, as set by the image or the operator.
    #[must_use]
    pub fn platform(&self) -> &str {
        self.ours("platform").unwrap_or("metal")
    }

    /// Whether a failed node stays halted instead of rebooting.
    #[must_use]
    pub fn stays_on_failure(&self) -> bool {
        self.ours("panic").or_else(|| self.get("panic")) == Some("0")
    }
}

fn is_ours(key: &str, name: &str) -> bool {
    ["corten.", "talos."]
        .iter()
        .any(|prefix| key.strip_prefix(prefix) == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_parameters_are_split_by_words_values_and_quotes() {
        let line = Cmdline::parse("quiet console=ttyS0,115200 x=\"a b\" console=tty0\n");
        assert_eq!(line.get("quiet"), Some(""));
        assert_eq!(
            line.all("console").collect::<Vec<_>>(),
            ["ttyS0,115200", "tty0"]
        );
        assert_eq!(line.get("x"), Some("a b"));
        assert_eq!(line.get("y"), None);
    }

    #[test]
    fn both_parameter_prefixes_are_read_and_the_last_value_wins() {
        let line = Cmdline::parse("corten.hostname=a talos.hostname=b hostname=c");
        assert_eq!(line.ours("hostname"), Some("b"));
        assert_eq!(line.platform(), "metal");
        assert_eq!(Cmdline::parse("talos.platform=aws").platform(), "aws");
        assert!(Cmdline::parse("panic=10 corten.panic=0").stays_on_failure());
        assert!(!Cmdline::parse("panic=10").stays_on_failure());
    }
}
