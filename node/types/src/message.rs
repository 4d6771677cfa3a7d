//! Conversions of spec values to the messages of typed clients (`api/proto/resource`).
//!
//! A message omits a value it cannot express; protobuf clients then read the default of the field's type.

use std::net::{IpAddr, SocketAddr};

use corten_api::common::{NetIp, NetIpPort, NetIpPrefix};
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use serde_json::Value as Json;

use super::prefix::Prefix;

pub(super) fn net_ip(address: IpAddr) -> NetIp {
    let ip = match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    NetIp { ip }
}

pub(super) fn net_ip_port(address: SocketAddr) -> NetIpPort {
    let NetIp { ip } = net_ip(address.ip());
    NetIpPort {
        ip,
        port: address.port().into(),
    }
}

pub(super) fn net_prefix(prefix: Prefix) -> NetIpPrefix {
    let NetIp { ip } = net_ip(prefix.address);
    NetIpPrefix {
        ip,
        prefix_length: prefix.length.into(),
    }
}

/// Parses an address; `None` for any other text.
pub(super) fn ip(text: &str) -> Option<NetIp> {
    text.parse().ok().map(net_ip)
}

/// Parses a network prefix; `None` for any other text.
pub(super) fn prefix(text: &str) -> Option<NetIpPrefix> {
    Prefix::parse(text).map(net_prefix)
}

/// Parses hexadecimal bytes separated by colons; empty for any other text.
pub(super) fn hardware(text: &str) -> Vec<u8> {
    let byte = |part| u8::from_str_radix(part, 16).ok();
    let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
    bytes.unwrap_or_default()
}

/// Converts a JSON object to protobuf; `None` for any other value.
pub(super) fn object(json: &Json) -> Option<Struct> {
    match value(json).kind {
        Some(Kind::StructValue(object)) => Some(object),
        _ => None,
    }
}

/// Converts a JSON value to protobuf (`google/protobuf/struct.proto`), which has only one number type.
fn value(json: &Json) -> Value {
    let kind = match json {
        Json::Null => Kind::NullValue(0),
        Json::Bool(truth) => Kind::BoolValue(*truth),
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Json::String(text) => Kind::StringValue(text.clone()),
        Json::Array(items) => Kind::ListValue(ListValue {
            values: items.iter().map(value).collect(),
        }),
        Json::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(name, field)| (name.clone(), value(field)));
            Kind::StructValue(Struct {
                fields: fields.collect(),
            })
        }
    };
    Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_encoded_as_bytes() {
        assert_eq!(prefix("10.0.2.15/24").unwrap().ip, [10, 0, 2, 15]);
        let network = prefix("fd00::1/64").unwrap();
        assert_eq!((network.ip.len(), network.prefix_length), (16, 64));
        assert_eq!((prefix("10.0.2.15"), prefix("")), (None, None));
        assert_eq!(ip("::1").unwrap().ip.len(), 16);
        assert_eq!(ip("localhost"), None);
        let server = net_ip_port("127.0.0.53:53".parse().unwrap());
        assert_eq!((&*server.ip, server.port), (&[127, 0, 0, 53][..], 53));
        assert_eq!(hardware("52:54:00:01:02:fe"), [0x52, 0x54, 0, 1, 2, 0xfe]);
        assert!(hardware("").is_empty());
    }
}
