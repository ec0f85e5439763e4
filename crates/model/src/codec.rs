//! Canonical bytes of the vocabulary, as the log and the wire use them.
//!
//! Each type has one form:
//!
//! - Integers are little-endian LEB128 varints, signed ones zigzag.
//! - Strings and lists follow their length.
//! - Enums have an explicit number.
//!
//! No value carries a version. Its container does: the header of a log segment, or
//! the handshake of a connection. Decoding checks everything that a constructor checks, so a
//! decoded value is as valid as a parsed one. It never allocates more than the given bytes could
//! hold.

use std::fmt;
use std::sync::Arc;

use crate::limits::REQUEST_MEMORY_MAX;

/// Reason why bytes cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// The decoded type and its fault.
    pub reason: &'static str,
    /// Bytes left when the fault was found.
    pub remaining: usize,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} bytes before the end", self.reason, self.remaining)
    }
}

impl std::error::Error for DecodeError {}

/// A cursor over bytes to decode.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    lfns_limited: bool,
    /// Memory in bytes that all further decoded lists may take together.
    memory_left: usize,
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, lfns_limited: false, memory_left: usize::MAX }
    }

    /// Says whether all bytes are read.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads a client's request, with two limits:
    ///
    /// - LFNs must be within their limits. Elsewhere they need not be: below a moved directory a
    ///   path can exceed them, and readers must still see it.
    /// - Lists may take at most [`REQUEST_MEMORY_MAX`], because an item can be many times larger in
    ///   memory than its bytes.
    pub fn of_request(bytes: &'a [u8]) -> Self {
        Reader { bytes, lfns_limited: true, memory_left: REQUEST_MEMORY_MAX }
    }

    /// Says whether LFNs must be within their limits.
    pub fn lfns_limited(&self) -> bool {
        self.lfns_limited
    }

    /// Returns the number of unread bytes.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the unread bytes.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// Makes an error at this position.
    #[inline]
    pub fn error(&self, reason: &'static str) -> DecodeError {
        DecodeError { reason, remaining: self.bytes.len() }
    }

    /// Reads the next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        match self.bytes.split_at_checked(count) {
            Some((head, tail)) => {
                self.bytes = tail;
                Ok(head)
            }
            None => Err(self.error("bytes end inside a value")),
        }
    }

    /// Reads the next byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        match self.bytes.split_first() {
            Some((first, tail)) => {
                self.bytes = tail;
                Ok(*first)
            }
            None => Err(self.error("bytes end inside a value")),
        }
    }

    /// Reads an unsigned varint, at most 64 bits, in its shortest form.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        match self.bytes.split_first() {
            // Fast path: most varints have one byte.
            Some((first, tail)) if *first < 0x80 => {
                self.bytes = tail;
                Ok(u64::from(*first))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return Err(self.error("varint beyond 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(self.error("varint not in its shortest form"));
                }
                return Ok(value);
            }
        }
        Err(self.error("varint beyond 64 bits"))
    }

    /// Reads a length, which never exceeds the bytes that are left.
    #[inline]
    pub fn length(&mut self) -> Result<usize, DecodeError> {
        let length = self.varint()?;
        match usize::try_from(length) {
            Ok(length) if length <= self.bytes.len() => Ok(length),
            _ => Err(self.error("length beyond the bytes given")),
        }
    }

    /// Takes memory for `count` items of `item_bytes` from the allowance.
    fn reserve(&mut self, count: usize, item_bytes: usize) -> Result<(), DecodeError> {
        match count.checked_mul(item_bytes).and_then(|bytes| self.memory_left.checked_sub(bytes)) {
            Some(left) => {
                self.memory_left = left;
                Ok(())
            }
            None => Err(self.error("lists that take more memory than a request may")),
        }
    }

    /// Reads a length and that many bytes.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.length()?;
        self.take(length)
    }

    /// Reads a length and that many bytes of UTF-8.
    #[inline]
    pub fn text(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map_err(|_| self.error("text is not UTF-8"))
    }

    /// Checks that no bytes are left.
    #[inline]
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(self.error("bytes after the value")) }
    }
}

/// Appends an unsigned varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a length and the bytes.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Types with canonical bytes.
pub trait Encode {
    /// Appends the canonical bytes.
    fn encode(&self, out: &mut Vec<u8>);

    /// Returns the canonical bytes alone.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }
}

/// Types that can be read from canonical bytes.
pub trait Decode: Sized {
    /// Reads one value and validates it as its constructor would.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// Reads one value from the whole of `bytes`.
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let value = Self::decode(&mut reader)?;
        reader.finish()?;
        Ok(value)
    }
}

macro_rules! unsigned {
    ($($type:ty),*) => {$(
        impl Encode for $type {
            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                put_varint(out, u64::from(*self));
            }
        }
        impl Decode for $type {
            #[inline]
            fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                let value = reader.varint()?;
                Self::try_from(value).map_err(|_| reader.error("number too large for its field"))
            }
        }
    )*};
}
unsigned!(u8, u16, u32, u64);

impl Encode for i64 {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, ((*self << 1) ^ (*self >> 63)) as u64);
    }
}
impl Decode for i64 {
    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let raw = reader.varint()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }
}

impl Encode for f64 {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bits().to_le_bytes());
    }
}
impl Decode for f64 {
    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let raw = <[u8; 8]>::decode(reader)?;
        Ok(f64::from_bits(u64::from_le_bytes(raw)))
    }
}

impl Encode for bool {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}
impl Decode for bool {
    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(reader.error("a boolean is 0 or 1")),
        }
    }
}

impl<const N: usize> Encode for [u8; N] {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}
impl<const N: usize> Decode for [u8; N] {
    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut value = [0u8; N];
        value.copy_from_slice(reader.take(N)?);
        Ok(value)
    }
}

impl Encode for str {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.as_bytes());
    }
}
impl Encode for String {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.as_bytes());
    }
}
impl Decode for String {
    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(reader.text()?.to_owned())
    }
}

impl Decode for Box<str> {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(reader.text()?.into())
    }
}

impl<T: Encode> Encode for Option<T> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            None => out.push(0),
            Some(value) => {
                out.push(1);
                value.encode(out);
            }
        }
    }
}
impl<T: Decode> Decode for Option<T> {
    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(if bool::decode(reader)? { Some(T::decode(reader)?) } else { None })
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }
}

impl<T: Encode> Encode for [T] {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        for item in self {
            item.encode(out);
        }
    }
}
impl<T: Encode> Encode for Vec<T> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_slice().encode(out);
    }
}
impl<T: Decode> Decode for Vec<T> {
    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        // Each element takes at least one byte, so a count beyond the given bytes is refused at
        // once. The first allocation is bounded, because an element may be much larger than its
        // bytes.
        let count = reader.length()?;
        reader.reserve(count, size_of::<T>())?;
        let mut items = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            items.push(T::decode(reader)?);
        }
        Ok(items)
    }
}

impl<T: Encode + ?Sized> Encode for Box<T> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }
}
impl<T: Decode> Decode for Box<T> {
    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Box::new(T::decode(reader)?))
    }
}

impl<T: Encode> Encode for Arc<T> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }
}
impl<T: Decode> Decode for Arc<T> {
    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Arc::new(T::decode(reader)?))
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }
}
impl<A: Decode, B: Decode> Decode for (A, B) {
    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok((A::decode(reader)?, B::decode(reader)?))
    }
}

impl Encode for () {
    #[inline]
    fn encode(&self, _: &mut Vec<u8>) {}
}
impl Decode for () {
    fn decode(_: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(())
    }
}

/// Implements canonical bytes of a struct: its named fields, in the order given.
#[macro_export]
macro_rules! canonical_struct {
    ($type:ident { $($field:ident),* $(,)? }) => {
        impl $crate::codec::Encode for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                let _ = &out;
                $( $crate::codec::Encode::encode(&self.$field, out); )*
            }
        }
        impl $crate::codec::Decode for $type {
            fn decode(
                reader: &mut $crate::codec::Reader<'_>,
            ) -> ::std::result::Result<Self, $crate::codec::DecodeError> {
                let _ = &reader;
                Ok($type { $( $field: $crate::codec::Decode::decode(reader)?, )* })
            }
        }
    };
}

/// Implements canonical bytes of an enum: one byte for the variant, then its fields in the order
/// given.
#[macro_export]
macro_rules! canonical_enum {
    ($type:ident { $(
        $tag:literal => $variant:ident $( { $($field:ident),* $(,)? } )? $( ( $($item:ident),* ) )?
    ),* $(,)? }) => {
        impl $crate::codec::Encode for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                match self { $(
                    $type::$variant $( { $($field),* } )? $( ( $($item),* ) )? => {
                        out.push($tag);
                        $( $( $crate::codec::Encode::encode($field, out); )* )?
                        $( $( $crate::codec::Encode::encode($item, out); )* )?
                    }
                )* }
            }
        }
        impl $crate::codec::Decode for $type {
            fn decode(
                reader: &mut $crate::codec::Reader<'_>,
            ) -> ::std::result::Result<Self, $crate::codec::DecodeError> {
                Ok(match reader.byte()? {
                    $( $tag => $type::$variant
                        $( { $($field: $crate::codec::Decode::decode(reader)?),* } )?
                        $( ( $( { let $item = $crate::codec::Decode::decode(reader)?; $item } ),* ) )?,
                    )*
                    _ => return Err(reader.error(concat!("unknown variant of ", stringify!($type)))),
                })
            }
        }
    };
}

/// Implements canonical bytes of a tuple struct around one value that needs no check.
#[macro_export]
macro_rules! canonical_newtype {
    ($($type:ident),* $(,)?) => {$(
        impl $crate::codec::Encode for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                $crate::codec::Encode::encode(&self.0, out);
            }
        }
        impl $crate::codec::Decode for $type {
            fn decode(
                reader: &mut $crate::codec::Reader<'_>,
            ) -> ::std::result::Result<Self, $crate::codec::DecodeError> {
                Ok($type($crate::codec::Decode::decode(reader)?))
            }
        }
    )*};
}

/// Implements canonical bytes of a validated text: a string that `$parse` must accept.
#[macro_export]
macro_rules! canonical_text {
    ($type:ident, $reason:literal) => {
        impl $crate::codec::Encode for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                $crate::codec::put_bytes(out, self.as_str().as_bytes());
            }
        }
        impl $crate::codec::Decode for $type {
            fn decode(
                reader: &mut $crate::codec::Reader<'_>,
            ) -> ::std::result::Result<Self, $crate::codec::DecodeError> {
                let text = reader.text()?;
                $type::parse(text).map_err(|_| reader.error($reason))
            }
        }
    };
}
