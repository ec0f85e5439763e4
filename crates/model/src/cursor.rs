//! Position in a long answer, and the encoding of errors and results in answers.

use crate::codec::{Decode, DecodeError, Encode, Reader};
use crate::error::{Error, ErrorKind};

/// Position in a long answer; empty at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(pub Vec<u8>);

impl Encode for Cursor {
    fn encode(&self, out: &mut Vec<u8>) {
        crate::codec::put_bytes(out, &self.0);
    }
}
impl Decode for Cursor {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Cursor(reader.bytes()?.to_vec()))
    }
}

impl Encode for Error {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.kind as u8);
        self.message.encode(out);
    }
}
impl Decode for Error {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind =
            ErrorKind::from_number(reader.byte()?).ok_or_else(|| reader.error("unknown kind of error"))?;
        Ok(Error { kind, message: String::decode(reader)? })
    }
}

impl<T: Encode> Encode for Result<T, Error> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Ok(value) => {
                out.push(0);
                value.encode(out);
            }
            Err(error) => error.encode(out),
        }
    }
}
impl<T: Decode> Decode for Result<T, Error> {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if reader.rest().first() == Some(&0) {
            reader.byte()?;
            return Ok(Ok(T::decode(reader)?));
        }
        Ok(Err(Error::decode(reader)?))
    }
}
