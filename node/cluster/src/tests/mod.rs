//! Against a server that is a function, and, if asked for, against a real one.

mod access;
mod apply;
mod drain;
mod fake;
mod hostile;
mod metadata;
mod real;
