//! The client of the writer service for C and C++. `include/exacat_writer.h` is its documentation.
//!
//! The only unsafe code of the writer is here: pointers of the caller. Each function checks what can be
//! checked, and lets no panic through.
#![allow(clippy::missing_safety_doc, reason = "the header says what callers have to keep")]

mod options;
mod outcomes;
mod status;

use std::ffi::{CStr, c_char, c_int, c_void};

use exacat_writer_client::{Stream, Writer};

use crate::options::Options;
use crate::outcomes::{Outcomes, RawOutcome};
use crate::status::{Counts, Failure, guarded, message};

/// Borrows what a pointer of the caller points to.
unsafe fn borrowed<'a, T>(pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller gives null, or a handle that this library made and that is not freed.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::argument("a pointer is null"))
}

/// Gives a value to the caller, as a pointer that it gives back later.
unsafe fn give<T>(into: *mut *mut T, value: T) -> Result<(), Failure> {
    // SAFETY: the caller gives null, or a place for a pointer.
    let place = unsafe { into.as_mut() }.ok_or_else(|| Failure::argument("a pointer is null"))?;
    *place = Box::into_raw(Box::new(value));
    Ok(())
}

/// Takes a value back from the caller.
unsafe fn taken<T>(pointer: *mut T) -> Result<Box<T>, Failure> {
    if pointer.is_null() {
        return Err(Failure::argument("a pointer is null"));
    }
    // SAFETY: not null, and the caller gives a handle that `give` made and that is not freed.
    Ok(unsafe { Box::from_raw(pointer) })
}

unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::argument("a text is null"));
    }
    // SAFETY: not null, and the caller gives a text with a zero at its end.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::argument("a text is no UTF-8"))
}

unsafe fn event<'a>(pointer: *const c_void, bytes: usize) -> Result<&'a [u8], Failure> {
    match bytes {
        0 => Ok(&[]),
        _ if pointer.is_null() => Err(Failure::argument("an event is null")),
        // SAFETY: not null, and the caller gives so many bytes, which nobody changes during the call.
        _ => Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), bytes) }),
    }
}

/// Returns the reason of the last failure in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn exw_message() -> *const c_char {
    message()
}

/// Makes empty options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exw_options_new(options: *mut *mut Options) -> c_int {
    // SAFETY: as `give` says.
    guarded(|| unsafe { give(options, Options::default()) })
}

/// Sets an option.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exw_options_set(
    options: *mut Options,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    guarded(|| {
        // SAFETY: null, or options that `exw_options_new` made; no other thread uses them.
        let options = unsafe { options.as_mut() }.ok_or_else(|| Failure::argument("a pointer is null"))?;
        // SAFETY: as `text` says, for both.
        let (name, value) = unsafe { (text(name)?, text(value)?) };
        options.set(name, value)
    })
}

/// Frees options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exw_options_free(options: *mut Options) {
    // SAFETY: as `taken` says.
    guarded(|| unsafe { taken(options) }.map(drop));
}

/// Connects a writer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exw_connect(options: *const Options, writer: *mut *mut Writer) -> c_int {
    guarded(|| {
        // SAFETY: as `borrowed` says.
        let settings = unsafe { borrowed(options) }?.writer()?;
        if writer.is_null() {
            return Err(Failure::argument("a pointer is null"));
        }
        // SAFETY: as `give` says.
        unsafe { give(writer, Writer::connect(settings)?) }
    })
}

/// Opens a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exw_open_stream(
    writer: *mut Writer,
    options: *const Options,
    stream: *mut *mut Stream,
) -> c_int {
    guarded(|| {
        // SAFETY: as `borrowed` says, for both.
        let (writer, options) = unsafe { (borrowed(writer.cast_const())?, borrowed(options)?) };
        // SAFETY: as `give` says.
        unsafe { give(stream, writer.open_stream(options.stream()?)?) }
    })
}

/// Appends an event; waits for memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exw_append(stream: *mut Stream, bytes: *const c_void, count: usize) -> c_int {
    guarded(|| {
        // SAFETY: as `borrowed` and `event` say.
        let (stream, event) = unsafe { (borrowed(stream.cast_const())?, event(bytes, count)?) };
        Ok(stream.append(event)?)
    })
}

/// Appends an event, or sheds it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exw_try_append(stream: *mut Stream, bytes: *const c_void, count: usize) -> c_int {
    guarded(|| {
        // SAFETY: as `borrowed` and `event` say.
        let (stream, event) = unsafe { (borrowed(stream.cast_const())?, event(bytes, count)?) };
        if stream.try_append(event)? { Ok(()) } else { Err(Failure::shed()) }
    })
}

/// Waits until everything is durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exw_flush(stream: *mut Stream) -> c_int {
    // SAFETY: as `borrowed` says.
    guarded(|| Ok(unsafe { borrowed(stream.cast_const()) }?.flush()?))
}

/// Ends the present file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exw_end_file(stream: *mut Stream) -> c_int {
    // SAFETY: as `borrowed` says.
    guarded(|| Ok(unsafe { borrowed(stream.cast_const()) }?.end_file()?))
}

/// Ends and frees a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exw_close_stream(stream: *mut Stream, outcomes: *mut *mut Outcomes) -> c_int {
    guarded(|| {
        // SAFETY: as `taken` says.
        let closed = Outcomes::new(unsafe { taken(stream) }?.close());
        // SAFETY: as `give` says.
        if outcomes.is_null() { Ok(()) } else { unsafe { give(outcomes, closed) } }
    })
}

/// Ends and frees a writer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exw_close(writer: *mut Writer, outcomes: *mut *mut Outcomes) -> c_int {
    guarded(|| {
        // SAFETY: as `taken` says.
        let closed = Outcomes::new(unsafe { taken(writer) }?.close());
        // SAFETY: as `give` says.
        if outcomes.is_null() { Ok(()) } else { unsafe { give(outcomes, closed) } }
    })
}

/// Returns the number of outcomes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exw_outcomes_count(outcomes: *const Outcomes) -> usize {
    // SAFETY: as `borrowed` says.
    unsafe { borrowed(outcomes) }.map_or(0, Outcomes::count)
}

/// Fills in an outcome.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exw_outcomes_get(
    outcomes: *const Outcomes,
    index: usize,
    outcome: *mut RawOutcome,
) -> c_int {
    guarded(|| {
        // SAFETY: as `borrowed` says.
        let found = unsafe { borrowed(outcomes) }?.get(index);
        let found = found.ok_or_else(|| Failure::argument("there are not so many outcomes"))?;
        // SAFETY: null, or a place for an outcome.
        let place = unsafe { outcome.as_mut() }.ok_or_else(|| Failure::argument("a pointer is null"))?;
        *place = found;
        Ok(())
    })
}

/// Frees outcomes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exw_outcomes_free(outcomes: *mut Outcomes) {
    // SAFETY: as `taken` says.
    guarded(|| unsafe { taken(outcomes) }.map(drop));
}

/// Fills in the counts of a writer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exw_get_counts(writer: *const Writer, counts: *mut Counts) -> c_int {
    guarded(|| {
        // SAFETY: as `borrowed` says.
        let status = unsafe { borrowed(writer) }?.status();
        // SAFETY: null, or a place for counts.
        let place = unsafe { counts.as_mut() }.ok_or_else(|| Failure::argument("a pointer is null"))?;
        *place = Counts::from(&status);
        Ok(())
    })
}
