//! Changes in a log record: decode them from its body, and encode the effect of one.

use exacat_log::record::split_head;
use exacat_model::codec::{Decode, DecodeError, Encode, Reader};
use exacat_model::{Change, Effect, Revision};

/// Reads the changes of a record from revision `from` on, and passes each with the canonical bytes of its
/// effect to `give`, until that returns false.
pub(crate) fn read_changes<E: From<DecodeError>>(
    body: &[u8],
    from: Revision,
    mut give: impl FnMut(Change, &[u8]) -> Result<bool, E>,
) -> Result<(), E> {
    let (head, content) = split_head(body)?;
    let mut reader = Reader::new(content);
    for number in 0..u64::from(head.count) {
        let index = u32::decode(&mut reader)?;
        let effect = reader.bytes()?;
        // Revisions of a record are consecutive, so the record has only the first.
        let revision = Revision(head.first_revision.0.wrapping_add(number));
        // Skipped effects are not decoded: a reader often begins in the middle of a long record.
        if revision < from {
            continue;
        }
        let (bytes, effect) = (effect, Effect::from_bytes(effect)?);
        let (time, who, operation) = (head.time, head.who, head.operation);
        if !give(Change { revision, time, who, operation, index, effect }, bytes)? {
            return Ok(());
        }
    }
    // Bytes behind the last change prove that the count is wrong.
    reader.finish()?;
    Ok(())
}

/// Encodes an effect alone.
pub(crate) fn encode_effect(effect: &Effect, out: &mut Vec<u8>) {
    out.clear();
    effect.encode(out);
}
