//! The writer service on a machine: its sockets, its threads for the disks, its links to other services,
//! and the catalogue that it certifies files into. The rules of the service are those of `exacat-writer`.
#![forbid(unsafe_code)]
