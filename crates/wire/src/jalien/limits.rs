//! The limits of the protocol.

/// Bytes of one request. JAliEn takes 130 KiB; file lists on a command line can be longer.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Options of one request.
pub const OPTIONS_MAX: usize = 65_536;
/// Bytes of the name of a command that are repeated in an error.
pub const NAME_SHOWN_BYTES_MAX: usize = 100;
/// Bytes of an answer that are gathered before a part of it is sent. Answers below are sent whole, with `metadata`
/// first, as JAliEn has it; longer ones end with it, for only then is it known how they ended.
pub const PART_BYTES: usize = 128 << 10;
