//! Text types with a check.

/// Declares a text type with a check.
macro_rules! texts {
    ($( $(#[$attribute:meta])* $name:ident = $what:literal, $check:expr; )*) => { $(
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(String);

        impl std::ops::Deref for $name {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl corten_yaml::read::Value for $name {
            const SHAPE: corten_yaml::table::Shape = corten_yaml::table::Shape::Text($what);
            fn read(node: &corten_yaml::tree::Node, reader: &mut corten_yaml::read::Reader<'_>) -> Option<Self> {
                let check: fn(&str) -> bool = $check;
                corten_yaml::read::scalar(node, reader, $what, |text| check(text).then(|| $name(text.to_owned())))
            }
        }
    )* };
}

pub(crate) use texts;
