//! Trace that a client's request belongs to: the header `traceparent` of W3C Trace Context.

/// Trace of a client, and its span that is above the request's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceContext {
    pub trace: u128,
    pub parent: u64,
    /// True if the client keeps the trace.
    pub is_sampled: bool,
}

impl TraceContext {
    /// Reads a header `VERSION-TRACE-PARENT-FLAGS`. None if it is malformed: the standard says to go on as
    /// without it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let mut hex = |digits: usize| -> Option<u128> {
            let part = parts.next().filter(|part| part.len() == digits)?;
            let is_hex = |one: u8| one.is_ascii_digit() || (b'a'..=b'f').contains(&one);
            part.bytes().all(is_hex).then(|| u128::from_str_radix(part, 16).ok()).flatten()
        };
        let (version, trace, parent, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        // A later version may have more parts, this one has not.
        let is_known = version < 0xff && (version > 0 || parts.next().is_none());
        let parent = u64::try_from(parent).ok()?;
        (is_known && trace != 0 && parent != 0).then_some(TraceContext {
            trace,
            parent,
            is_sampled: flags & 1 == 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_traceparent_is_as_none() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = TraceContext::parse(good).unwrap();
        assert_eq!(context.trace, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!((context.parent, context.is_sampled), (0xb7ad_6b71_6920_3331, true));
        let later = good.replacen("00", "01", 1) + "-more";
        assert_eq!(TraceContext::parse(&later), Some(context));
        let unsampled = good.replace("-01", "-00");
        assert!(!TraceContext::parse(&unsampled).unwrap().is_sampled);
        for bad in [
            "",
            "-",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
        ] {
            assert_eq!(TraceContext::parse(bad), None, "{bad}");
        }
    }
}
