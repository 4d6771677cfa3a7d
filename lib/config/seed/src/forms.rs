//! The JSON of what a network holds of other crates: routes, bonds, their words; and of address families.

use std::net::IpAddr;

use corten_config::kinds::{
    AdLacpActive, AdSelect, ArpAllTargets, ArpValidate, BondConfig, BondMode, FailOverMac,
    LacpRate, Link, LinkRoute, PrimaryReselect, XmitHashPolicy,
};
use corten_values::{Cidr, LinkName, Mac};
use serde::{Deserialize, Serialize};

/// The fields of a [`LinkRoute`].
#[derive(Default, Serialize, Deserialize)]
#[serde(remote = "LinkRoute", default)]
pub(crate) struct RouteForm {
    destination: Option<Cidr>,
    gateway: Option<IpAddr>,
    source: Option<IpAddr>,
    metric: Option<u32>,
    mtu: Option<u32>,
    table: Option<u32>,
}

/// The fields of a [`BondConfig`]. Those that a seed's bond leaves empty are skipped.
#[derive(Default, Serialize, Deserialize)]
#[serde(remote = "BondConfig", default)]
struct BondForm {
    #[serde(skip)]
    name: LinkName,
    #[serde(skip)]
    hardware_addr: Option<Mac>,
    #[serde(skip)]
    links: Vec<LinkName>,
    #[serde(with = "word")]
    mode: BondMode,
    miimon: Option<u32>,
    updelay: Option<u32>,
    downdelay: Option<u32>,
    use_carrier: Option<bool>,
    #[serde(with = "word_if_any")]
    xmit_hash_policy: Option<XmitHashPolicy>,
    arp_interval: Option<u32>,
    arp_ip_targets: Vec<IpAddr>,
    ns_ip6_targets: Vec<IpAddr>,
    #[serde(with = "word_if_any")]
    arp_validate: Option<ArpValidate>,
    #[serde(with = "word_if_any")]
    arp_all_targets: Option<ArpAllTargets>,
    #[serde(with = "word_if_any")]
    lacp_rate: Option<LacpRate>,
    #[serde(with = "word_if_any")]
    fail_over_mac: Option<FailOverMac>,
    #[serde(with = "word_if_any")]
    ad_select: Option<AdSelect>,
    ad_actor_sys_prio: Option<u16>,
    ad_user_port_key: Option<u16>,
    #[serde(with = "word_if_any")]
    ad_lacp_active: Option<AdLacpActive>,
    #[serde(skip)]
    primary: Option<LinkName>,
    #[serde(with = "word_if_any")]
    primary_reselect: Option<PrimaryReselect>,
    resend_igmp: Option<u32>,
    min_links: Option<u32>,
    lp_interval: Option<u32>,
    packets_per_slave: Option<u32>,
    num_peer_notif: Option<u8>,
    tlb_logical_lb: Option<u8>,
    all_slaves_active: Option<u8>,
    peer_notif_delay: Option<u32>,
    missed_max: Option<u8>,
    #[serde(skip)]
    link: Link,
}

/// A [`BondConfig`] in a box.
pub(crate) mod bond {
    use corten_config::kinds::BondConfig;
    use serde::{Deserializer, Serializer};

    use super::BondForm;

    pub(crate) fn serialize<S: Serializer>(
        config: &BondConfig,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        BondForm::serialize(config, serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Box<BondConfig>, D::Error> {
        BondForm::deserialize(deserializer).map(Box::new)
    }
}

/// A [`Word`](corten_yaml::read::Word).
mod word {
    use corten_yaml::read::Word;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<W: Word, S: Serializer>(
        word: &W,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(word.word())
    }

    pub(super) fn deserialize<'de, W: Word, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<W, D::Error> {
        let text = String::deserialize(deserializer)?;
        W::from_word(&text).ok_or_else(|| D::Error::custom(format!("unknown word {text:?}")))
    }
}

/// A [`Word`](corten_yaml::read::Word) or null.
mod word_if_any {
    use corten_yaml::read::Word;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(super) fn serialize<W: Word, S: Serializer>(
        word: &Option<W>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        word.map(Word::word).serialize(serializer)
    }

    pub(super) fn deserialize<'de, W: Word, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<W>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else {
            return Ok(None);
        };
        match W::from_word(&text) {
            None => Err(D::Error::custom(format!("unknown word {text:?}"))),
            known => Ok(known),
        }
    }
}

/// Address families of a rule.
pub(crate) mod families {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    const KNOWN: [&[&str]; 3] = [&["inet4"], &["inet6"], &["inet4", "inet6"]];

    pub(crate) fn serialize<S: Serializer>(
        families: &[&str],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        families.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<&'static [&'static str], D::Error> {
        let named = Vec::<String>::deserialize(deserializer)?;
        let found = KNOWN.into_iter().find(|known| *known == named);
        found.ok_or_else(|| D::Error::custom("the families of a rule must be inet4, inet6 or both"))
    }
}
