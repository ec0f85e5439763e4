//! HTTP of a service: its state for people and monitoring, commands of operators, and the content of files.

mod access;
mod content;
mod paths;

pub(crate) use access::Access;
pub(crate) use paths::Paths as HttpPaths;
