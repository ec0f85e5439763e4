//! Distinct texts by number: each is kept once.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

/// Texts by number, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct DistinctTexts {
    /// The texts, one behind the other.
    texts: String,
    /// End of each.
    ends: Vec<u32>,
    /// Numbers of texts by their hash; made when the first text is looked up.
    known: Option<Box<(HashTable<u32>, RandomState)>>,
}

impl DistinctTexts {
    /// Makes the texts that have these ends. None if an end is outside or within a character.
    pub(crate) fn from_parts(texts: String, ends: Vec<u32>) -> Option<Self> {
        let inside = |end: &u32| texts.is_char_boundary(*end as usize);
        let fits = ends.is_sorted() && ends.iter().all(inside);
        fits.then_some(DistinctTexts { texts, ends, known: None })
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Says whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns a text by its number.
    pub fn get(&self, number: u32) -> &str {
        text_in(&self.texts, &self.ends, number)
    }

    /// Returns the number of a text, and adds it if it is new.
    pub fn number(&mut self, text: &str) -> u32 {
        let DistinctTexts { texts, ends, known } = self;
        let (table, hasher) = &mut **known.get_or_insert_with(|| {
            let (mut table, hasher) = (HashTable::new(), RandomState::new());
            for number in 0..ends.len() as u32 {
                let hash = hasher.hash_one(text_in(texts, ends, number));
                table.insert_unique(hash, number, |number| hasher.hash_one(text_in(texts, ends, *number)));
            }
            Box::new((table, hasher))
        });
        let hash = hasher.hash_one(text);
        if let Some(number) = table.find(hash, |number| text_in(texts, ends, *number) == text) {
            return *number;
        }
        let number = push(texts, ends, text);
        table.insert_unique(hash, number, |number| hasher.hash_one(text_in(texts, ends, *number)));
        number
    }

    /// Adds a text that is new and is not looked up later, and returns its number. It costs no hash.
    pub fn add(&mut self, text: &str) -> u32 {
        push(&mut self.texts, &mut self.ends, text)
    }

    /// Removes all texts, and keeps the memory for further ones.
    pub fn clear(&mut self) {
        self.texts.clear();
        self.ends.clear();
        if let Some(known) = &mut self.known {
            known.0.clear();
        }
    }

    /// Returns the bytes that the texts take in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.texts.len() + 4 * self.ends.len()
    }
}

fn push(texts: &mut String, ends: &mut Vec<u32>, text: &str) -> u32 {
    texts.push_str(text);
    ends.push(texts.len() as u32);
    ends.len() as u32 - 1
}

fn text_in<'t>(texts: &'t str, ends: &[u32], number: u32) -> &'t str {
    let number = number as usize;
    let start = if number == 0 { 0 } else { ends[number - 1] as usize };
    &texts[start..ends[number] as usize]
}
