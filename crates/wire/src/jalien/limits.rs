//! The limits of the protocol.

/// Bytes of one request. JAliEn accepts 130 KiB; file lists on a command line can be longer.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Options of one request.
pub const OPTIONS_MAX: usize = 65_536;
/// Bytes of a command's name that an error repeats.
pub const NAME_SHOWN_BYTES_MAX: usize = 100;
/// Bytes of an answer that are collected before a part of it is sent. Shorter answers are sent
/// whole, with `metadata` first, as in JAliEn. Longer ones have it at the end, because only then is
/// their outcome known.
pub const PART_BYTES: usize = 128 << 10;
