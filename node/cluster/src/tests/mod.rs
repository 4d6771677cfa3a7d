//! Against a server that is a function, and, if asked for, against a real one.

mod access;
mod apply;
mod drain;
mod endpoints;
mod fake;
mod hostile;
mod metadata;
mod readiness;
mod real;
mod versions;
