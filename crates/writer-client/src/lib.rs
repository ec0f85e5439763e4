//! The client of the writer service: a program appends events to streams, and the client keeps each event
//! until a service has it on disk.
#![forbid(unsafe_code)]
