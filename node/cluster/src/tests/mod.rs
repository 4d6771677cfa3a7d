//! Tests against a fake server and, on request, a real one.

mod access;
mod accounts;
mod apply;
mod cas;
mod drain;
mod endpoints;
mod fake;
mod hostile;
mod members;
mod metadata;
mod own_node;
mod pods;
mod prune;
mod readiness;
mod real;
mod signing_requests;
mod versions;
mod workloads;
