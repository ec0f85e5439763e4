//! The history of elements: values by name and time, written at hundreds of thousands a second, kept
//! for decades.
