//! The device daemon of the node.

fn main() {}
