//! Encodes chains for the kernel (`linux/netfilter/nf_tables.h`; expressions as in nft(8)).

use corten_types::firewall::{
    ConntrackState, Hook, Layer4Match, NfTablesChain, PortRange, Rule, Verdict,
};
use netlink_packet_core::{DefaultNla, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST};
use netlink_packet_netfilter::nftables::{
    Bitwise, ChainAttribute, ChainMessage, Cmp, DataAttribute, ExpressionAttribute, Expressions,
    Hook as HookAttribute, Immediate, InetHookNumber, ListAttribute, Lookup, Meta, MetaKey,
    NfTablesMessage, Operator, Payload, Register, RuleAttribute, RuleMessage, SetAttribute,
    SetElementAttribute, SetElementFlags, SetElementList, SetElementMessage, SetFlags, SetMessage,
    TableAttribute, TableMessage, Verdict as VerdictCode, VerdictAttribute,
};

use super::Chains;
use super::ranges::{Family, Range, addresses, merged};

/// Table that machined owns; other tables are left alone.
pub(super) const TABLE: &str = "corten";

/// Address families; the table holds rules for both.
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;

/// `NFT_PAYLOAD_NETWORK_HEADER`, `NFT_PAYLOAD_TRANSPORT_HEADER`.
const NETWORK: u32 = 1;
const TRANSPORT: u32 = 2;

/// Elements per attribute; the length of an attribute is 16 bits wide.
const ELEMENTS: usize = 500;

/// A message and its flags.
pub(super) type Command = (NfTablesMessage, u16);

/// Commands that replace the table with one of these chains, or remove it. The kernel runs all of them or none.
pub(super) fn commands(chains: &Chains) -> Vec<Command> {
    let table = || TableMessage {
        attributes: vec![TableAttribute::Name(TABLE.to_owned())],
    };
    // Deleting needs an existing table.
    let mut batch = Batch::default();
    batch.push(NfTablesMessage::NewTable(table()), NLM_F_CREATE);
    batch.push(NfTablesMessage::DeleteTable(table()), 0);
    if !chains.is_empty() {
        batch.push(NfTablesMessage::NewTable(table()), NLM_F_CREATE);
    }
    for (name, chain) in chains {
        batch.chain(name, chain);
    }
    if let Some((_, flags)) = batch.commands.last_mut() {
        *flags |= NLM_F_ACK;
    }
    batch.commands
}

#[derive(Default)]
struct Batch {
    commands: Vec<Command>,
    /// Id of the last set.
    sets: u32,
}

/// A part of a rule: a match or an action.
type Expression = ListAttribute<ExpressionAttribute>;

impl Batch {
    fn push(&mut self, message: NfTablesMessage, flags: u16) {
        self.commands.push((message, NLM_F_REQUEST | flags));
    }

    fn chain(&mut self, name: &str, chain: &NfTablesChain) {
        let hook = match chain.hook {
            Hook::Prerouting => InetHookNumber::PreRouting,
            Hook::Input => InetHookNumber::LocalIn,
        };
        let attributes = vec![
            ChainAttribute::Table(TABLE.to_owned()),
            ChainAttribute::Name(name.to_owned()),
            ChainAttribute::Hook(vec![
                HookAttribute::Number(hook.into()),
                HookAttribute::Priority(chain.priority.cast_unsigned()),
            ]),
            ChainAttribute::Policy(number(chain.policy)),
            ChainAttribute::Type(chain.kind.to_owned()),
        ];
        let message = ChainMessage { attributes };
        self.push(NfTablesMessage::NewChain(message), NLM_F_CREATE);
        for rule in &chain.rules {
            self.rule(name, rule);
        }
    }

    /// A rule with addresses becomes one rule for each family they have.
    fn rule(&mut self, chain: &str, rule: &Rule) {
        let by_address =
            rule.match_source_address.is_some() || rule.match_destination_address.is_some();
        if !by_address {
            let expressions = self.expressions(rule);
            return self.push_rule(chain, expressions);
        }
        for family in [Family::V4, Family::V6] {
            let wanted = [
                (&rule.match_source_address, source(family)),
                (&rule.match_destination_address, destination(family)),
            ];
            let wanted = wanted.into_iter().filter_map(|(wanted, place)| {
                let ranges = addresses(wanted.as_ref()?, family);
                Some((ranges, place))
            });
            let wanted: Vec<_> = wanted.collect();
            if wanted.iter().any(|(ranges, _)| ranges.is_empty()) {
                continue;
            }
            let mut expressions = vec![meta(MetaKey::Nfproto), equal(vec![nfproto(family)])];
            let all = Range {
                first: 0,
                last: family.last(),
            };
            for (ranges, (offset, length)) in wanted.iter().filter(|(found, _)| *found != [all]) {
                expressions.push(payload(NETWORK, *offset, *length));
                expressions.push(self.lookup(ranges, *length, family.last()));
            }
            expressions.extend(self.expressions(rule));
            self.push_rule(chain, expressions);
        }
    }

    fn push_rule(&mut self, chain: &str, expressions: Vec<Expression>) {
        let attributes = vec![
            RuleAttribute::Table(TABLE.to_owned()),
            RuleAttribute::Chain(chain.to_owned()),
            RuleAttribute::Expressions(expressions),
        ];
        let message = NfTablesMessage::NewRule(RuleMessage { attributes });
        self.push(message, NLM_F_CREATE | NLM_F_APPEND);
    }

    /// All expressions except those for addresses.
    fn expressions(&mut self, rule: &Rule) -> Vec<Expression> {
        let mut all = Vec::new();
        if let Some(wanted) = &rule.match_iif_name {
            let names: Vec<Vec<u8>> = wanted.names.iter().map(|name| padded(name)).collect();
            all.push(meta(MetaKey::Iifname));
            all.extend(self.one_of(names, 16));
        }
        if let Some(wanted) = &rule.match_conntrack_state {
            let bits = wanted
                .states
                .iter()
                .fold(0, |bits, state| bits | bit(*state));
            all.extend(conntrack_state(bits));
        }
        if let Some(wanted) = &rule.match_layer4 {
            self.layer4(wanted, &mut all);
        }
        if let Some(wanted) = rule.match_limit {
            all.push(limit(wanted.packet_rate_per_second));
        }
        if rule.counter {
            all.push(other("counter", vec![]));
        }
        all.extend(rule.verdict.map(verdict));
        all
    }

    fn layer4(&mut self, wanted: &Layer4Match, expressions: &mut Vec<Expression>) {
        expressions.push(meta(MetaKey::L4Proto));
        expressions.push(equal(vec![wanted.protocol as u8]));
        if let Some(ports) = &wanted.match_destination_port {
            let range = |range: &PortRange| Range {
                first: range.lo.into(),
                last: range.hi.into(),
            };
            let ranges = merged(ports.ranges.iter().map(range).collect());
            expressions.push(payload(TRANSPORT, 2, 2));
            expressions.push(self.lookup(&ranges, 2, u16::MAX.into()));
        }
        if let Some(messages) = &wanted.match_icmp_type {
            let types = messages.types.iter().map(|number| vec![*number]).collect();
            expressions.push(payload(TRANSPORT, 0, 1));
            expressions.extend(self.one_of(types, 1));
        }
    }

    /// Matches when the register holds one of these values.
    fn one_of(&mut self, mut values: Vec<Vec<u8>>, length: u32) -> Option<Expression> {
        if values.len() < 2 {
            return values.pop().map(equal);
        }
        values.sort_unstable();
        values.dedup();
        let elements = values.into_iter().map(|value| element(value, false));
        Some(self.set(elements.collect(), length, SetFlags::empty()))
    }

    /// Matches when the register is in one of these ranges. A range that ends with the highest number is open-ended.
    fn lookup(&mut self, ranges: &[Range], length: u32, last: u128) -> Expression {
        let bytes = |number: u128| {
            let all = number.to_be_bytes();
            let skip = all.len().saturating_sub(length as usize);
            all.into_iter().skip(skip).collect::<Vec<u8>>()
        };
        let mut elements = Vec::new();
        for range in ranges {
            elements.push(element(bytes(range.first), false));
            if range.last != last {
                elements.push(element(bytes(range.last.saturating_add(1)), true));
            }
        }
        self.set(elements, length, SetFlags::Interval)
    }

    /// Adds an anonymous set, and an expression that looks the register up in it.
    fn set(
        &mut self,
        elements: Vec<ListAttribute<SetElementAttribute>>,
        length: u32,
        flags: SetFlags,
    ) -> Expression {
        // The kernel replaces the placeholder with a number.
        let name = "__set%d".to_owned();
        self.sets += 1;
        let id = self.sets;
        let attributes = vec![
            SetAttribute::Table(TABLE.to_owned()),
            SetAttribute::Name(name.clone()),
            SetAttribute::Flags(flags | SetFlags::Anonymous | SetFlags::Constant),
            SetAttribute::KeyType(0),
            SetAttribute::KeyLen(length),
            SetAttribute::Id(id),
        ];
        let message = NfTablesMessage::NewSet(SetMessage { attributes });
        self.push(message, NLM_F_CREATE);
        for elements in elements.chunks(ELEMENTS) {
            let attributes = vec![
                SetElementList::Table(TABLE.to_owned()),
                SetElementList::Set(name.clone()),
                SetElementList::SetId(id),
                SetElementList::Elements(elements.to_vec()),
            ];
            let message = NfTablesMessage::NewSetElement(SetElementMessage { attributes });
            self.push(message, NLM_F_CREATE);
        }
        Expressions::Lookup(vec![
            Lookup::Set(name),
            Lookup::SetId(id),
            Lookup::SourceRegister(Register::Reg1),
        ])
        .into()
    }
}

fn element(key: Vec<u8>, ends: bool) -> ListAttribute<SetElementAttribute> {
    let mut attributes = vec![SetElementAttribute::Key(DataAttribute::Value(key))];
    if ends {
        attributes.push(SetElementAttribute::Flags(SetElementFlags::IntervalEnd));
    }
    ListAttribute::Element(attributes)
}

/// Pads a link's name with zeros to 16 bytes.
fn padded(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(16, 0);
    bytes
}

fn nfproto(family: Family) -> u8 {
    match family {
        Family::V4 => NFPROTO_IPV4,
        Family::V6 => NFPROTO_IPV6,
    }
}

/// Offset and length of the source address in the header (RFC 791, section 3.1; RFC 8200, section 3).
fn source(family: Family) -> (u32, u32) {
    match family {
        Family::V4 => (12, 4),
        Family::V6 => (8, 16),
    }
}

fn destination(family: Family) -> (u32, u32) {
    match family {
        Family::V4 => (16, 4),
        Family::V6 => (24, 16),
    }
}

fn bit(state: ConntrackState) -> u32 {
    match state {
        ConntrackState::Invalid => 1,
        ConntrackState::Established => 2,
        ConntrackState::Related => 4,
    }
}

fn number(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::Drop => 0,
        Verdict::Accept => 1,
    }
}

fn meta(key: MetaKey) -> Expression {
    Expressions::Meta(vec![
        Meta::DestinationRegister(Register::Reg1),
        Meta::Key(key),
    ])
    .into()
}

fn payload(base: u32, offset: u32, length: u32) -> Expression {
    Expressions::Payload(vec![
        Payload::DestinationRegister(Register::Reg1),
        Payload::Base(base),
        Payload::Offset(offset),
        Payload::Len(length),
    ])
    .into()
}

fn compare(operator: Operator, value: Vec<u8>) -> Expression {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(Register::Reg1),
        Cmp::Op(operator),
        Cmp::Data(DataAttribute::Value(value)),
    ])
    .into()
}

fn equal(value: Vec<u8>) -> Expression {
    compare(Operator::Equal, value)
}

/// Matches when one of the state bits is set. The register is in native byte order.
fn conntrack_state(bits: u32) -> [Expression; 3] {
    const DESTINATION: u16 = 1;
    const KEY: u16 = 2;
    const STATE: u32 = 0;
    let load = other(
        "ct",
        vec![
            be32(DESTINATION, u32::from(Register::Reg1)),
            be32(KEY, STATE),
        ],
    );
    let zero = vec![0; 4];
    let mask = Expressions::Bitwise(vec![
        Bitwise::SourceRegister(Register::Reg1),
        Bitwise::DestinationRegister(Register::Reg1),
        Bitwise::Length(4),
        Bitwise::Mask(DataAttribute::Value(bits.to_ne_bytes().to_vec())),
        Bitwise::Xor(DataAttribute::Value(zero.clone())),
    ]);
    [load, mask.into(), compare(Operator::NotEqual, zero)]
}

/// Matches at most this many packets per second, with bursts of five.
fn limit(rate: u64) -> Expression {
    const RATE: u16 = 1;
    const UNIT: u16 = 2;
    const BURST: u16 = 3;
    const TYPE: u16 = 4;
    const SECONDS: u64 = 1;
    const PACKETS: u32 = 0;
    let be64 = |kind, value: u64| DefaultNla::new(kind, value.to_be_bytes().to_vec());
    other(
        "limit",
        vec![
            be64(RATE, rate),
            be64(UNIT, SECONDS),
            be32(BURST, 5),
            be32(TYPE, PACKETS),
        ],
    )
}

fn verdict(verdict: Verdict) -> Expression {
    let code = VerdictAttribute::Code(VerdictCode::Other(number(verdict)));
    Expressions::Immediate(vec![
        Immediate::DestinationRegister(Register::Verdict),
        Immediate::Data(DataAttribute::Verdict(vec![code])),
    ])
    .into()
}

/// An expression that the crate does not support.
fn other(name: &str, attributes: Vec<DefaultNla>) -> Expression {
    Expressions::Other {
        expression_type: name.to_owned(),
        attributes,
    }
    .into()
}

fn be32(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_be_bytes().to_vec())
}
