//! Settings of bridges, in both versions of `network-config`.

use corten_values::Object;
use corten_yaml::read::Reader;
use corten_yaml::section;
use corten_yaml::tree::Node;

use crate::values::Truth;

/// Reports spanning tree settings on a bridge that uses it: the node leaves them to the kernel. Otherwise they have no
/// effect anyway.
fn check_tree(uses_tree: bool, settings: &[&str], node: &Node, reader: &mut Reader<'_>) {
    let given = settings.iter().filter(|name| node.given(name));
    for name in given.filter(|_| uses_tree) {
        let what = "is not supported yet, and is left out; the spanning tree has the settings of the kernel";
        reader.leave_out_in(node, name, what);
    }
}

section! {
    /// Settings of a bridge in version 1 (ifupdown: bridge-utils-interfaces(5)).
    pub struct BridgeV1 [check_v1] {
        Acted "bridge_stp" stp: Truth = "Whether the spanning tree protocol is used";
        Held "bridge_fd" forward_delay: Option<Object> = "Setting of the spanning tree";
        Held "bridge_hello" hello: Option<Object> = "Setting of the spanning tree";
        Held "bridge_maxage" max_age: Option<Object> = "Setting of the spanning tree";
        Held "bridge_bridgeprio" priority: Option<Object> = "Setting of the spanning tree";
        Held "bridge_pathcost" path_cost: Option<Object> = "Setting of the spanning tree";
        Held "bridge_portprio" port_priority: Option<Object> = "Setting of the spanning tree";
        Held "bridge_gcint" collection: Option<Object> = "Setting of old kernels";
        Held "bridge_maxwait" wait: Option<Object> = "Whether the boot of another system waits for the link";
        Held "bridge_waitport" wait_port: Option<Object> = "Whether the boot of another system waits for the link";
        Later "bridge_ageing" ageing: Option<Object> = "Lifetime of learned addresses in seconds";
        Later "bridge_hw" hw: Option<Object> = "Hardware address; use `mac_address`";
        Later "bridge_ports" ports: Option<Object> = "Links of the bridge; use `bridge_interfaces`";
    }
}

fn check_v1(bridge: &BridgeV1, node: &Node, reader: &mut Reader<'_>) {
    let settings = [
        "bridge_fd",
        "bridge_hello",
        "bridge_maxage",
        "bridge_bridgeprio",
        "bridge_pathcost",
        "bridge_portprio",
    ];
    check_tree(bridge.stp.0, &settings, node, reader);
}

section! {
    /// Settings of a bridge in version 2.
    pub struct BridgeV2 [check_v2] {
        Acted "stp" stp: Option<Truth> = "Whether the spanning tree protocol is used; absent: yes";
        Held "forward-delay" forward_delay: Option<Object> = "Setting of the spanning tree";
        Held "hello-time" hello: Option<Object> = "Setting of the spanning tree";
        Held "max-age" max_age: Option<Object> = "Setting of the spanning tree";
        Held "priority" priority: Option<Object> = "Setting of the spanning tree";
        Held "path-cost" path_cost: Option<Object> = "Setting of the spanning tree";
        Held "port-priority" port_priority: Option<Object> = "Setting of the spanning tree";
        Later "ageing-time" ageing: Option<Object> = "Lifetime of learned addresses in seconds";
    }
}

impl BridgeV2 {
    pub(crate) fn uses_tree(&self) -> bool {
        self.stp.is_none_or(|stp| stp.0)
    }
}

fn check_v2(bridge: &BridgeV2, node: &Node, reader: &mut Reader<'_>) {
    let settings = [
        "forward-delay",
        "hello-time",
        "max-age",
        "priority",
        "path-cost",
        "port-priority",
    ];
    check_tree(bridge.uses_tree(), &settings, node, reader);
}
